//! How many keys a limit has, so that there is an end to their meters (A1).
//!
//! Each node counts for itself: the keys it has seen in this window and the last one, by a hash. When a limit has as many as it
//! may, keys that come new share one meter; those that were there keep their own. So with several nodes there may be as
//! many meters as each of them allows.

use baton_core::Name;
use baton_core::limit::{Definition, overflow_key};
use std::collections::hash_map::RandomState;
use std::collections::{HashMap, HashSet};
use std::hash::BuildHasher;
use std::sync::Mutex;
use std::time::Duration;
use tokio::time::Instant;

/// A generation lasts at least this long, so that short windows don't cost.
const GENERATION_MIN: Duration = Duration::from_secs(60);
/// Limits whose keys are counted at once. Beyond it all are forgotten.
const LIMITS_MAX: usize = 10_000;

/// The keys a node has seen.
#[derive(Default)]
pub(crate) struct Keys {
    seen: Mutex<HashMap<Name, Seen>>,
    hasher: RandomState,
}

struct Seen {
    since: Instant,
    present: HashSet<u64>,
    past: HashSet<u64>,
}

impl Keys {
    /// The key whose meter is charged: its own, or the one that is shared.
    pub fn metered<'a>(&self, name: &Name, definition: &Definition, key: &'a str) -> &'a str {
        let hash = self.hasher.hash_one(key);
        let mut all = self.seen.lock().expect("no panic while held");
        if all.len() >= LIMITS_MAX && !all.contains_key(name) {
            all.clear();
        }
        let now = Instant::now();
        if !all.contains_key(name) {
            let seen = Seen { since: now, present: HashSet::new(), past: HashSet::new() };
            all.insert(name.clone(), seen);
        }
        let Some(seen) = all.get_mut(name) else { return key };
        let generation = GENERATION_MIN.max(Duration::from_millis(definition.window_ms));
        if now.saturating_duration_since(seen.since) > generation {
            seen.since = now;
            seen.past = std::mem::take(&mut seen.present);
        }
        if seen.present.contains(&hash) {
            return key;
        }
        let is_known = seen.past.remove(&hash);
        let count = (seen.present.len() + seen.past.len()) as u64;
        if !is_known && count >= definition.keys_max {
            return overflow_key();
        }
        seen.present.insert(hash);
        key
    }
}
