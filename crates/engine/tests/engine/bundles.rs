//! Several locks at once, all or none (L16).

use super::locks::{Ground, call, ground, queued, release, until};
use baton_core::lock::LockName;
use baton_engine::bundle::{BundleCall, BundleError};
use baton_engine::lock::{Granted, LockError, Refusal, ReleaseCall, Wait};
use baton_engine::{Config, Engine, Random};
use baton_testkit::simulated::{Faults, Simulated};
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::Duration;
use tokio::task::{JoinHandle, JoinSet};

fn lock(key: &str) -> LockName {
    LockName::new("default", key)
}

fn bundle(owner: &str, keys: &[&str], wait: Wait) -> BundleCall {
    BundleCall {
        locks: keys.iter().map(|key| lock(key)).collect(),
        owner: owner.into(),
        principal: "".into(),
        ttl: Duration::from_secs(60),
        wait,
        request_id: Some(format!("bundle of {owner}")),
        metadata: None,
        delay: Duration::ZERO,
    }
}

fn starts(engine: &Engine, call: BundleCall) -> JoinHandle<Result<Vec<Granted>, BundleError>> {
    let engine = engine.clone();
    tokio::spawn(async move { engine.acquire_all(call).await })
}

async fn give_back(engine: &Engine, owner: &str, keys: &[&str], granted: &[Granted]) {
    for (key, granted) in keys.iter().zip(granted) {
        engine.release(&lock(key), release(owner, granted)).await.unwrap();
    }
}

async fn holder(engine: &Engine, key: &str) -> Option<String> {
    let state = engine.lock_state(&lock(key)).await.unwrap();
    state.map(|state| state.holders[0].owner.to_string())
}

async fn all_free(engine: &Engine, keys: &[&str]) -> bool {
    for key in keys {
        if holder(engine, key).await.is_some() || !engine.lock_queue(&lock(key)).await.unwrap().is_empty() {
            return false;
        }
    }
    true
}

fn refused(key: &str, refusal: Refusal) -> BundleError {
    BundleError { lock: Some(lock(key)), error: LockError::Refused(refusal) }
}

#[tokio::test]
async fn all_are_granted_in_the_order_asked_for_and_each_is_a_lock_of_its_own() {
    let Ground { engine, .. } = &ground().await;
    let keys = ["c", "a", "b"];
    let granted = engine.acquire_all(bundle("x", &keys, Wait::No)).await.unwrap();
    for (key, granted) in keys.iter().zip(&granted) {
        let state = engine.lock_state(&lock(key)).await.unwrap().unwrap();
        assert_eq!((state.holders[0].owner.as_ref(), state.holders[0].fencing), ("x", granted.fencing));
        assert!(granted.expires_at.0 >= state.holders[0].acquired_at.0 + 59_000);
    }
    give_back(engine, "x", &keys, &granted).await;
    assert!(all_free(engine, &keys).await);
}

#[tokio::test]
async fn a_held_lock_refuses_the_whole_and_the_same_request_is_a_new_question_afterwards() {
    let Ground { engine, .. } = &ground().await;
    let held = engine.acquire(&lock("b"), call("other", 60_000, Wait::No)).await.unwrap();
    let error = engine.acquire_all(bundle("x", &["a", "b", "c"], Wait::No)).await.unwrap_err();
    assert_eq!(error.lock, Some(lock("b")));
    let LockError::Refused(Refusal::Held(by)) = error.error else { panic!("{error:?}") };
    assert_eq!(by.owner.as_deref(), Some("other"));
    assert!(all_free(engine, &["a", "c"]).await, "nothing is held before the refusal is heard");
    engine.release(&lock("b"), release("other", &held)).await.unwrap();
    let granted = engine.acquire_all(bundle("x", &["a", "b"], Wait::No)).await.unwrap();
    assert_eq!(granted.len(), 2);
}

