//! A breaker around a store that fails on demand, on a clock that stands still while anyone has something to do.

use crate::simulated::{commit, key, put};
use baton_core::{Bytes, Check, Commit, Key, Outcome};
use baton_store::conformance::{self, Ending, Harness};
use baton_store::watch::Watch;
use baton_store::{Breaker, Guarantees, Page, Range, Reading, Reason, Store, StoreError, StoreFuture, Usage};
use baton_testkit::faulty::{Fault, Faulty};
use baton_testkit::simulated::{Faults, Simulated};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

const TIMEOUT: Duration = Duration::from_secs(2);

fn guarded() -> (Faulty, Arc<Breaker>) {
    let faults = Faults { there_ms: (0, 0), back_ms: (0, 0), ..Faults::none() };
    let store = Faulty::new(Simulated::new(1).node(faults));
    (store.clone(), Breaker::new(Arc::new(store)))
}

/// A store that takes its time, and an adapter that has so many calls under way at most.
struct Crowded {
    store: Faulty,
    places: Semaphore,
}

/// How long it takes for an answer.
const SLOW: Duration = Duration::from_millis(500);

impl Crowded {
    async fn call<T>(&self, call: impl Future<Output = Result<T, StoreError>>) -> Result<T, StoreError> {
        let Ok(_place) = self.places.try_acquire() else {
            return Err(StoreError::NotApplied { reason: Reason::Busy, detail: "full up".into() });
        };
        tokio::time::sleep(SLOW).await;
        call.await
    }
}

impl Store for Crowded {
    fn commit(&self, commit: Commit) -> StoreFuture<'_, Outcome> {
        Box::pin(self.call(async move { self.store.commit(commit).await }))
    }

    fn read(&self, keys: Vec<Key>) -> StoreFuture<'_, Reading> {
        Box::pin(self.call(async move { self.store.read(keys).await }))
    }

    fn scan(&self, range: Range, limit: usize) -> StoreFuture<'_, Page> {
        Box::pin(self.call(async move { self.store.scan(range, limit).await }))
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

async fn write(store: &dyn Store) -> Result<Outcome, StoreError> {
    store.commit(commit([put("a", "1")])).await
}

