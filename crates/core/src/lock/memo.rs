//! A memo: what became of a request, so that the same call gets the same answer (L9).
//!
//! Layout, version 1: kind, fencing token, at, digest (8), owner; a nested grant's id (16) and count
//! follow when the kind is `Nested`.

use super::grant::Digest;
use super::name::GrantId;
use crate::codec::{Decoder, Encoder, Unreadable};
use crate::record::{Bytes, Revision, WallTime};
use alloc::sync::Arc;

/// What became of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fate {
    /// The grant was given back.
    Released,
    /// The lease ran out.
    Expired,
    /// An administrator took it.
    Forced,
    /// It never took effect, or was taken back undelivered: the same request may be made again, but a late copy
    /// of the old commit stays out.
    Void,
    /// A release that only counted one down, or that named its own requestId.
    Counted,
    /// An acquire by someone who had the lock already.
    Nested {
        /// The grant it belongs to.
        of: GrantId,
        /// How many releases it took then.
        count: u32,
    },
}

/// A memo record's value.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Memo {
    /// What became of it.
    pub fate: Fate,
    /// The grant's fencing token; 0 if there was none.
    pub fencing: Revision,
    /// For display.
    pub at: WallTime,
    /// Of the request.
    pub digest: Digest,
    /// Whose.
    pub owner: Arc<str>,
}

const VERSION: u8 = 1;

impl Memo {
    /// The record's value.
    pub fn encode(&self) -> Bytes {
        let kind = match self.fate {
            Fate::Released => 1,
            Fate::Expired => 2,
            Fate::Forced => 3,
            Fate::Void => 4,
            Fate::Counted => 5,
            Fate::Nested { .. } => 6,
        };
        let mut to = Encoder::new(VERSION)
            .byte(kind)
            .number(self.fencing.0)
            .number(self.at.0)
            .fixed(&self.digest)
            .bytes(self.owner.as_bytes());
        if let Fate::Nested { of, count } = self.fate {
            to = to.fixed(&of.0).number(count.into());
        }
        to.finish()
    }

    /// Reads a record's value.
    pub fn decode(value: &[u8]) -> Result<Self, Unreadable> {
        let mut from = Decoder::new(value, VERSION)?;
        let kind = from.byte()?;
        let (fencing, at) = (from.revision()?, from.time()?);
        let (digest, owner) = (from.fixed()?, from.text()?);
        let fate = match kind {
            1 => Fate::Released,
            2 => Fate::Expired,
            3 => Fate::Forced,
            4 => Fate::Void,
            5 => Fate::Counted,
            6 => {
                let of = GrantId(from.fixed()?);
                Fate::Nested { of, count: u32::try_from(from.number()?).map_err(|_| Unreadable)? }
            }
            _ => return Err(Unreadable),
        };
        from.finish()?;
        Ok(Self { fate, fencing, at, digest, owner })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::String;
    use proptest::prelude::*;

    fn fate() -> impl Strategy<Value = Fate> {
        prop_oneof![
            Just(Fate::Released),
            Just(Fate::Expired),
            Just(Fate::Forced),
            Just(Fate::Void),
            Just(Fate::Counted),
            any::<([u8; 16], u32)>().prop_map(|(of, count)| Fate::Nested { of: GrantId(of), count }),
        ]
    }

    proptest! {
        #[test]
        fn a_memo_is_read_as_it_was_written(fate in fate(), numbers: [u64; 2], digest: [u8; 8], owner: String) {
            let [fencing, at] = numbers;
            let owner = owner.as_str().into();
            let memo = Memo { fate, fencing: Revision(fencing), at: WallTime(at), digest, owner };
            prop_assert_eq!(Memo::decode(&memo.encode()), Ok(memo));
        }
    }
}
