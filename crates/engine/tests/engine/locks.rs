//! Waiting, handing over, expiring and going away, as a caller in the same process sees it.

use super::counting::Counting;
use super::promptly::promptly;
use baton_core::lock::{LockName, Mode};
use baton_engine::lock::{
    AcquireCall, Granted, HistoryKind, LockError, Refusal, ReleaseCall, RenewCall, Wait,
};
use baton_engine::{Config, Engine, Random};
use baton_testkit::store_url;
use std::sync::Arc;
use std::time::{Duration, Instant};

pub struct Ground {
    pub engine: Engine,
    pub store: Arc<Counting>,
    // Dropped last: the store lives in it.
    _directory: tempfile::TempDir,
}

pub async fn ground() -> Ground {
    let directory = tempfile::tempdir().unwrap();
    let store = baton_store::open(&store_url(directory.path()), directory.path()).await.unwrap();
    let store = Arc::new(Counting::new(store));
    let engine = Engine::start(store.clone(), Config::default(), Random::system()).await.unwrap();
    Ground { engine, store, _directory: directory }
}

pub fn call(owner: &str, ttl_ms: u64, wait: Wait) -> AcquireCall {
    AcquireCall {
        owner: owner.into(),
        principal: "".into(),
        ttl: Duration::from_millis(ttl_ms),
        wait,
        request_id: Some(format!("request of {owner}")),
        reentrant: false,
        metadata: None,
        mode: Mode::Exclusive,
        delay: Duration::ZERO,
    }
}

pub fn release(owner: &str, granted: &Granted) -> ReleaseCall {
    ReleaseCall { token: granted.token.reveal(), owner: owner.into(), principal: "".into(), request_id: None }
}

