//! The note of a forced release, written in the same commit (L10).
//!
//! Layout, version 1: fencing token, at, owner, by, reason.

use crate::codec::{Decoder, Encoder, Unreadable};
use crate::record::{Bytes, Revision, WallTime};
use alloc::string::String;
use alloc::sync::Arc;

/// An audit record's value.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Forced {
    /// The grant's fencing token.
    pub fencing: Revision,
    /// For display.
    pub at: WallTime,
    /// Who held the lock.
    pub owner: Arc<str>,
    /// Who took it away.
    pub by: Arc<str>,
    /// Why.
    pub reason: String,
}

const VERSION: u8 = 1;

impl Forced {
    /// The record's value.
    pub fn encode(&self) -> Bytes {
        Encoder::new(VERSION)
            .number(self.fencing.0)
            .number(self.at.0)
            .bytes(self.owner.as_bytes())
            .bytes(self.by.as_bytes())
            .bytes(self.reason.as_bytes())
            .finish()
    }

    /// Reads a record's value.
    pub fn decode(value: &[u8]) -> Result<Self, Unreadable> {
        let mut from = Decoder::new(value, VERSION)?;
        let (fencing, at) = (from.revision()?, from.time()?);
        let forced = Self { fencing, at, owner: from.text()?, by: from.text()?, reason: from.string()? };
        from.finish()?;
        Ok(forced)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_note_is_read_as_it_was_written(fencing: u64, at: u64, owner: String, by: String, reason: String) {
            let (owner, by) = (owner.as_str().into(), by.as_str().into());
            let note = Forced { fencing: Revision(fencing), at: WallTime(at), owner, by, reason };
            prop_assert_eq!(Forced::decode(&note.encode()), Ok(note));
        }
    }
}
