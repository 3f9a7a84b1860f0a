//! Who charges the same meter at this node goes one after the other. Others' nodes are met by the transaction's own checks.

use baton_core::Key;
use std::hash::{BuildHasher, RandomState};
use tokio::sync::{Mutex, MutexGuard};

/// More meters share a turn than there are of these; that costs time, and nothing else.
const TURNS: usize = 256;

/// The turns of all meters.
pub(super) struct Turns {
    turns: Vec<Mutex<()>>,
    hasher: RandomState,
}

impl Default for Turns {
    fn default() -> Self {
        Self { turns: (0..TURNS).map(|_| Mutex::default()).collect(), hasher: RandomState::new() }
    }
}

impl Turns {
    /// Waits until it is the turn of whoever wants these. In one order for everybody, so that nobody waits in a circle.
    pub async fn of(&self, keys: impl Iterator<Item = &Key>) -> Vec<MutexGuard<'_, ()>> {
        let mut places: Vec<_> =
            keys.map(|key| self.hasher.hash_one(&key.name) as usize % self.turns.len()).collect();
        places.sort_unstable();
        places.dedup();
        let mut held = Vec::with_capacity(places.len());
        for place in places {
            held.push(self.turns[place].lock().await);
        }
        held
    }
}