#[tokio::test]
async fn a_repetition_gives_the_same_grants_and_nothing_once_one_of_them_is_over() {
    let Ground { engine, .. } = &ground().await;
    let keys = ["a", "b"];
    let first = engine.acquire_all(bundle("x", &keys, Wait::No)).await.unwrap();
    let again = engine.acquire_all(bundle("x", &keys, Wait::Forever)).await.unwrap();
    let mirrored = engine.acquire_all(bundle("x", &["b", "a"], Wait::No)).await.unwrap();
    for (one, other) in first.iter().zip(&again).chain(first.iter().zip(mirrored.iter().rev())) {
        assert_eq!((one.token.reveal(), one.fencing), (other.token.reveal(), other.fencing));
        assert!(other.expires_at >= one.expires_at);
    }
    for (keys, ttl) in [(&["a"][..], 60), (&["a", "b", "c"], 60), (&["a", "b"], 61)] {
        let other = BundleCall { ttl: Duration::from_secs(ttl), ..bundle("x", keys, Wait::No) };
        let error = engine.acquire_all(other).await.unwrap_err();
        assert_eq!(error.error, LockError::Refused(Refusal::RequestIdReused), "{keys:?}");
    }
    engine.release(&lock("b"), release("x", &first[1])).await.unwrap();
    let over = engine.acquire_all(bundle("x", &keys, Wait::Forever)).await;
    assert_eq!(over.unwrap_err(), refused("b", Refusal::AlreadyReleased));
    assert_eq!(holder(engine, "b").await, None, "it isn't taken again");
    assert_eq!(holder(engine, "a").await.as_deref(), Some("x"), "and the other one is the caller's still");
}

