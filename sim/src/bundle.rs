//! The same for several locks at once: two nodes, a bad way to the store, callers that go away, repeat themselves and come
//! twice at a time.
//!
//! # Layout
//! - `caller`: what a caller does, and what it was told
//! - `verdict`: what must hold, read off the store's history
//!
//! What holds for each lock by itself is the lock's simulation to show; here it is about what several have in common.

mod caller;
mod verdict;

use crate::scenarios::bad_way;
use baton_core::lock::LockName;
use baton_core::{Bytes, Check, Commit, Key, Outcome};
use baton_engine::{Config, Engine, Random};
use baton_store::watch::Watch;
use baton_store::{Guarantees, Page, Range, Reading, Store, StoreFuture, Usage};
use baton_testkit::Dice;
use baton_testkit::simulated::{Faults, Simulated};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use tokio::time::Instant;

/// For how long things go wrong.
const ACTIVE: Duration = Duration::from_secs(10);
/// By then every caller has come to its end, if things go on at all.
const FINISHED_WITHIN: Duration = Duration::from_secs(120);
const CALLERS: usize = 6;
const LOCKS: usize = 4;

/// What came of a seed.
#[derive(Debug)]
pub struct Report {
    /// What didn't hold.
    pub violations: Vec<String>,
    /// How many were told that all locks are theirs.
    pub granted: usize,
    /// How many were refused for certain.
    pub refused: usize,
}

/// Everything of one simulation.
struct World {
    store: Simulated,
    engines: Vec<Engine>,
    locks: Vec<LockName>,
    told: Mutex<Vec<caller::Told>>,
    calm_at: Instant,
}

impl World {
    fn told(&self) -> MutexGuard<'_, Vec<caller::Told>> {
        self.told.lock().expect("no panic while held")
    }

    fn is_calm(&self) -> bool {
        Instant::now() >= self.calm_at
    }
}

/// Runs one seed; `broken`: with no commit checking a bundle's record, so that the verdict can show what it is worth.
pub fn run(seed: u64, broken: bool) -> Report {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime without I/O needs nothing");
    runtime.block_on(simulate(seed, broken))
}

async fn simulate(seed: u64, broken: bool) -> Report {
    let mut dice = Dice::new(seed).fork();
    let store = Simulated::for_many(dice.number());
    let (mut engines, mut ways) = (Vec::new(), Vec::new());
    for _ in 0..2 {
        let way = store.node(Faults::none());
        let handle: Arc<dyn Store> =
            if broken { Arc::new(BrokenStore { store: way.clone() }) } else { way.clone() };
        let config = Config { call_max: Duration::from_secs(2), ..Config::default() };
        let engine = Engine::start(handle, config, Random::seeded(dice.number())).await;
        engines.push(engine.expect("nothing goes wrong yet"));
        ways.push(way);
    }
    ways.iter().for_each(|way| way.set_faults(bad_way(&mut dice)));
    let locks = (0..LOCKS).map(|lock| LockName::new("default", &format!("lock {lock}"))).collect();
    let (told, calm_at) = (Mutex::default(), Instant::now() + ACTIVE);
    let world = Arc::new(World { store, engines, locks, told, calm_at });
    let callers: Vec<_> =
        (0..CALLERS).map(|number| tokio::spawn(caller::run(world.clone(), number, dice.fork()))).collect();
    tokio::time::sleep_until(calm_at).await;
    ways.iter().for_each(|way| way.set_faults(Faults::none()));
    let mut violations = Vec::new();
    for (number, caller) in callers.into_iter().enumerate() {
        match tokio::time::timeout(FINISHED_WITHIN, caller).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => std::panic::resume_unwind(error.into_panic()),
            Err(_) => violations.push(format!("caller {number} never came to its end")),
        }
    }
    // What is still on its way arrives, leases run out, places are forgotten.
    tokio::time::sleep(Duration::from_secs(60)).await;
    for lock in &world.locks {
        let state = world.engines[0].lock_state(lock).await;
        let queue = world.engines[0].lock_queue(lock).await;
        if !matches!((state, queue), (Ok(None), Ok(queue)) if queue.is_empty()) {
            violations.push(format!("{lock:?} isn't free in the end"));
        }
    }
    let history = world.store.take_history();
    let told = world.told();
    violations.extend(verdict::of(&history, &told));
    let count = |is: fn(&caller::What) -> bool| told.iter().filter(|told| is(&told.what)).count();
    Report {
        violations,
        granted: count(|what| matches!(what, caller::What::Granted { .. })),
        refused: count(|what| matches!(what, caller::What::Refused)),
    }
}

/// Leaves the check of a bundle's record out of every commit.
struct BrokenStore {
    store: Arc<dyn Store>,
}

impl Store for BrokenStore {
    fn commit(&self, mut commit: Commit) -> StoreFuture<'_, Outcome> {
        commit.checks.retain(|check: &Check| !check.key().name.starts_with(b"Bb"));
        self.store.commit(commit)
    }

    fn read(&self, keys: Vec<Key>) -> StoreFuture<'_, Reading> {
        self.store.read(keys)
    }

    fn scan(&self, range: Range, limit: usize) -> StoreFuture<'_, Page> {
        self.store.scan(range, limit)
    }

    fn watch(&self, prefix: Bytes) -> Watch {
        self.store.watch(prefix)
    }

    fn expirations(&self, prefix: Bytes) -> Watch {
        self.store.expirations(prefix)
    }

    fn guarantees(&self) -> Guarantees {
        self.store.guarantees()
    }

    fn usage(&self) -> Usage {
        self.store.usage()
    }
}
