//! Semaphores, read/write locks and lock-delays on a real store (L14, L17).

use super::locks::{Ground, call, ground, queued, release, until};
use super::promptly::promptly;
use baton_core::lock::{Family, Hold, LockName, Mode};
use baton_engine::Engine;
use baton_engine::lock::{AcquireCall, ForceCall, Granted, HistoryKind, LockError, Refusal, RenewCall, Wait};
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

const PERMITS: u16 = 3;

fn lock() -> LockName {
    LockName::new("default", "k")
}

fn as_mode(owner: &str, mode: Mode, wait: Wait) -> AcquireCall {
    AcquireCall { mode, ..call(owner, 60_000, wait) }
}

fn delayed(owner: &str, ttl: Duration, delay: Duration) -> AcquireCall {
    AcquireCall { delay, ..call(owner, ttl.as_millis() as u64, Wait::No) }
}

fn waits(
    engine: &Engine,
    owner: &str,
    mode: Mode,
) -> impl Future<Output = Result<Granted, LockError>> + Send + use<> {
    let (engine, call) = (engine.clone(), as_mode(owner, mode, Wait::Forever));
    async move { engine.acquire(&lock(), call).await }
}

#[tokio::test]
async fn ten_readers_behind_a_writer_go_on_after_its_release_without_anybody_looking() {
    let Ground { engine, store, .. } = &ground().await;
    let writer = engine.acquire(&lock(), call("w", 60_000, Wait::No)).await.unwrap();
    let mut readers = JoinSet::new();
    for number in 0..10 {
        readers.spawn(waits(engine, &format!("r{number}"), Mode::Shared));
        queued(engine, &lock(), number + 1).await;
    }
    let next_writer = tokio::spawn(waits(engine, "w2", Mode::Exclusive));
    // Parked, and so counted: what is in the store may not be yet.
    until("all wait", async || engine.metrics().parked.get() == 11).await;
    let commits = store.commits();
    engine.release(&lock(), release("w", &writer)).await.unwrap();
    let granted: Vec<_> = readers.join_all().await.into_iter().map(Result::unwrap).collect();
    assert!(granted.iter().all(|granted| granted.hold == Hold::Shared));
    assert_eq!(store.commits(), commits + 10, "one a reader, the first with the release");
    let state = engine.lock_state(&lock()).await.unwrap().unwrap();
    assert_eq!((state.holders.len(), state.waiting), (10, 1));
    let reader = engine.acquire(&lock(), as_mode("late", Mode::Shared, Wait::No)).await.unwrap_err();
    assert!(matches!(reader, LockError::Refused(Refusal::Held(_))), "a writer waits: {reader:?}");
    for (holder, granted) in state.holders.iter().zip(sorted(granted)) {
        engine.release(&lock(), release(&holder.owner, &granted)).await.unwrap();
    }
    assert_eq!(next_writer.await.unwrap().unwrap().hold, Hold::Exclusive);
}

fn sorted(mut granted: Vec<Granted>) -> Vec<Granted> {
    granted.sort_by_key(|granted| granted.fencing);
    granted
}

/// How many are inside, and how many may be.
#[derive(Default)]
struct Inside {
    readers: AtomicI32,
    writers: AtomicI32,
    permits: AtomicI32,
}

impl Inside {
    fn enter(&self, mode: Mode) {
        let count = match mode {
            Mode::Exclusive => &self.writers,
            Mode::Shared => &self.readers,
            Mode::Semaphore { .. } => &self.permits,
        };
        count.fetch_add(1, Ordering::SeqCst);
        let now = [&self.readers, &self.writers, &self.permits].map(|count| count.load(Ordering::SeqCst));
        let [readers, writers, permits] = now;
        assert!(writers <= 1 && (writers == 0 || readers == 0) && permits <= PERMITS.into(), "{now:?}");
    }

    fn leave(&self, mode: Mode) {
        match mode {
            Mode::Exclusive => self.writers.fetch_sub(1, Ordering::SeqCst),
            Mode::Shared => self.readers.fetch_sub(1, Ordering::SeqCst),
            Mode::Semaphore { .. } => self.permits.fetch_sub(1, Ordering::SeqCst),
        };
    }
}

