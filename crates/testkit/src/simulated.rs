//! A store on Tokio's clock, for tests that drive time: exact in what it promises, seeded in what goes wrong.
//!
//! # Layout
//! - [`faults`]: what may go wrong on the way to the store and back
//! - [`history`]: all that happened in the store, in its order
//! - `state`: the records, and one commit against them
//! - [`node`]: one node's way to the store
//!
//! One [`Simulated`] is the store itself; each node of a simulation has a [`Node`] handle of its own, which can be
//! cut off for good. Whatever a dead node had sent may still arrive. Times are whole milliseconds in practice,
//! because Tokio's timers are, so that events often meet on one moment: a lease ends exactly when a commit arrives.

pub mod faults;
pub mod history;
pub mod node;
mod state;

pub use faults::Faults;
pub use history::{Happening, What};
pub use node::Node;

use crate::dice::Dice;
use baton_core::{Commit, Key, Outcome, Record, Revision, WallTime};
use baton_store::watch::Change;
use state::State;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use tokio::time::Instant;

/// The wall clock when the store starts, in milliseconds.
const EPOCH_MS: u64 = 1_700_000_000_000;
/// Calls in one millisecond of one simulation: more is a loop without a pause.
const CALLS_PER_MOMENT_MAX: u32 = 20_000;

/// The store itself. Cheap to clone.
#[derive(Clone)]
pub struct Simulated {
    shared: Arc<Shared>,
}

struct Shared {
    started: Instant,
    /// Whether several nodes use it at the same time.
    has_many_nodes: bool,
    inner: Mutex<Inner>,
}

struct Inner {
    state: State,
    dice: Dice,
    history: Vec<Happening>,
    nodes: Vec<Arc<node::Way>>,
    calls: u64,
    /// The present millisecond, and how many calls were made in it.
    moment: (u64, u32),
    is_spinning: bool,
}

impl Simulated {
    /// An empty store. Must be called within a Tokio runtime, whose clock it takes.
    pub fn new(seed: u64) -> Self {
        Self::for_nodes(seed, false)
    }

    /// An empty store for several nodes at the same time.
    pub fn for_many(seed: u64) -> Self {
        Self::for_nodes(seed, true)
    }

    fn for_nodes(seed: u64, has_many_nodes: bool) -> Self {
        let inner = Inner {
            state: State::default(),
            dice: Dice::new(seed),
            history: Vec::new(),
            nodes: Vec::new(),
            calls: 0,
            moment: (0, 0),
            is_spinning: false,
        };
        let (started, inner) = (Instant::now(), Mutex::new(inner));
        let store = Self { shared: Arc::new(Shared { started, has_many_nodes, inner }) };
        tokio::spawn(store.clone().collect());
        store
    }

    /// A new node's way to the store.
    pub fn node(&self, faults: Faults) -> Arc<Node> {
        let mut inner = self.lock();
        let number = inner.nodes.len() as u32;
        let way = Arc::new(node::Way::new(number, faults, inner.dice.fork()));
        inner.nodes.push(way.clone());
        Arc::new(Node::new(self.clone(), way))
    }

    /// The time by the store's own clock.
    pub fn now(&self) -> Duration {
        self.shared.started.elapsed()
    }

    /// The time by its wall clock.
    pub fn wall_now(&self) -> WallTime {
        self.wall(self.now())
    }

    /// The last commit's revision.
    pub fn revision(&self) -> Revision {
        self.lock().state.revision
    }

    /// How long the history is: what happens later has at least this index.
    pub fn happened(&self) -> usize {
        self.lock().history.len()
    }

    /// All that happened so far; what is asked for later begins after it.
    pub fn take_history(&self) -> Vec<Happening> {
        std::mem::take(&mut self.lock().history)
    }

    /// Every record that is alive.
    pub fn records(&self) -> Vec<Record> {
        self.lock().state.live(self.now())
    }

    /// Whether somebody called again and again without letting time pass.
    pub fn is_spinning(&self) -> bool {
        self.lock().is_spinning
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.shared.inner.lock().expect("no panic while held")
    }

    fn wall(&self, now: Duration) -> WallTime {
        WallTime(EPOCH_MS + now.as_millis() as u64)
    }

    /// Numbers a call. `None` if calls come without end in one moment: then the simulation couldn't go on.
    fn count_call(&self) -> Option<u64> {
        let moment = self.now().as_millis() as u64;
        let mut inner = self.lock();
        if inner.moment.0 != moment {
            inner.moment = (moment, 0);
        }
        inner.moment.1 += 1;
        if inner.moment.1 > CALLS_PER_MOMENT_MAX {
            inner.is_spinning = true;
            return None;
        }
        inner.calls += 1;
        Some(inner.calls)
    }

    fn note(&self, node: u32, call: u64, what: What) {
        let at = self.now();
        self.lock().history.push(Happening { at, node, call, what });
    }

    /// A commit has arrived: from here on it is true, or refused.
    fn apply(&self, node: u32, call: u64, commit: &Commit) -> Outcome {
        let now = self.now();
        let mut inner = self.lock();
        let outcome = inner.state.apply(commit, now, self.wall(now));
        let what = match &outcome {
            Outcome::Committed { revision, .. } => {
                What::Committed { revision: *revision, commit: commit.clone() }
            }
            Outcome::Conflict { .. } => What::Conflict { commit: commit.clone() },
        };
        inner.history.push(Happening { at: now, node, call, what });
        if let Outcome::Committed { revision, .. } = &outcome {
            let changes = state::changes(commit, *revision);
            inner.nodes.iter().for_each(|way| way.hint(&changes));
        }
        outcome
    }

    /// Takes back what is expired, every second or so, and hints at it.
    async fn collect(self) {
        loop {
            let pause = self.lock().dice.millis((700, 1500));
            tokio::time::sleep(pause).await;
            let now = self.now();
            let mut inner = self.lock();
            let expired = inner.state.collect(now);
            for key in &expired {
                let what = What::Collected { key: key.clone() };
                inner.history.push(Happening { at: now, node: u32::MAX, call: 0, what });
            }
            let changes: Vec<_> = expired.into_iter().map(|key: Key| Change::Expired { key }).collect();
            inner.nodes.iter().for_each(|way| way.hint_expired(&changes));
        }
    }
}

#[cfg(test)]
mod tests;