/// Waits until calls go through; how long that took.
async fn closed(breaker: &Breaker) -> Duration {
    let start = Instant::now();
    while breaker.is_open() {
        assert!(start.elapsed() < Duration::from_secs(60), "it never closed");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    start.elapsed()
}

async fn assert_refused_untouched(store: &Faulty, breaker: &Breaker) {
    let before = (store.calls(), Instant::now());
    for _ in 0..100 {
        let refused = write(breaker).await;
        let is_plain = matches!(refused, Err(StoreError::NotApplied { reason: Reason::Unavailable, .. }));
        assert!(is_plain, "{refused:?}");
    }
    assert!(breaker.read(vec![key("a")]).await.is_err());
    assert_eq!((store.calls(), Instant::now()), before, "refused at once, without a call");
}

#[tokio::test(start_paused = true)]
async fn a_store_that_keeps_failing_is_left_alone_until_it_answers_a_probe() {
    for fault in [Fault::Unavailable, Fault::Lost, Fault::AnswerLost] {
        let (store, breaker) = guarded();
        write(&*breaker).await.unwrap();
        store.set(fault);
        for _ in 0..5 {
            assert!(!breaker.is_open());
            write(&*breaker).await.unwrap_err();
        }
        assert!(breaker.is_open(), "{fault:?}");
        // The first probe comes at once, and fails.
        let sent = store.calls();
        store.called(sent + 1).await;
        assert_refused_untouched(&store, &breaker).await;

        // Then they come more and more seldom: a minute has some sixty.
        let sent = store.calls();
        tokio::time::sleep(Duration::from_secs(60)).await;
        let probes = store.calls() - sent;
        assert!((58..=84).contains(&probes), "{probes} probes");

        store.set(Fault::None);
        assert!(closed(&breaker).await <= Duration::from_millis(1010));
        write(&*breaker).await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn calls_that_their_callers_give_up_count_and_a_probe_has_its_own_limit() {
    let (store, breaker) = guarded();
    store.set(Fault::Silent);
    for _ in 0..5 {
        assert!(timeout(TIMEOUT, write(&*breaker)).await.is_err());
    }
    assert!(breaker.is_open());
    store.called(6).await;
    assert_refused_untouched(&store, &breaker).await;
    // One at a time, though none of them is answered: each takes its second, then comes the pause.
    tokio::time::sleep(Duration::from_secs(60)).await;
    let probes = store.calls() - 5;
    assert!((28..=40).contains(&probes), "{probes} probes");
    store.set(Fault::None);
    assert!(closed(&breaker).await <= Duration::from_millis(1010));
    write(&*breaker).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn callers_that_go_away_early_say_nothing_about_the_store() {
    let (store, breaker) = guarded();
    store.set(Fault::Silent);
    for _ in 0..20 {
        assert!(timeout(Duration::from_millis(20), write(&*breaker)).await.is_err());
    }
    assert!(!breaker.is_open());
}

#[tokio::test(start_paused = true)]
async fn too_many_calls_at_once_say_nothing_about_the_store_and_hide_nothing_of_its_failures() {
    let (store, _) = guarded();
    let breaker = Breaker::new(Arc::new(Crowded { store: store.clone(), places: Semaphore::new(8) }));
    let crowd = || {
        let mut calls = JoinSet::new();
        for _ in 0..40 {
            let breaker = breaker.clone();
            calls.spawn(async move { write(&*breaker).await });
        }
        calls
    };
    for _ in 0..5 {
        let ends = crowd().join_all().await;
        let busy = |end: &&_| matches!(end, Err(StoreError::NotApplied { reason: Reason::Busy, .. }));
        assert_eq!(ends.iter().filter(busy).count(), 32);
        assert_eq!(ends.iter().filter(|end| end.is_ok()).count(), 8, "{ends:?}");
        assert!(!breaker.is_open(), "it answers as fast as it can");
    }
    // Those that do get there fail: however many don't, that is seen.
    store.set(Fault::Unavailable);
    crowd().join_all().await;
    assert!(breaker.is_open());
    store.set(Fault::None);
    assert!(closed(&breaker).await <= SLOW + Duration::from_millis(1010));
    write(&*breaker).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn conflicts_and_refusals_are_answers() {
    let (store, breaker) = guarded();
    write(&*breaker).await.unwrap();
    let again = Commit { checks: vec![Check::Absent(key("a"))], ..commit([put("a", "2")]) };
    for _ in 0..20 {
        assert!(matches!(breaker.commit(again.clone()).await, Ok(Outcome::Conflict { .. })));
    }
    assert!(!breaker.is_open());
    for fault in [Fault::Full, Fault::Invalid] {
        store.set(fault);
        for _ in 0..20 {
            write(&*breaker).await.unwrap_err();
        }
        assert!(!breaker.is_open(), "{fault:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn calls_that_hung_since_before_an_outage_do_not_open_it_again_after() {
    let (store, breaker) = guarded();
    store.set(Fault::Silent);
    let mut hanging = Vec::new();
    for _ in 0..20 {
        let mut call = breaker.commit(commit([put("b", "1")]));
        assert!(timeout(Duration::from_millis(1), &mut call).await.is_err());
        hanging.push(call);
    }
    for _ in 0..5 {
        assert!(timeout(TIMEOUT, write(&*breaker)).await.is_err());
    }
    assert!(breaker.is_open());
    store.set(Fault::None);
    closed(&breaker).await;
    drop(hanging);
    assert!(!breaker.is_open());
    write(&*breaker).await.unwrap();
}

struct Ground(Simulated);

impl Harness for Ground {
    async fn open(&self) -> Arc<dyn Store> {
        let faults = Faults { there_ms: (0, 0), back_ms: (0, 0), ..Faults::none() };
        Breaker::new(self.0.node(faults))
    }

    async fn reopen(&self, store: Arc<dyn Store>, _: Ending) -> Arc<dyn Store> {
        drop(store);
        self.open().await
    }

    async fn pass(&self, duration: Duration) {
        tokio::time::sleep(duration).await;
    }
}

#[tokio::test(start_paused = true)]
async fn every_law_holds_through_a_breaker() {
    conformance::all(&Ground(Simulated::new(1))).await;
}

#[tokio::test(start_paused = true)]
async fn the_store_is_let_go_with_the_breaker() {
    let store: Arc<dyn Store> = Simulated::new(1).node(Faults::none());
    let breaker = Breaker::new(store.clone());
    tokio::task::yield_now().await;
    drop(breaker);
    let start = Instant::now();
    while Arc::strong_count(&store) > 1 {
        assert!(start.elapsed() < Duration::from_secs(10), "something holds on to the store");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}