/// Polls until it is so, for at most five seconds.
pub async fn until(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(5);
    while !is_so().await {
        assert!(Instant::now() < deadline, "not in time: {what}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

pub async fn queued(engine: &Engine, lock: &LockName, count: usize) {
    until("queue length", async || engine.lock_queue(lock).await.unwrap().len() == count).await;
}

#[tokio::test]
async fn a_release_hands_the_lock_to_the_first_in_the_queue() {
    let ground = ground().await;
    let engine = &ground.engine;
    let lock = LockName::new("default", "k");
    let first = engine.acquire(&lock, call("a", 60_000, Wait::No)).await.unwrap();
    let second = tokio::spawn(waits(engine, &lock, "b"));
    queued(engine, &lock, 1).await;
    let third = tokio::spawn(waits(engine, &lock, "c"));
    queued(engine, &lock, 2).await;

    let refused = engine.acquire(&lock, call("d", 60_000, Wait::No)).await.unwrap_err();
    let LockError::Refused(Refusal::Held(held)) = refused else { panic!("{refused:?}") };
    assert_eq!((held.owner.as_deref(), held.waiting), (Some("a"), 2));
    assert!(held.retry_after.is_some_and(|left| left > Duration::from_secs(50)));

    engine.release(&lock, release("a", &first)).await.unwrap();
    let second = second.await.unwrap().unwrap();
    assert!(second.fencing > first.fencing);
    assert_eq!(engine.lock_state(&lock).await.unwrap().unwrap().holders[0].owner.as_ref(), "b");
    engine.release(&lock, release("b", &second)).await.unwrap();
    let third = third.await.unwrap().unwrap();
    assert!(third.fencing > second.fencing);
    engine.release(&lock, release("c", &third)).await.unwrap();
    assert!(engine.lock_state(&lock).await.unwrap().is_none());

    let history = engine.lock_history(&lock).await.unwrap();
    let shown: Vec<_> = history.iter().rev().map(|event| (event.kind, event.owner.as_ref())).collect();
    let expected = [
        (HistoryKind::Granted, "a"),
        (HistoryKind::Released, "a"),
        (HistoryKind::Granted, "b"),
        (HistoryKind::Released, "b"),
        (HistoryKind::Granted, "c"),
        (HistoryKind::Released, "c"),
    ];
    assert_eq!(shown, expected);
}

#[tokio::test]
async fn an_expired_holder_makes_way_within_fifty_milliseconds_of_its_end() {
    promptly(an_expired_holder_makes_way).await;
}

async fn an_expired_holder_makes_way() -> (Duration, Duration) {
    let ground = ground().await;
    let engine = &ground.engine;
    let lock = LockName::new("default", "k");
    let promised = engine.store().guarantees();
    let ttl = promised.ttl_min.max(Duration::from_millis(300));
    let before = Instant::now();
    let first = engine.acquire(&lock, call("a", ttl.as_millis() as u64, Wait::No)).await.unwrap();
    let granted_by = Instant::now();
    let second = waits(engine, &lock, "b").await.unwrap();
    let after = Instant::now();
    assert!(second.fencing > first.fencing);
    assert!(after >= before + ttl, "before its end");
    let late = engine.release(&lock, release("a", &first)).await;
    assert_eq!(late, Err(LockError::Refused(Refusal::Expired)));
    (after - granted_by, ttl + promised.ttl_granularity + Duration::from_millis(50))
}

#[tokio::test]
async fn a_waiter_that_goes_away_leaves_the_queue_and_one_that_gave_up_says_so() {
    let ground = ground().await;
    let engine = &ground.engine;
    let lock = LockName::new("default", "k");
    let first = engine.acquire(&lock, call("a", 60_000, Wait::No)).await.unwrap();
    let gone = tokio::spawn(waits(engine, &lock, "b"));
    queued(engine, &lock, 1).await;
    gone.abort();
    queued(engine, &lock, 0).await;

    let limit = Wait::AtMost(Duration::from_millis(20));
    let gave_up = engine.acquire(&lock, call("c", 60_000, limit)).await.unwrap_err();
    let LockError::Refused(Refusal::WaitTimeout(held)) = gave_up else { panic!("{gave_up:?}") };
    assert_eq!(held.owner.as_deref(), Some("a"));
    queued(engine, &lock, 0).await;
    engine.release(&lock, release("a", &first)).await.unwrap();
    assert!(engine.lock_state(&lock).await.unwrap().is_none());
}

#[tokio::test]
async fn a_lock_whose_holder_vanished_while_nobody_waited_is_settled() {
    let ground = ground().await;
    let engine = &ground.engine;
    let lock = LockName::new("default", "k");
    engine.acquire(&lock, call("a", 100, Wait::No)).await.unwrap();
    until("expired in the history", async || {
        let history = engine.lock_history(&lock).await.unwrap();
        history.first().is_some_and(|event| event.kind == HistoryKind::Expired)
    })
    .await;
}

#[tokio::test]
async fn draining_sends_waiters_away_and_the_next_node_keeps_their_places() {
    let ground = ground().await;
    let engine = &ground.engine;
    let lock = LockName::new("default", "k");
    let first = engine.acquire(&lock, call("a", 60_000, Wait::No)).await.unwrap();
    let mut waiting = Vec::new();
    for (position, owner) in ["b", "c", "d"].into_iter().enumerate() {
        waiting.push(tokio::spawn(waits(engine, &lock, owner)));
        queued(engine, &lock, position + 1).await;
    }
    engine.drain().await;
    for waiter in waiting {
        let answer = waiter.await.unwrap().unwrap_err();
        assert!(matches!(answer, LockError::Refused(Refusal::StillWaiting { .. })), "{answer:?}");
    }

    let next = Engine::start(engine.store().clone(), Config::default(), Random::system()).await.unwrap();
    // They come back in another order, and a newcomer is before them.
    let mut back = Vec::new();
    for owner in ["e", "d", "c", "b"] {
        back.push((owner, tokio::spawn(waits(&next, &lock, owner))));
        let connected = async || {
            let queue = next.lock_queue(&lock).await.unwrap();
            queue.iter().any(|entry| entry.connected && entry.owner.as_ref() == owner)
        };
        until("back in the queue", connected).await;
    }
    next.release(&lock, release("a", &first)).await.unwrap();
    for expected in ["b", "c", "d", "e"] {
        let index = back.iter().position(|(owner, _)| *owner == expected).unwrap();
        let granted = back.swap_remove(index).1.await.unwrap().unwrap();
        assert_eq!(next.lock_state(&lock).await.unwrap().unwrap().holders[0].owner.as_ref(), expected);
        next.release(&lock, release(expected, &granted)).await.unwrap();
    }
}

#[tokio::test]
async fn acquire_renew_and_release_of_an_uncontended_lock_are_one_round_trip_each() {
    let ground = ground().await;
    let (engine, store) = (&ground.engine, &ground.store);
    // One scan a group to sweep.
    until("swept", async || store.calls() >= 256).await;
    let lock = LockName::new("default", "k");
    let calls = store.calls();
    let granted = engine.acquire(&lock, call("a", 60_000, Wait::Forever)).await.unwrap();
    assert_eq!(store.calls(), calls + 1, "acquire");
    let (token, ttl) = (granted.token.reveal(), Duration::from_secs(90));
    let renew = RenewCall { token, owner: "a".into(), principal: "".into(), ttl };
    engine.renew(&lock, renew).await.unwrap();
    assert_eq!(store.calls(), calls + 2, "renew");
    engine.release(&lock, release("a", &granted)).await.unwrap();
    assert_eq!(store.calls(), calls + 3, "release");
}

#[tokio::test]
async fn with_a_thousand_waiters_a_release_is_one_commit_and_wakes_one() {
    let ground = ground().await;
    let (engine, store) = (&ground.engine, &ground.store);
    let lock = LockName::new("default", "k");
    let first = engine.acquire(&lock, call("a", 60_000, Wait::No)).await.unwrap();
    let mut waiters = tokio::task::JoinSet::new();
    for number in 0..1000 {
        waiters.spawn(waits(engine, &lock, &format!("waiter {number}")));
    }
    queued(engine, &lock, 1000).await;
    let commits = store.commits();
    assert!(commits < 300, "{commits} commits for 1000 that arrived together");
    let mut granted = first;
    let mut owner = "a".to_owned();
    for round in 1..=20 {
        engine.release(&lock, release(&owner, &granted)).await.unwrap();
        let next = waiters.join_next().await.unwrap().unwrap().unwrap();
        assert!(next.fencing > granted.fencing);
        granted = next;
        owner = engine.lock_state(&lock).await.unwrap().unwrap().holders[0].owner.to_string();
        assert_eq!(store.commits(), commits + round, "one commit a hand-over");
        assert!(waiters.try_join_next().is_none(), "only one was woken");
    }
    assert_eq!(engine.lock_queue(&lock).await.unwrap().len(), 980);
}

fn waits(
    engine: &Engine,
    lock: &LockName,
    owner: &str,
) -> impl Future<Output = Result<Granted, LockError>> + Send + use<> {
    let (engine, lock, call) = (engine.clone(), lock.clone(), call(owner, 60_000, Wait::Forever));
    async move { engine.acquire(&lock, call).await }
}
