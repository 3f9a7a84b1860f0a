//! What a holder of leases does with a check: spends, asks, waits for an answer, believes the store's no for a moment, or leaves it
//! to the store (M2, M4). The purse says what may be spent; here is what follows from it.
//!
//! Pure: whoever holds it sends the messages, and tells it what came of them.

use super::definition::{Definition, Mechanism};
use super::purse::{Message, Purse, Spent, Terms};
use super::slack::Slack;
use super::till::Till;
use crate::meter::Algorithm;

/// How long a lease lives if nothing is said.
pub const TTL_MS: u64 = 10_000;
/// A part of a limit this small isn't worth a lease.
pub const CHUNK_MIN: u64 = 4;
/// How long a refusal by the store is taken to stand.
pub const REFUSED_MS_MAX: u64 = 100;

/// How often holders are looked after, to give back what is idle.
pub const LOOK_MS: u64 = 500;

/// How a definition's leases behave; nothing if it has none.
pub fn terms(definition: &Definition, key: &str) -> Option<Terms> {
    let is_leased = definition.mechanism == Mechanism::Leased && is_worth_it(definition, key);
    let ttl_ms = definition.lease_ttl_ms.unwrap_or(TTL_MS).min(definition.window_ms.max(100));
    is_leased.then_some(Terms { ttl_ms, size: definition.lease_size })
}

/// Whether a part of the limit can be given to somebody at all.
pub(super) fn is_worth_it(definition: &Definition, key: &str) -> bool {
    definition.algorithm != Algorithm::InFlight
        && !definition.dry_run
        && definition.limit_of(key) / 20 >= CHUNK_MIN
}

/// A key's purse, and what its holder knows besides.
#[derive(Debug, Default)]
pub struct Holder {
    till: Till,
    purse: Purse,
    used_ms: u64,
    refused: Option<Refused>,
    /// What the store had not counted yet when it was last heard of.
    left: Option<u64>,
}

#[derive(Clone, Copy, Debug)]
struct Refused {
    cost: u64,
    until_ms: u64,
    retry_at_ms: Option<u64>,
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
    Ask,
}

impl Holder {
    /// What to do with a check. `renewed` if it has waited for an answer: it doesn't twice.
    pub fn check(
        &mut self,
        cost: u64,
        now_ms: u64,
        terms: &Terms,
        slack: Option<&Slack>,
        renewed: bool,
    ) -> Step {
        self.used_ms = now_ms;
        let is_low = self.is_low(slack);
        if !is_low && let Spent::Yes { ask, sequence } = self.purse.spend(&self.till, cost, now_ms) {
            let ask = ask.then(|| self.purse.ask(&self.till, 0, now_ms, terms));
            return Step::Spent { ask, sequence };
        }
        match self.refused.filter(|refused| now_ms < refused.until_ms && refused.cost <= cost) {
            Some(refused) => Step::Refused { retry_at_ms: refused.retry_at_ms },
            None if renewed || is_low => Step::Ask,
            None if self.purse.is_asking() => Step::Wait,
            None => Step::Renew(self.purse.ask(&self.till, cost, now_ms, terms)),
        }
    }

    /// Whether so little is left of the limit that nobody but the store should decide.
    fn is_low(&self, slack: Option<&Slack>) -> bool {
        slack.zip(self.left).is_some_and(|(slack, left)| left < slack.low)
    }

    /// The answer to a message: what the store's row has now. Whether it was to the last one.
    pub fn heard(&mut self, sequence: u64, amount: u64, terms: &Terms) -> bool {
        self.purse.heard(&self.till, sequence, amount, terms)
    }

    /// There was no answer: the message may have arrived or not.
    pub fn unheard(&mut self, sequence: u64, now_ms: u64, terms: &Terms) {
        self.purse.unheard(&self.till, sequence, now_ms, terms);
    }

    /// The store said what isn't counted yet, whatever it was asked.
    pub fn note_left(&mut self, left: u64) {
        self.left = Some(left);
    }

    /// The store said no to a check: for a moment that stands for all that cost as much.
    pub fn note_refusal(&mut self, cost: u64, retry_ms: Option<u64>, now_ms: u64) {
        let stands_ms = retry_ms.unwrap_or(REFUSED_MS_MAX).min(REFUSED_MS_MAX);
        let retry_at_ms = retry_ms.map(|retry_ms| now_ms + retry_ms);
        self.refused = Some(Refused { cost, until_ms: now_ms + stands_ms, retry_at_ms });
    }

    /// What to say at the time at which slack is reconciled, if there is anything: what was spent since, or, when little is left,
    /// that the rest goes back to where it is decided.
    pub fn sync(&mut self, now_ms: u64, terms: &Terms, slack: &Slack) -> Option<Message> {
        if self.purse.is_asking() || now_ms >= self.purse.closes_ms() {
            return None;
        }
        if self.is_low(Some(slack)) {
            let has_some = self.purse.balance(&self.till, now_ms) > 0;
            return has_some.then(|| self.purse.give_back(&self.till, false, now_ms, terms));
        }
        self.purse.has_spent(&self.till).then(|| self.purse.ask(&self.till, 0, now_ms, terms))
    }

    /// What to say when nobody came for a while, if there is anything: what is idle goes back.
    pub fn look(&mut self, now_ms: u64, terms: &Terms) -> Option<Message> {
        if self.purse.is_asking() || self.purse.balance(&self.till, now_ms) == 0 {
            None
        } else if self.purse.is_idle(&self.till, now_ms) {
            Some(self.purse.give_back(&self.till, false, now_ms, terms))
        } else if self.purse.is_due(now_ms) {
            Some(self.purse.trim(&self.till, now_ms, terms))
        } else {
            None
        }
    }

    /// Whether it can be forgotten: nothing is in it, and nobody came back to it.
    pub fn is_over(&self, now_ms: u64, terms: &Terms) -> bool {
        let is_open = self.purse.is_asking() || now_ms < self.purse.closes_ms();
        !is_open && now_ms >= self.used_ms + 2 * terms.ttl_ms
    }
}
