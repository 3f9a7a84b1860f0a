//! How many keys a limit has, so that there is an end to their meters (A1).
//!
//! Each node counts for itself: the keys it has seen in this window and the last one, by a hash. When a limit has as many as it
//! may, keys that come new share one meter; those that were there keep their own. So with several nodes there may be as
//! many meters as each of them allows. What a limit's keys were is forgotten when nobody came for two windows, and with its definition.

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
/// How often limits that nobody uses are looked for.
const LOOK_EVERY: Duration = Duration::from_secs(60);
/// Limits whose keys are counted at once. Beyond it all are forgotten.
const LIMITS_MAX: usize = 10_000;

/// The keys a node has seen.
#[derive(Default)]
pub(crate) struct Keys {
    all: Mutex<All>,
    hasher: RandomState,
}

#[derive(Default)]
struct All {
    seen: HashMap<Name, Seen>,
    looked_at: Option<Instant>,
}

struct Seen {
    since: Instant,
    generation: Duration,
    present: HashSet<u64>,
    past: HashSet<u64>,
}

impl Keys {
    /// The key whose meter is charged: its own, or the one that is shared.
    pub fn metered<'a>(&self, name: &Name, definition: &Definition, key: &'a str) -> &'a str {
        let hash = self.hasher.hash_one(key);
        let generation = GENERATION_MIN.max(Duration::from_millis(definition.window_ms));
        let now = Instant::now();
        let mut all = self.all.lock().expect("no panic while held");
        let All { seen: all, looked_at } = &mut *all;
        if now.saturating_duration_since(*looked_at.get_or_insert(now)) > LOOK_EVERY {
            *looked_at = Some(now);
            all.retain(|_, seen| now.saturating_duration_since(seen.since) <= 2 * seen.generation);
        }
        if all.len() >= LIMITS_MAX && !all.contains_key(name) {
            all.clear();
        }
        if !all.contains_key(name) {
            let seen = Seen { since: now, generation, present: HashSet::new(), past: HashSet::new() };
            all.insert(name.clone(), seen);
        }
        let Some(seen) = all.get_mut(name) else { return key };
        seen.generation = generation;
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
    /// The limit is gone: what its keys were doesn't matter any more.
    pub fn forget(&self, name: &Name) {
        self.all.lock().expect("no panic while held").seen.remove(name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use baton_core::meter::Algorithm;

    fn definition(window_ms: u64) -> Definition {
        Definition { keys_max: 1, ..Definition::plain(Algorithm::FixedWindow, 1, window_ms) }
    }

    fn counted(keys: &Keys) -> usize {
        keys.all.lock().unwrap().seen.len()
    }

    #[tokio::test(start_paused = true)]
    async fn the_keys_of_a_limit_that_nobody_uses_are_forgotten_after_two_windows() {
        let (keys, idle, used) = (Keys::default(), Name::new("n", "idle"), Name::new("n", "used"));
        let definition = definition(100_000);
        assert_eq!(keys.metered(&idle, &definition, "a"), "a");
        for _ in 0..3 {
            tokio::time::advance(Duration::from_secs(62)).await;
            keys.metered(&used, &definition, "a");
        }
        assert_eq!(counted(&keys), 2, "it may still matter");
        tokio::time::advance(Duration::from_secs(62)).await;
        assert_eq!(keys.metered(&used, &definition, "a"), "a", "what is used stays");
        assert_eq!(keys.metered(&used, &definition, "b"), overflow_key());
        assert_eq!(counted(&keys), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_limit_that_is_gone_leaves_no_keys_behind() {
        let (keys, name) = (Keys::default(), Name::new("n", "gone"));
        keys.metered(&name, &definition(1), "a");
        keys.forget(&name);
        assert_eq!(counted(&keys), 0);
    }
}
