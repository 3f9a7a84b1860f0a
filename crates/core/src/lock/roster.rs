//! The roster: who holds a lock and how many wait. Deleted when nobody does.
//!
//! Layout, version 1: number of holders (0 or 1), for each: id (16), digest of the request (8), owner,
//! principal, granted at, releases needed, flags (reentrant, alone, replayed), fencing token (0: this record's own
//! revision); then the next place, how many wait, and the holder's metadata.
//!
//! Version 2, for all but a plain exclusive holder or none: permits (0: not a semaphore), then as above with any number of
//! holders, whose flags are the grant's, followed by a byte (replayed, closed), how it is held, and the lock-delay in ms.
//!
//! Version 3, if it shows who comes next: as version 2, and at the end how many are shown, for each: id (16), place, node,
//! attachment, mode.

use super::front::Front;
use super::grant::{Digest, Flags};
use super::mode::{HOLDERS_MAX, Hold, Mode};
use super::name::{GrantId, Principal};
use crate::codec::{Decoder, Encoder, Unreadable};
use crate::record::{Bytes, Revision, WallTime};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::time::Duration;

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
    /// Its lease has run out or was forced away, and is remembered as such. It only keeps its place closed until its
    /// delay record is gone (L14).
    pub closed: bool,
    /// How it is held.
    pub hold: Hold,
    /// For how long its place stays closed if the lease runs out.
    pub delay: Duration,
    /// The fencing token; `None` while the roster is as the grant's own commit put it, and so has that revision.
    pub fencing: Option<Revision>,
}

/// A roster record's value.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Roster {
    /// Who holds the lock, in the order of their grants.
    pub holders: Vec<Holder>,
    /// How many permits there are, if it is a semaphore. Fixed while the roster exists.
    pub permits: Option<u16>,
    /// The next place in the queue.
    pub next_place: u64,
    /// How many are in the queue.
    pub waiting: u64,
    /// The exclusive holder's, as compact JSON.
    pub metadata: Option<Bytes>,
    /// Who of them comes next, where nodes share a store.
    pub front: Front,
}

const NEWEST: u8 = 3;

impl Roster {
    /// Whether nobody holds it and nobody waits: then there is no roster.
    pub fn is_empty(&self) -> bool {
        self.holders.is_empty() && self.waiting == 0
    }

    /// The holder whose grant has this id, or had it while its place is closed.
    pub fn find(&self, id: GrantId) -> Option<&Holder> {
        self.holders.iter().find(|holder| holder.id == id)
    }

    /// The holder, if it holds the lock alone.
    pub fn exclusive(&self) -> Option<&Holder> {
        self.holders.first().filter(|holder| holder.hold == Hold::Exclusive && !holder.closed)
    }

    /// Whether one more may hold it so.
    pub fn admits(&self, mode: Mode) -> bool {
        match mode {
            Mode::Exclusive => self.holders.is_empty(),
            Mode::Shared => {
                self.holders.iter().all(|holder| holder.hold == Hold::Shared) && self.has_space(HOLDERS_MAX)
            }
            Mode::Semaphore { permits } => self.has_space(permits),
        }
    }

    /// Whether one more may hold it, if it asks for the right thing.
    pub fn has_room(&self) -> bool {
        self.admits(self.permits.map_or(Mode::Shared, |permits| Mode::Semaphore { permits }))
    }

    fn has_space(&self, places: u16) -> bool {
        self.holders.len() < usize::from(places)
    }

    /// How somebody would hold it who is admitted: with the lowest permit that is free.
    pub(super) fn next_hold(&self, mode: Mode) -> Hold {
        match mode {
            Mode::Exclusive => Hold::Exclusive,
            Mode::Shared => Hold::Shared,
            Mode::Semaphore { permits } => {
                let is_free = |slot: &u16| {
                    !self.holders.iter().any(|holder| holder.hold == Hold::Permit { slot: *slot })
                };
                Hold::Permit { slot: (0..permits).find(is_free).unwrap_or(permits) }
            }
        }
    }

