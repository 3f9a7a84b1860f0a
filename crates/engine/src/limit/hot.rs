//! Keys that are used far more than others: found by samples, shown, and kept from their neighbours' way as their limit's definition says (M3).
//!
//! An owner that hears most of its checks for one key tells the nodes that forward it that it is hot. For a while they decide it themselves
//! then, or send it to others, each of whom decides out of what it debits at the store; or they let no more than so many checks of it through.

use super::calls::CheckCall;
use crate::engine::{Engine, Node};
use baton_core::limit::hot::{Hot, HotKey};
use baton_core::limit::mitigation::Pace;
use baton_core::limit::{Mechanism, Mitigation, meter_key};
use baton_core::{Key, Name};
use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, RwLock};
use std::time::Duration;

/// One of this many checks is looked at.
const SAMPLE: u64 = 8;
/// How often it is found out which are hot.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// For how long a key is taken for hot that another node said is.
const TOLD_MS: u64 = 10_000;
/// Keys that others said are hot; of more it isn't known.
const TOLD_MAX: usize = 1_024;

/// A key that is hot at this node.
pub type HotLimitKey = HotKey<(Name, String)>;

/// What is known of hot keys.
#[derive(Default)]
pub(crate) struct HotKeys {
    checks: AtomicU64,
    hasher: RandomState,
    sketch: Mutex<Hot<(Name, String)>>,
    hot: RwLock<Arc<Found>>,
    /// Until when keys are taken for hot that others said are.
    told: Mutex<HashMap<Key, u64>>,
    /// What was let through of those that are capped. None is in it but keys that are hot, here or by others' word.
    paces: Mutex<HashMap<Key, Pace>>,
    turns: AtomicU64,
}

#[derive(Default)]
struct Found {
    keys: Vec<HotLimitKey>,
    places: HashSet<Key>,
}

impl HotKeys {
    /// A check came. Most are passed over, and so is one that would have to wait for another.
    pub fn note(&self, call: &CheckCall, now_ms: impl Fn() -> u64) {
        if !self.checks.fetch_add(1, Ordering::Relaxed).is_multiple_of(SAMPLE) {
            return;
        }
        let Ok(mut sketch) = self.sketch.try_lock() else { return };
        let hash = self.hasher.hash_one((call.limit.path(), &call.key));
        sketch.note(hash, SAMPLE, now_ms(), || (call.limit.clone(), call.key.clone()));
    }

    fn look(&self, now_ms: u64) -> usize {
        let keys = self.sketch.lock().expect("no panic while held").hot(now_ms);
        let places: HashSet<_> = keys.iter().map(|found| meter_key(&found.label.0, &found.label.1)).collect();
        self.told.lock().expect("no panic while held").retain(|place, until_ms| {
            if places.contains(place) {
                // Its owner doesn't hear of it any more, and couldn't say so again.
                *until_ms = now_ms + TOLD_MS;
            }
            now_ms < *until_ms
        });
        self.paces.lock().expect("no panic while held").retain(|_, pace| !pace.is_over(now_ms));
        let count = keys.len();
        *self.hot.write().expect("no panic while held") = Arc::new(Found { keys, places });
        count
    }

    fn found(&self) -> Arc<Found> {
        self.hot.read().expect("no panic while held").clone()
    }

    /// Whether a key is hot here.
    pub fn is_hot(&self, place: &Key) -> bool {
        let found = self.found();
        !found.places.is_empty() && found.places.contains(place)
    }

    /// Another node says that a key is hot.
    pub fn tell(&self, place: Key, now_ms: u64) {
        let mut told = self.told.lock().expect("no panic while held");
        if told.len() < TOLD_MAX || told.contains_key(&place) {
            told.insert(place, now_ms + TOLD_MS);
        }
    }

    /// Whether another node has said that a key is hot.
    pub fn is_told(&self, place: &Key, now_ms: u64) -> bool {
        let told = self.told.lock().expect("no panic while held");
        told.get(place).is_some_and(|until_ms| now_ms < *until_ms)
    }

    /// Lets a check of a capped key through, or says after how many milliseconds one can be.
    pub fn pace(&self, place: &Key, per_second: u64, now_ms: u64) -> Result<(), u64> {
        if !self.is_hot(place) && !self.is_told(place, now_ms) {
            return Ok(());
        }
        let mut paces = self.paces.lock().expect("no panic while held");
        if let Some(pace) = paces.get_mut(place) {
            return pace.admit(per_second, now_ms);
        }
        let mut pace = Pace::default();
        let admitted = pace.admit(per_second, now_ms);
        paces.insert(place.clone(), pace);
        admitted
    }

    /// A number for each who asks, to take turns by.
    pub fn turn(&self) -> u64 {
        self.turns.fetch_add(1, Ordering::Relaxed)
    }
}

impl Engine {
    /// The keys that are hot at this node, hottest first.
    pub fn hot_keys(&self) -> Vec<HotLimitKey> {
        self.node.hot.found().keys.clone()
    }

    /// What is done about a limit's hot keys, if anything is: only an owned one has owners to relieve.
    pub fn mitigation_of(&self, limit: &Name) -> Option<Mitigation> {
        let definition = &self.node.known_definition(limit)?.defined.definition;
        let is_done =
            definition.is_ever(Mechanism::Owned) || matches!(definition.hot_key, Mitigation::Cap { .. });
        is_done.then_some(definition.hot_key)
    }
}

/// Finds out which keys are hot, until the node drains.
pub(crate) async fn keep(node: Arc<Node>) {
    loop {
        tokio::select! {
            biased;
            () = node.draining.wait() => return,
            () = tokio::time::sleep(LOOK_EVERY) => {}
        }
        let count = node.hot.look(node.uptime_ms());
        node.metrics.hot_keys.set(count as i64);
    }
}
