//! The two tokens of a grant: the secret one that proves ownership, and the public one that resources compare.

use std::fmt;

/// Proves ownership of a grant (L6). Never printed: it has no `Display`, and its `Debug` shows nothing of it.
#[derive(Clone, PartialEq, Eq)]
pub struct LockToken(String);

impl LockToken {
    pub(crate) fn new(token: String) -> Self {
        Self(token)
    }

    /// The token itself, for a program that hands its lock to another one. Whoever has it can release the lock.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for LockToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LockToken(..)")
    }
}

/// Grows with every grant of a key (L7). Give it to the resource, and let the resource refuse lower ones.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct FencingToken(pub(crate) u64);

impl FencingToken {
    /// A token that came to the resource with a request, from whoever holds the lock.
    pub const fn new(token: u64) -> Self {
        Self(token)
    }

    /// The number, below 2^53.
    pub fn get(self) -> u64 {
        self.0
    }
}

impl From<FencingToken> for u64 {
    fn from(token: FencingToken) -> Self {
        token.0
    }
}

impl fmt::Display for FencingToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_token_is_printed_without_its_secret() {
        assert_eq!(format!("{:?}", LockToken::new("secret".into())), "LockToken(..)");
    }
}
