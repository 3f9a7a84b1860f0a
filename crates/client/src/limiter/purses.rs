//! What is held for each key, and what to do next.

use baton_api::limit::LeaseResponse;
use baton_core::limit::purse::{Message, Purse, Spent, Terms};
use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::sync::futures::OwnedNotified;

const SHARDS: usize = 64;
/// Keys with a purse, over all shards. Beyond it those that come new ask the server.
const PURSES_MAX: usize = 100_000;
/// How long a refusal by the store is taken to stand.
const REFUSED_MS_MAX: u64 = 100;
/// How long a limit that isn't leased is asked for every check before leases are tried again.
const UNLEASED_MS: u64 = 5_000;
/// What a lease is taken to live until the server has said it.
const TTL_MS: u64 = 10_000;

/// All purses.
pub(super) struct Purses {
    shards: Vec<Mutex<HashMap<Box<str>, Held>>>,
    hasher: RandomState,
    next_lease: AtomicU64,
    is_looked_after: AtomicBool,
    /// Until when the limit is taken not to be leased.
    unleased_until_ms: AtomicU64,
}

struct Held {
    purse: Purse,
    lease: u64,
    /// What the server calls it.
    called: Option<String>,
    terms: Terms,
    version: Option<u64>,
    /// What it has was given by another definition than the last answer's.
    is_outdated: bool,
    answered: Arc<Notify>,
    limit: u64,
    remaining: u64,
    reset_at_ms: u64,
    used_ms: u64,
    refused: Option<Refused>,
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

impl Default for Purses {
    fn default() -> Self {
        Self {
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            hasher: RandomState::new(),
            next_lease: AtomicU64::new(1),
            is_looked_after: AtomicBool::new(false),
            unleased_until_ms: AtomicU64::new(0),
        }
    }
}

impl Purses {
    fn shard(&self, key: &str) -> MutexGuard<'_, HashMap<Box<str>, Held>> {
        let shard = self.hasher.hash_one(key) as usize % SHARDS;
        self.shards[shard].lock().expect("no panic while held")
    }

    pub fn is_first_look(&self) -> bool {
        !self.is_looked_after.swap(true, Ordering::Relaxed)
    }

    pub fn next(&self, key: &str, cost: u64, now_ms: u64, renewed: bool) -> Next {
        let mut shard = self.shard(key);
        let Some(held) = shard.get_mut(key) else {
            // A key that comes once needs no purse.
            let is_leased = now_ms >= self.unleased_until_ms.load(Ordering::Relaxed);
            if is_leased && shard.len() < PURSES_MAX / SHARDS {
                let lease = self.next_lease.fetch_add(1, Ordering::Relaxed);
                shard.insert(key.into(), Held::new(lease, now_ms));
            }
            return Next::Ask;
        };
        held.used_ms = now_ms;
        match held.purse.spend(cost, now_ms, &held.terms) {
            Spent::Yes { ask: false, .. } => Next::Spent { ask: None },
            Spent::Yes { ask: true, .. } => Next::Spent { ask: Some(held.purse.ask(0, now_ms, &held.terms)) },
            Spent::No => held.short(cost, now_ms, renewed, self.unleased_until_ms.load(Ordering::Relaxed)),
        }
    }

    /// What is known of a key: its limit, what is left, and in how many milliseconds all is back.
    pub fn seen(&self, key: &str, now_ms: u64) -> (u64, u64, u64) {
        self.shard(key).get(key).map_or((0, 0, 0), |held| {
            let remaining = (held.remaining + held.purse.balance(now_ms)).min(held.limit);
            (held.limit, remaining, held.reset_at_ms.saturating_sub(now_ms))
        })
    }

    /// What the lease of a key is called, and the version it counts by.
    pub fn lease_of(&self, key: &str, owner: &str) -> (String, Option<u64>) {
        let shard = self.shard(key);
        let held = shard.get(key);
        let called = held.and_then(|held| held.called.clone());
        let lease = held.map_or(0, |held| held.lease);
        (called.unwrap_or_else(|| format!("{owner}.{lease}")), held.and_then(|held| held.version))
    }

