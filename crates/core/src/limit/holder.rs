//! What a holder of leases or slack does with a check: spends, asks, waits for an answer, believes the store's no for a moment, or
//! leaves it to the store (M2, M4). The purse says what may be spent; here is what follows from it.
//!
//! Checks that find nothing wait for one message, and not each for its own. What it brings is a share; if that is too little for all
//! who wait, the next message asks for just what they lack. When the store has nothing left, that stands for a moment for all.
//! So a key costs the store no more than a message or two at a time, however many want it.
//!
//! Pure: whoever holds it sends the messages, and tells it what came of them. It borrows its parts, since who has a million of them
//! keeps them apart.

use super::definition::{Definition, Mechanism};
use super::purse::{Message, Purse, SIZE_MAX, Spent, Terms};
use super::slack::{self, Identity};
use super::till::Till;
use crate::meter::{Algorithm, Meter, Reclaim, Rule, Take};

/// How long a lease lives if nothing is said.
pub const TTL_MS: u64 = 10_000;
/// A part of a limit this small isn't worth a lease.
pub const CHUNK_MIN: u64 = 4;
/// How long a refusal by the store is taken to stand, at most.
pub const REFUSED_MS_MAX: u64 = 100;
/// A store that has less than what comes in this time is as good as empty: it is asked again when that much is there, so that it is
/// worth asking for.
const REFILL_MS: u64 = 10;
/// How often a check that finds nothing waits for an answer before it asks the store itself.
pub const WAITS_MAX: usize = 3;
/// How often holders are looked after, to give back what is idle.
pub const LOOK_MS: u64 = 500;

/// How a definition's leases or slack behave; nothing if it has none.
pub fn terms(definition: &Definition, key: &str, identity: Identity) -> Option<Terms> {
    let is_worth_it = definition.algorithm != Algorithm::InFlight
        && !definition.dry_run
        && !definition.audit
        && definition.limit_of(key) / 20 >= CHUNK_MIN;
    let ttl_ms = definition.lease_ttl_ms.unwrap_or(TTL_MS).min(definition.window_ms.max(100));
    let terms = match definition.mechanism {
        Mechanism::Central | Mechanism::Gossip => return None,
        Mechanism::Leased => Terms::lease(ttl_ms, definition.lease_size),
        Mechanism::Owned => {
            // Nobody else wants any, and what dies with an owner is to be one chunk: no lease grows beyond it by being renewed.
            let chunk = definition.limit_of(key) / 20;
            Terms::lease(ttl_ms, Some(definition.lease_size.map_or(chunk, |size| size.min(chunk))))
        }
        Mechanism::Approximate => slack::terms(definition, key, identity),
    };
    let size_max = match definition.reclaim {
        // What is lost track of with a holder is to be no more than is stated: no lease has more, whatever a check costs.
        Reclaim::Drop => terms.size_max.min(terms.size.unwrap_or(SIZE_MAX)),
        Reclaim::Burn => terms.size_max,
    };
    is_worth_it.then_some(Terms { size_max, ..terms })
}

/// What a holder knows besides what it has. Most know nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Known {
    refused: Option<Refused>,
    /// So little is left of the limit that nobody but the store should decide.
    is_low: bool,
    /// What those cost who wait for the answer to the message under way.
    waiting: u64,
    /// What of it the last answer didn't bring, and what was left at the store then.
    short: u64,
    room: u64,
}

impl Known {
    /// Whether there is anything in it.
    pub fn is_needed(&self) -> bool {
        *self != Self::default()
    }

