//! The roster: who holds a lock and how many wait. Deleted when nobody does.
//!
//! Layout, version 1: number of holders (0 or 1), for each: id (16), digest of the request (8), owner,
//! principal, granted at, releases needed, flags (reentrant, alone, replayed), fencing token (0: this record's own
//! revision); then the next place, how many wait,
//! and the holder's metadata.

use super::grant::{Digest, Flags};
use super::name::{GrantId, Principal};
use crate::codec::{Decoder, Encoder, Unreadable};
use crate::record::{Bytes, Revision, WallTime};
use alloc::sync::Arc;

/// Who holds the lock, if the grant of this id is still there.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Holder {
    /// The grant's id.
    pub id: GrantId,
    /// Of the request.
    pub digest: Digest,
    /// Whose.
    pub owner: Arc<str>,
    /// Whose, as far as authentication goes.
    pub principal: Principal,
    /// For display.
    pub granted_at: WallTime,
    /// How many releases it takes.
    pub count: u32,
    /// The grant's.
    pub flags: Flags,
    /// Whether the grant was given out a second time: then no node may take it back as undelivered.
    pub replayed: bool,
    /// The fencing token; `None` while the roster is as the grant's own commit put it, and so has that revision.
    pub fencing: Option<Revision>,
}

/// A roster record's value.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Roster {
    /// Who holds the lock.
    pub holder: Option<Holder>,
    /// The next place in the queue.
    pub next_place: u64,
    /// How many are in the queue.
    pub waiting: u64,
    /// The holder's, as compact JSON.
    pub metadata: Option<Bytes>,
}

const VERSION: u8 = 1;

impl Roster {
    /// The record's value.
    pub fn encode(&self) -> Bytes {
        let mut to = Encoder::new(VERSION).number(self.holder.iter().count() as u64);
        if let Some(holder) = &self.holder {
            to = to
                .fixed(&holder.id.0)
                .fixed(&holder.digest)
                .bytes(holder.owner.as_bytes())
                .bytes(holder.principal.as_bytes())
                .number(holder.granted_at.0)
                .number(holder.count.into())
                .byte(holder.flags.bits() | u8::from(holder.replayed) << 2)
                .number(holder.fencing.map_or(0, |token| token.0));
        }
        to = to.number(self.next_place).number(self.waiting).byte(u8::from(self.metadata.is_some()));
        to.bytes(self.metadata.as_deref().unwrap_or_default()).finish()
    }

    /// Reads a record's value.
    pub fn decode(value: &[u8]) -> Result<Self, Unreadable> {
        let mut from = Decoder::new(value, VERSION)?;
        let holder = match from.number()? {
            0 => None,
            1 => Some(Self::decode_holder(&mut from)?),
            _ => return Err(Unreadable),
        };
        let (next_place, waiting) = (from.number()?, from.number()?);
        let has_metadata = from.byte()? != 0;
        let metadata = from.bytes()?;
        from.finish()?;
        Ok(Self { holder, next_place, waiting, metadata: has_metadata.then(|| metadata.into()) })
    }

    fn decode_holder(from: &mut Decoder<'_>) -> Result<Holder, Unreadable> {
        let (id, digest) = (GrantId(from.fixed()?), from.fixed()?);
        let (owner, principal) = (from.text()?, from.text()?);
        let granted_at = from.time()?;
        let count = u32::try_from(from.number()?).map_err(|_| Unreadable)?;
        let flags = from.byte()?;
        let fencing = from.number()?;
        Ok(Holder {
            id,
            digest,
            owner,
            principal,
            granted_at,
            count,
            flags: Flags::from_bits(flags & 3).ok_or(Unreadable)?,
            replayed: flags & 4 != 0,
            fencing: (fencing != 0).then_some(Revision(fencing)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::String;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    fn holder() -> impl Strategy<Value = Holder> {
        any::<([u8; 16], [u8; 8], String, String, u64, u32, u8, bool, Option<u32>)>().prop_map(|parts| {
            let (id, digest, owner, principal, at, count, bits, replayed, fencing) = parts;
            let flags = Flags::from_bits(bits & 3).unwrap();
            let fencing = fencing.map(|token| Revision(u64::from(token) + 1));
            let (owner, principal) = (owner.as_str().into(), principal.as_str().into());
            let granted_at = WallTime(at);
            Holder { id: GrantId(id), digest, owner, principal, granted_at, count, flags, replayed, fencing }
        })
    }

    proptest! {
        #[test]
        fn a_roster_is_read_as_it_was_written(
            holder in proptest::option::of(holder()), next_place: u64, waiting: u64, metadata: Option<Vec<u8>>,
        ) {
            let roster = Roster { holder, next_place, waiting, metadata: metadata.map(Into::into) };
            prop_assert_eq!(Roster::decode(&roster.encode()), Ok(roster));
        }
    }
}
