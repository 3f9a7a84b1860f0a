//! What is held for each key, and what to do next.

use super::key::{Plain, Salt, Sought, WORDS, text_in};
use super::open::Open;
use super::table::{Found, Table};
use baton_api::limit::LeaseResponse;
use baton_core::limit::holder::{Known, Seen, Step, TTL_MS, Waits};
use baton_core::limit::pocket::Pocket;
use baton_core::limit::purse::{Message, Purse, Rhythm, Terms};
use baton_core::limit::till::Till;
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
    texts: Table<WORDS, Held>,
    numbers: Table<1, Held>,
    next_lease: AtomicU32,
    is_looked_after: AtomicBool,
    /// Until when the limit is taken not to be leased.
    unleased_until_ms: AtomicU64,
    /// What the server said last: mostly it says the same of all keys, and they share it.
    said: Mutex<Option<Arc<Said>>>,
}

/// What is held for a key beside its pocket. A process may have a million of them, so what is seldom needed is elsewhere.
#[derive(Default)]
pub(super) struct Held {
    pub purse: Purse,
    /// What isn't in the pocket.
    pub balance: i64,
    /// One key has no two with the same number within a lease's life.
    lease: u32,
    /// Until when it isn't forgotten, in seconds: twice a lease's life since somebody looked (whoever only spends doesn't), and as
    /// long as an alarm was set for.
    stays_s: u32,
    /// Nothing before the first answer.
    said: Option<Arc<Said>>,
    pub rare: Option<Box<Rare>>,
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
pub(super) struct Rare {
    /// Of a key too long for its place.
    text: Option<Box<str>>,
    /// What the server calls the lease, if that isn't what this process does.
    called: Option<Box<str>>,
    /// What it has was given by another definition than the last answer's.
    is_outdated: bool,
    /// Who waits for an answer.
    answered: Option<Arc<Notify>>,
    pub known: Known,
}

impl Rare {
    pub fn is_needed(&self) -> bool {
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

    pub fn seek(&self, key: Plain<'_>) -> Sought {
        self.salt.seek(key)
    }

    /// Spends what is there, if nothing else has to be done first.
    #[inline]
    pub fn take(&self, key: Plain<'_>, cost: u64, not_before_ms: u64) -> bool {
        match key {
            Plain::Number(number) => self.numbers.take(&self.salt.number(number), cost, not_before_ms),
            Plain::Text(text) => self.texts.take(&self.salt.text(text), cost, not_before_ms),
        }
    }

    fn find(&self, sought: &Sought) -> Option<Found<'_, Held>> {
        match sought {
            Sought::Number(mark) => self.numbers.find(mark),
            Sought::Text(mark) => self.texts.find(mark),
        }
    }

    fn open(&self, sought: &Sought, now_ms: u64) -> Option<Open<'_>> {
        self.find(sought).map(|found| Open::new(found, now_ms))
    }

    /// Gives a key a purse, if there is room.
    fn insert(&self, key: Plain<'_>, sought: &Sought, now_ms: u64) {
        let held = Held::new(key, sought, self.next_lease.fetch_add(1, Ordering::Relaxed), now_ms);
        match sought {
            Sought::Number(mark) => self.numbers.insert(mark, held, |[number]| self.salt.number(number)),
            Sought::Text(mark) => self.texts.insert(mark, held, |words| self.salt.words(words)),
        };
    }

    pub fn is_first_look(&self) -> bool {
        !self.is_looked_after.swap(true, Ordering::Relaxed)
    }

    pub fn next(&self, key: Plain<'_>, sought: &Sought, cost: u64, now_ms: u64, renewed: bool) -> Next {
        let unleased_until_ms = self.unleased_until_ms.load(Ordering::Relaxed);
        let Some(mut open) = self.open(sought, now_ms) else {
            // A key that comes once needs no purse.
            if now_ms >= unleased_until_ms {
                self.insert(key, sought, now_ms);
            }
            return Next::Ask { say: None };
        };
        open.held().is_used(now_ms);
        let most = if now_ms < unleased_until_ms { 0 } else { WAITS_MAX };
        let waits = Waits { had: usize::from(renewed), most };
        match open.holder().check(cost, now_ms, waits) {
            Step::Spent { ask, .. } => Next::Spent { ask },
            Step::Refused { retry_at_ms } => {
                let retry_after_ms = retry_at_ms.map(|at_ms| at_ms.saturating_sub(now_ms).max(1));
                Next::Refused { retry_after_ms }
            }
            Step::Wait => Next::Wait(open.held().answer()),
            Step::Renew(message) => Next::Renew(message),
            Step::Ask { say, .. } => Next::Ask { say },
        }
    }

    /// What is known of a key: its limit, what is left, and in how many milliseconds all is back.
    pub fn seen(&self, sought: &Sought, now_ms: u64) -> (u64, u64, u64) {
        self.find(sought).map_or((0, 0, 0), |Found { pocket, cold, .. }| {
            let limit = cold.said.as_ref().map_or(0, |said| said.limit);
            let till = Till::of(cold.balance + pocket.amount() as i64);
            let remaining = (cold.remaining + cold.purse.balance(&till, now_ms)).min(limit);
            (limit, remaining, cold.reset_at_ms.saturating_sub(now_ms))
        })
    }