    /// Forgets what has been over for a while.
    pub fn tidy(&mut self, now_ms: u64) {
        self.refused.take_if(|refused| now_ms >= refused.until_ms);
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Refused {
    cost: u64,
    until_ms: u64,
    retry_at_ms: Option<u64>,
}

/// What a meter showed when the store was heard of.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Seen {
    /// What may still be taken.
    pub remaining: u64,
    /// What isn't counted yet.
    pub left: u64,
    /// For how long it is not worth asking again, if as good as nothing remains.
    pub stands_ms: u64,
}

impl Seen {
    /// What this meter shows.
    pub fn of(meter: &Meter, rule: &Rule) -> Self {
        let remaining = meter.remaining(rule);
        let left = rule.capacity.saturating_sub(meter.used());
        let refills = u128::from(rule.limit) * u128::from(REFILL_MS) / u128::from(rule.window_ms);
        let worth = u64::try_from(refills).unwrap_or(u64::MAX).min(rule.capacity / 20).max(1);
        let stands_ms = match remaining < worth {
            true => meter.retry_ms(rule, worth).unwrap_or(REFUSED_MS_MAX).clamp(1, REFUSED_MS_MAX),
            false => 0,
        };
        Self { remaining, left, stands_ms }
    }
}

/// What a message takes of a meter.
pub fn taken(message: &Message, rule: &Rule) -> Take {
    let want = message.want.min(rule.algorithm.amount_max(rule.window_ms));
    match (want, message.is_needed) {
        (0, _) => Take::Nothing,
        (want, true) => Take::Try(want),
        (want, false) => Take::Share(want),
    }
}

/// What to do with a check.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// It was spent.
    Spent {
        /// To be said to the store now, beside it.
        ask: Option<Message>,
        /// Of the last message before it: to put it back with.
        sequence: u64,
    },
    /// The store has just said no.
    Refused {
        /// When to come back, if ever.
        retry_at_ms: Option<u64>,
    },
    /// Somebody has asked already: come again when the answer is there.
    Wait,
    /// Say this to the store, and come again with its answer.
    Renew(Message),
    /// The store must decide it.
    Ask {
        /// To be said to the store besides.
        say: Option<Message>,
        /// Because little is left of the limit.
        is_low: bool,
    },
}

impl Step {
    /// What is to be said to the store beside the check.
    pub fn beside(&self) -> Option<Message> {
        match self {
            Self::Spent { ask, .. } => *ask,
            Self::Ask { say, .. } => *say,
            Self::Renew(_) | Self::Refused { .. } | Self::Wait => None,
        }
    }
}

/// How often a check has waited for an answer, and may at most: none if nothing is asked for any more.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Waits {
    /// How often it has.
    pub had: usize,
    /// How often it may.
    pub most: usize,
}

/// A key's purse, and what its holder knows besides.
#[derive(Debug)]
pub struct Holder<'a> {
    /// What may be spent.
    pub till: &'a Till,
    /// The rest of the lease.
    pub purse: &'a mut Purse,
    /// What is known besides.
    pub known: &'a mut Known,
    /// How it behaves.
    pub terms: &'a Terms,
}

