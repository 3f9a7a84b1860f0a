//! etcd: the laws on real servers, and its own faults.

use baton_core::{Check, Commit, Group, Key, Outcome, Revision, Ttl, Write};
use baton_store::conformance::{self, Ending, Harness};
use baton_store::watch::{Change, Watch};
use baton_store::{Reason, Store, StoreError, open};
use baton_testkit::proxy::{Direction, Proxy};
use baton_testkit::servers::etcd::Etcd;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::Mutex;

const PATIENCE: Duration = Duration::from_secs(30);

struct Real(Mutex<Etcd>);

impl Real {
    async fn start(members: usize) -> Self {
        let mut etcd = Etcd::new(members).unwrap();
        etcd.start().await.unwrap();
        Self(Mutex::new(etcd))
    }
}

impl Harness for Real {
    async fn open(&self) -> Arc<dyn Store> {
        let url = self.0.lock().await.url();
        open(&url, Path::new("")).await.unwrap()
    }

    async fn reopen(&self, store: Arc<dyn Store>, ending: Ending) -> Arc<dyn Store> {
        drop(store);
        {
            let mut etcd = self.0.lock().await;
            match ending {
                Ending::Graceful => etcd.stop().await.unwrap(),
                Ending::Crash => {
                    let leader = etcd.leader().unwrap();
                    etcd.kill(leader).await.unwrap();
                }
            }
            etcd.start().await.unwrap();
        }
        self.open().await
    }

