//! Nodes that stop while they hold leases, on a simulated store: nothing of them is burned (M2).

use super::limits::{DAY_MS, call, check, definition, name};
use baton_core::limit::{Definition, Mechanism};
use baton_core::meter::Algorithm;
use baton_engine::limit::{Source, Wanted};
use baton_engine::{Config, Engine, Random};
use baton_testkit::simulated::{Faults, Simulated};
use std::time::Duration;
use tokio::time::Instant;

/// Each way to the store takes this long.
fn taking(millis: u64) -> Faults {
    Faults { there_ms: (millis, millis), back_ms: (millis, millis), ..Faults::none() }
}

async fn node(store: &Simulated, seed: u64) -> (Engine, std::sync::Arc<baton_testkit::simulated::Node>) {
    let handle = store.node(Faults::none());
    let engine = Engine::start(handle.clone(), Config::default(), Random::seeded(seed)).await.unwrap();
    (engine, handle)
}

fn leased() -> Definition {
    Definition { mechanism: Mechanism::Leased, ..definition(Algorithm::FixedWindow, 10_000, DAY_MS) }
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_is_on_its_way_when_the_node_stops_goes_back_too() {
    let store = Simulated::for_many(1);
    let ((stopping, handle), (other, _)) = (node(&store, 1).await, node(&store, 2).await);
    other.put_limit(&name("l"), leased()).await.unwrap();
    assert!(check(&stopping, "l", "k", 1).await.allowed, "the first is the store's, and makes a purse");
    handle.set_faults(taking(100));
    let asking = {
        let stopping = stopping.clone();
        tokio::spawn(async move { check(&stopping, "l", "k", 1).await })
    };
    tokio::time::sleep(Duration::from_millis(350)).await;
    assert!(other.usage(&name("l"), "k").await.unwrap().outstanding > 10, "granted, and not answered yet");
    stopping.drain().await;
    assert!(asking.await.unwrap().allowed);
    let usage = other.usage(&name("l"), "k").await.unwrap();
    assert_eq!((usage.used, usage.outstanding), (2, 0));
}

#[tokio::test(start_paused = true)]
async fn a_node_that_stops_leases_nothing_more_and_asks_the_store() {
    let store = Simulated::for_many(1);
    let ((stopping, handle), (other, _)) = (node(&store, 1).await, node(&store, 2).await);
    other.put_limit(&name("l"), leased()).await.unwrap();
    for _ in 0..3 {
        assert!(check(&stopping, "l", "known", 1).await.allowed);
    }
    // While it gives back, and after that, calls that are under way still come.
    handle.set_faults(taking(100));
    let draining = {
        let stopping = stopping.clone();
        tokio::spawn(async move { stopping.drain().await })
    };
    tokio::time::sleep(Duration::from_millis(50)).await;
    for key in ["known", "known", "new", "new", "new"] {
        let answered = check(&stopping, "l", key, 1).await;
        assert_eq!((answered.allowed, answered.checks[0].source), (true, Source::Central), "{key}");
    }
    draining.await.unwrap();
    for (key, used) in [("known", 5), ("new", 3)] {
        let usage = other.usage(&name("l"), key).await.unwrap();
        assert_eq!((usage.used, usage.outstanding), (used, 0), "{key}");
    }
}

#[tokio::test(start_paused = true)]
async fn giving_back_to_a_slow_store_leaves_time_for_the_rest_of_stopping() {
    const KEYS: usize = 600;
    let store = Simulated::for_many(1);
    let (stopping, handle) = node(&store, 1).await;
    stopping.put_limit(&name("l"), leased()).await.unwrap();
    for _ in 0..2 {
        let keys: Vec<_> = (0..KEYS)
            .map(|key| {
                let stopping = stopping.clone();
                tokio::spawn(async move {
                    let calls = [call("l", &format!("key-{key}"), 1)];
                    stopping.check_limits(&calls, &Wanted::default()).await.unwrap().allowed
                })
            })
            .collect();
        for key in keys {
            assert!(key.await.unwrap());
        }
    }
    assert_eq!(stopping.leases(&name("l"), 1_000).await.unwrap().0.len(), KEYS);
    // Each takes most of a second, there and back twice: one after the other, or a few at a time, would take all there is and more.
    handle.set_faults(taking(200));
    let began = Instant::now();
    stopping.drain().await;
    let taken = began.elapsed();
    assert!(taken < Duration::from_secs(6), "{taken:?} of the ten seconds for stopping");
    handle.set_faults(Faults::none());
    let left = stopping.leases(&name("l"), 1_000).await.unwrap().0.len();
    assert!(left < KEYS / 4, "{left} of {KEYS} leases were not given back");
}
