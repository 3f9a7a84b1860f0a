//! What callers are given as text and hand back unread: contexts, and places in lists.

use super::context::Context;
use crate::codec::Unreadable;
use alloc::string::String;
use alloc::vec::Vec;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

/// Bytes as text that stands unescaped in a query.
pub fn text(bytes: &[u8]) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

/// The bytes of such a text.
pub fn bytes(text: &str) -> Result<Vec<u8>, Unreadable> {
    URL_SAFE_NO_PAD.decode(text).map_err(|_| Unreadable)
}

impl Context {
    /// As text.
    pub fn to_text(&self) -> String {
        text(&self.encode())
    }

    /// From text; what isn't a context is refused.
    pub fn of_text(text: &str) -> Result<Self, Unreadable> {
        Self::decode(&bytes(text)?)
    }
}