    /// What the lease of a key is called, and the version it counts by. Nothing if the key has been forgotten.
    pub fn lease_of(&self, sought: &Sought) -> Option<(String, Option<u64>)> {
        let Found { cold, .. } = self.find(sought)?;
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
        // A life that is shorter than was asked for counts from the same moment. What is left of one that isn't leased any more lives
        // as long as was asked for, until it is given back.
        let ttl_ms = if lent.ttl_millis == 0 { message.ttl_ms } else { lent.ttl_millis };
        let seen = Seen {
            remaining: lent.remaining,
            left: slack.map_or(u64::MAX, |slack| slack.left),
            stands_ms: lent.retry_after_millis.unwrap_or_default(),
        };
        let Some(mut open) = self.open(sought, now_ms) else { return false };
        open.terms = behaves(ttl_ms);
        let is_last = open.holder().heard_for(message.sequence, lent.granted, seen, now_ms);
        let held = open.held();
        if held.version().is_some_and(|version| version != lent.version) {
            held.rare().is_outdated = true;
        }
        if is_last && lent.lease_id != self.own_name(held.lease) {
            held.rare().called = Some(lent.lease_id.as_str().into());
        }
        held.said = Some(said);
        held.remaining = lent.remaining;
        held.reset_at_ms = now_ms + lent.reset_millis;
        held.tell();
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
        let mut open = self.open(sought, now_ms)?;
        let held = open.held();
        if held.purse.is_asking() || !held.rare.as_mut().is_some_and(|rare| take(&mut rare.is_outdated)) {
            return None;
        }
        open.holder().look(true, now_ms)
    }

    /// Resolves when somebody hears an answer that is waited for now; nothing if nobody waits for any.
    pub fn next_answer(&self) -> Option<OwnedNotified> {
        let mut answer = None;
        let mut look = |found: Found<'_, Held>| {
            let mut held = found.cold;
            if answer.is_none() && held.purse.is_asking() {
                answer = Some(held.answer());
            }
        };
        self.texts.each(|_| true, |_, found| look(found));
        self.numbers.each(|_| true, |_, found| look(found));
        answer
    }

    pub fn unheard(&self, sought: &Sought, message: &Message, now_ms: u64) {
        if let Some(mut open) = self.open(sought, now_ms) {
            open.holder().unheard(message.sequence, now_ms);
            open.held().tell();
        }
    }

    /// The store said no to a check of this key: for a moment that stands for all.
    pub fn note_refusal(&self, sought: &Sought, cost: u64, retry_after: Option<Duration>, now_ms: u64) {
        if let Some(mut open) = self.open(sought, now_ms) {
            let retry_ms = retry_after.map(|retry| u64::try_from(retry.as_millis()).unwrap_or(u64::MAX));
            open.holder().note_refusal(cost, retry_ms, 0, now_ms);
        }
    }

    /// What goes back now: what is idle, or all. Forgets keys that nobody came back to.
    pub fn leaving(&self, all: bool, now_ms: u64) -> Vec<(String, Sought, Message)> {
        let may_go = |held: &Held| held.may_be_forgotten(now_ms);
        self.texts.forget(now_ms, may_go);
        self.numbers.forget(now_ms, may_go);
        let mut leaving = Vec::new();
        let look = |found: Found<'_, Held>| Open::new(found, now_ms).holder().look(all, now_ms);
        let is_worth_it = |pocket: &Pocket| all || !pocket.is_quiet(now_ms);
        self.texts.each(is_worth_it, |words, found| {
            let long = found.cold.rare.as_ref().and_then(|rare| rare.text.as_deref().map(str::to_owned));
            let Some(text) = long.or_else(|| text_in(&words)) else { return };
            let sought = Sought::Text(self.salt.words(words));
            leaving.extend(look(found).map(|message| (text, sought, message)));
        });
        self.numbers.each(is_worth_it, |[number], found| {
            let sought = Sought::Number(self.salt.number(number));
            leaving.extend(look(found).map(|message| (number.to_string(), sought, message)));
        });
        leaving
    }
}

impl Held {
    fn new(key: Plain<'_>, sought: &Sought, lease: u32, now_ms: u64) -> Self {
        let mut held = Self { lease, ..Self::default() };
        held.is_used(now_ms);
        if let Sought::Text(mark) = sought
            && text_in(&mark.words).is_none()
        {
            held.rare().text = Some(key.text().into());
        }
        held
    }

    /// Somebody has looked at it.
    fn is_used(&mut self, now_ms: u64) {
        self.stays(now_ms + 2 * self.terms().ttl_ms.clamp(1_000, TTL_MS));
    }

    /// It isn't forgotten before.
    pub fn stays(&mut self, until_ms: u64) {
        self.stays_s = self.stays_s.max(u32::try_from(until_ms.div_ceil(1_000)).unwrap_or(u32::MAX));
    }

    pub fn terms(&self) -> Terms {
        self.said.as_ref().map_or(const { Terms::lease(TTL_MS, None) }, |said| said.terms)
    }

    fn version(&self) -> Option<u64> {
        self.said.as_ref().map(|said| said.version)
    }

    pub fn rare(&mut self) -> &mut Rare {
        self.rare.get_or_insert_default()
    }

    /// Resolves with the next answer, or when there is none.
    fn answer(&mut self) -> OwnedNotified {
        self.rare().answered.get_or_insert_default().clone().notified_owned()
    }

    fn may_be_forgotten(&self, now_ms: u64) -> bool {
        let stays_ms = u64::from(self.stays_s) * 1_000;
        !self.purse.is_asking() && now_ms >= self.purse.closes_ms() && now_ms >= stays_ms
    }

    /// Whoever waits hears that there was an answer, or none.
    fn tell(&mut self) {
        if let Some(answered) = self.rare.as_mut().and_then(|rare| rare.answered.take()) {
            answered.notify_waiters();
        }
    }
}
