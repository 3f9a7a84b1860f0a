//! Which requests were answered, so that one that is sent again counts once, also over a restart.
//!
//! Writers are spread over lanes by a hash, and each lane remembers its last requests: a busy writer makes only its own lane forget.
//! What is forgotten would count again; so a retry has to come before a lane's worth of other requests.
//!
//! Layout, version 1: request id (16), digest (8), actor (16), first and last number of the dots it made (0 if none),
//! and a number that grows with every memo.

use super::Written;
use baton_core::Bytes;
use baton_core::codec::{Decoder, Encoder, Unreadable};
use baton_core::crdt::{Actor, RequestId};
use std::collections::HashMap;

/// Lanes that writers are spread over.
pub(super) const LANES: usize = 256;
/// Requests that a lane remembers.
pub(super) const SLOTS: usize = 1024;

const VERSION: u8 = 1;

/// A request that was answered.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Memo {
    pub id: RequestId,
    pub digest: [u8; 8],
    pub actor: Actor,
    /// The dots it made, from one to the other; 0 if it changed nothing.
    pub dots: (u64, u64),
    pub sequence: u64,
    pub lane: usize,
    pub slot: usize,
}

impl Memo {
    pub fn encode(&self) -> Bytes {
        Encoder::new(VERSION)
            .fixed(&self.id.0)
            .fixed(&self.digest)
            .fixed(&self.actor.0)
            .number(self.dots.0)
            .number(self.dots.1)
            .number(self.sequence)
            .finish()
    }

    pub fn decode(value: &[u8], lane: usize, slot: usize) -> Result<Self, Unreadable> {
        let mut from = Decoder::new(value, VERSION)?;
        let id = RequestId(from.fixed()?);
        let (digest, actor) = (from.fixed()?, Actor(from.fixed()?));
        let (dots, sequence) = ((from.number()?, from.number()?), from.number()?);
        from.finish()?;
        Ok(Self { id, digest, actor, dots, sequence, lane, slot })
    }

    /// The answer again.
    pub fn answer(&self) -> Written {
        Written { actor: self.actor, dots: self.dots, replayed: true }
    }
}

#[derive(Default)]
pub(super) struct Memos {
    known: HashMap<RequestId, Memo>,
    lanes: HashMap<usize, Lane>,
    sequence: u64,
}

#[derive(Default)]
struct Lane {
    slots: Vec<RequestId>,
    next: usize,
    /// Of the memo before `next`, while loading.
    latest: u64,
}

impl Memos {
    pub fn get(&self, id: RequestId) -> Option<&Memo> {
        self.known.get(&id)
    }

    /// Remembers a request, in the place of the lane's oldest if it is full.
    pub fn remember(
        &mut self,
        id: RequestId,
        lane: usize,
        digest: [u8; 8],
        actor: Actor,
        dots: (u64, u64),
    ) -> Memo {
        self.sequence += 1;
        let place = self.lanes.entry(lane).or_default();
        let slot = place.next;
        if let Some(oldest) = place.slots.get(slot) {
            self.known.remove(oldest);
            place.slots[slot] = id;
        } else {
            place.slots.push(id);
        }
        place.next = (slot + 1) % SLOTS;
        let memo = Memo { id, digest, actor, dots, sequence: self.sequence, lane, slot };
        self.known.insert(id, memo.clone());
        memo
    }

    /// Takes in what the disk has, in the order of slots.
    pub fn load(&mut self, memo: Memo) -> Result<(), Unreadable> {
        self.sequence = self.sequence.max(memo.sequence);
        let lane = self.lanes.entry(memo.lane).or_default();
        if lane.slots.len() != memo.slot {
            return Err(Unreadable);
        }
        lane.slots.push(memo.id);
        if memo.sequence > lane.latest {
            (lane.latest, lane.next) = (memo.sequence, (memo.slot + 1) % SLOTS);
        }
        self.known.insert(memo.id, memo);
        Ok(())
    }
}

/// The lane of a writer.
pub(super) fn lane(writer: &str) -> usize {
    usize::from(RequestId::of(writer, "").0[0]) % LANES
}

#[cfg(test)]
mod tests {
    use super::*;

    fn remember(memos: &mut Memos, lane: usize, number: usize) -> Memo {
        let id = RequestId::of("writer", &number.to_string());
        memos.remember(id, lane, [number as u8; 8], Actor([1; 16]), (number as u64 + 1, number as u64 + 3))
    }

    fn knows(memos: &Memos, number: usize) -> bool {
        memos.get(RequestId::of("writer", &number.to_string())).is_some()
    }

    #[test]
    fn a_full_lane_forgets_its_oldest_request_and_no_other_lane_s() {
        let mut memos = Memos::default();
        remember(&mut memos, 1, 999_999);
        for number in 0..SLOTS {
            remember(&mut memos, 2, number);
        }
        assert!(knows(&memos, 0));
        remember(&mut memos, 2, SLOTS);
        assert!(!knows(&memos, 0) && knows(&memos, 1) && knows(&memos, SLOTS) && knows(&memos, 999_999));
    }

    #[test]
    fn what_was_written_is_read_back_and_goes_on_at_the_oldest() {
        let (mut memos, mut disk) = (Memos::default(), HashMap::new());
        for number in 0..SLOTS + 10 {
            let memo = remember(&mut memos, 2, number);
            disk.insert(memo.slot, memo.encode());
        }
        let mut read = Memos::default();
        for slot in 0..SLOTS {
            let memo = Memo::decode(&disk[&slot], 2, slot).unwrap();
            assert_eq!(memos.get(memo.id), Some(&memo));
            read.load(memo).unwrap();
        }
        assert_eq!(remember(&mut read, 2, 5_000), remember(&mut memos, 2, 5_000));
        assert!(!knows(&read, 10) && knows(&read, 11));
        assert!(Memo::decode(&[2, 0], 0, 0).is_err(), "a newer version");
    }

    #[test]
    fn a_memo_says_which_dots_its_request_made() {
        let mut memos = Memos::default();
        assert_eq!(remember(&mut memos, 0, 4).answer().context().len(), 3);
        let nothing = memos.remember(RequestId([0; 16]), 0, [0; 8], Actor([1; 16]), (0, 0));
        assert!(nothing.answer().context().is_empty());
    }
}
