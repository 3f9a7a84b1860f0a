//! Keys whose counts spread, as this node knows them, and which of them have something to tell.
//!
//! There is an end to them. What is in the replica can be read from there again, so it makes way for others.

use super::spread::Report;
use crate::replica::Replica;
use baton_core::Name;
use baton_core::crdt::Actor;
use baton_core::limit::gossip::{Known, Pace, Part, Tally, Window};
use baton_core::meter::{Algorithm, Rule};
use std::collections::hash_map::RandomState;
use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasher, Hash, Hasher};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard};

const SHARDS: usize = 64;
/// Keys in one of them, besides those that share a count.
const KEYS_MAX: usize = 1_000_000 / SHARDS;
/// What was used more recently than this stays, if there are others that can go.
const RECENT_MS: u64 = 1_000;
/// How often a full one is looked through for what can go.
const LOOK_EVERY_MS: u64 = 100;

/// One key's.
pub(super) struct Entry {
    pub known: Known,
    pub pace: Pace,
    /// How far the replica had grown when it was read last.
    seen: Option<u64>,
    /// Whether it is in line to be told.
    is_in_line: bool,
    used_ms: u64,
}

/// What came of bringing a count up to date.
pub(super) struct Learnt {
    /// What others have counted was read.
    pub is_news: bool,
    /// Another window has begun.
    pub has_turned: bool,
}

impl Entry {
    pub fn new(rule: &Rule, now_ms: u64) -> Self {
        let mut pace = Pace::default();
        pace.turn(now_ms);
        Self { known: Known::new(rule, now_ms), pace, seen: None, is_in_line: false, used_ms: now_ms }
    }

    /// Brings it to this moment, and reads what the replica has if that may be more than was read.
    pub fn learn(
        &mut self,
        replica: Option<&Replica>,
        writer: Actor,
        (limit, key): (&Name, &str),
        rule: &Rule,
        now_ms: u64,
    ) -> Learnt {
        self.used_ms = now_ms;
        let has_turned = self.known.advance(rule, now_ms);
        if has_turned {
            self.pace.turn(now_ms);
        }
        // Before the rows: what comes meanwhile is read again.
        let growth = replica.map(Replica::growth);
        let is_news = growth.is_some() && (has_turned || self.seen != growth);
        if let Some(replica) = replica.filter(|_| is_news) {
            let Known { window, current, previous, .. } = &mut self.known;
            let learn = |part: &mut Part, window: Window| {
                replica.with_row(&window.row(limit, key), |row| part.learn(row, writer));
                replica.with_row(&window.refunds(limit, key), |row| part.learn_refunds(row));
            };
            learn(current, *window);
            if rule.algorithm == Algorithm::SlidingWindow {
                learn(previous, window.before());
            }
            self.seen = growth;
        }
        Learnt { is_news, has_turned }
    }

    /// Whether it has something to tell and isn't in line yet; from now on it is.
    pub fn must_be_told(&mut self) -> bool {
        let must = !self.is_in_line && !self.is_told();
        self.is_in_line |= must;
        must
    }

    fn is_told(&self) -> bool {
        self.known.current.report().is_none() && self.known.previous.report().is_none()
    }
}

/// Whose count.
#[derive(Clone)]
pub(super) struct Place {
    pub limit: Name,
    pub key: Box<str>,
}

#[derive(Default)]
pub(super) struct Shard {
    limits: HashMap<Name, HashMap<Box<str>, Entry>>,
    count: usize,
    /// When it was last looked through for what can go.
    looked_ms: u64,
}

impl Shard {
    pub fn has(&self, limit: &Name, key: &str) -> bool {
        self.limits.get(limit).is_some_and(|keys| keys.contains_key(key))
    }

    pub fn find(&mut self, limit: &Name, key: &str) -> Option<&mut Entry> {
        self.limits.get_mut(limit)?.get_mut(key)
    }

    pub fn entry(&mut self, limit: &Name, key: &str, rule: &Rule, now_ms: u64) -> &mut Entry {
        if !self.has(limit, key) {
            self.count += 1;
            let keys = self.limits.entry(limit.clone()).or_default();
            keys.insert(key.into(), Entry::new(rule, now_ms));
        }
        self.find(limit, key).expect("it was there, or is now")
    }

    /// Whether there is room for one more; what was told and isn't used just now makes way.
    pub fn make_room(&mut self, now_ms: u64) -> bool {
        // Not for each of many that come when nothing can go.
        if self.count >= KEYS_MAX && now_ms >= self.looked_ms.saturating_add(LOOK_EVERY_MS) {
            self.looked_ms = now_ms;
            self.retain(|entry| !entry.is_told() || entry.used_ms.saturating_add(RECENT_MS) > now_ms);
        }
        self.count < KEYS_MAX
    }

    /// Forgets what is over: nothing of it counts any more, whether or not it was told.
    pub fn forget_over(&mut self, now_ms: u64) {
        self.retain(|entry| !entry.known.window.is_forgettable(now_ms));
    }