    async fn pass(&self, duration: Duration) {
        tokio::time::sleep(duration).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keeps_the_laws() {
    conformance::all(&Real::start(1).await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keeps_the_laws_when_the_leader_of_three_is_killed() {
    conformance::all(&Real::start(3).await).await;
}

fn key(name: &str) -> Key {
    Key::new(Group(7), name.as_bytes())
}

fn put(name: &str) -> Commit {
    let write = Write::Put { key: key(name), value: b"1"[..].into(), ttl: Ttl::Forever };
    Commit { checks: vec![Check::Absent(key(name))], writes: vec![write] }
}

async fn committed(store: &Arc<dyn Store>, commit: Commit) -> Revision {
    match store.commit(commit).await.unwrap() {
        Outcome::Committed { revision, .. } => revision,
        conflict => panic!("{conflict:?}"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_paused_server_leaves_the_outcome_unknown_and_is_used_again() {
    let real = Real::start(1).await;
    let store = real.open().await;
    assert!(matches!(store.commit(put("first")).await, Ok(Outcome::Committed { .. })));
    real.0.lock().await.process(0).pause().unwrap();
    let began = Instant::now();
    let answer = store.commit(put("paused")).await;
    assert!(matches!(answer, Err(StoreError::Unknown { .. })), "{answer:?}");
    assert!(began.elapsed() < Duration::from_millis(2000), "{:?}", began.elapsed());
    real.0.lock().await.process(0).resume().unwrap();
    let until = Instant::now() + PATIENCE;
    while store.commit(put("paused")).await.is_err() {
        assert!(Instant::now() < until, "it doesn't recover");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watch_goes_on_after_the_server_was_away() {
    let real = Real::start(1).await;
    let store = real.open().await;
    let mut watch = store.watch(b"w"[..].into());
    real.0.lock().await.kill(0).await.unwrap();
    let answer = store.commit(put("never")).await;
    let unsent = |answer: &Result<Outcome, StoreError>| {
        matches!(answer, Err(StoreError::NotApplied { reason: Reason::Unavailable, .. }))
    };
    assert!(unsent(&answer) || matches!(answer, Err(StoreError::Unknown { .. })), "{answer:?}");
    let answer = store.commit(put("never")).await;
    assert!(unsent(&answer), "nobody listens, so nothing was sent: {answer:?}");
    real.0.lock().await.start().await.unwrap();
    let until = Instant::now() + PATIENCE;
    while !matches!(store.commit(put("w")).await, Ok(Outcome::Committed { .. })) {
        assert!(Instant::now() < until, "it doesn't recover");
    }
    let hint = tokio::time::timeout(PATIENCE, watch.next()).await.unwrap();
    assert!(matches!(&hint, Some(Change::Put { key: found, .. }) if *found == key("w")), "{hint:?}");
}

/// The commits of a lock that nobody else wants: see ARCHITECTURE.md, "The records of a lock".
fn acquire() -> Commit {
    let checks = ["roster", "grant", "memo"].map(|name| Check::Absent(key(name))).into();
    let lease = Ttl::Exactly(Duration::from_secs(30));
    let writes = vec![
        Write::Put { key: key("roster"), value: b"1"[..].into(), ttl: Ttl::Forever },
        Write::Put { key: key("grant"), value: b"1"[..].into(), ttl: lease },
    ];
    Commit { checks, writes }
}

fn renew(token: Revision) -> Commit {
    let touch = Write::Touch { key: key("grant"), ttl: Duration::from_secs(30) };
    Commit { checks: vec![Check::Created(key("grant"), token)], writes: vec![touch] }
}

fn release(token: Revision) -> Commit {
    let checks = vec![
        Check::At(key("roster"), token),
        Check::Created(key("grant"), token),
        Check::Absent(key("memo")),
    ];
    let remembered = Ttl::AtLeast(Duration::from_secs(600));
    let writes = vec![
        Write::Delete { key: key("roster") },
        Write::Delete { key: key("grant") },
        Write::Put { key: key("memo"), value: b"1"[..].into(), ttl: remembered },
    ];
    Commit { checks, writes }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn acquire_renew_and_release_of_an_uncontended_lock_are_at_most_two_round_trips_each() {
    let mut etcd = Etcd::new(1).unwrap();
    etcd.start().await.unwrap();
    let proxy = Proxy::start(etcd.address(0)).await.unwrap();
    let store = open(&format!("etcd://{}", proxy.address()), Path::new("")).await.unwrap();
    // What is given back afterwards isn't waited for.
    let calls = || {
        let calls = etcd.calls(0).unwrap();
        calls.iter().filter(|(method, _)| *method != "LeaseRevoke").map(|(_, count)| count).sum::<u64>()
    };
    // Sends a commit. So many calls arrive before etcd's first answer is heard: together, one round trip. Each that
    // follows may be another one.
    let round_trips = async |commit: Commit, together: u64| {
        let before = calls();
        proxy.hold(Direction::Answers);
        let committing = tokio::spawn({
            let store = store.clone();
            async move { store.commit(commit).await }
        });
        let until = Instant::now() + PATIENCE;
        while calls() < before + together {
            assert!(Instant::now() < until && !committing.is_finished(), "they don't leave together");
        }
        proxy.pass();
        let outcome = committing.await.unwrap().unwrap();
        let Outcome::Committed { revision, .. } = outcome else { panic!("{outcome:?}") };
        (revision, 1 + calls() - before - together)
    };
    let (token, trips) = round_trips(acquire(), 1).await;
    assert_eq!(trips, 2, "acquire: a lease, then the transaction");
    for _ in 0..3 {
        let (_, trips) = round_trips(renew(token), 2).await;
        assert_eq!(trips, 2, "renew: a lease and what is there, then the transaction");
    }
    let (_, trips) = round_trips(release(token), 1).await;
    assert!(trips <= 2, "release: a lease for the memo if there is none to share, then the transaction");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn compaction_of_what_a_watch_has_not_seen_is_a_gap_and_hints_go_on() {
    let mut etcd = Etcd::new(1).unwrap();
    etcd.start().await.unwrap();
    let proxy = Proxy::start(etcd.address(0)).await.unwrap();
    let far = open(&format!("etcd://{}", proxy.address()), Path::new("")).await.unwrap();
    let near = open(&etcd.url(), Path::new("")).await.unwrap();
    let mut watch = far.watch(b"w"[..].into());
    let next = async |watch: &mut Watch| tokio::time::timeout(PATIENCE, watch.next()).await.unwrap();
    let put_of = |name: &str| {
        let key = key(name);
        move |change: Option<Change>| matches!(change, Some(Change::Put { key: found, .. }) if found == key)
    };
    let compact = |revision: Revision| etcd.control(&["compact", &revision.0.to_string()]).unwrap();

    // While it is open and has seen everything, compaction is nothing to it.
    compact(committed(&near, put("w1")).await);
    assert!(put_of("w1")(next(&mut watch).await));
    committed(&near, put("w2")).await;
    assert!(put_of("w2")(next(&mut watch).await));

    proxy.refuse();
    proxy.cut();
    proxy.connected(0).await;
    committed(&near, put("w3")).await;
    compact(committed(&near, put("w4")).await);
    proxy.accept();
    assert_eq!(next(&mut watch).await, Some(Change::Lost), "what it missed can't be had any more");
    let until = Instant::now() + PATIENCE;
    let mut turn = 0;
    // The watch begins anew, at some moment after the gap was told.
    while !matches!(watch.try_next(), Some(Change::Put { .. })) {
        assert!(Instant::now() < until, "no more hints");
        turn += 1;
        committed(&near, put(&format!("w-again-{turn}"))).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_etcd_without_space_says_so_still_deletes_and_is_used_again_when_it_has_some() {
    let mut etcd = Etcd::with(1, &["--quota-backend-bytes", "4194304"]).unwrap();
    etcd.start().await.unwrap();
    let store = open(&etcd.url(), Path::new("")).await.unwrap();
    committed(&store, acquire()).await;
    let large = vec![b'x'; 256 << 10];
    let fill = || Write::Put { key: key("large"), value: large[..].into(), ttl: Ttl::Forever };
    let full = |answer: &Result<Outcome, StoreError>| {
        matches!(answer, Err(StoreError::NotApplied { reason: Reason::Full, .. }))
    };
    let until = Instant::now() + PATIENCE;
    loop {
        let answer = store.commit(Commit { checks: vec![], writes: vec![fill()] }).await;
        if full(&answer) {
            break;
        }
        assert!(answer.is_ok() && Instant::now() < until, "{answer:?}");
    }
    assert!(etcd.control(&["alarm", "list"]).unwrap().contains("NOSPACE"));
    let answer = store.commit(put("small")).await;
    assert!(full(&answer), "{answer:?}");
    let deleted = Commit { checks: vec![], writes: vec![Write::Delete { key: key("large") }] };
    let answer = store.commit(deleted).await;
    let Ok(Outcome::Committed { revision, .. }) = answer else { panic!("{answer:?}") };
    let found = store.read(vec![key("small"), key("roster"), key("large")]).await.unwrap().records;
    assert_eq!(found.iter().map(Option::is_some).collect::<Vec<_>>(), [false, true, false]);

    // What an operator does.
    etcd.control(&["compact", &revision.0.to_string()]).unwrap();
    etcd.control(&["defrag"]).unwrap();
    etcd.control(&["alarm", "disarm"]).unwrap();
    committed(&store, put("small")).await;
}

/// What isn't promised, and is said: etcd itself takes its revisions back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restored_snapshot_takes_revisions_back_and_the_guarantees_say_so() {
    let mut etcd = Etcd::new(1).unwrap();
    etcd.start().await.unwrap();
    let store = open(&etcd.url(), Path::new("")).await.unwrap();
    committed(&store, put("kept")).await;
    let directory = tempfile::tempdir().unwrap();
    let snapshot = directory.path().join("snapshot");
    etcd.control(&["snapshot", "save", &snapshot.display().to_string()]).unwrap();
    let mut lost = committed(&store, put("lost")).await;
    for name in 0..20 {
        lost = committed(&store, put(&format!("lost-{name}"))).await;
    }
    drop(store);
    etcd.stop().await.unwrap();
    etcd.restore(&snapshot).unwrap();
    etcd.start().await.unwrap();
    let store = open(&etcd.url(), Path::new("")).await.unwrap();
    let found = store.read(vec![key("kept"), key("lost")]).await.unwrap().records;
    assert_eq!(found.iter().map(Option::is_some).collect::<Vec<_>>(), [true, false]);
    let next = committed(&store, put("lost")).await;
    assert!(next <= lost, "{next:?} after {lost:?}: etcd does better than we say");
    let said = store.guarantees().on_failover;
    assert!(said.contains("tokens repeat") && said.contains("--bump-revision"), "{said}");
}
