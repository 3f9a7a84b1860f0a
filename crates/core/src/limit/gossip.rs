//! Counts that spread (M5): a node decides by what it knows, and tells the others what it counted. No store is asked.
//!
//! What a key has used in one window is a counter of the node's replica (see [`crate::crdt`]), in a map that callers can't name: one map for each limit, one
//! field for each window and key. In that counter every run of a node has a slot of its own, and says there all it ever admitted in that window, and took
//! back. What receipts gave back is a counter beside it. So a report that comes twice, late or in another order changes nothing, whoever joins whatever with whom comes to the same sum, and what a
//! node knows is what it admitted itself and what it has heard of all others.
//!
//! A node admits while that sum stays within the limit. Alone it is exact. Beside others, what they admitted and it hasn't heard
//! of yet comes on top: their rate, for as long as a count takes to spread; and the whole limit for each that can't be heard at all.
//!
//! # Layout
//! - this file: a key as one node knows it; [`Known`]
//! - [`window`]: which windows there are, and where their counts are
//! - [`pace`]: how fast it is used
//! - [`mod@bound`]: how much more than the limit may pass

pub mod bound;
pub mod pace;
pub mod window;

pub use bound::{Spread, bound};
pub use pace::Pace;
pub use window::Window;

use crate::crdt::{Actor, Entry, Row};
use crate::meter::{Algorithm, Meter, NUMBER_MAX, Rule};
use alloc::vec::Vec;

/// How often counts are told to the others, if nothing is said.
pub const EVERY_MS: u64 = 100;

/// What is counted, if nothing is said.
pub const USUAL: Algorithm = Algorithm::SlidingWindow;

/// Whether counts of this algorithm can be joined: those that are sums over windows can. A bucket leaks as its level is known, which is different
/// everywhere, and a log is a list.
pub fn spreads(algorithm: Algorithm) -> bool {
    matches!(algorithm, Algorithm::FixedWindow | Algorithm::SlidingWindow)
}

/// All that one slot of a counter ever counted. Both only grow.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Tally {
    /// What was admitted.
    pub added: u64,
    /// What of it was taken back.
    pub taken: u64,
}

/// What was counted in one window, as one node knows it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Part {
    /// By this run of this node.
    pub own: Tally,
    /// What of that is in the replica, as far as is known.
    pub reported: Tally,
    /// By all others; may be below zero while what a node took back is there and what it had admitted is still on its way.
    others: i128,
    /// What receipts gave back: nothing or less, and as early as that.
    refunds: i128,
    /// What had been used by an earlier definition, whose windows were others.
    carried: u64,
}

impl Part {
    /// Takes in what the replica has. What this run counted and isn't there yet stays counted.
    pub fn learn(&mut self, row: Option<&Row>, writer: Actor) {
        let (own, others) = row.map_or_else(Default::default, |row| slots(row, writer));
        self.others = others;
        for known in [&mut self.own, &mut self.reported] {
            *known = Tally { added: known.added.max(own.added), taken: known.taken.max(own.taken) };
        }
    }

    /// Takes in what receipts gave back.
    pub fn learn_refunds(&mut self, row: Option<&Row>) {
        self.refunds = row.map_or(0, crate::crdt::counter::value);
    }

    /// What has to be reported; nothing if all of it was.
    pub fn report(&self) -> Option<Tally> {
        (self.own != self.reported).then_some(self.own)
    }

    /// What was counted, by all who were heard of.
    pub fn count(&self) -> u64 {
        let own = i128::from(self.own.added) - i128::from(self.own.taken);
        let sum = own + self.others + self.refunds + i128::from(self.carried);
        u64::try_from(sum.clamp(0, i128::from(NUMBER_MAX))).unwrap_or_default()
    }
}

/// What a row has in this writer's slot, and in all others together.
fn slots(row: &Row, writer: Actor) -> (Tally, i128) {
    let mut own = Tally::default();
    for (_, entry) in row.entries() {
        if let Entry::Tally { slot, added, taken } = entry
            && *slot == writer
        {
            own = Tally { added: own.added.max(*added), taken: own.taken.max(*taken) };
        }
    }
    let others = crate::crdt::counter::value(row) - (i128::from(own.added) - i128::from(own.taken));
    (own, others)
}

/// A key of a limit, as one node knows it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Known {
    /// The present window.
    pub window: Window,
    /// What was counted in it.
    pub current: Part,
    /// And in the one before.
    pub previous: Part,
    /// Up to when it was brought.
    at_ms: u64,
}

impl Known {
    /// Of which nothing is known yet.
    pub fn new(rule: &Rule, now_ms: u64) -> Self {
        let window = Window::of(rule, now_ms);
        Self { window, current: Part::default(), previous: Part::default(), at_ms: now_ms }
    }

    /// Brings it to a later moment, never to an earlier one, by the rule as it is now. Whether another window has begun: then the replica may know
    /// more of it.
    pub fn advance(&mut self, rule: &Rule, now_ms: u64) -> bool {
        self.at_ms = self.at_ms.max(now_ms);
        let next = Window::of(rule, self.at_ms);
        if next == self.window {
            return false;
        }
        let mut current = Part::default();
        if next.before() == self.window {
            self.previous = self.current;
        } else {
            // Other windows than before, while the old one isn't over: what was used stays used, up to the new limit.
            if self.window.end_ms > self.at_ms {
                let old = Rule { window_ms: self.window.end_ms - self.window.start_ms, ..rule.clone() };
                current.carried = self.meter(&old).used().min(rule.limit);
            }
            self.previous = Part::default();
        }
        (self.window, self.current) = (next, current);
        true
    }

    /// As a meter: what is left of it, and when there is more, is the same as for one at the store.
    pub fn meter(&self, rule: &Rule) -> Meter {
        let most = rule.algorithm.amount_max(rule.window_ms);
        let counted = |part: &Part| part.count().min(most);
        Meter {
            version: rule.version,
            algorithm: rule.algorithm,
            limit: rule.limit,
            window_ms: rule.window_ms,
            offset_ms: 0,
            since_ms: self.at_ms,
            at_ms: self.at_ms,
            start_ms: self.window.start_ms,
            current: counted(&self.current),
            previous: counted(&self.previous),
            log: Vec::new(),
            rows: Vec::new(),
        }
    }

    /// Counts this much if it fits beside what is known; whether it did.
    pub fn admit(&mut self, rule: &Rule, amount: u64) -> bool {
        let fits = amount <= self.meter(rule).remaining(rule);
        if fits {
            self.current.own.added = self.current.own.added.saturating_add(amount);
        }
        fits
    }

    /// Takes back what was counted in a window for something that came to nothing. In one that is long over it doesn't matter.
    pub fn take_back(&mut self, window: Window, amount: u64) {
        let part = match window {
            _ if window == self.window => &mut self.current,
            _ if window == self.window.before() => &mut self.previous,
            _ => return,
        };
        part.own.taken = part.own.taken.saturating_add(amount);
    }

    /// How much more than it may is known to have been used.
    pub fn overshoot(&self, rule: &Rule) -> u64 {
        self.meter(rule).used().saturating_sub(rule.capacity)
    }
}
