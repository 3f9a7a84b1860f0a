//! The front of the queue, as the roster shows it: who comes next, and where its call is parked.
//!
//! Where several nodes share a store, whoever ends a grant has to know at which node the next one waits, and that
//! node that it is its turn. The roster tells both, because both have it anyway: the one guessed, the other was told by
//! a hint. So a hand-over between nodes is two commits and nothing to read, until those shown here have had their turn;
//! then the queue itself is read once, and shown here again.
//!
//! Promise: the front is the beginning of the queue without a gap. It may be shorter than it could be, also empty.

use super::command::NodeId;
use super::mode::Mode;
use super::name::GrantId;
use super::waiting::Waiting;
use crate::codec::{Decoder, Encoder, Unreadable};
use alloc::vec::Vec;

/// How many a roster shows at most: some 300 bytes. The rules' own tests have short queues, and are to come to its end.
pub const FRONT_MAX: usize = if cfg!(test) { 2 } else { 8 };

/// Somebody in the queue: what of its waiting record says whose turn it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Next {
    /// The waiter.
    pub id: GrantId,
    /// Its place in the queue; lower comes first.
    pub place: u64,
    /// Where its call is parked.
    pub node: NodeId,
    /// Which call.
    pub attachment: u64,
    /// How it wants to hold the lock.
    pub mode: Mode,
}

impl Next {
    /// As its record says.
    pub fn of(id: GrantId, waiting: &Waiting) -> Self {
        let Waiting { place, node, attachment, terms, .. } = waiting;
        Self { id, place: *place, node: *node, attachment: *attachment, mode: terms.mode }
    }

    /// Whether this is the waiter's record: whoever parks another call for it, or moves it, changes one of these.
    pub fn is_of(&self, waiting: &Waiting) -> bool {
        *self == Self::of(self.id, waiting)
    }
}

/// The first in the queue, in order.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Front(Vec<Next>);

impl Front {
    /// Whether nobody is shown.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Those shown, in order.
    pub fn shown(&self) -> &[Next] {
        &self.0
    }

    /// Whether all of so many who wait are shown.
    pub fn is_whole(&self, waiting: u64) -> bool {
        self.0.len() as u64 == waiting
    }

    /// Somebody comes to stand in a queue of so many others.
    pub(super) fn join(&mut self, next: Next, others: u64) {
        let comes_before_the_last = self.0.last().is_some_and(|last| next.place < last.place);
        if self.is_whole(others) || comes_before_the_last {
            let index = self.0.partition_point(|shown| shown.place < next.place);
            self.0.insert(index, next);
            self.0.truncate(FRONT_MAX);
        }
    }

    /// The one behind the last who is shown.
    pub(super) fn extend(&mut self, next: Next) {
        self.0.push(next);
    }

    /// Whether more could be shown.
    pub(super) fn has_room(&self) -> bool {
        self.0.len() < FRONT_MAX
    }

    /// Somebody leaves the queue.
    pub(super) fn leave(&mut self, id: GrantId) {
        self.0.retain(|shown| shown.id != id);
    }

    /// Another call is parked for a waiter, or none.
    pub(super) fn attach(&mut self, id: GrantId, node: NodeId, attachment: u64) {
        for shown in self.0.iter_mut().filter(|shown| shown.id == id) {
            (shown.node, shown.attachment) = (node, attachment);
        }
    }

    pub(super) fn encode(&self, mut to: Encoder) -> Encoder {
        to = to.number(self.0.len() as u64);
        for Next { id, place, node, attachment, mode } in &self.0 {
            to = to.fixed(&id.0).number(*place).number(node.0).number(*attachment).number(mode.number());
        }
        to
    }

    pub(super) fn decode(from: &mut Decoder<'_>) -> Result<Self, Unreadable> {
        let count = from.number()?;
        if count > FRONT_MAX as u64 {
            return Err(Unreadable);
        }
        let mut shown = Vec::with_capacity(count as usize);
        for _ in 0..count {
            let id = GrantId(from.fixed()?);
            let (place, node, attachment) = (from.number()?, NodeId(from.number()?), from.number()?);
            shown.push(Next { id, place, node, attachment, mode: Mode::from_number(from.number()?)? });
        }
        Ok(Self(shown))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeMap;
    use proptest::prelude::*;

    fn next(number: u8, place: u64) -> Next {
        let (id, node) = (GrantId([number; 16]), NodeId(1));
        Next { id, place, node, attachment: 7, mode: Mode::Exclusive }
    }

    #[derive(Clone, Debug)]
    enum Step {
        Join(u8, u64),
        Leave(u8),
        Attach(u8),
    }

    fn step() -> impl Strategy<Value = Step> {
        let number = 0..24_u8;
        prop_oneof![
            3 => (number.clone(), 0..1000_u64).prop_map(|(number, place)| Step::Join(number, place)),
            2 => number.clone().prop_map(Step::Leave),
            1 => number.prop_map(Step::Attach),
        ]
    }

    proptest! {
        #[test]
        fn whatever_happens_it_is_the_beginning_of_the_queue(steps in proptest::collection::vec(step(), 0..80)) {
            let (mut front, mut queue) = (Front::default(), BTreeMap::<u64, Next>::new());
            for step in steps {
                match step {
                    Step::Join(number, place) => {
                        let is_there = queue.values().any(|other| other.id == next(number, 0).id);
                        if !is_there && !queue.contains_key(&place) {
                            front.join(next(number, place), queue.len() as u64);
                            queue.insert(place, next(number, place));
                        }
                    }
                    Step::Leave(number) => {
                        queue.retain(|_, other| other.id != next(number, 0).id);
                        front.leave(next(number, 0).id);
                    }
                    Step::Attach(number) => {
                        let id = next(number, 0).id;
                        let theirs = queue.values_mut().filter(|other| other.id == id);
                        theirs.for_each(|other| (other.node, other.attachment) = (NodeId(2), 9));
                        front.attach(id, NodeId(2), 9);
                    }
                }
                let shown = front.shown();
                prop_assert!(shown.len() <= FRONT_MAX);
                prop_assert!(shown.iter().eq(queue.values().take(shown.len())), "{shown:?} of {queue:?}");
            }
        }
    }

    #[test]
    fn a_queue_that_fits_is_shown_whole() {
        let mut front = Front::default();
        for number in 0..=FRONT_MAX as u8 {
            front.join(next(number, number.into()), number.into());
        }
        assert_eq!(front.shown().len(), FRONT_MAX);
        assert!(!front.is_whole(FRONT_MAX as u64 + 1));
        front.leave(next(0, 0).id);
        // The one that didn't fit is not known to be next.
        front.join(next(99, 99), FRONT_MAX as u64);
        assert_eq!(front.shown().len(), FRONT_MAX - 1);
    }
}