async fn crowd(mode: fn(usize) -> Mode) {
    let ground = ground().await;
    let inside = Arc::new(Inside::default());
    let mut crowd = JoinSet::new();
    for number in 0..12 {
        let (engine, inside, mode) = (ground.engine.clone(), inside.clone(), mode(number));
        crowd.spawn(async move {
            for round in 0..4 {
                let owner = format!("{number}, {round}");
                let granted = engine.acquire(&lock(), as_mode(&owner, mode, Wait::Forever)).await.unwrap();
                inside.enter(mode);
                tokio::task::yield_now().await;
                inside.leave(mode);
                engine.release(&lock(), release(&owner, &granted)).await.unwrap();
            }
        });
    }
    tokio::time::timeout(Duration::from_secs(60), crowd.join_all()).await.expect("nobody is starved");
    assert!(ground.engine.lock_state(&lock()).await.unwrap().is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_semaphore_never_has_one_holder_too_many_and_everybody_gets_a_permit() {
    crowd(|_| Mode::Semaphore { permits: PERMITS }).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn readers_and_writers_never_mix_and_everybody_gets_in() {
    crowd(|number| if number % 3 == 0 { Mode::Exclusive } else { Mode::Shared }).await;
}

#[tokio::test]
async fn a_permit_whose_lease_ran_out_goes_to_the_next_within_fifty_milliseconds() {
    promptly(a_permit_whose_lease_ran_out_goes_to_the_next).await;
}

async fn a_permit_whose_lease_ran_out_goes_to_the_next() -> (Duration, Duration) {
    let Ground { engine, .. } = &ground().await;
    let promised = engine.store().guarantees();
    let ttl = promised.ttl_min.max(Duration::from_millis(300));
    let mode = Mode::Semaphore { permits: 2 };
    let stays = engine.acquire(&lock(), as_mode("stays", mode, Wait::No)).await.unwrap();
    let before = Instant::now();
    let dies = AcquireCall { ttl, ..as_mode("dies", mode, Wait::No) };
    let dies = engine.acquire(&lock(), dies).await.unwrap();
    let granted_by = Instant::now();
    let next = waits(engine, "next", mode).await.unwrap();
    let after = Instant::now();
    assert_eq!((stays.hold, dies.hold), (Hold::Permit { slot: 0 }, Hold::Permit { slot: 1 }));
    assert_eq!(next.hold, dies.hold, "the slot is free again");
    assert!(next.fencing > dies.fencing && after >= before + ttl);
    (after - granted_by, ttl + promised.ttl_granularity + Duration::from_millis(50))
}

#[tokio::test]
async fn several_holders_are_shown_listed_remembered_and_forced() {
    let Ground { engine, .. } = &ground().await;
    let mode = Mode::Semaphore { permits: 3 };
    let mut granted = Vec::new();
    for owner in ["a", "b", "c"] {
        let metadata = Some(format!("{{\"who\":\"{owner}\"}}").into_bytes().into());
        let call = AcquireCall { metadata, ..as_mode(owner, mode, Wait::No) };
        granted.push(engine.acquire(&lock(), call).await.unwrap());
    }
    let waiter = tokio::spawn(waits(engine, "d", mode));
    queued(engine, &lock(), 1).await;
    assert_eq!(engine.lock_queue(&lock()).await.unwrap()[0].mode, mode);
    let mismatch = engine.acquire(&lock(), call("x", 1000, Wait::No)).await.unwrap_err();
    assert_eq!(mismatch, LockError::Refused(Refusal::ModeMismatch { permits: Some(3) }));

    let state = engine.lock_state(&lock()).await.unwrap().unwrap();
    let shown: Vec<_> = state.holders.iter().map(|holder| (&*holder.owner, holder.hold)).collect();
    assert_eq!(shown, [("a", 0), ("b", 1), ("c", 2)].map(|(owner, slot)| (owner, Hold::Permit { slot })));
    assert_eq!(state.holders[1].metadata.as_deref(), Some(&br#"{"who":"b"}"#[..]));
    let list = engine.list_locks(Family::Lock, "default", "", 10, None).await.unwrap();
    assert_eq!((list.locks.len(), list.locks[0].holders, list.locks[0].permits), (1, 3, Some(3)));

    let force = async |fencing| {
        let (by, reason) = ("admin".into(), "test".into());
        engine.force_release(&lock(), ForceCall { fencing, delay: Duration::ZERO, by, reason }).await
    };
    let forced = force(Some(granted[1].fencing)).await.unwrap();
    assert_eq!(forced.iter().map(|forced| &*forced.owner).collect::<Vec<_>>(), ["b"]);
    let fourth = waiter.await.unwrap().unwrap();
    assert_eq!(fourth.hold, Hold::Permit { slot: 1 });
    engine.release(&lock(), release("a", &granted[0])).await.unwrap();
    let forced = force(None).await.unwrap();
    assert_eq!(forced.iter().map(|forced| &*forced.owner).collect::<Vec<_>>(), ["c", "d"]);
    assert!(engine.lock_state(&lock()).await.unwrap().is_none());

    let history = engine.lock_history(&lock()).await.unwrap();
    let told: Vec<_> = history.iter().rev().map(|event| (event.kind, &*event.owner)).collect();
    use HistoryKind::{Forced, Granted, Released};
    let expected = [
        (Granted, "a"),
        (Granted, "b"),
        (Granted, "c"),
        (Forced, "b"),
        (Granted, "d"),
        (Released, "a"),
        (Forced, "c"),
        (Forced, "d"),
    ];
    assert_eq!(told, expected, "in the order in which it happened");
}

#[tokio::test]
async fn a_lock_stays_closed_for_its_delay_after_an_expiry_and_then_goes_to_whoever_waits() {
    promptly(a_lock_stays_closed_for_its_delay_and_then_goes_to_whoever_waits).await;
}

async fn a_lock_stays_closed_for_its_delay_and_then_goes_to_whoever_waits() -> (Duration, Duration) {
    let Ground { engine, .. } = &ground().await;
    let promised = engine.store().guarantees();
    let ttl = promised.ttl_min.max(Duration::from_millis(200));
    let delay = ttl;
    let before = Instant::now();
    engine.acquire(&lock(), delayed("dies", ttl, delay)).await.unwrap();
    let granted_by = Instant::now();
    until("its lease is over", async || {
        let refused = engine.acquire(&lock(), call("x", 1000, Wait::No)).await.unwrap_err();
        match refused {
            LockError::Refused(Refusal::Held(_)) => false,
            LockError::Refused(Refusal::Delayed(held)) => {
                assert!(held.owner.is_none());
                assert!(held.retry_after.is_some_and(|left| left <= delay + promised.ttl_granularity * 2));
                true
            }
            other => panic!("{other:?}"),
        }
    })
    .await;
    assert!(engine.lock_state(&lock()).await.unwrap().is_none(), "nobody holds it");
    let next = waits(engine, "next", Mode::Exclusive).await.unwrap();
    let after = Instant::now();
    assert!(after >= before + ttl + delay, "inside the delay");
    engine.release(&lock(), release("next", &next)).await.unwrap();
    (after - granted_by, ttl + delay + promised.ttl_granularity + Duration::from_millis(50))
}

#[tokio::test]
async fn a_release_opens_a_lock_at_once_and_a_renewal_moves_the_delay() {
    let Ground { engine, store, .. } = &ground().await;
    let ttl = engine.store().guarantees().ttl_min.max(Duration::from_millis(200));
    let hour = Duration::from_secs(3600);
    // One scan a group to sweep.
    until("swept", async || store.calls() >= 256).await;
    let first = engine.acquire(&lock(), delayed("a", ttl, hour)).await.unwrap();
    let renew = RenewCall { token: first.token.reveal(), owner: "a".into(), principal: "".into(), ttl: hour };
    engine.renew(&lock(), renew).await.unwrap();
    let calls = store.calls();
    engine.release(&lock(), release("a", &first)).await.unwrap();
    assert_eq!(store.calls(), calls + 1, "in one round trip");
    let second = engine.acquire(&lock(), call("b", 60_000, Wait::No)).await.unwrap();
    engine.release(&lock(), release("b", &second)).await.unwrap();
    let left = store.inner.scan(range(&lock()), 10).await.unwrap();
    assert_eq!(left.records.len(), 0, "no delay is left behind");
}

fn range(lock: &LockName) -> baton_store::Range {
    let prefix = lock.prefix(baton_core::lock::name::Kind::Delay);
    baton_store::Range { group: lock.group(), prefix, after: None }
}

#[tokio::test]
async fn a_forced_release_may_leave_the_lock_closed() {
    let Ground { engine, .. } = &ground().await;
    let held = engine.acquire(&lock(), call("a", 60_000, Wait::No)).await.unwrap();
    let delay = engine.store().guarantees().ttl_min.max(Duration::from_millis(300));
    let before = Instant::now();
    let force = ForceCall { fencing: None, delay, by: "admin".into(), reason: "test".into() };
    engine.force_release(&lock(), force).await.unwrap();
    let refused = engine.acquire(&lock(), call("b", 60_000, Wait::No)).await.unwrap_err();
    assert!(matches!(refused, LockError::Refused(Refusal::Delayed(_))), "{refused:?}");
    let late = engine.release(&lock(), release("a", &held)).await;
    assert_eq!(late, Err(LockError::Refused(Refusal::Expired)));
    waits(engine, "c", Mode::Exclusive).await.unwrap();
    assert!(before.elapsed() >= delay);
}
