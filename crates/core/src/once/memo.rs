//! A memo: that a request's claim was given up, or must not be made by a commit that may still be under way.
//!
//! Layout, version 1: kind, fencing token.

use crate::codec::{Decoder, Encoder, Unreadable};
use crate::record::{Bytes, Revision};

/// A memo record's value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Memo {
    /// The claim was given up: the request isn't granted again.
    Failed(
        /// The claim's fencing token.
        Revision,
    ),
    /// The request was answered without a claim, so a late copy of its commit stays out; a new call may claim.
    Void,
}

const VERSION: u8 = 1;

impl Memo {
    /// The record's value.
    pub fn encode(self) -> Bytes {
        let (kind, fencing) = match self {
            Self::Failed(fencing) => (1, fencing),
            Self::Void => (2, Revision::default()),
        };
        Encoder::new(VERSION).byte(kind).number(fencing.0).finish()
    }

    /// Reads a record's value.
    pub fn decode(value: &[u8]) -> Result<Self, Unreadable> {
        let mut from = Decoder::new(value, VERSION)?;
        let (kind, fencing) = (from.byte()?, from.revision()?);
        from.finish()?;
        match kind {
            1 => Ok(Self::Failed(fencing)),
            2 => Ok(Self::Void),
            _ => Err(Unreadable),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_memo_is_read_as_it_was_written(fencing: u64) {
            for memo in [Memo::Failed(Revision(fencing)), Memo::Void] {
                prop_assert_eq!(Memo::decode(&memo.encode()), Ok(memo));
            }
        }
    }
}
