//! A fence's record.
//!
//! Layout, version 1: highest token, id of the check that raised it (16), raised at, accepted, refused.

use crate::codec::{Decoder, Encoder, Unreadable};
use crate::record::{Bytes, WallTime};

/// A fence record's value.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Fence {
    /// The highest token so far.
    pub highest: u64,
    /// The check that brought it.
    pub raised_by: [u8; 16],
    /// When; for display.
    pub raised_at: WallTime,
    /// How many checks there were, as far as was written.
    pub tally: Tally,
}

/// How many checks there were.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Tally {
    /// Accepted.
    pub accepted: u64,
    /// Refused as stale.
    pub refused: u64,
}

impl Tally {
    /// Both together.
    pub fn plus(self, other: Self) -> Self {
        Self {
            accepted: self.accepted.saturating_add(other.accepted),
            refused: self.refused.saturating_add(other.refused),
        }
    }

    /// What is left of it without another.
    pub fn minus(self, other: Self) -> Self {
        Self {
            accepted: self.accepted.saturating_sub(other.accepted),
            refused: self.refused.saturating_sub(other.refused),
        }
    }
}

const VERSION: u8 = 1;

impl Fence {
    /// The record's value.
    pub fn encode(&self) -> Bytes {
        Encoder::new(VERSION)
            .number(self.highest)
            .fixed(&self.raised_by)
            .number(self.raised_at.0)
            .number(self.tally.accepted)
            .number(self.tally.refused)
            .finish()
    }

    /// Reads a record's value.
    pub fn decode(value: &[u8]) -> Result<Self, Unreadable> {
        let mut from = Decoder::new(value, VERSION)?;
        let fence = Self {
            highest: from.number()?,
            raised_by: from.fixed()?,
            raised_at: from.time()?,
            tally: Tally { accepted: from.number()?, refused: from.number()? },
        };
        from.finish()?;
        Ok(fence)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_fence_is_read_as_it_was_written(numbers: [u64; 4], raised_by: [u8; 16]) {
            let [highest, at, accepted, refused] = numbers;
            let tally = Tally { accepted, refused };
            let fence = Fence { highest, raised_by, raised_at: WallTime(at), tally };
            prop_assert_eq!(Fence::decode(&fence.encode()), Ok(fence));
        }

        #[test]
        fn damaged_bytes_are_unreadable_and_never_a_panic(value: Vec<u8>) {
            drop(Fence::decode(&value));
        }
    }
}
