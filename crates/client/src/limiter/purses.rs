//! What is held for each key, and what to do next.

use super::key::{Plain, Salt, Sought, text_in};
use super::table::{Found, Table};
use baton_api::limit::LeaseResponse;
use baton_core::limit::purse::{Message, Purse, Spent, Terms};
use baton_core::limit::till::{Taken, Till};
use std::mem::take;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::sync::futures::OwnedNotified;

/// How long a refusal by the store is taken to stand.
const REFUSED_MS_MAX: u64 = 100;
/// How long a limit that isn't leased is asked for every check before leases are tried again.
const UNLEASED_MS: u64 = 5_000;
/// What a lease is taken to live until the server has said it.
const TTL_MS: u64 = 10_000;

/// All purses.
#[derive(Default)]
pub(super) struct Purses {
    /// What this process is called in lists of leases.
    owner: String,
    salt: Salt,
    table: Table<Held>,
    next_lease: AtomicU32,
    is_looked_after: AtomicBool,
    /// Until when the limit is taken not to be leased.
    unleased_until_ms: AtomicU64,
    /// What the server said last: mostly it says the same of all keys, and they share it.
    said: Mutex<Option<Arc<Said>>>,
}

/// What is held for a key beside its till. A process may have a million of them, so what is seldom needed is elsewhere.
#[derive(Default)]
struct Held {
    purse: Purse,
    /// One key has no two with the same number within a lease's life.
    lease: u32,
    /// When somebody last looked at it, in seconds: whoever only spends doesn't.
    used_s: u32,
    /// Nothing before the first answer.
    said: Option<Arc<Said>>,
    rare: Option<Box<Rare>>,
    remaining: u64,
    reset_at_ms: u64,
}

/// What the server said of a key's limit.
#[derive(PartialEq, Eq)]
struct Said {
    terms: Terms,
    version: u64,
    limit: u64,
}

/// What most keys don't have.
#[derive(Default)]
struct Rare {
    /// Of a key too long for its slot.
    text: Option<Box<str>>,
    /// What the server calls the lease, if that isn't what this process does.
    called: Option<Box<str>>,
    /// What it has was given by another definition than the last answer's.
    is_outdated: bool,
    /// Who waits for an answer.
    answered: Option<Arc<Notify>>,
    refused: Option<Refused>,
}

impl Rare {
    fn is_needed(&self) -> bool {
        let Self { text, called, is_outdated, answered, refused } = self;
        *is_outdated || text.is_some() || called.is_some() || answered.is_some() || refused.is_some()
    }
}

#[derive(Clone, Copy)]
struct Refused {
    cost: u64,
    until_ms: u64,
    retry_at_ms: Option<u64>,
}

/// What to do next.
pub(super) enum Next {
    /// It was spent; and this should be said, beside it.
    Spent { ask: Option<Message> },
    /// The store has just said no.
    Refused { retry_after_ms: Option<u64> },
    /// The server has to decide.
    Ask,
    /// Somebody has asked already. It hears of everything that is told from now on.
    Wait(OwnedNotified),
    /// This has to be said first.
    Renew(Message),
}

impl Purses {
    pub fn new(owner: String) -> Self {
        Self { owner, ..Self::default() }
    }

    pub fn owner(&self) -> &str {
        &self.owner
    }

    #[inline]
    pub fn seek(&self, key: Plain<'_>) -> Sought {
        self.salt.seek(key)
    }

    /// Spends what is there, if nothing else has to be done first. [`Taken::Last`] is spent too: then [`low`](Self::low) says what
    /// to do.
    #[inline]
    pub fn take(&self, sought: &Sought, cost: u64, not_before_ms: u64) -> Taken {
        self.table.take(sought, cost, not_before_ms).unwrap_or(Taken::Look)
    }

    /// Little is left: what has to be said, if nobody says it already.
    pub fn low(&self, sought: &Sought, now_ms: u64) -> Option<Message> {
        let Found { slot, mut cold } = self.table.find(sought)?;
        cold.used_s = seconds(now_ms);
        let terms = cold.terms();
        (!cold.purse.is_asking()).then(|| cold.purse.ask(&slot.till, 0, now_ms, &terms))
    }

    pub fn is_first_look(&self) -> bool {
        !self.is_looked_after.swap(true, Ordering::Relaxed)
    }