    fn retain(&mut self, keep: impl Fn(&Entry) -> bool) {
        self.limits.retain(|_, keys| {
            keys.retain(|_, entry| keep(entry));
            keys.shrink_to(2 * keys.len());
            !keys.is_empty()
        });
        self.count = self.limits.values().map(HashMap::len).sum();
    }

    /// The fastest that any key of a limit was used.
    pub fn fastest(&self, limit: &Name) -> Option<u64> {
        let keys = self.limits.get(limit).into_iter().flatten();
        keys.map(|(_, entry)| entry.pace.rate()).max()
    }
}

/// What is to be told when: by this node's uptime, in milliseconds. Nobody is in it twice.
#[derive(Default)]
struct Line(BTreeMap<u64, Vec<Place>>);

pub(super) struct Table {
    shards: Vec<Mutex<Shard>>,
    hasher: RandomState,
    line: Mutex<Line>,
    is_wanted: AtomicBool,
}

impl Default for Table {
    fn default() -> Self {
        Self {
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            hasher: RandomState::new(),
            line: Mutex::default(),
            is_wanted: AtomicBool::new(false),
        }
    }
}

impl Table {
    pub fn shard(&self, limit: &Name, key: &str) -> MutexGuard<'_, Shard> {
        let mut hasher = self.hasher.build_hasher();
        limit.hash(&mut hasher);
        key.hash(&mut hasher);
        locked(&self.shards[hasher.finish() as usize % SHARDS])
    }

    /// One after the other.
    pub fn shards(&self) -> impl Iterator<Item = MutexGuard<'_, Shard>> {
        self.shards.iter().map(locked)
    }

    /// Whether anybody needs the replica.
    pub fn is_wanted(&self) -> bool {
        self.is_wanted.load(Ordering::Relaxed)
    }

    pub fn want(&self) {
        self.is_wanted.store(true, Ordering::Relaxed);
    }

    fn line(&self) -> MutexGuard<'_, Line> {
        self.line.lock().expect("no panic while held")
    }

    /// Puts a key in line, to be told with all others of the same rhythm. Whether it is the first.
    pub fn tell(&self, limit: &Name, key: &str, now_ms: u64, every_ms: u64) -> bool {
        let due_ms = (now_ms / every_ms.max(1) + 1) * every_ms.max(1);
        let mut line = self.line();
        let is_first = line.0.first_key_value().is_none_or(|(first_ms, _)| due_ms < *first_ms);
        line.0.entry(due_ms).or_default().push(Place { limit: limit.clone(), key: key.into() });
        is_first
    }

    /// When the first are due.
    pub fn due_ms(&self) -> Option<u64> {
        self.line().0.first_key_value().map(|(due_ms, _)| *due_ms)
    }

    /// Those that are due.
    pub fn take_due(&self, now_ms: u64) -> Vec<Place> {
        let mut line = self.line();
        let later = line.0.split_off(&now_ms.saturating_add(1));
        std::mem::replace(&mut line.0, later).into_values().flatten().collect()
    }

    /// How many are in line.
    pub fn waiting(&self) -> usize {
        self.line().0.values().map(Vec::len).sum()
    }

    /// What a key that was in line has to tell. From now on it isn't.
    pub fn reports(&self, place: &Place) -> Vec<(Window, Tally)> {
        let mut shard = self.shard(&place.limit, &place.key);
        let Some(entry) = shard.find(&place.limit, &place.key) else { return Vec::new() };
        entry.is_in_line = false;
        let Known { window, current, previous, .. } = &entry.known;
        let parts = [(*window, current.report()), (window.before(), previous.report())];
        parts.into_iter().filter_map(|(window, tally)| Some((window, tally?))).collect()
    }

    /// What a key has to tell of a window just now. It stays in line.
    pub fn report_of(&self, place: Place, window: Window) -> Option<Report> {
        let tally = {
            let mut shard = self.shard(&place.limit, &place.key);
            let known = &shard.find(&place.limit, &place.key)?.known;
            if window == known.window {
                known.current.report()
            } else if window == known.window.before() {
                known.previous.report()
            } else {
                None
            }
        };
        Some(Report { place, window, tally: tally? })
    }

    /// That much is in the replica.
    pub fn reported(&self, place: &Place, window: Window, tally: Tally) {
        let mut shard = self.shard(&place.limit, &place.key);
        let Some(entry) = shard.find(&place.limit, &place.key) else { return };
        let Known { window: present, current, previous, .. } = &mut entry.known;
        if window == *present {
            current.reported = tally;
        } else if window == present.before() {
            previous.reported = tally;
        }
    }

    /// It couldn't be told, and is in line again, if it isn't already.
    pub fn tell_again(&self, place: &Place, now_ms: u64, after_ms: u64) {
        let must = {
            let mut shard = self.shard(&place.limit, &place.key);
            shard.find(&place.limit, &place.key).is_some_and(Entry::must_be_told)
        };
        if must {
            self.tell(&place.limit, &place.key, now_ms, after_ms);
        }
    }
}

fn locked(shard: &Mutex<Shard>) -> MutexGuard<'_, Shard> {
    shard.lock().expect("no panic while held")
}
