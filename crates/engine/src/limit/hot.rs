//! Keys that are used far more than others: found by samples, shown, and, if they are owned, decided where they are asked (M3).
//!
//! An owner that hears most of its checks for one key tells the nodes that forward it to decide it themselves for a while, each out of
//! what it debits at the store: a hot key costs its owner nothing then, and its neighbours there keep their time.

use super::calls::CheckCall;
use crate::engine::{Engine, Node};
use baton_core::limit::hot::{Hot, HotKey};
use baton_core::limit::meter_key;
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
/// For how long a node decides a key by itself that its owner has left to it.
const DELEGATED_MS: u64 = 10_000;
/// Keys that others have left to this node; more stay theirs.
const DELEGATED_MAX: usize = 1_024;

/// A key that is hot at this node.
pub type HotLimitKey = HotKey<(Name, String)>;

/// What is known of hot keys.
#[derive(Default)]
pub(crate) struct HotKeys {
    checks: AtomicU64,
    hasher: RandomState,
    sketch: Mutex<Hot<(Name, String)>>,
    hot: RwLock<Arc<Found>>,
    /// Until when others' keys are this node's to decide.
    delegated: Mutex<HashMap<Key, u64>>,
}

#[derive(Default)]
struct Found {
    keys: Vec<HotLimitKey>,
    places: HashSet<Key>,
}

impl HotKeys {
    /// A check came. Most are passed over, and so is one that would have to wait for another.
    pub fn note(&self, call: &CheckCall, now_ms: u64) {
        if !self.checks.fetch_add(1, Ordering::Relaxed).is_multiple_of(SAMPLE) {
            return;
        }
        let Ok(mut sketch) = self.sketch.try_lock() else { return };
        let hash = self.hasher.hash_one((call.limit.path(), &call.key));
        sketch.note(hash, SAMPLE, now_ms, || (call.limit.clone(), call.key.clone()));
    }

    fn look(&self, now_ms: u64) -> usize {
        let keys = self.sketch.lock().expect("no panic while held").hot(now_ms);
        let places: HashSet<_> = keys.iter().map(|found| meter_key(&found.label.0, &found.label.1)).collect();
        self.delegated.lock().expect("no panic while held").retain(|place, until_ms| {
            if places.contains(place) {
                // Its owner doesn't hear of it any more, and couldn't say so again.
                *until_ms = now_ms + DELEGATED_MS;
            }
            now_ms < *until_ms
        });
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

    /// The owner leaves a key to this node.
    pub fn delegate(&self, place: Key, now_ms: u64) {
        let mut delegated = self.delegated.lock().expect("no panic while held");
        if delegated.len() < DELEGATED_MAX || delegated.contains_key(&place) {
            delegated.insert(place, now_ms + DELEGATED_MS);
        }
    }

    /// Whether the owner has left a key to this node.
    pub fn is_delegated(&self, place: &Key, now_ms: u64) -> bool {
        let delegated = self.delegated.lock().expect("no panic while held");
        delegated.get(place).is_some_and(|until_ms| now_ms < *until_ms)
    }
}

impl Engine {
    /// The keys that are hot at this node, hottest first.
    pub fn hot_keys(&self) -> Vec<HotLimitKey> {
        self.node.hot.found().keys.clone()
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
