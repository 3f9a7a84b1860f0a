//! Redis over a failover (F1): what is promised there, and what plainly isn't.

use crate::redis::{committed, scripts, store, until};
use crate::simulated::{commit, key, put};
use baton_core::{Check, Commit, Outcome, Revision};
use baton_store::watch::Change;
use baton_store::{Store, StoreError};
use baton_testkit::servers::redis::{Redis, Replicated};
use std::time::Duration;

const DOWN_AFTER: Duration = Duration::from_secs(1);

/// Who believes that the record is as `seen` left it writes its name.
async fn claim(store: &dyn Store, seen: Revision, name: &str) -> Result<Outcome, StoreError> {
    store.commit(Commit { checks: vec![Check::At(key("a"), seen)], writes: vec![put("a", name)] }).await
}

/// A commit that the replica has.
async fn replicated(store: &dyn Store, replica: &Redis) -> Revision {
    let mut last = None;
    // On a busy machine the replica may be too late for a store that waits for it.
    until("the replica is in time", async || {
        last = store.commit(commit([put("a", "1")])).await.ok().as_ref().and_then(revision);
        last.is_some()
    })
    .await;
    let last = last.unwrap();
    until("the replica has it", async || {
        replica.say(&["GET", "baton:{007}:=a"]).unwrap().contains(&last.0.to_string())
    })
    .await;
    last
}

/// From here on the replica is told nothing: neither by the connection it has nor, as it stands still, by another.
fn hear_nothing(servers: &Replicated) {
    servers.servers[1].process().unwrap().pause().unwrap();
    assert_eq!(servers.servers[0].say(&["CLIENT", "KILL", "TYPE", "replica"]).unwrap(), "1");
}

/// What the replica says is there, after it has taken over.
async fn found(store: &dyn Store) -> Revision {
    let mut found = None;
    until("the replica takes over", async || {
        found = store.read(vec![key("a")]).await.ok();
        found.is_some()
    })
    .await;
    found.unwrap().records[0].as_ref().unwrap().revision
}