    /// An answer. Whether there is something to spend now, or may be.
    pub fn heard(&self, key: &str, message: &Message, lent: &LeaseResponse, now_ms: u64) -> bool {
        let mut shard = self.shard(key);
        let Some(held) = shard.get_mut(key) else { return false };
        if lent.ttl_millis == 0 {
            self.unleased_until_ms.store(now_ms + UNLEASED_MS, Ordering::Relaxed);
        }
        // A life that is shorter than was asked for counts from the same moment.
        held.is_outdated |= held.version.is_some_and(|version| version != lent.version);
        // What is left of one that isn't leased any more lives as long as was asked for, until it is given back.
        let ttl_ms = if lent.ttl_millis == 0 { message.ttl_ms } else { lent.ttl_millis };
        if held.purse.heard_for(message.sequence, lent.granted, ttl_ms) {
            held.called = Some(lent.lease_id.clone());
        }
        held.terms = Terms { ttl_ms: lent.ttl_millis.max(1), size: lent.size };
        held.version = Some(lent.version);
        (held.limit, held.remaining) = (lent.limit, lent.remaining);
        held.reset_at_ms = now_ms + lent.reset_millis;
        held.answered.notify_waiters();
        lent.granted > 0
    }

    /// What to say at once: what was given by another definition goes back.
    pub fn outdated(&self, key: &str, now_ms: u64) -> Option<Message> {
        let mut shard = self.shard(key);
        let held = shard.get_mut(key)?;
        let is_due = held.is_outdated && !held.purse.is_asking();
        held.is_outdated &= !is_due;
        (is_due && held.purse.balance(now_ms) > 0).then(|| held.purse.give_back(false, now_ms, &held.terms))
    }

    pub fn unheard(&self, key: &str, message: &Message, now_ms: u64) {
        if let Some(held) = self.shard(key).get_mut(key) {
            held.purse.unheard(message.sequence, now_ms);
            held.answered.notify_waiters();
        }
    }

    /// The store said no to a check of this key: for a moment that stands for all.
    pub fn note_refusal(&self, key: &str, cost: u64, retry_after: Option<Duration>, now_ms: u64) {
        if let Some(held) = self.shard(key).get_mut(key) {
            let retry_ms = retry_after.map(|retry| u64::try_from(retry.as_millis()).unwrap_or(u64::MAX));
            let until_ms = now_ms + retry_ms.unwrap_or(REFUSED_MS_MAX).min(REFUSED_MS_MAX);
            let retry_at_ms = retry_ms.map(|retry_ms| now_ms.saturating_add(retry_ms));
            held.refused = Some(Refused { cost, until_ms, retry_at_ms });
        }
    }

    /// What goes back now: what is idle, or all. Forgets keys that nobody came back to.
    pub fn leaving(&self, all: bool, now_ms: u64) -> Vec<(String, Message)> {
        let mut leaving = Vec::new();
        for shard in &self.shards {
            let mut shard = shard.lock().expect("no panic while held");
            shard.retain(|_, held| {
                let is_used = now_ms < held.used_ms.saturating_add(2 * held.terms.ttl_ms);
                held.purse.is_asking() || now_ms < held.purse.closes_ms() || is_used
            });
            for (key, held) in shard.iter_mut() {
                if held.purse.balance(now_ms) == 0 || held.purse.is_asking() {
                    continue;
                }
                if all || held.purse.is_idle(now_ms) {
                    leaving.push((key.to_string(), held.purse.give_back(false, now_ms, &held.terms)));
                } else if held.purse.is_due(now_ms) {
                    leaving.push((key.to_string(), held.purse.trim(now_ms, &held.terms)));
                }
            }
        }
        leaving
    }
}

impl Held {
    fn new(lease: u64, now_ms: u64) -> Self {
        Self {
            purse: Purse::default(),
            lease,
            called: None,
            terms: Terms { ttl_ms: TTL_MS, size: None },
            version: None,
            is_outdated: false,
            answered: Arc::default(),
            limit: 0,
            remaining: 0,
            reset_at_ms: 0,
            used_ms: now_ms,
            refused: None,
        }
    }

    /// There isn't enough.
    fn short(&mut self, cost: u64, now_ms: u64, renewed: bool, unleased_until_ms: u64) -> Next {
        let stands = |refused: &Refused| now_ms < refused.until_ms && refused.cost <= cost;
        if let Some(refused) = self.refused.filter(stands) {
            let retry_after_ms = refused.retry_at_ms.map(|at_ms| at_ms.saturating_sub(now_ms).max(1));
            return Next::Refused { retry_after_ms };
        }
        if renewed || now_ms < unleased_until_ms {
            return Next::Ask;
        }
        if self.purse.is_asking() {
            return Next::Wait(self.answered.clone().notified_owned());
        }
        Next::Renew(self.purse.ask(cost, now_ms, &self.terms))
    }
}
