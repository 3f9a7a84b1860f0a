//! Redis: commits that come together go by one command, and each is decided as if it had come alone.

use crate::redis::{committed, scripts, store, until, url};
use crate::simulated::{commit, delete, key, put, put_for, touch};
use baton_core::{Check, Commit, Group, Key, Outcome, Record, Revision, Write};
use baton_store::watch::Change;
use baton_store::{Range, Reason, Store, StoreError};
use baton_testkit::servers::redis::{Cluster, Redis};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

const NAMES: u64 = 5;
/// Many more than a batch takes.
const COMMITS: usize = 300;
const SEEDS: u64 = 3;

/// Sends all at once, in this order.
async fn together(
    store: &Arc<dyn Store>,
    commits: impl IntoIterator<Item = Commit>,
) -> Vec<Result<Outcome, StoreError>> {
    // One task after the other on one thread: the first goes alone, and the others wait for it together.
    let under_way: Vec<_> = commits
        .into_iter()
        .map(|commit| {
            let store = store.clone();
            tokio::spawn(async move { store.commit(commit).await })
        })
        .collect();
    let mut outcomes = Vec::new();
    for outcome in under_way {
        outcomes.push(outcome.await.unwrap());
    }
    outcomes
}

/// Numbers that look random and are the same each time.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % sides
    }

    fn name(&mut self) -> String {
        format!("name{}", self.roll(NAMES))
    }

    /// A commit that says nothing of revisions, since two stores' differ.
    fn commit(&mut self, number: usize) -> Commit {
        let mut writes: BTreeMap<String, Write> = BTreeMap::new();
        for _ in 0..=self.roll(3) {
            let name = self.name();
            let write = match self.roll(6) {
                0 | 1 => delete(&name),
                2 => touch(&name, 2_000),
                3 => put_for(&name, &number.to_string(), 1_000),
                _ => put(&name, &number.to_string()),
            };
            writes.insert(name, write);
        }
        let checks = if self.roll(2) == 0 { vec![Check::Absent(key(&self.name()))] } else { vec![] };
        Commit { checks, writes: writes.into_values().collect() }
    }
}

/// A record without what differs from store to store.
fn plain(record: &Record) -> (Key, Vec<u8>, u64, bool, Option<u64>) {
    let seconds = record.expires_in.map(|left| left.as_secs().next_multiple_of(1_000));
    (record.key.clone(), record.value.to_vec(), record.touches, record.created == record.revision, seconds)
}

fn shown(outcome: &Outcome) -> (bool, Vec<Option<impl PartialEq + std::fmt::Debug + use<>>>) {
    match outcome {
        Outcome::Committed { witnessed, .. } => {
            (true, witnessed.iter().map(|record| record.as_ref().map(plain)).collect())
        }
        Outcome::Conflict { found, .. } => {
            (false, found.iter().map(|(_, record)| record.as_ref().map(plain)).collect())
        }
    }
}

async fn listed(store: &dyn Store) -> Vec<Record> {
    let range = Range { group: key("").group, prefix: b""[..].into(), after: None };
    store.scan(range, 1_000).await.unwrap().records
}

#[tokio::test]
async fn what_goes_together_is_decided_one_after_the_other() {
    let server = Redis::start(&[]).await.unwrap();
    for seed in 0..SEEDS {
        let alone = store(&format!("{}?prefix=alone{seed}", url(&server))).await;
        let other = store(&format!("{}?prefix=together{seed}", url(&server))).await;
        let mut dice = Dice(seed);
        let commits: Vec<_> = (0..COMMITS).map(|number| dice.commit(number)).collect();
        let before = scripts(&server).0;
        let outcomes = together(&other, commits.clone()).await;
        let commands = scripts(&server).0 - before;
        assert!(commands < COMMITS as u64 / 10, "{commands}");
        let mut last = Revision(0);
        for (number, (commit, outcome)) in commits.into_iter().zip(outcomes).enumerate() {
            let (expected, outcome) = (alone.commit(commit.clone()).await.unwrap(), outcome.unwrap());
            assert_eq!(shown(&outcome), shown(&expected), "seed {seed}, {number}: {commit:?}");
            if let Outcome::Committed { revision, .. } = outcome {
                assert!(revision > last, "seed {seed}, {number}");
                last = revision;
            }
        }
        // The lists have what is there, and nothing else.
        let (records, expected) = (listed(&*other).await, listed(&*alone).await);
        assert!(records.iter().map(plain).eq(expected.iter().map(plain)), "{records:?} {expected:?}");
        for index in ["names", "expiry"] {
            let members = |prefix: &str| {
                let index = format!("{prefix}{seed}:{{007}}:{index}");
                server.say(&["ZRANGE", &index, "0", "-1"]).unwrap()
            };
            assert_eq!(members("together"), members("alone"), "{index}");
        }
    }
}