    pub fn next(&self, key: Plain<'_>, sought: &Sought, cost: u64, now_ms: u64, renewed: bool) -> Next {
        let unleased_until_ms = self.unleased_until_ms.load(Ordering::Relaxed);
        let Some(Found { slot, mut cold }) = self.table.find(sought) else {
            // A key that comes once needs no purse.
            if now_ms >= unleased_until_ms {
                let lease = self.next_lease.fetch_add(1, Ordering::Relaxed);
                self.table.insert(sought, Held::new(key, sought, lease, now_ms));
            }
            return Next::Ask;
        };
        let held = &mut *cold;
        held.used_s = seconds(now_ms);
        let terms = held.terms();
        match held.purse.spend(&slot.till, cost, now_ms) {
            Spent::Yes { ask: false, .. } => Next::Spent { ask: None },
            Spent::Yes { ask: true, .. } => {
                Next::Spent { ask: Some(held.purse.ask(&slot.till, 0, now_ms, &terms)) }
            }
            Spent::No => held.short(&slot.till, cost, now_ms, renewed || now_ms < unleased_until_ms),
        }
    }

    /// What is known of a key: its limit, what is left, and in how many milliseconds all is back.
    pub fn seen(&self, sought: &Sought, now_ms: u64) -> (u64, u64, u64) {
        self.table.find(sought).map_or((0, 0, 0), |Found { slot, cold }| {
            let limit = cold.said.as_ref().map_or(0, |said| said.limit);
            let remaining = (cold.remaining + cold.purse.balance(&slot.till, now_ms)).min(limit);
            (limit, remaining, cold.reset_at_ms.saturating_sub(now_ms))
        })
    }

    /// What the lease of a key is called, and the version it counts by. Nothing if the key has been forgotten.
    pub fn lease_of(&self, sought: &Sought) -> Option<(String, Option<u64>)> {
        let Found { cold, .. } = self.table.find(sought)?;
        let called = cold.rare.as_ref().and_then(|rare| rare.called.as_deref().map(str::to_owned));
        Some((called.unwrap_or_else(|| self.own_name(cold.lease)), cold.version()))
    }

    /// What this process calls a lease.
    fn own_name(&self, lease: u32) -> String {
        format!("{}.{lease}", self.owner)
    }

    /// An answer. Whether there is something to spend now, or may be.
    pub fn heard(&self, sought: &Sought, message: &Message, lent: &LeaseResponse, now_ms: u64) -> bool {
        if lent.ttl_millis == 0 {
            self.unleased_until_ms.store(now_ms + UNLEASED_MS, Ordering::Relaxed);
        }
        let said = self.said(Said {
            terms: Terms { ttl_ms: lent.ttl_millis.max(1), size: lent.size },
            version: lent.version,
            limit: lent.limit,
        });
        let Some(Found { slot, mut cold }) = self.table.find(sought) else { return false };
        if cold.version().is_some_and(|version| version != lent.version) {
            cold.rare().is_outdated = true;
        }
        // A life that is shorter than was asked for counts from the same moment. What is left of one that isn't leased any more lives
        // as long as was asked for, until it is given back.
        let ttl_ms = if lent.ttl_millis == 0 { message.ttl_ms } else { lent.ttl_millis };
        let terms = Terms { ttl_ms, size: lent.size };
        let is_last = cold.purse.heard_for(&slot.till, message.sequence, lent.granted, &terms);
        if is_last && lent.lease_id != self.own_name(cold.lease) {
            cold.rare().called = Some(lent.lease_id.as_str().into());
        }
        cold.said = Some(said);
        cold.remaining = lent.remaining;
        cold.reset_at_ms = now_ms + lent.reset_millis;
        cold.tell(now_ms);
        lent.granted > 0
    }

    /// The same thing once for all keys that it was said of.
    fn said(&self, said: Said) -> Arc<Said> {
        let mut last = self.said.lock().expect("no panic while held");
        match &*last {
            Some(last) if **last == said => last.clone(),
            _ => last.insert(Arc::new(said)).clone(),
        }
    }

    /// What to say at once: what was given by another definition goes back.
    pub fn outdated(&self, sought: &Sought, now_ms: u64) -> Option<Message> {
        let Found { slot, mut cold } = self.table.find(sought)?;
        let held = &mut *cold;
        if held.purse.is_asking() || !held.rare.as_mut().is_some_and(|rare| take(&mut rare.is_outdated)) {
            return None;
        }
        held.rare.take_if(|rare| !rare.is_needed());
        let (has_some, terms) = (held.purse.balance(&slot.till, now_ms) > 0, held.terms());
        has_some.then(|| held.purse.give_back(&slot.till, false, now_ms, &terms))
    }

    /// Resolves when somebody hears an answer that is waited for now; nothing if nobody waits for any.
    pub fn next_answer(&self) -> Option<OwnedNotified> {
        let mut answer = None;
        self.table.each(|_, cold| {
            if answer.is_none() {
                let mut held = cold.lock().expect("no panic while held");
                answer = held.purse.is_asking().then(|| held.answer());
            }
        });
        answer
    }

