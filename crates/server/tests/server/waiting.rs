//! Waiting for a lock, and leaving.

use crate::harness::Baton;
use serde_json::json;
use std::time::{Duration, Instant};

#[tokio::test(flavor = "multi_thread")]
async fn waiters_are_granted_in_order_and_a_release_wakes_one() {
    let baton = Baton::start().await;
    let mut grant = baton.acquire("k", "first").await;
    let mut waiters = Vec::new();
    for owner in ["w1", "w2", "w3"] {
        waiters.push(baton.waiter("k", owner, None).await);
    }
    assert_eq!(baton.queue("k").await, ["w1", "w2", "w3"]);
    for (index, mut waiter) in waiters.into_iter().enumerate() {
        baton.release(&grant).await.ok();
        let next = waiter.answer("POST").await.unwrap().ok();
        assert_eq!(next["ownerId"], format!("w{}", index + 1));
        assert!(next["fencingToken"].as_u64() > grant["fencingToken"].as_u64());
        assert_eq!(baton.queue("k").await.len(), 2 - index);
        grant = next;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_waiter_that_disconnects_leaves_the_queue_within_a_second() {
    let baton = Baton::start().await;
    let grant = baton.acquire("k", "holder").await;
    for how in ["closes", "half-closes"] {
        let mut gone = baton.waiter("k", "gone", None).await;
        assert_eq!(baton.queue("k").await, ["gone"]);
        let start = Instant::now();
        if how == "closes" {
            drop(gone);
        } else {
            gone.finish().await;
        }
        baton.until(async || baton.queue("k").await.is_empty()).await;
        assert!(start.elapsed() < Duration::from_secs(1), "{how}: {:?}", start.elapsed());
    }
    baton.release(&grant).await.ok();
    baton.until(async || baton.get("/v1/locks/k").await.status == 404).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_waiter_has_the_lock_soon_after_its_holder_expired() {
    let baton = Baton::start().await;
    let promised = &baton.get("/v1/status").await.ok()["store"]["guarantees"];
    let millis = |name: &str| promised[name].as_u64().unwrap();
    let body = json!({ "ownerId": "a", "ttlMillis": millis("ttlMinMillis").max(300) });
    let grant = baton.post("/v1/locks/k/acquire", body).await.ok();
    let mut waiter = baton.waiter("k", "b", None).await;
    let next = waiter.answer("POST").await.unwrap().ok();
    let granted = baton.get("/v1/locks/k").await.ok()["acquiredAt"].as_u64().unwrap();
    let late = granted.saturating_sub(grant["expiresAt"].as_u64().unwrap());
    assert_eq!(next["ownerId"], "b");
    // The bar is 50 ms; the rest is for a machine that is busy with other tests.
    assert!(late < 500 + millis("ttlGranularityMillis"), "{late} ms late");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_queue_says_so() {
    let baton = Baton::with(|config| config.engine.queue_max = 1).await;
    baton.acquire("k", "holder").await;
    let _waiter = baton.waiter("k", "w", None).await;
    let body = json!({ "ownerId": "x", "ttlMillis": 1000, "wait": true });
    let refused = baton.post("/v1/locks/k/acquire", body).await;
    assert_eq!(refused.code(503), "QUEUE_FULL");
    assert!(refused.header("retry-after").is_some());
    assert_eq!(refused.json()["queueLength"], 1);
    assert_eq!(baton.queue("k").await, ["w"]);
}