#[tokio::test]
async fn commits_of_several_groups_go_together_and_on_a_cluster_those_of_one() {
    let server = Redis::start(&[]).await.unwrap();
    let cluster = Cluster::start(3).await.unwrap();
    for url in [url(&server), cluster.url()] {
        let store = store(&url).await;
        let key = |number: u8| Key::new(Group(number % 4), number.to_string().as_bytes());
        let put = |number: u8| Write::Put {
            key: key(number),
            value: [number][..].into(),
            ttl: baton_core::Ttl::Forever,
        };
        let outcomes = together(&store, (0..100).map(|number| commit([put(number)]))).await;
        assert!(outcomes.iter().all(|outcome| matches!(outcome, Ok(Outcome::Committed { .. }))), "{url}");
        for number in 0..100 {
            let record = store.read(vec![key(number)]).await.unwrap().records.remove(0);
            assert_eq!(record.map(|record| record.value.to_vec()), Some(vec![number]), "{url}");
        }
    }
    assert!(scripts(&server).0 < 20 + 100, "the reads are commands too");
}

#[tokio::test]
async fn who_needs_no_memory_is_not_refused_with_who_does() {
    let server = Redis::start(&[]).await.unwrap();
    let store = store(&url(&server)).await;
    for name in ["a", "b", "c"] {
        committed(&*store, name).await;
    }
    assert_eq!(server.say(&["CONFIG", "SET", "maxmemory", "1"]).unwrap(), "OK");
    let commits = ["a", "b", "c"].map(|name| [commit([delete(name)]), commit([put("new", "1")])]);
    let outcomes = together(&store, commits.into_iter().flatten()).await;
    for pair in outcomes.chunks(2) {
        assert!(matches!(&pair[0], Ok(Outcome::Committed { witnessed, .. }) if witnessed[0].is_some()));
        assert!(matches!(pair[1], Err(StoreError::NotApplied { reason: Reason::Full, .. })), "{:?}", pair[1]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_waits_for_its_replicas_also_if_it_only_found_something() {
    let server = Redis::start(&[]).await.unwrap();
    let port = server.address.port().to_string();
    let replica = Redis::start(&["--replicaof", "127.0.0.1", &port]).await.unwrap();
    let store = store(&format!("{}?wait=1&wait_millis=500", url(&server))).await;
    until("the replica follows", async || store.commit(commit([put("a", "1")])).await.is_ok()).await;
    replica.process().unwrap().pause().unwrap();
    let absent = || Commit { checks: vec![Check::Absent(key("a"))], writes: vec![] };
    let begun = Instant::now();
    let outcomes = together(&store, (0..40).map(|_| absent())).await;
    replica.process().unwrap().resume().unwrap();
    assert!(outcomes.iter().all(|outcome| matches!(outcome, Err(StoreError::Unknown { .. }))));
    assert!(begun.elapsed() < Duration::from_millis(1_900), "{:?}", begun.elapsed());
    until("it works again", async || matches!(store.commit(absent()).await, Ok(Outcome::Conflict { .. })))
        .await;
}

fn published(server: &Redis) -> u64 {
    let statistics = server.say(&["INFO", "commandstats"]).unwrap();
    let calls = statistics.lines().find_map(|line| line.strip_prefix("cmdstat_publish:calls="));
    calls.and_then(|calls| calls.split(',').next()?.parse().ok()).unwrap_or(0)
}

/// What is heard of a name that is put.
async fn heard(watch: &mut baton_store::watch::Watch, name: &str) -> Option<Revision> {
    let hearing = async {
        loop {
            match watch.next().await.unwrap() {
                Change::Put { key: heard, revision, .. } if heard == key(name) => return revision,
                _ => {}
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(30), hearing).await.ok()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hints_are_published_as_soon_as_another_node_listens_and_no_longer_than_that() {
    let server = Redis::start(&[]).await.unwrap();
    let first = store(&url(&server)).await;
    let mut own = first.watch(b"n"[..].into());
    let revision = committed(&*first, "none").await;
    assert_eq!(heard(&mut own, "none").await, Some(revision));
    assert_eq!(published(&server), 0, "nobody else would hear it");

    let second = store(&url(&server)).await;
    let mut others = second.watch(b"n"[..].into());
    until("the other one listens", async || {
        let before = published(&server);
        committed(&*first, "no").await;
        published(&server) > before
    })
    .await;
    let before = published(&server);
    let revision = committed(&*first, "next").await;
    assert_eq!(heard(&mut others, "next").await, Some(revision));
    assert_eq!(heard(&mut own, "next").await, Some(revision));
    let revision = committed(&*second, "near").await;
    assert_eq!(heard(&mut own, "near").await, Some(revision));
    assert_eq!(published(&server), before + 2);

    drop((second, others));
    until("nobody else listens any more", async || {
        let before = published(&server);
        let revision = committed(&*first, "now").await;
        assert_eq!(heard(&mut own, "now").await, Some(revision));
        published(&server) == before
    })
    .await;
}
