//! What is held for each key, and what to do next.

use super::key::{Plain, Salt, Sought, text_in};
use super::table::{Found, Table};
use baton_api::limit::LeaseResponse;
use baton_core::limit::holder::{Holder, Known, Seen, Step, TTL_MS, Waits};
use baton_core::limit::purse::{Message, Purse, Rhythm, Terms};
use baton_core::limit::till::{Taken, Till};
use std::mem::take;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::sync::futures::OwnedNotified;

/// How long a limit that isn't leased is asked for every check before leases are tried again.
const UNLEASED_MS: u64 = 5_000;
/// A check waits once for an answer; then the server decides, who can ask the store for several at once.
const WAITS_MAX: usize = 1;

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
    known: Known,
}

impl Rare {
    fn is_needed(&self) -> bool {
        let Self { text, called, is_outdated, answered, known } = self;
        *is_outdated || text.is_some() || called.is_some() || answered.is_some() || known.is_needed()
    }
}

/// What to do next.
pub(super) enum Next {
    /// It was spent; and this should be said, beside it.
    Spent { ask: Option<Message> },
    /// The store has just said no.
    Refused { retry_after_ms: Option<u64> },
    /// The server has to decide; and this should be said, beside it.
    Ask { say: Option<Message> },
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
        cold.holder(&slot.till, &terms).replenish(now_ms)
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
            return Next::Ask { say: None };
        };
        let held = &mut *cold;
        held.used_s = seconds(now_ms);
        let terms = held.terms();
        let most = if now_ms < unleased_until_ms { 0 } else { WAITS_MAX };
        let waits = Waits { had: usize::from(renewed), most };
        let next = match held.holder(&slot.till, &terms).check(cost, now_ms, waits) {
            Step::Spent { ask, .. } => Next::Spent { ask },
            Step::Refused { retry_at_ms } => {
                let retry_after_ms = retry_at_ms.map(|at_ms| at_ms.saturating_sub(now_ms).max(1));
                Next::Refused { retry_after_ms }
            }
            Step::Wait => Next::Wait(held.answer()),
            Step::Renew(message) => Next::Renew(message),
            Step::Ask { say, .. } => Next::Ask { say },
        };
        held.tidy(now_ms);
        next
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
        let slack = lent.slack.as_ref();
        let behaves = |ttl_ms| Terms {
            rhythm: slack
                .map_or(Rhythm::Life, |slack| slack.sync_millis.map_or(Rhythm::AsUsed, Rhythm::Every)),
            low: slack.map_or(0, |slack| slack.low),
            size_max: slack.and_then(|slack| slack.max_size).unwrap_or(u64::MAX),
            ..Terms::lease(ttl_ms, lent.size)
        };
        let ttl_max_ms = slack.map_or(lent.ttl_millis, |slack| slack.max_ttl_millis);
        let terms = behaves(ttl_max_ms.max(1));
        let said = self.said(Said { terms, version: lent.version, limit: lent.limit });
        let Some(Found { slot, mut cold }) = self.table.find(sought) else { return false };
        if cold.version().is_some_and(|version| version != lent.version) {
            cold.rare().is_outdated = true;
        }
        // A life that is shorter than was asked for counts from the same moment. What is left of one that isn't leased any more lives
        // as long as was asked for, until it is given back.
        let ttl_ms = if lent.ttl_millis == 0 { message.ttl_ms } else { lent.ttl_millis };
        let seen = Seen {
            remaining: lent.remaining,
            left: slack.map_or(u64::MAX, |slack| slack.left),
            stands_ms: lent.retry_after_millis.unwrap_or_default(),
        };
        let terms = behaves(ttl_ms);
        let mut holder = cold.holder(&slot.till, &terms);
        let is_last = holder.heard_for(message.sequence, lent.granted, seen, now_ms);
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
        let terms = held.terms();
        let message = held.holder(&slot.till, &terms).look(true, now_ms);
        held.tidy(now_ms);
        message
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
            cold.holder(&slot.till, &terms).unheard(message.sequence, now_ms);
            cold.tell(now_ms);
        }
    }

    /// The store said no to a check of this key: for a moment that stands for all.
    pub fn note_refusal(&self, sought: &Sought, cost: u64, retry_after: Option<Duration>, now_ms: u64) {
        if let Some(Found { slot, mut cold }) = self.table.find(sought) {
            let retry_ms = retry_after.map(|retry| u64::try_from(retry.as_millis()).unwrap_or(u64::MAX));
            let terms = cold.terms();
            cold.holder(&slot.till, &terms).note_refusal(cost, retry_ms, 0, now_ms);
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
            let words = slot.words();
            let text = held.rare.as_ref().and_then(|rare| rare.text.as_deref().map(str::to_owned));
            let Some(text) = text.or_else(|| text_in(&words)) else { return };
            let terms = held.terms();
            let message = held.holder(&slot.till, &terms).look(all, now_ms);
            held.tidy(now_ms);
            let Some(message) = message else { return };
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
        self.said.as_ref().map_or(const { Terms::lease(TTL_MS, None) }, |said| said.terms)
    }

    /// With what it knows besides, which [`tidy`](Self::tidy) forgets again if it is nothing.
    fn holder<'a>(&'a mut self, till: &'a Till, terms: &'a Terms) -> Holder<'a> {
        let known = &mut self.rare.get_or_insert_default().known;
        Holder { till, purse: &mut self.purse, known, terms }
    }

    /// What isn't needed any more goes.
    fn tidy(&mut self, now_ms: u64) {
        if let Some(rare) = &mut self.rare {
            rare.known.tidy(now_ms);
        }
        self.rare.take_if(|rare| !rare.is_needed());
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
        let is_used = now_ms < used_ms.saturating_add(2 * self.terms().ttl_ms.clamp(1_000, TTL_MS));
        !self.purse.is_asking() && now_ms >= self.purse.closes_ms() && !is_used
    }

    /// Whoever waits hears that there was an answer, or none. What isn't needed any more goes.
    fn tell(&mut self, now_ms: u64) {
        if let Some(answered) = self.rare.as_mut().and_then(|rare| rare.answered.take()) {
            answered.notify_waiters();
        }
        self.tidy(now_ms);
    }
}