fn revision(outcome: &Outcome) -> Option<Revision> {
    match outcome {
        Outcome::Committed { revision, .. } => Some(*revision),
        Outcome::Conflict { .. } => None,
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failover_that_lost_the_tail_repeats_no_revision_that_anybody_left_has_seen() {
    let mut servers = Replicated::start(DOWN_AFTER, &[]).await.unwrap();
    let (one, other) = (store(&servers.url()).await, store(&servers.url()).await);
    let mut hints = other.watch(b""[..].into());
    let kept = replicated(&*one, &servers.servers[1]).await;
    hear_nothing(&servers);
    // The number is ahead of the clock, as after a step back.
    let counters = servers.servers[0].say(&["KEYS", "*:revision"]).unwrap();
    servers.servers[0].say(&["SET", counters.lines().next().unwrap(), "5000000000000000"]).unwrap();
    let lost = committed(&*one, "a").await;
    assert!(lost > Revision(5_000_000_000_000_000));
    until(
        "the other hears of it",
        async || matches!(hints.try_next(), Some(Change::Put { revision, .. }) if revision == lost),
    )
    .await;
    servers.servers[0].end(true).await.unwrap();
    servers.servers[1].process().unwrap().resume().unwrap();
    servers.failed_over(0).await.unwrap();
    // Another node is the first to commit after it.
    assert_eq!(found(&*other).await, kept, "nothing was lost");
    let next = committed(&*other, "a").await;
    assert!(next > lost, "{next:?} after {lost:?}");
    assert!(committed(&*one, "a").await > next);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_is_new_after_the_failover_and_commits_first_is_above_what_was_lost_by_the_clock() {
    let mut servers = Replicated::start(DOWN_AFTER, &[]).await.unwrap();
    let one = store(&servers.url()).await;
    let kept = replicated(&*one, &servers.servers[1]).await;
    hear_nothing(&servers);
    let mut lost = kept;
    for _ in 0..200 {
        lost = committed(&*one, "a").await;
    }
    servers.servers[0].end(true).await.unwrap();
    servers.servers[1].process().unwrap().resume().unwrap();
    servers.failed_over(0).await.unwrap();
    drop(one);
    let new = store(&servers.url()).await;
    assert_eq!(found(&*new).await, kept, "nothing was lost");
    let first = committed(&*new, "a").await;
    assert!(first > lost, "{first:?} after {lost:?}");
}

/// How often a server was asked for its role: once by each connection for commits and reads.
fn looked_at(server: &Redis) -> u64 {
    let statistics = server.say(&["INFO", "commandstats"]).unwrap();
    let line = statistics.lines().find_map(|line| line.strip_prefix("cmdstat_role:calls="));
    line.and_then(|line| line.split(',').next()?.parse().ok()).unwrap_or(0)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_promoted_replica_that_may_evict_locks_is_not_used_until_it_may_not_any_more() {
    let mut servers = Replicated::start(DOWN_AFTER, &[]).await.unwrap();
    let store = store(&servers.url()).await;
    replicated(&*store, &servers.servers[1]).await;
    let replica = &servers.servers[1];
    assert_eq!(replica.say(&["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"]).unwrap(), "OK");
    assert_eq!(replica.say(&["CONFIG", "SET", "maxmemory", "100mb"]).unwrap(), "OK");
    servers.servers[0].end(true).await.unwrap();
    servers.failed_over(0).await.unwrap();
    let promoted = &servers.servers[1];
    until("it was looked at again and again", async || {
        let answer = store.commit(commit([put("a", "evictable")])).await;
        assert!(answer.is_err(), "it is used: {answer:?}");
        looked_at(promoted) > 5
    })
    .await;
    assert_eq!(scripts(promoted), (0, 0), "it was asked to do something");
    assert_eq!(promoted.say(&["CONFIG", "SET", "maxmemory-policy", "noeviction"]).unwrap(), "OK");
    until("it is used", async || store.commit(commit([put("a", "kept")])).await.is_ok()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_primary_that_was_only_paused_acknowledges_nothing_after_another_node_was_first() {
    let servers = Replicated::start(DOWN_AFTER, &[]).await.unwrap();
    // It never hears of the failover: as if it were on the old primary's side of a cut.
    let cut_off = store(&format!("redis://{}?wait=1&wait_millis=300", servers.servers[0].address)).await;
    let other = store(&servers.url()).await;
    let before = replicated(&*cut_off, &servers.servers[1]).await;
    let old = servers.servers[0].process().unwrap();
    old.pause().unwrap();
    servers.failed_over(0).await.unwrap();
    let mut first = None;
    until("another node is first", async || {
        first = claim(&*other, before, "other").await.ok();
        first.is_some()
    })
    .await;
    let first = revision(&first.unwrap()).expect("nobody else has changed it");
    assert!(first > before);
    // What was under way to the old primary arrives only now, and the old primary thinks that it still is one.
    let (late, ()) = tokio::join!(claim(&*cut_off, before, "late"), async { old.resume().unwrap() });
    assert!(late.is_err(), "the old primary has acknowledged: {late:?}");
    until("Sentinel has made the old primary a replica", async || {
        let answer = claim(&*cut_off, before, "late").await;
        assert!(answer.is_err(), "the old primary has acknowledged: {answer:?}");
        servers.servers[0].say(&["ROLE"]).unwrap().starts_with("slave")
    })
    .await;
    let found = other.read(vec![key("a")]).await.unwrap().records.remove(0).unwrap();
    assert_eq!((&found.value[..], found.revision), (&b"other"[..], first));
}

/// A primary whose replica was promoted by somebody who told the primary nothing.
async fn left_behind(settings: &[&str]) -> (Redis, Redis) {
    let primary = Redis::start(settings).await.unwrap();
    let port = primary.address.port().to_string();
    let replica = Redis::start(&["--replicaof", "127.0.0.1", &port]).await.unwrap();
    until("the replica follows", async || {
        primary.say(&["INFO", "replication"]).unwrap().contains("state=online")
    })
    .await;
    (primary, replica)
}

fn promote(replica: &Redis) {
    assert_eq!(replica.say(&["REPLICAOF", "NO", "ONE"]).unwrap(), "OK");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_primary_that_nobody_told_acknowledges_nothing_to_who_waits_for_all_its_replicas() {
    let (primary, replica) = left_behind(&[]).await;
    let waits = store(&format!("redis://{}?wait=1&wait_millis=300", primary.address)).await;
    let before = replicated(&*waits, &replica).await;
    promote(&replica);
    let other = store(&format!("redis://{}", replica.address)).await;
    let first = claim(&*other, before, "other").await.unwrap();
    assert!(revision(&first) > Some(before));
    for _ in 0..3 {
        let late = claim(&*waits, before, "late").await;
        assert!(matches!(late, Err(StoreError::Unknown { .. })), "{late:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_primary_that_needs_a_replica_and_has_none_refuses_to_write() {
    let (primary, replica) =
        left_behind(&["--min-replicas-to-write", "1", "--min-replicas-max-lag", "1"]).await;
    let trusts = store(&format!("redis://{}", primary.address)).await;
    assert_eq!(trusts.guarantees().warnings, Vec::<String>::new());
    let before = replicated(&*trusts, &replica).await;
    promote(&replica);
    let other = store(&format!("redis://{}", replica.address)).await;
    assert!(revision(&claim(&*other, before, "other").await.unwrap()) > Some(before));
    until("the primary has noticed", async || claim(&*trusts, before, "late").await.is_err()).await;
    let late = claim(&*trusts, before, "late").await;
    assert!(
        matches!(&late, Err(StoreError::NotApplied { detail, .. }) if detail.contains("NOREPLICAS")),
        "{late:?}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_waiting_two_primaries_both_acknowledge_and_the_status_warns_of_it() {
    let (primary, replica) = left_behind(&[]).await;
    let trusts = store(&format!("redis://{}", primary.address)).await;
    let guarantees = trusts.guarantees();
    assert!(guarantees.on_failover.contains("neither exclusion nor unique tokens"), "{guarantees:?}");
    assert!(guarantees.warnings.iter().any(|warning| warning.contains("Replicas")), "{guarantees:?}");
    let before = replicated(&*trusts, &replica).await;
    promote(&replica);
    let other = store(&format!("redis://{}", replica.address)).await;
    // This is what `wait` and `min-replicas-to-write` are for.
    assert!(revision(&claim(&*other, before, "other").await.unwrap()).is_some());
    assert!(revision(&claim(&*trusts, before, "late").await.unwrap()).is_some());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_an_old_backup_was_restored_revisions_are_above_what_was_lost() {
    let mut server = Redis::start(&[]).await.unwrap();
    let url = format!("redis://{}", server.address);
    let before = store(&url).await;
    let kept = committed(&*before, "a").await;
    let backup = server.backup().unwrap();
    let mut lost = kept;
    for _ in 0..100 {
        lost = committed(&*before, "a").await;
    }
    drop(before);
    server.end(true).await.unwrap();
    server.restore(&backup).unwrap();
    server.start_again().await.unwrap();
    let after = store(&url).await;
    assert_eq!(found(&*after).await, kept, "nothing was lost");
    let next = committed(&*after, "a").await;
    assert!(next > lost, "{next:?} after {lost:?}");
}