impl Holder<'_> {
    /// Marks a till that was put together anew, as it was when this holder last had it.
    pub fn mark(&self) {
        match self.known.is_low {
            true => self.purse.be_looked_at(self.till),
            false => self.purse.set_marks(self.till, self.terms),
        }
    }

    /// What to do with a check.
    pub fn check(&mut self, cost: u64, now_ms: u64, waits: Waits) -> Step {
        self.step(cost, now_ms, waits, true)
    }

    /// What to do with a check that may come to nothing after this, because another limit refuses: what is spent for it is
    /// [decided](Purse::decided) later.
    pub fn check_of_several(&mut self, cost: u64, now_ms: u64, waits: Waits) -> Step {
        self.step(cost, now_ms, waits, false)
    }

    fn step(&mut self, cost: u64, now_ms: u64, waits: Waits, is_decided: bool) -> Step {
        let (may_ask, is_low) = (waits.most > 0, self.known.is_low);
        if !is_low && let Spent::Yes { ask, sequence } = self.purse.spend(self.till, cost, now_ms) {
            if !is_decided {
                self.purse.leave_open(cost);
            }
            // An empty store has nothing to give; but it is told in time what was spent.
            let is_worth_it = self.purse.is_due(now_ms) || self.refused(1, now_ms).is_none();
            let ask = (ask && may_ask && is_worth_it).then(|| self.ask(now_ms));
            return Step::Spent { ask, sequence };
        }
        if let Some(refused) = self.refused(cost, now_ms) {
            return Step::Refused { retry_at_ms: refused.retry_at_ms };
        }
        // More than a lease ever has is not to be had of one.
        if is_low || waits.had >= waits.most || cost > self.terms.size_max {
            let say = if may_ask { self.leave_if(is_low, now_ms) } else { None };
            return Step::Ask { say, is_low };
        }
        if self.purse.is_asking() {
            self.known.waiting = self.known.waiting.saturating_add(cost);
            return Step::Wait;
        }
        let lacked = self.known.short.min(self.known.room);
        if waits.had == 0 {
            self.known.waiting = cost;
            Step::Renew(self.purse.ask(self.till, cost, now_ms, self.terms))
        } else if lacked >= cost {
            self.known.waiting = cost;
            Step::Renew(self.purse.need(self.till, lacked, now_ms, self.terms))
        } else {
            Step::Ask { say: None, is_low }
        }
    }

    /// The store's no, if it stands for such a check.
    fn refused(&self, cost: u64, now_ms: u64) -> Option<Refused> {
        self.known.refused.filter(|refused| now_ms < refused.until_ms && refused.cost <= cost)
    }

    fn ask(&mut self, now_ms: u64) -> Message {
        self.known.waiting = 0;
        self.purse.ask(self.till, 0, now_ms, self.terms)
    }

    fn leave_if(&mut self, goes: bool, now_ms: u64) -> Option<Message> {
        let has_some = self.purse.balance(self.till, now_ms) > 0;
        (goes && has_some && !self.purse.is_asking()).then(|| self.leave(false, now_ms))
    }

    /// Gives everything back, and asks for as much anew if it goes on under another definition.
    pub fn leave(&mut self, goes_on: bool, now_ms: u64) -> Message {
        self.known.waiting = 0;
        self.purse.give_back(self.till, goes_on, now_ms, self.terms)
    }

    /// Little is in the till: what to say, if nobody says it already.
    pub fn replenish(&mut self, now_ms: u64) -> Option<Message> {
        let is_worth_it = self.purse.is_due(now_ms) || self.refused(1, now_ms).is_none();
        (is_worth_it && !self.purse.is_asking() && !self.known.is_low).then(|| self.ask(now_ms))
    }

    /// The answer to a message: what the store's row has now, and what its meter shows. Whether it was to the last one.
    pub fn heard(&mut self, sequence: u64, amount: u64, seen: Seen, now_ms: u64) -> bool {
        let is_last = self.purse.heard(self.till, sequence, amount, self.terms);
        self.note_heard(is_last, seen, now_ms);
        is_last
    }

    /// The same, from a lender that may let it live shorter than was asked for.
    pub fn heard_for(&mut self, sequence: u64, amount: u64, seen: Seen, now_ms: u64) -> bool {
        let is_last = self.purse.heard_for(self.till, sequence, amount, self.terms);
        self.note_heard(is_last, seen, now_ms);
        is_last
    }

    fn note_heard(&mut self, is_last: bool, seen: Seen, now_ms: u64) {
        if is_last {
            let balance = self.purse.balance(self.till, now_ms);
            self.known.short = self.known.waiting.saturating_sub(balance);
            (self.known.waiting, self.known.room) = (0, 0);
            if self.known.short > 0 {
                self.known.room = seen.remaining;
            }
            if seen.stands_ms > 0 {
                self.note_refusal(1, Some(seen.stands_ms), seen.stands_ms, now_ms);
            }
        }
        self.note_left(seen.left);
    }

    /// There was no answer: the message may have arrived or not.
    pub fn unheard(&mut self, sequence: u64, now_ms: u64) {
        self.purse.unheard(self.till, sequence, now_ms, self.terms);
        (self.known.waiting, self.known.short, self.known.room) = (0, 0, 0);
    }

    /// The store said what isn't counted yet, whatever it was asked.
    pub fn note_left(&mut self, left: u64) {
        self.known.is_low = left < self.terms.low;
        if self.known.is_low {
            // Whoever only spends has to look from now on.
            self.purse.be_looked_at(self.till);
        }
    }

    /// The store said no to a check: for a moment that stands for all that cost as much.
    pub fn note_refusal(&mut self, cost: u64, retry_ms: Option<u64>, stands_ms: u64, now_ms: u64) {
        let until_ms = now_ms + retry_ms.unwrap_or(REFUSED_MS_MAX).max(stands_ms).min(REFUSED_MS_MAX);
        let retry_at_ms = retry_ms.map(|retry_ms| now_ms.saturating_add(retry_ms));
        self.known.refused = Some(Refused { cost, until_ms, retry_at_ms });
    }

    /// What to say when nobody came for a while, if there is anything: what is idle goes back, or everything if it has to.
    pub fn look(&mut self, must_go: bool, now_ms: u64) -> Option<Message> {
        self.known.tidy(now_ms);
        if self.purse.is_asking() || self.purse.balance(self.till, now_ms) == 0 {
            None
        } else if must_go || self.known.is_low || self.purse.is_idle(self.till, now_ms) {
            Some(self.leave(false, now_ms))
        } else if self.purse.is_due(now_ms) {
            self.known.waiting = 0;
            Some(self.purse.trim(self.till, now_ms, self.terms))
        } else {
            None
        }
    }

    /// Whether it can be forgotten: nothing is in it, and nobody has come back to it since it was used.
    pub fn is_over(&self, used_ms: u64, now_ms: u64) -> bool {
        let is_open = self.purse.is_asking() || now_ms < self.purse.closes_ms();
        !is_open && now_ms >= used_ms.saturating_add(2 * self.terms.ttl_ms.min(TTL_MS))
    }
}