    /// The record's value.
    pub fn encode(&self) -> Bytes {
        let is_plain = self.permits.is_none()
            && match &self.holders[..] {
                [] => true,
                [only] => only.hold == Hold::Exclusive && !only.flags.delayed && !only.closed,
                _ => false,
            };
        let is_plain = is_plain && self.front.is_empty();
        let version = if is_plain { 1 } else { 2 + u8::from(!self.front.is_empty()) };
        let mut to = Encoder::new(version);
        if !is_plain {
            to = to.number(self.permits.unwrap_or(0).into());
        }
        to = to.number(self.holders.len() as u64);
        for holder in &self.holders {
            to = to
                .fixed(&holder.id.0)
                .fixed(&holder.digest)
                .bytes(holder.owner.as_bytes())
                .bytes(holder.principal.as_bytes())
                .number(holder.granted_at.0)
                .number(holder.count.into());
            to = if is_plain {
                to.byte(holder.flags.bits() | u8::from(holder.replayed) << 2)
            } else {
                to.byte(holder.flags.bits())
                    .byte(u8::from(holder.replayed) | u8::from(holder.closed) << 1)
                    .number(holder.hold.number())
                    .number(holder.delay.as_millis() as u64)
            };
            to = to.number(holder.fencing.map_or(0, |token| token.0));
        }
        to = to.number(self.next_place).number(self.waiting).byte(u8::from(self.metadata.is_some()));
        to = to.bytes(self.metadata.as_deref().unwrap_or_default());
        if self.front.is_empty() { to.finish() } else { self.front.encode(to).finish() }
    }

    /// Reads a record's value.
    pub fn decode(value: &[u8]) -> Result<Self, Unreadable> {
        let (version, mut from) = Decoder::versioned(value, NEWEST)?;
        let permits = if version == 1 { 0 } else { from.number()? };
        let permits = u16::try_from(permits).map_err(|_| Unreadable)?;
        let count = from.number()?;
        if count > if version == 1 { 1 } else { HOLDERS_MAX.into() } || permits > HOLDERS_MAX {
            return Err(Unreadable);
        }
        let mut holders = Vec::with_capacity(count as usize);
        for _ in 0..count {
            holders.push(Self::decode_holder(&mut from, version)?);
        }
        let (next_place, waiting) = (from.number()?, from.number()?);
        let has_metadata = from.byte()? != 0;
        let metadata = from.bytes()?;
        let front = if version < 3 { Front::default() } else { Front::decode(&mut from)? };
        from.finish()?;
        let (permits, metadata) = ((permits > 0).then_some(permits), has_metadata.then(|| metadata.into()));
        Ok(Self { holders, permits, next_place, waiting, metadata, front })
    }

