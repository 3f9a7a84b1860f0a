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
use tokio::task::JoinHandle;

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
    let mut large = vec![b'x'; 256 << 10];
    // Each time another one: what is there already can't be told from what was just put.
    let mut fill = || {
        large.rotate_left(1);
        large[0] = large[0].wrapping_add(1);
        Write::Put { key: key("large"), value: large[..].into(), ttl: Ttl::Forever }
    };
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
    // etcd doesn't look for space inside a batch: it must not get around the quota.
    let proxy = Proxy::start(etcd.address(0)).await.unwrap();
    let far = open(&format!("etcd://{}", proxy.address()), Path::new("")).await.unwrap();
    let commits =
        (0..20).map(|number| if number % 4 == 0 { delete("nothing") } else { put(&format!("s-{number}")) });
    for (number, answer) in side_by_side(&proxy, &far, commits.collect()).await.iter().enumerate() {
        assert!(if number % 4 == 0 { is_committed(answer) } else { full(answer) }, "{number}: {answer:?}");
    }
    let answer = store.commit(delete("large")).await;
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

/// A real etcd behind a proxy, and a store that goes through it.
async fn behind_a_proxy() -> (Etcd, Proxy, Arc<dyn Store>) {
    let mut etcd = Etcd::new(1).unwrap();
    etcd.start().await.unwrap();
    let proxy = Proxy::start(etcd.address(0)).await.unwrap();
    let store = open(&format!("etcd://{}", proxy.address()), Path::new("")).await.unwrap();
    committed(&store, put("first")).await;
    (etcd, proxy, store)
}

type Committing = JoinHandle<Result<Outcome, StoreError>>;

/// Commits side by side, of which all but the first few have to wait until etcd's answers are let through again.
async fn side_by_side(
    proxy: &Proxy,
    store: &Arc<dyn Store>,
    commits: Vec<Commit>,
) -> Vec<Result<Outcome, StoreError>> {
    proxy.hold(Direction::Answers);
    let committing: Vec<Committing> = commits
        .into_iter()
        .map(|commit| {
            let store = store.clone();
            tokio::spawn(async move { store.commit(commit).await })
        })
        .collect();
    // Long enough for all of them to be waiting, and far less than they wait.
    tokio::time::sleep(Duration::from_millis(200)).await;
    proxy.pass();
    let mut outcomes = Vec::new();
    for commit in committing {
        outcomes.push(commit.await.unwrap());
    }
    outcomes
}

fn is_committed(outcome: &Result<Outcome, StoreError>) -> bool {
    matches!(outcome, Ok(Outcome::Committed { .. }))
}

fn held_for(name: &str, ttl: Duration) -> Commit {
    let write = Write::Put { key: key(name), value: b"1"[..].into(), ttl: Ttl::Exactly(ttl) };
    Commit { checks: vec![Check::Absent(key(name))], writes: vec![write] }
}

fn delete(name: &str) -> Commit {
    Commit { checks: vec![], writes: vec![Write::Delete { key: key(name) }] }
}

