//! The embedded store: the laws, and what is its own.

use crate::simulated::{Simulated, commit, committed, delete, key, put, put_for, touch};
use baton_core::{Check, Commit, Outcome, Revision, Ttl, Write};
use baton_store::conformance::{self, Ending, Harness};
use baton_store::embedded::disk::Disk;
use baton_store::embedded::{Embedded, OpenError, Options};
use baton_store::watch::Change;
use baton_store::{Reason, Store, StoreError, open};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

fn is(answer: &Result<Outcome, StoreError>, wanted: Reason) -> bool {
    matches!(answer, Err(StoreError::NotApplied { reason, .. }) if *reason == wanted)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keeps_the_laws() {
    conformance::all(&Simulated::new(1)).await;
}

/// On the machine's own disk and clock; a crash is kill.rs's business.
struct Real(tempfile::TempDir);

impl Harness for Real {
    async fn open(&self) -> Arc<dyn Store> {
        open("embedded:", self.0.path()).await.unwrap()
    }

    async fn reopen(&self, store: Arc<dyn Store>, _: Ending) -> Arc<dyn Store> {
        drop(store);
        self.open().await
    }

    async fn pass(&self, duration: Duration) {
        tokio::time::sleep(duration).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keeps_the_laws_on_a_real_disk() {
    conformance::all(&Real(tempfile::tempdir().unwrap())).await;
}

#[test]
fn a_directory_is_open_in_one_place_at_a_time() {
    let directory = tempfile::tempdir().unwrap();
    let store = Embedded::open(directory.path(), Options::default()).unwrap();
    let error = Embedded::open(directory.path(), Options::default()).err().unwrap();
    assert!(matches!(error, OpenError::InUse { .. }), "{error}");
    drop(store);
    Embedded::open(directory.path(), Options::default()).unwrap();
}

#[tokio::test]
async fn an_unknown_url_is_refused_without_repeating_its_password() {
    let directory = tempfile::tempdir().unwrap();
    let error = open("abacus://user:secret@host", directory.path()).await.err().unwrap().to_string();
    assert!(error.contains("abacus") && error.contains("embedded:") && !error.contains("secret"), "{error}");
}

#[tokio::test]
async fn a_closed_store_refuses() {
    let store = Simulated::new(2).start().unwrap();
    store.close();
    assert!(is(&store.commit(commit([put("a", "1")])).await, Reason::Unavailable));
    store.close();
}

#[tokio::test]
async fn a_failed_sync_ends_it_and_nobody_is_told_yes() {
    let mut world = Simulated::new(3);
    let ends = Arc::new(AtomicUsize::new(0));
    world.options.on_fatal = {
        let ends = ends.clone();
        Arc::new(move |_| {
            ends.fetch_add(1, Ordering::SeqCst);
        })
    };
    let store = world.start().unwrap();
    committed(&store, [put("a", "1")]).await;
    world.disk.fail_syncs(true);
    let answer = store.commit(commit([put("a", "2")])).await;
    assert!(matches!(answer, Err(StoreError::Unknown { .. })), "{answer:?}");
    world.disk.fail_syncs(false);
    assert!(is(&store.commit(commit([put("a", "3")])).await, Reason::Unavailable));
    assert!(store.read(vec![key("a")]).await.is_err(), "a read showed what may not be durable");
    assert_eq!(ends.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_full_disk_refuses_what_grows_and_recovers_when_there_is_room() {
    let mut world = Simulated::new(4);
    world.options.segment_bytes = 16 << 10;
    world.options.snapshot_bytes = u64::MAX;
    let store = world.start().unwrap();
    world.disk.set_capacity(64 << 10);
    let large = "x".repeat(1000);
    let mut acknowledged = 0;
    let refused = loop {
        let answer = store.commit(commit([put_for(&format!("k{acknowledged:03}"), &large, 1000)])).await;
        if !matches!(answer, Ok(Outcome::Committed { .. })) {
            break answer;
        }
        acknowledged += 1;
        assert!(acknowledged < 64, "more than fits");
    };
    assert!(is(&refused, Reason::Full), "{refused:?}");
    committed(&store, [touch("k000", 2000)]).await;
    committed(&store, [delete("k000")]).await;
    assert_eq!(store.usage().records, acknowledged - 1, "a refused commit has changed memory");

    world.disk.set_capacity(u64::MAX);
    let patience = Instant::now() + Duration::from_secs(30);
    while is(&store.commit(commit([put("after", &large)])).await, Reason::Full) {
        assert!(Instant::now() < patience, "still full");
        tokio::task::yield_now().await;
    }
    drop(store);
    let store = world.start().unwrap();
    assert_eq!(store.usage().records, acknowledged);
}

#[tokio::test]
async fn full_memory_refuses_what_grows_and_nothing_else() {
    let mut world = Simulated::new(5);
    world.options.full_bytes = 2000;
    let store = world.start().unwrap();
    committed(&store, [put_for("a", &"x".repeat(700), 10), put("b", &"x".repeat(700))]).await;
    let before = store.usage();
    assert!(is(&store.commit(commit([put("c", &"x".repeat(500))])).await, Reason::Full));
    assert!(is(&store.commit(commit([put("a", &"x".repeat(1500))])).await, Reason::Full));
    assert_eq!(store.usage(), before);
    committed(&store, [touch("a", 100)]).await;
    committed(&store, [put_for("a", "small", 10)]).await;
    committed(&store, [put("d", &"x".repeat(500)), delete("b")]).await;
}

#[tokio::test]
async fn leases_stand_still_while_it_is_down_and_ignore_the_wall_clock() {
    let world = Simulated::new(6);
    let store = world.start().unwrap();
    let first = committed(&store, [put_for("a", "1", 10)]).await;
    world.time.advance(Duration::from_secs(4));
    drop(store);
    world.time.advance(Duration::from_secs(3600));
    world.time.step_wall(Duration::from_secs(1000));
    let store = world.start().unwrap();
    let left = store.read(vec![key("a")]).await.unwrap().records[0].clone().unwrap().expires_in;
    assert_eq!(left, Some(Duration::from_secs(6)));
    assert!(committed(&store, [put("b", "1")]).await > first, "a wall clock that went back");
    world.time.advance(Duration::from_micros(5_999_999));
    assert!(store.read(vec![key("a")]).await.unwrap().records[0].is_some(), "a microsecond early");
    world.time.advance(Duration::from_micros(1));
    assert!(store.read(vec![key("a")]).await.unwrap().records[0].is_none());
}

#[tokio::test]
async fn what_anybody_saw_expired_stays_so_after_a_crash() {
    for seed in 0..8 {
        let world = Simulated::new(seed);
        let store = world.start().unwrap();
        let ttl = Ttl::Exactly(Duration::from_millis(100));
        let brief = Write::Put { key: key("brief"), value: b"1"[..].into(), ttl };
        committed(&store, [brief, put_for("long", "1", 100)]).await;
        world.time.advance(Duration::from_millis(100));
        assert!(store.read(vec![key("brief")]).await.unwrap().records[0].is_none());
        world.disk.crash_at(Some(0));
        drop(store);
        world.disk.restart();
        let store = world.start().unwrap();
        let records = store.read(vec![key("brief"), key("long")]).await.unwrap().records;
        assert!(records[0].is_none() && records[1].is_some(), "{records:?}");
    }
}

#[tokio::test]
async fn a_wall_clock_beyond_all_revisions_is_ignored() {
    let world = Simulated::new(7);
    world.time.step_wall(Duration::from_micros(Revision::MAX.0 + 1));
    let store = world.start().unwrap();
    assert_eq!(committed(&store, [put("a", "1")]).await, Revision(1));
    world.time.step_wall(Duration::from_micros(Revision::MAX.0));
    assert_eq!(committed(&store, [put("a", "2")]).await, Revision::MAX);
    assert!(is(&store.commit(commit([put("a", "3")])).await, Reason::Unavailable), "revisions are used up");
}

#[tokio::test]
async fn memory_of_the_expired_is_taken_back_and_touched_ones_stay() {
    let world = Simulated::new(8);
    let store = world.start().unwrap();
    for index in 0..1000 {
        committed(&store, [put_for(&format!("gone-{index}"), "1", 5)]).await;
    }
    committed(&store, [put_for("stays", "1", 5)]).await;
    committed(&store, [touch("stays", 100)]).await;
    let mut expirations = store.expirations(b"gone-99"[..].into());
    world.time.advance(Duration::from_secs(10));
    for _ in 0..10 {
        committed(&store, [put("b", "1")]).await;
    }
    assert_eq!(store.usage().records, 2);
    for _ in 0..11 {
        let change = expirations.next().await.unwrap();
        assert!(matches!(&change, Change::Expired { key } if key.name.starts_with(b"gone-99")), "{change:?}");
    }
    assert!(store.read(vec![key("stays")]).await.unwrap().records[0].is_some());
    committed(&store, [delete("stays"), delete("b")]).await;
    let usage = store.usage();
    assert_eq!((usage.records, usage.used_bytes), (0, 0), "the books don't balance");
}

#[tokio::test]
async fn snapshots_bound_the_log() {
    let mut world = Simulated::new(9);
    (world.options.segment_bytes, world.options.snapshot_bytes) = (32 << 10, 64 << 10);
    let store = world.start().unwrap();
    let value = "x".repeat(1000);
    let log_bytes = || -> usize {
        let names = world.disk.list().unwrap();
        // One may be removed in between.
        let segments = names.iter().filter(|name| name.starts_with("log-"));
        segments.filter_map(|name| world.disk.bytes(name)).map(|bytes| bytes.len()).sum()
    };
    for round in 0..2000 {
        committed(&store, [put(&format!("k{}", round % 50), &value)]).await;
    }
    let patience = Instant::now() + Duration::from_secs(30);
    while log_bytes() > 512 << 10 {
        committed(&store, [put("k0", &value)]).await;
        assert!(Instant::now() < patience, "2 MB were written and {} are left", log_bytes());
    }
    drop(store);
    assert_eq!(world.start().unwrap().usage().records, 50);
}

#[tokio::test]
async fn a_newer_format_and_a_missing_one_are_refused() {
    let world = Simulated::new(10);
    drop(world.start().unwrap());
    world.disk.set_bytes("format", b"baton embedded store, format 2\n".to_vec());
    let error = world.start().err().unwrap();
    assert!(matches!(error, OpenError::TooNew { found: 2, supported: 1 }), "{error}");
    world.disk.remove("format").unwrap();
    let error = world.start().err().unwrap();
    assert!(matches!(error, OpenError::Damaged { .. }), "{error}");
}

#[tokio::test]
async fn a_segment_that_is_missing_or_damaged_is_refused_by_name() {
    let mut world = Simulated::new(11);
    (world.options.segment_bytes, world.options.snapshot_bytes) = (16 << 10, u64::MAX);
    let store = world.start().unwrap();
    for index in 0..100 {
        committed(&store, [put(&format!("k{index}"), &"x".repeat(500))]).await;
    }
    drop(store);
    let segment = "log-0000000000000002";
    let good = world.disk.bytes(segment).unwrap();
    for at in [3, 20, 40, 100, 5000] {
        let mut bad = good.clone();
        bad[at] ^= 4;
        world.disk.set_bytes(segment, bad);
        let error = world.start().err().unwrap();
        let OpenError::Damaged { file, offset, .. } = &error else { panic!("{error}") };
        assert!(file == segment && *offset <= at as u64, "{error}");
    }
    for missing in ["log-0000000000000001", segment] {
        world.disk.set_bytes(segment, good.clone());
        let bytes = world.disk.bytes(missing).unwrap();
        world.disk.remove(missing).unwrap();
        assert!(matches!(world.start().err().unwrap(), OpenError::Damaged { .. }), "{missing}");
        world.disk.create(missing).unwrap().write_at(0, &bytes).unwrap();
    }
    assert_eq!(world.start().unwrap().usage().records, 100);
}

#[tokio::test]
async fn a_queue_that_is_full_refuses_at_once() {
    let mut world = Simulated::new(12);
    world.options.queue_bytes_max = 10;
    let store = world.start().unwrap();
    assert!(is(&store.commit(commit([put("long", "0123456789")])).await, Reason::Unavailable));
    committed(&store, [put("a", "1")]).await;
    let absent = Commit { checks: vec![Check::Absent(key("long"))], writes: vec![] };
    assert!(matches!(store.commit(absent).await, Ok(Outcome::Committed { .. })));
}