#[tokio::test]
async fn while_it_waits_for_one_lock_the_others_are_free_for_everybody() {
    let Ground { engine, .. } = &ground().await;
    let held = engine.acquire(&lock("b"), call("other", 60_000, Wait::No)).await.unwrap();
    let waiting = starts(engine, bundle("x", &["a", "b", "c"], Wait::Forever));
    queued(engine, &lock("b"), 1).await;
    for key in ["a", "c"] {
        let passing = engine.acquire(&lock(key), call("passing", 60_000, Wait::No)).await.unwrap();
        engine.release(&lock(key), release("passing", &passing)).await.unwrap();
    }
    engine.release(&lock("b"), release("other", &held)).await.unwrap();
    let granted = waiting.await.unwrap().unwrap();
    give_back(engine, "x", &["a", "b", "c"], &granted).await;
    assert!(all_free(engine, &["a", "b", "c"]).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn many_callers_in_opposite_orders_all_come_to_their_end_and_never_two_at_once() {
    let Ground { engine, .. } = &ground().await;
    let inside = Arc::new(AtomicI32::new(0));
    let mut callers = JoinSet::new();
    for number in 0..8 {
        let (engine, inside) = (engine.clone(), inside.clone());
        callers.spawn(async move {
            let keys = if number % 2 == 0 { ["a", "b", "c"] } else { ["c", "b", "a"] };
            for round in 0..4 {
                let owner = format!("{number}-{round}");
                let granted = engine.acquire_all(bundle(&owner, &keys, Wait::Forever)).await.unwrap();
                assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two at once");
                tokio::time::sleep(Duration::from_millis(1)).await;
                inside.fetch_sub(1, Ordering::SeqCst);
                give_back(&engine, &owner, &keys, &granted).await;
            }
        });
    }
    let ended = tokio::time::timeout(Duration::from_secs(60), callers.join_all()).await;
    ended.expect("nobody waits for ever");
    assert!(all_free(engine, &["a", "b", "c"]).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn overlapping_pairs_all_come_to_their_end_also_beside_single_locks() {
    let Ground { engine, .. } = &ground().await;
    let mut callers = JoinSet::new();
    for number in 0..9 {
        let engine = engine.clone();
        callers.spawn(async move {
            let keys = [["a", "b"], ["b", "c"], ["c", "a"]][number % 3];
            for round in 0..4 {
                let owner = format!("{number}-{round}");
                if number < 3 {
                    let key = lock(keys[0]);
                    let granted = engine.acquire(&key, call(&owner, 60_000, Wait::Forever)).await.unwrap();
                    engine.release(&key, release(&owner, &granted)).await.unwrap();
                    continue;
                }
                let granted = engine.acquire_all(bundle(&owner, &keys, Wait::Forever)).await.unwrap();
                give_back(&engine, &owner, &keys, &granted).await;
            }
        });
    }
    let ended = tokio::time::timeout(Duration::from_secs(60), callers.join_all()).await;
    ended.expect("nobody waits for ever");
    assert!(all_free(engine, &["a", "b", "c"]).await);
}

#[tokio::test]
async fn a_wait_that_runs_out_says_at_which_lock_and_leaves_nothing() {
    let Ground { engine, .. } = &ground().await;
    let _held = engine.acquire(&lock("b"), call("other", 60_000, Wait::No)).await.unwrap();
    let limit = Wait::AtMost(Duration::from_millis(50));
    let error = engine.acquire_all(bundle("x", &["a", "b"], limit)).await.unwrap_err();
    assert_eq!(error.lock, Some(lock("b")));
    let LockError::Refused(Refusal::WaitTimeout(by)) = error.error else { panic!("{error:?}") };
    assert_eq!(by.owner.as_deref(), Some("other"));
    assert!(all_free(engine, &["a"]).await);
    queued(engine, &lock("b"), 0).await;
}

#[tokio::test]
async fn a_caller_that_goes_away_leaves_nothing_whenever_it_goes() {
    let Ground { engine, .. } = &ground().await;
    let keys = ["a", "b", "c", "d"];
    let held = engine.acquire(&lock("c"), call("other", 60_000, Wait::No)).await.unwrap();
    let waiting = starts(engine, bundle("x", &keys, Wait::Forever));
    queued(engine, &lock("c"), 1).await;
    waiting.abort();
    queued(engine, &lock("c"), 0).await;
    engine.release(&lock("c"), release("other", &held)).await.unwrap();
    assert!(all_free(engine, &keys).await);
    for micros in (0..60).map(|step| step * 50) {
        let going = starts(engine, bundle(&format!("x{micros}"), &keys, Wait::Forever));
        tokio::time::sleep(Duration::from_micros(micros)).await;
        going.abort();
        if let Ok(Ok(granted)) = going.await {
            give_back(engine, &format!("x{micros}"), &keys, &granted).await;
        }
        until("nothing is left", async || all_free(engine, &keys).await).await;
    }
}

#[tokio::test]
async fn a_repetition_takes_a_running_call_over_and_that_one_never_gets_anything() {
    let Ground { engine, .. } = &ground().await;
    let held = engine.acquire(&lock("b"), call("other", 60_000, Wait::No)).await.unwrap();
    let first = starts(engine, bundle("x", &["a", "b"], Wait::Forever));
    queued(engine, &lock("b"), 1).await;
    let second = starts(engine, bundle("x", &["a", "b"], Wait::Forever));
    let told = first.await.unwrap().unwrap_err();
    let LockError::Refused(Refusal::StillWaiting { request_id, .. }) = told.error else { panic!("{told:?}") };
    assert_eq!(request_id, "bundle of x");
    queued(engine, &lock("b"), 1).await;
    engine.release(&lock("b"), release("other", &held)).await.unwrap();
    let granted = second.await.unwrap().unwrap();
    give_back(engine, "x", &["a", "b"], &granted).await;
    assert!(all_free(engine, &["a", "b"]).await);
}

#[tokio::test]
async fn a_call_that_waited_as_long_as_it_may_keeps_its_place_for_the_next() {
    let ground = ground().await;
    let config = Config { call_max: Duration::from_millis(100), ..Config::default() };
    let engine = &Engine::start(ground.engine.store().clone(), config, Random::system()).await.unwrap();
    let held = engine.acquire(&lock("b"), call("other", 60_000, Wait::No)).await.unwrap();
    let told = engine.acquire_all(bundle("x", &["a", "b"], Wait::Forever)).await.unwrap_err();
    assert_eq!(told.lock, Some(lock("b")));
    assert!(matches!(told.error, LockError::Refused(Refusal::StillWaiting { .. })), "{told:?}");
    assert_eq!(holder(engine, "a").await, None);
    let late = Engine::start(engine.store().clone(), Config::default(), Random::system()).await.unwrap();
    let later = starts(&late, bundle("y", &["b", "c"], Wait::Forever));
    queued(engine, &lock("b"), 2).await;
    let back = starts(&late, bundle("x", &["a", "b"], Wait::Forever));
    until("it is back", async || {
        let queue = late.lock_queue(&lock("b")).await.unwrap();
        queue.iter().all(|entry| entry.connected)
    })
    .await;
    late.release(&lock("b"), release("other", &held)).await.unwrap();
    let granted = back.await.unwrap().unwrap();
    assert_eq!(holder(&late, "b").await.as_deref(), Some("x"), "it was there first");
    give_back(&late, "x", &["a", "b"], &granted).await;
    later.await.unwrap().unwrap();
}

#[tokio::test]
async fn a_lock_that_is_taken_away_while_it_is_tried_isnt_missing_in_the_answer() {
    let Ground { engine, .. } = &ground().await;
    let keys = ["a", "b", "c"];
    for round in 0..20 {
        let owner = format!("x{round}");
        let trying = starts(engine, bundle(&owner, &keys, Wait::Forever));
        let force = baton_engine::lock::ForceCall {
            fencing: None,
            delay: Duration::ZERO,
            by: "admin".into(),
            reason: "test".into(),
        };
        // Whatever it hits: nothing, a grant that nobody was told of, or one that counts already.
        engine.force_release(&lock("a"), force).await.ok();
        let granted = trying.await.unwrap().unwrap();
        for (key, granted) in keys.iter().zip(&granted).skip(1) {
            engine.release(&lock(key), release(&owner, granted)).await.unwrap();
        }
        engine.release(&lock("a"), release(&owner, &granted[0])).await.ok();
    }
    assert!(all_free(engine, &keys).await);
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_is_shorter_than_taking_all_takes_is_refused_and_nothing_is_left() {
    let store = Simulated::for_many(7);
    let engine =
        Engine::start(store.node(Faults::none()), Config::default(), Random::seeded(7)).await.unwrap();
    let keys: Vec<_> = (0..16).map(|number| format!("k{number:02}")).collect();
    let keys: Vec<_> = keys.iter().map(String::as_str).collect();
    let short = BundleCall { ttl: Duration::from_millis(10), ..bundle("x", &keys, Wait::No) };
    let error = engine.acquire_all(short).await.unwrap_err();
    assert_eq!(error.error, LockError::Refused(Refusal::Expired));
    assert!(all_free(&engine, &keys).await);
    let long = BundleCall { ttl: Duration::from_millis(2000), ..bundle("y", &keys, Wait::No) };
    assert_eq!(engine.acquire_all(long).await.unwrap().len(), 16);
}

#[tokio::test(start_paused = true)]
async fn what_a_node_that_died_had_taken_is_withdrawn_by_the_repetition_at_another() {
    for seed in 0..40 {
        let store = Simulated::for_many(seed);
        let handles = [store.node(Faults::none()), store.node(Faults::none())];
        let start = |index: usize| {
            Engine::start(handles[index].clone(), Config::default(), Random::seeded(seed * 2 + index as u64))
        };
        let nodes = [start(0).await.unwrap(), start(1).await.unwrap()];
        let keys = ["a", "b", "c", "d"];
        let dying = starts(&nodes[0], bundle("x", &keys, Wait::No));
        tokio::time::sleep(Duration::from_millis(seed)).await;
        handles[0].kill();
        let began = tokio::time::Instant::now();
        let granted = nodes[1].acquire_all(bundle("x", &keys, Wait::No)).await.unwrap();
        assert!(began.elapsed() < Duration::from_secs(2), "it didn't wait for a lease to run out");
        for (key, granted) in keys.iter().zip(&granted) {
            let owner: Arc<str> = "x".into();
            let call =
                ReleaseCall { token: granted.token.reveal(), owner, principal: "".into(), request_id: None };
            nodes[1].release(&lock(key), call).await.unwrap();
        }
        assert!(all_free(&nodes[1], &keys).await, "seed {seed}");
        if let Ok(Ok(late)) = dying.await {
            assert_eq!(late[0].fencing, granted[0].fencing, "seed {seed}: the same grants, if any");
        }
    }
}