    pub fn unheard(&self, sought: &Sought, message: &Message, now_ms: u64) {
        if let Some(Found { slot, mut cold }) = self.table.find(sought) {
            let terms = cold.terms();
            cold.purse.unheard(&slot.till, message.sequence, now_ms, &terms);
            cold.tell(now_ms);
        }
    }

    /// The store said no to a check of this key: for a moment that stands for all.
    pub fn note_refusal(&self, sought: &Sought, cost: u64, retry_after: Option<Duration>, now_ms: u64) {
        if let Some(mut found) = self.table.find(sought) {
            let retry_ms = retry_after.map(|retry| u64::try_from(retry.as_millis()).unwrap_or(u64::MAX));
            let until_ms = now_ms + retry_ms.unwrap_or(REFUSED_MS_MAX).min(REFUSED_MS_MAX);
            let retry_at_ms = retry_ms.map(|retry_ms| now_ms.saturating_add(retry_ms));
            found.cold.rare().refused = Some(Refused { cost, until_ms, retry_at_ms });
        }
    }

    /// What goes back now: what is idle, or all. Forgets keys that nobody came back to.
    pub fn leaving(&self, all: bool, now_ms: u64) -> Vec<(String, Sought, Message)> {
        self.table.forget(now_ms, |held| held.may_be_forgotten(now_ms));
        let mut leaving = Vec::new();
        self.table.each(|slot, cold| {
            if !all && slot.till.is_quiet(now_ms) {
                return;
            }
            let mut cold = cold.lock().expect("no panic while held");
            let held = &mut *cold;
            if held.purse.balance(&slot.till, now_ms) == 0 || held.purse.is_asking() {
                return;
            }
            let words = slot.words();
            let text = held.rare.as_ref().and_then(|rare| rare.text.as_deref().map(str::to_owned));
            let Some(text) = text.or_else(|| text_in(&words)) else { return };
            let terms = held.terms();
            let message = if all || held.purse.is_idle(&slot.till, now_ms) {
                held.purse.give_back(&slot.till, false, now_ms, &terms)
            } else if held.purse.is_due(now_ms) {
                held.purse.trim(&slot.till, now_ms, &terms)
            } else {
                return;
            };
            leaving.push((text, self.salt.again(words), message));
        });
        leaving
    }
}

fn seconds(now_ms: u64) -> u32 {
    u32::try_from(now_ms / 1_000).unwrap_or(u32::MAX)
}

impl Held {
    fn new(key: Plain<'_>, sought: &Sought, lease: u32, now_ms: u64) -> Self {
        let mut held = Self { lease, used_s: seconds(now_ms), ..Self::default() };
        if text_in(&sought.words).is_none() {
            held.rare().text = Some(key.text().into());
        }
        held
    }

    fn terms(&self) -> Terms {
        self.said.as_ref().map_or(Terms { ttl_ms: TTL_MS, size: None }, |said| said.terms)
    }

    fn version(&self) -> Option<u64> {
        self.said.as_ref().map(|said| said.version)
    }

    fn rare(&mut self) -> &mut Rare {
        self.rare.get_or_insert_default()
    }

    /// Resolves with the next answer, or when there is none.
    fn answer(&mut self) -> OwnedNotified {
        self.rare().answered.get_or_insert_default().clone().notified_owned()
    }

    fn may_be_forgotten(&self, now_ms: u64) -> bool {
        let used_ms = u64::from(self.used_s) * 1_000;
        let is_used = now_ms < used_ms.saturating_add(2 * self.terms().ttl_ms.max(1_000));
        !self.purse.is_asking() && now_ms >= self.purse.closes_ms() && !is_used
    }

    /// Whoever waits hears that there was an answer, or none. What isn't needed any more goes.
    fn tell(&mut self, now_ms: u64) {
        if let Some(rare) = &mut self.rare {
            if let Some(answered) = rare.answered.take() {
                answered.notify_waiters();
            }
            rare.refused.take_if(|refused| now_ms >= refused.until_ms);
            self.rare.take_if(|rare| !rare.is_needed());
        }
    }

    /// There isn't enough.
    fn short(&mut self, till: &Till, cost: u64, now_ms: u64, only_asks: bool) -> Next {
        let stands = |refused: &Refused| now_ms < refused.until_ms && refused.cost <= cost;
        if let Some(refused) = self.rare.as_ref().and_then(|rare| rare.refused).filter(stands) {
            let retry_after_ms = refused.retry_at_ms.map(|at_ms| at_ms.saturating_sub(now_ms).max(1));
            return Next::Refused { retry_after_ms };
        }
        if only_asks {
            return Next::Ask;
        }
        if self.purse.is_asking() {
            return Next::Wait(self.answer());
        }
        let terms = self.terms();
        Next::Renew(self.purse.ask(till, cost, now_ms, &terms))
    }
}
