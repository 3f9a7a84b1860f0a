//! Thousands who wait for one lock at a node that dies: they block nobody, and they go (L3).

use baton_core::lock::name::Kind;
use baton_core::lock::{LockName, Mode};
use baton_engine::lock::{AcquireCall, Granted, ReleaseCall, Wait};
use baton_engine::{Config, Engine, Random};
use baton_testkit::simulated::{Faults, Node, Simulated};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

const CROWD: usize = 5000;
/// For how long a place is kept without a call, as configured.
const KEPT: Duration = Duration::from_secs(15);

async fn start(node: &Arc<Node>, seed: u64) -> Engine {
    Engine::start(node.clone(), Config::default(), Random::seeded(seed)).await.unwrap()
}

fn call(owner: &str, ttl: Duration, wait: Wait) -> AcquireCall {
    AcquireCall {
        owner: owner.into(),
        principal: "".into(),
        ttl,
        wait,
        request_id: Some(format!("request of {owner}")),
        reentrant: false,
        metadata: None,
        mode: Mode::Exclusive,
        delay: Duration::ZERO,
    }
}

async fn release(engine: &Engine, lock: &LockName, owner: &str, granted: &Granted) {
    let (token, owner) = (granted.token.reveal(), owner.into());
    let call = ReleaseCall { token, owner, principal: "".into(), request_id: None };
    engine.release(lock, call).await.unwrap();
}

fn waiting(store: &Simulated, lock: &LockName) -> usize {
    let prefix = lock.prefix(Kind::Waiting);
    store.records().iter().filter(|record| record.key.name.starts_with(&prefix)).count()
}

/// So many come to wait at a node, and it dies.
async fn crowd(store: &Simulated, node: &Node, engine: Engine, lock: &LockName) {
    for number in 0..CROWD {
        let (engine, lock) = (engine.clone(), lock.clone());
        let call = call(&format!("waiter {number}"), Duration::from_secs(60), Wait::Forever);
        tokio::spawn(async move { engine.acquire(&lock, call).await });
    }
    let deadline = Instant::now() + Duration::from_secs(20);
    while waiting(store, lock) < CROWD {
        assert!(Instant::now() < deadline, "only {} wait", waiting(store, lock));
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    node.kill();
}

/// Who waited is dropped within so much time after its place was kept long enough.
async fn empties(store: &Simulated, lock: &LockName, within: Duration) {
    let deadline = Instant::now() + KEPT + within;
    while waiting(store, lock) > 0 {
        assert!(Instant::now() < deadline, "{} of {CROWD} are still there", waiting(store, lock));
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_lock_whose_thousands_of_waiters_died_with_their_node_is_had_at_its_leases_end_and_they_go() {
    let store = Simulated::new(71);
    let lock = LockName::new("default", "k");
    let old = store.node(Faults::none());
    let engine = start(&old, 1).await;
    let lease = Duration::from_secs(12);
    engine.acquire(&lock, call("a", lease, Wait::No)).await.unwrap();
    let granted_by = Instant::now();
    crowd(&store, &old, engine, &lock).await;

    let engine = start(&store.node(Faults::none()), 2).await;
    let started = Instant::now();
    // Nobody comes before it who is still there, though all have their places.
    let late = engine.acquire(&lock, call("late", Duration::from_secs(60), Wait::Forever)).await.unwrap();
    let taken = granted_by.elapsed();
    assert!(taken < lease + Duration::from_millis(500), "it took {taken:?}");
    assert!(started.elapsed() < KEPT && waiting(&store, &lock) == CROWD);
    release(&engine, &lock, "late", &late).await;
    let newcomer = engine.acquire(&lock, call("newcomer", Duration::from_secs(60), Wait::No)).await.unwrap();
    assert!(newcomer.fencing > late.fencing);
    empties(&store, &lock, Duration::from_secs(10)).await;
    release(&engine, &lock, "newcomer", &newcomer).await;
    assert!(engine.lock_state(&lock).await.unwrap().is_none());
}

#[tokio::test(start_paused = true)]
async fn the_crowd_of_a_dead_node_goes_also_while_nobody_holds_the_lock() {
    let store = Simulated::new(72);
    let lock = LockName::new("default", "k");
    let old = store.node(Faults::none());
    let engine = start(&old, 1).await;
    engine.acquire(&lock, call("a", Duration::from_secs(5), Wait::No)).await.unwrap();
    crowd(&store, &old, engine, &lock).await;
    // Its lease is over before anybody looks.
    tokio::time::sleep(Duration::from_secs(6)).await;
    let engine = start(&store.node(Faults::none()), 2).await;
    empties(&store, &lock, Duration::from_secs(10)).await;
    assert!(engine.lock_state(&lock).await.unwrap().is_none());
}

#[tokio::test(start_paused = true)]
async fn the_crowd_of_a_dead_node_blocks_nobody_at_another_and_goes() {
    let store = Simulated::for_many(73);
    let lock = LockName::new("default", "k");
    let handles = [store.node(Faults::none()), store.node(Faults::none())];
    let (one, other) = (start(&handles[0], 1).await, start(&handles[1], 2).await);
    let first = one.acquire(&lock, call("a", Duration::from_secs(120), Wait::No)).await.unwrap();
    crowd(&store, &handles[1], other, &lock).await;
    let deadline = Instant::now() + Duration::from_secs(20);
    while one.nodes() > 1 {
        assert!(Instant::now() < deadline, "it is not known to be dead");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    release(&one, &lock, "a", &first).await;
    let newcomer = one.acquire(&lock, call("newcomer", Duration::from_secs(120), Wait::No)).await.unwrap();
    assert!(newcomer.fencing > first.fencing && waiting(&store, &lock) == CROWD);
    empties(&store, &lock, Duration::from_secs(20)).await;
}
