//! What will happen, and in which order.

use crate::mishaps::Mishap;
use crate::store::{Checked, Leased};
use baton_core::limit::purse::Message;
use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

/// All that is to happen. Its length is bounded by what is under way, and a few for each node.
#[derive(Default)]
pub struct Queue {
    due: BinaryHeap<Reverse<Due>>,
    put: u64,
}

impl Queue {
    pub fn put(&mut self, at_us: u64, event: Event) {
        self.put += 1;
        self.due.push(Reverse(Due { at_us, order: self.put, event }));
    }

    /// When the next one happens.
    pub fn next_us(&self) -> Option<u64> {
        self.due.peek().map(|Reverse(next)| next.at_us)
    }

    pub fn take(&mut self) -> Option<Due> {
        self.due.pop().map(|Reverse(next)| next)
    }
}

/// Something that will happen: the earliest first, and of those the one that was put in first.
pub struct Due {
    pub at_us: u64,
    order: u64,
    pub event: Event,
}

impl PartialEq for Due {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}
impl Eq for Due {}
impl PartialOrd for Due {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Due {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.at_us, self.order).cmp(&(other.at_us, other.order))
    }
}

pub enum Event {
    AtStore(Call),
    Answered(Call, Said),
    Unanswered(Call),
    Look {
        place: usize,
    },
    /// A check comes to the owner of its key.
    Forwarded {
        place: usize,
        life: u64,
        key: usize,
        arrived_us: u64,
        back_us: u64,
    },
    /// The definition is another from now on.
    Change {
        version: usize,
    },
    Mishap {
        place: usize,
        mishap: Mishap,
    },
}

/// What a node asks of the store.
#[derive(Clone)]
pub struct Call {
    pub place: usize,
    pub life: u64,
    pub key: usize,
    pub sent_us: u64,
    /// By which definition.
    pub version: usize,
    pub asks: Asks,
}

#[derive(Clone)]
pub enum Asks {
    Check { arrived_us: u64 },
    Lease { row: String, message: Message },
    Debt { id: u64, amount: u64 },
}

pub enum Said {
    Checked(Checked),
    Leased(Leased),
    Settled,
    /// There is a newer definition.
    Outdated {
        version: usize,
    },
}
