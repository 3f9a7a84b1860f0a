//! The same for `once`: two nodes, a bad way to the store, callers that crash, fail, repeat and come late.
//!
//! # Layout
//! - `caller`: what a caller does, and what it was told
//! - `verdict`: what must hold, read off the store's history
//!
//! It stands beside the lock's simulation instead of being a scenario of it: there is no queue, no holder and no client's
//! belief to follow, and a key's history is a few records.

mod caller;
mod verdict;

use crate::scenarios::bad_way;
use baton_core::{Bytes, Check, Commit, Key, Name, Outcome};
use baton_engine::{Config, Engine, Random};
use baton_store::watch::Watch;
use baton_store::{Guarantees, Page, Range, Reading, Store, StoreFuture, Usage};
use baton_testkit::Dice;
use baton_testkit::simulated::{Faults, Simulated};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use tokio::time::Instant;

/// For how long things go wrong.
const ACTIVE: Duration = Duration::from_secs(8);
/// By then every caller has come to its end, if things go on at all.
const FINISHED_WITHIN: Duration = Duration::from_secs(60);
const CALLERS: usize = 5;
const KEYS: usize = 2;

/// Which check is left out of every commit, so that the verdict can show what it is worth.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Broken {
    /// That a key's state is as it was seen, or absent.
    StateCheck,
    /// That nothing is remembered of a request.
    MemoCheck,
}

impl Broken {
    fn leaves_out(self, check: &Check) -> bool {
        check.key().name.starts_with(match self {
            Self::StateCheck => b"Os",
            Self::MemoCheck => b"Oe",
        })
    }
}

/// What came of a seed.
#[derive(Debug)]
pub struct Report {
    /// What didn't hold.
    pub violations: Vec<String>,
    /// How many were told that they are first.
    pub firsts: usize,
    /// How many results were stored, as far as somebody was told.
    pub results: usize,
}

/// Everything of one simulation.
struct World {
    store: Simulated,
    engines: Vec<Engine>,
    keys: Vec<Name>,
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

/// Runs one seed.
pub fn run(seed: u64, broken: Option<Broken>) -> Report {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime without I/O needs nothing");
    runtime.block_on(simulate(seed, broken))
}

async fn simulate(seed: u64, broken: Option<Broken>) -> Report {
    let mut dice = Dice::new(seed).fork();
    let store = Simulated::for_many(dice.number());
    let (mut engines, mut ways) = (Vec::new(), Vec::new());
    for _ in 0..2 {
        let way = store.node(Faults::none());
        let mut handle: Arc<dyn Store> = way.clone();
        if let Some(broken) = broken {
            handle = Arc::new(BrokenStore { broken, store: handle });
        }
        let engine = Engine::start(handle, Config::default(), Random::seeded(dice.number())).await;
        engines.push(engine.expect("nothing goes wrong yet"));
        ways.push(way);
    }
    ways.iter().for_each(|way| way.set_faults(bad_way(&mut dice)));
    let keys = (0..KEYS).map(|key| Name::new("default", &format!("key {key}"))).collect();
    let (told, calm_at) = (Mutex::default(), Instant::now() + ACTIVE);
    let world = Arc::new(World { store, engines, keys, told, calm_at });
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
    // What is still on its way arrives.
    tokio::time::sleep(Duration::from_secs(10)).await;
    let history = world.store.take_history();
    let told = world.told();
    for key in &world.keys {
        violations.extend(verdict::of(key, &history, &told));
    }
    let count = |is: fn(&caller::Told) -> bool| told.iter().filter(|told| is(told)).count();
    Report {
        violations,
        firsts: count(|told| matches!(told.what, caller::What::First { .. })),
        results: count(|told| matches!(told.what, caller::What::Completed { .. })),
    }
}

/// Wraps a store.
struct BrokenStore {
    broken: Broken,
    store: Arc<dyn Store>,
}

impl Store for BrokenStore {
    fn commit(&self, mut commit: Commit) -> StoreFuture<'_, Outcome> {
        commit.checks.retain(|check| !self.broken.leaves_out(check));
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
