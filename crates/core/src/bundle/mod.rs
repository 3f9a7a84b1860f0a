//! Bundles: several locks at once, all or none (L16).
//!
//! The locks are in different groups, and a commit stays within one. So a bundle takes them one by one, with grants that
//! nobody is told of, and **one commit makes it true: the one that turns its record from trying to held**. Before that
//! commit nobody has anything, and afterwards the record doesn't change any more but for being given out again.
//!
//! # The record of a bundle
//! | record | under | lives | says |
//! |---|---|---|---|
//! | [`record`] | the request | while it is tried; then 10 minutes or the TTL | which grants are the bundle's, and whether they count |
//!
//! Its grants have ids made of a *nonce* ([`GrantId::of_bundle`](crate::lock::GrantId::of_bundle)), so whoever knows the
//! nonce can withdraw them, and no other request can come to have them.
//!
//! # The rules
//! [`begin()`] is for every call of a request: it starts, resumes, takes over or repeats. The others are for the call that
//! has begun: [`seal`] when everything is held, [`rest`] to wait on in another call, [`renew`] for a fresh nonce,
//! [`close`] when it came to nothing, [`forsake`] when it couldn't be delivered.

pub mod attempt;
pub mod begin;
pub mod record;

#[cfg(test)]
mod tests;

pub use attempt::{close, forsake, renew, rest, seal};
pub use begin::{Begin, Begun, begin};
pub use record::{Bundle, Nonce, Phase};

use crate::lock::name::digest;
use crate::name::{Kind, Name};
use crate::record::Key;
use alloc::string::String;
use core::fmt::Write;

/// The kind of [`record`]s.
const BUNDLE: Kind = *b"Bb";

/// What a request's bundle is called: a hash of (principal, requestId) in its namespace, so that the same call has the same.
pub fn name(namespace: &str, principal: &str, request_id: &str) -> Name {
    let id: [u8; 16] = digest(&[principal.as_bytes(), b"acquireAll", request_id.as_bytes()]);
    let mut text = String::with_capacity(2 * id.len());
    for byte in id {
        write!(text, "{byte:02x}").expect("writing to a string can't fail");
    }
    Name::new(namespace, &text)
}

/// Where a bundle's record is.
pub fn bundle_key(name: &Name) -> Key {
    name.record(BUNDLE, &[])
}