    fn decode_holder(from: &mut Decoder<'_>, version: u8) -> Result<Holder, Unreadable> {
        let (id, digest) = (GrantId(from.fixed()?), from.fixed()?);
        let (owner, principal) = (from.text()?, from.text()?);
        let granted_at = from.time()?;
        let count = u32::try_from(from.number()?).map_err(|_| Unreadable)?;
        let bits = from.byte()?;
        let (mut flags, mut state, mut hold, mut delay) =
            (bits & 3, bits >> 2 & 1, Hold::Exclusive, Duration::ZERO);
        if version > 1 {
            (flags, state) = (bits, from.byte()?);
            hold = Hold::from_number(from.number()?)?;
            delay = Duration::from_millis(from.number()?);
        }
        let fencing = from.number()?;
        Ok(Holder {
            id,
            digest,
            owner,
            principal,
            granted_at,
            count,
            flags: Flags::from_bits(flags).ok_or(Unreadable)?,
            replayed: state & 1 != 0,
            closed: state & 2 != 0,
            hold,
            delay,
            fencing: (fencing != 0).then_some(Revision(fencing)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lock::NodeId;
    use crate::lock::front::{FRONT_MAX, Next};
    use alloc::string::String;
    use alloc::vec;
    use proptest::prelude::*;

    fn holder() -> impl Strategy<Value = Holder> {
        let parts = any::<([u8; 16], [u8; 8], String, String, u64, u32, u8, [bool; 2], Option<u32>)>();
        (parts, 0..300_u64, any::<u32>()).prop_map(|(parts, hold, ms)| {
            let (id, digest, owner, principal, at, count, bits, [replayed, closed], fencing) = parts;
            let flags = Flags::from_bits(bits & 7).unwrap();
            let fencing = fencing.map(|token| Revision(u64::from(token) + 1));
            let (owner, principal) = (owner.as_str().into(), principal.as_str().into());
            let (granted_at, hold) = (WallTime(at), Hold::from_number(hold).unwrap());
            let is_plain = hold == Hold::Exclusive && !flags.delayed && !closed;
            let delay = if is_plain { Duration::ZERO } else { Duration::from_millis(ms.into()) };
            let (id, fencing) = (GrantId(id), fencing);
            Holder {
                id,
                digest,
                owner,
                principal,
                granted_at,
                count,
                flags,
                replayed,
                closed,
                hold,
                delay,
                fencing,
            }
        })
    }

    fn front() -> impl Strategy<Value = Front> {
        let next = any::<([u8; 16], u64, u64, u64)>();
        proptest::collection::vec(next, 0..=FRONT_MAX).prop_map(|shown| {
            let mut front = Front::default();
            for (id, place, node, attachment) in shown {
                let (id, node, mode) = (GrantId(id), NodeId(node), Mode::Semaphore { permits: 3 });
                front.extend(Next { id, place, node, attachment, mode });
            }
            front
        })
    }

    proptest! {
        #[test]
        fn a_roster_is_read_as_it_was_written(
            holders in proptest::collection::vec(holder(), 0..4),
            permits in proptest::option::of(1..=HOLDERS_MAX),
            numbers: [u64; 2],
            metadata: Option<Vec<u8>>,
            front in front(),
        ) {
            let [next_place, waiting] = numbers;
            let metadata = metadata.map(Into::into);
            let roster = Roster { holders, permits, next_place, waiting, metadata, front };
            prop_assert_eq!(Roster::decode(&roster.encode()), Ok(roster));
        }
    }

    fn plain() -> Holder {
        Holder {
            id: GrantId([1; 16]),
            digest: [2; 8],
            owner: "o".into(),
            principal: "p".into(),
            granted_at: WallTime(5),
            count: 1,
            flags: Flags { alone: true, ..Flags::default() },
            replayed: true,
            closed: false,
            hold: Hold::Exclusive,
            delay: Duration::ZERO,
            fencing: Some(Revision(9)),
        }
    }

    #[test]
    fn a_plain_holder_is_written_as_it_always_was() {
        let value = [&[1, 1][..], &[1; 16], &[2; 8], &[1, b'o', 1, b'p', 5, 1, 6, 9, 7, 3, 0, 0]].concat();
        let roster = Roster { holders: vec![plain()], next_place: 7, waiting: 3, ..Roster::default() };
        assert_eq!(*roster.encode(), value);
        assert_eq!(Roster::decode(&value), Ok(roster));
    }

    #[test]
    fn who_is_admitted_depends_on_who_is_there() {
        let with = |holds: &[Hold], permits| {
            let holders = holds.iter().map(|hold| Holder { hold: *hold, ..plain() }).collect();
            Roster { holders, permits, ..Roster::default() }
        };
        let (exclusive, shared, permit) = (Hold::Exclusive, Hold::Shared, |slot| Hold::Permit { slot });
        let semaphore = Mode::Semaphore { permits: 3 };
        for (roster, mode, admitted) in [
            (with(&[], None), Mode::Exclusive, true),
            (with(&[], None), Mode::Shared, true),
            (with(&[], None), semaphore, true),
            (with(&[exclusive], None), Mode::Exclusive, false),
            (with(&[exclusive], None), Mode::Shared, false),
            (with(&[shared], None), Mode::Exclusive, false),
            (with(&[shared; 255], None), Mode::Shared, true),
            (with(&[shared; 256], None), Mode::Shared, false),
            (with(&[permit(0), permit(1)], Some(3)), semaphore, true),
            (with(&[permit(0), permit(1), permit(2)], Some(3)), semaphore, false),
        ] {
            assert_eq!(roster.admits(mode), admitted, "{mode:?} beside {:?}", roster.holders.first());
        }
        for (holds, slot) in [(&[][..], 0), (&[permit(0), permit(2)], 1), (&[permit(1), permit(0)], 2)] {
            assert_eq!(with(holds, Some(3)).next_hold(semaphore), permit(slot));
        }
    }

    #[test]
    fn the_largest_roster_is_far_below_what_a_commit_takes() {
        let longest: Arc<str> = "x".repeat(256).into();
        let holder = Holder {
            owner: longest.clone(),
            principal: longest,
            granted_at: WallTime(1 << 42),
            count: u32::MAX,
            fencing: Some(Revision::MAX),
            hold: Hold::Permit { slot: 255 },
            delay: Duration::from_secs(86_400),
            ..plain()
        };
        let holders = vec![holder; HOLDERS_MAX.into()];
        let bytes = Roster { holders, permits: Some(HOLDERS_MAX), ..Roster::default() }.encode().len();
        assert!(bytes < 150 * 1024, "{bytes}");
    }
}
