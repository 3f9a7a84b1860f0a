//! What a check is given back with.

use super::Limit;
use crate::error::Error;
use std::fmt;
use std::sync::Arc;

/// Proves that something was counted, and gives it back: once. Not printed, since whoever has it can give it back.
#[derive(Clone)]
pub struct Receipt {
    limit: Limit,
    key: Arc<str>,
    text: String,
}

impl Receipt {
    pub(super) fn new(limit: Limit, key: Arc<str>, text: String) -> Self {
        Self { limit, key, text }
    }

    /// Gives back what was counted, because the work wasn't done. How much that was: what is over can't be given back, so it may
    /// be less, or nothing. Doing it again gives back no more, and says the same.
    pub async fn refund(&self) -> Result<u64, Error> {
        self.limit.refund(&self.key, &self.text).await
    }

    /// The receipt itself, for [`Limit::refund`] in another program.
    pub fn reveal(&self) -> &str {
        &self.text
    }
}

impl fmt::Debug for Receipt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Receipt(..)")
    }
}