async fn is_there(store: &Arc<dyn Store>, names: &[&str]) -> Vec<bool> {
    let keys = names.iter().map(|name| key(name)).collect();
    store.read(keys).await.unwrap().records.iter().map(Option::is_some).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commits_that_come_together_share_transactions_and_leases_and_each_is_decided_on_its_own() {
    let (etcd, proxy, store) = behind_a_proxy().await;
    let before = etcd.calls(0).unwrap();
    let ttl = Duration::from_secs(30);
    let names: Vec<_> = (0..40).map(|number| format!("held-{number}")).collect();
    // Every fourth one can't be: its key is there.
    let commits = names.iter().enumerate().map(|(number, name)| {
        let mut commit = held_for(name, ttl);
        if number % 4 == 0 {
            commit.checks.push(Check::Absent(key("first")));
        }
        commit
    });
    let outcomes = side_by_side(&proxy, &store, commits.collect()).await;
    for (number, outcome) in outcomes.iter().enumerate() {
        match outcome {
            Ok(Outcome::Committed { .. }) => assert_ne!(number % 4, 0),
            Ok(Outcome::Conflict { found, .. }) => {
                assert_eq!(number % 4, 0);
                assert!(found[0].1.is_none() && found[1].1.is_some(), "{found:?}");
            }
            Err(error) => panic!("{error}"),
        }
    }
    let after = etcd.calls(0).unwrap();
    let made = |method: &str| after[method] - before.get(method).copied().unwrap_or(0);
    assert!(made("Txn") <= 8, "{} transactions for 40 commits", made("Txn"));
    assert!(made("LeaseGrant") <= 8, "{} leases for 40 commits", made("LeaseGrant"));
    let found = store.read(names.iter().map(|name| key(name)).collect()).await.unwrap().records;
    for (number, (record, outcome)) in found.iter().zip(&outcomes).enumerate() {
        let revision = match outcome {
            Ok(Outcome::Committed { revision, .. }) => Some(*revision),
            _ => None,
        };
        assert_eq!(record.as_ref().map(|record| record.created), revision, "{number}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_commits_on_one_key_that_come_together_one_wins_and_deletes_without_a_put_go_too() {
    let (_etcd, proxy, store) = behind_a_proxy().await;
    let mut commits: Vec<_> = (0..10).map(|_| put("contended")).collect();
    commits.extend((0..10).map(|number| put(&format!("alone-{number}"))));
    commits.extend((0..10).map(|_| delete("nothing")));
    commits.extend((0..10).map(|number| delete(&format!("nothing-{number}"))));
    let outcomes = side_by_side(&proxy, &store, commits).await;
    assert_eq!(outcomes[..10].iter().filter(|outcome| is_committed(outcome)).count(), 1, "{outcomes:?}");
    assert!(outcomes[10..].iter().all(is_committed), "{outcomes:?}");
    let revisions = |outcomes: &[Result<Outcome, StoreError>]| {
        let revision = |outcome: &Result<Outcome, StoreError>| match outcome {
            Ok(Outcome::Committed { revision, .. }) => revision.0,
            other => panic!("{other:?}"),
        };
        outcomes.iter().map(revision).collect::<std::collections::BTreeSet<_>>().len()
    };
    assert_eq!(revisions(&outcomes[20..30]), 10, "commits on one key have a revision each");
    assert!(revisions(&outcomes[10..20]) < 10, "commits on different keys didn't go together");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_that_etcd_refuses_spoils_it_for_nobody_else() {
    // Less than a commit may have.
    let mut etcd = Etcd::with(1, &["--max-request-bytes", "300000"]).unwrap();
    etcd.start().await.unwrap();
    let proxy = Proxy::start(etcd.address(0)).await.unwrap();
    let store = open(&format!("etcd://{}", proxy.address()), Path::new("")).await.unwrap();
    let large = |number: usize| {
        let (key, value) = (key(&format!("large-{number}")), vec![b'x'; 350_000].into());
        Commit { checks: vec![], writes: vec![Write::Put { key, value, ttl: Ttl::Forever }] }
    };
    // One or two may be the first, which go alone.
    let commits =
        (0..40).map(|number| if number % 10 == 5 { large(number) } else { put(&format!("small-{number}")) });
    let outcomes = side_by_side(&proxy, &store, commits.collect()).await;
    for (number, outcome) in outcomes.iter().enumerate() {
        let refused = matches!(outcome, Err(StoreError::NotApplied { reason: Reason::Invalid, .. }));
        assert!(if number % 10 == 5 { refused } else { is_committed(outcome) }, "{number}: {outcome:?}");
    }
    assert_eq!(is_there(&store, &["large-5", "small-0", "small-39"]).await, [false, true, true]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_without_an_answer_is_unknown_for_everyone_in_it_and_who_was_not_sent_is_not_applied() {
    let (_etcd, proxy, store) = behind_a_proxy().await;
    proxy.hold(Direction::Answers);
    let committing: Vec<Committing> = (0..20)
        .map(|number| {
            let store = store.clone();
            tokio::spawn(async move { store.commit(put(&format!("lost-{number}"))).await })
        })
        .collect();
    let mut outcomes = Vec::new();
    for commit in committing {
        outcomes.push(commit.await.unwrap());
    }
    assert!(
        outcomes.iter().any(|outcome| matches!(outcome, Err(StoreError::Unknown { .. }))),
        "{outcomes:?}"
    );
    proxy.pass();
    let until = Instant::now() + PATIENCE;
    while store.commit(put("again")).await.is_err() {
        assert!(Instant::now() < until, "it doesn't recover");
    }
    for (number, outcome) in outcomes.iter().enumerate() {
        let there = is_there(&store, &[&format!("lost-{number}")]).await[0];
        let unsent = matches!(outcome, Err(StoreError::NotApplied { reason: Reason::Unavailable, .. }));
        assert!(!(unsent && there), "{number} was said not to be applied");
        assert!(unsent || matches!(outcome, Err(StoreError::Unknown { .. })), "{outcome:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn records_that_share_a_lease_end_together_unless_deleted_or_renewed_each_for_itself() {
    let (etcd, proxy, store) = behind_a_proxy().await;
    let names = ["head", "ended", "kept", "renewed", "other"];
    let ttl = Duration::from_secs(4);
    let outcomes = side_by_side(&proxy, &store, names.iter().map(|name| held_for(name, ttl)).collect()).await;
    assert!(outcomes.iter().all(is_committed), "{outcomes:?}");
    let lease_of = |name: &str| {
        let key = format!("baton/07/{name}");
        let shown = etcd.control(&["get", &key, "--write-out=json"]).unwrap();
        let lease = shown.split_once("\"lease\":").expect("it has a lease").1;
        lease.chars().take_while(char::is_ascii_digit).collect::<String>()
    };
    // Who came first has one of its own.
    let leases: Vec<_> = names.iter().map(|name| lease_of(name)).collect();
    let shared: Vec<_> = (0..names.len())
        .filter(|at| leases.iter().filter(|lease| **lease == leases[*at]).count() > 1)
        .collect();
    assert_eq!(shared.len(), names.len() - 1, "{leases:?}");
    let [ended, kept, renewed, other] = [shared[0], shared[1], shared[2], shared[3]].map(|at| names[at]);

    committed(&store, delete(ended)).await;
    let touch = Write::Touch { key: key(renewed), ttl: Duration::from_secs(30) };
    committed(&store, Commit { checks: vec![], writes: vec![touch] }).await;
    assert_eq!(is_there(&store, &[ended, kept, renewed, other]).await, [false, true, true, true]);
    assert_eq!(lease_of(kept), lease_of(other), "the others stay where they are");
    assert_ne!(lease_of(renewed), lease_of(kept));
    let began = Instant::now();
    while is_there(&store, &[kept, other]).await != [false, false] {
        assert!(began.elapsed() < PATIENCE, "they don't end");
        assert_ne!(is_there(&store, &[kept, other]).await, [true, false], "they don't end together");
    }
    assert_eq!(is_there(&store, &[renewed]).await, [true]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shared_lease_is_given_back_with_its_last_record() {
    let (etcd, proxy, store) = behind_a_proxy().await;
    let names: Vec<_> = (0..6).map(|number| format!("held-{number}")).collect();
    let ttl = Duration::from_secs(600);
    let mut commits: Vec<_> = names.iter().map(|name| held_for(name, ttl)).collect();
    // One that is granted a place under it and never comes.
    commits.push(Commit { checks: vec![Check::Absent(key("first"))], ..held_for("never", ttl) });
    side_by_side(&proxy, &store, commits).await;
    let leases = || etcd.control(&["lease", "list"]).unwrap().lines().count() - 1;
    assert!((1..=4).contains(&leases()), "{}", leases());
    let (last, others) = names.split_last().unwrap();
    for name in others {
        committed(&store, delete(name)).await;
    }
    assert_eq!(is_there(&store, &[last]).await, [true], "the lease went with another's record");
    committed(&store, delete(last)).await;
    let until = Instant::now() + PATIENCE;
    while leases() > 0 {
        assert!(Instant::now() < until, "{} leases are left", leases());
    }
}
