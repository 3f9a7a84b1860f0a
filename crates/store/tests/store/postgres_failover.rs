//! PostgreSQL restored and promoted: which of its revisions and answers may be relied on (F1).

use super::postgres::{PATIENCE, commit, done, get, opened, put, recovered, server};
use baton_core::Revision;
use baton_store::{StoreError, open};
use baton_testkit::servers::postgres::Postgres;
use std::path::Path;
use std::time::Instant;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_revision_comes_twice_after_a_restore() {
    let server = server().await;
    let store = opened(&server).await;
    done(&store, vec![], vec![put("kept", "1")]).await;
    let dump = server.dump("baton").unwrap();
    let mut last = done(&store, vec![], vec![put("lost", "1")]).await;
    server.sql(&format!("DROP SCHEMA baton CASCADE; {dump}")).unwrap();
    let mut grows = |revision: Revision, what: &str| {
        assert!(revision > last, "{what}: {revision:?} after {last:?}");
        last = revision;
    };
    grows(recovered(&store, put("a", "1")).await, "a dump");
    assert!(get(&store, "kept").await.is_some());
    assert_eq!(get(&store, "lost").await, None);
    server
        .sql("DROP SEQUENCE baton.revisions; CREATE SEQUENCE baton.revisions MAXVALUE 9007199254740991")
        .unwrap();
    grows(recovered(&store, put("a", "2")).await, "another sequence");
    server.sql("SELECT setval('baton.revisions', 1)").unwrap();
    grows(done(&store, vec![], vec![put("a", "3")]).await, "the sequence set back");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_revision_comes_twice_after_a_failover_that_lost_the_last_commits() {
    let primary = server().await;
    let store = opened(&primary).await;
    done(&store, vec![], vec![put("kept", "1")]).await;
    let mut standby = Postgres::standby_of(&primary).unwrap();
    let mut last = Revision(0);
    for round in 0..100 {
        last = done(&store, vec![], vec![put("lost", &round.to_string())]).await;
    }
    // The old primary goes on, and nobody stops it.
    standby.start_with(&["primary_conninfo="]).await.unwrap();
    let refused = open(&standby.url(), Path::new("unused")).await.err().unwrap().to_string();
    assert!(refused.contains("PostgreSQL"), "{refused}");
    standby.promote().unwrap();
    let promoted = opened(&standby).await;
    assert_eq!(get(&promoted, "lost").await, None);
    let first = done(&promoted, vec![], vec![put("lost", "again")]).await;
    assert!(first > last, "{first:?} after {last:?}");
    assert!(get(&promoted, "kept").await.is_some());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn standbys_that_nobody_waits_for_are_warned_of() {
    let primary = server().await;
    assert_eq!(opened(&primary).await.guarantees().warnings, Vec::<String>::new());
    let mut standby = Postgres::standby_of(&primary).unwrap();
    standby.start().await.unwrap();
    let deadline = Instant::now() + PATIENCE;
    while primary.sql("SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming'").unwrap() != "1" {
        assert!(Instant::now() < deadline, "the standby doesn't follow");
    }
    let guarantees = opened(&primary).await.guarantees();
    assert_eq!(guarantees.warnings.len(), 1, "{guarantees:?}");
    assert!(guarantees.warnings[0].contains("synchronous_standby_names is empty"), "{guarantees:?}");
    assert!(guarantees.on_partition.contains("both grant"), "{guarantees:?}");
    // Now it waits for them.
    primary.sql("ALTER SYSTEM SET synchronous_standby_names = '*'").unwrap();
    primary.sql("SELECT pg_reload_conf()").unwrap();
    while primary.sql("SHOW synchronous_standby_names").unwrap() != "*" {
        assert!(Instant::now() < deadline, "the setting doesn't come");
    }
    let guarantees = opened(&primary).await.guarantees();
    assert_eq!(guarantees.warnings, Vec::<String>::new());
    assert!(guarantees.on_partition.contains("acknowledges no commit"), "{guarantees:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_whose_wait_for_its_standby_was_called_off_is_unknown() {
    let server = server().await;
    let store = opened(&server).await;
    done(&store, vec![], vec![put("before", "1")]).await;
    server.sql("ALTER SYSTEM SET synchronous_standby_names = 'nobody'").unwrap();
    server.sql("SELECT pg_reload_conf()").unwrap();
    let cancel = "SELECT count(pg_cancel_backend(pid)) FROM pg_stat_activity WHERE wait_event = 'SyncRep'";
    let deadline = Instant::now() + PATIENCE;
    let answer = loop {
        // The first ones may go before the server knows that there is somebody to wait for.
        assert!(Instant::now() < deadline, "no commit waited");
        let (store, server) = (&store, &server);
        let cancelled = async move {
            while Instant::now() < deadline {
                if server.sql(cancel).unwrap() != "0" {
                    return;
                }
                tokio::task::yield_now().await;
            }
        };
        let committed = store.commit(commit(vec![], vec![put("after", "1")]));
        tokio::pin!(committed);
        tokio::select! {
            biased;
            answer = &mut committed => drop(answer),
            () = cancelled => break committed.await,
        }
    };
    let Err(StoreError::Unknown { detail }) = answer else { panic!("{answer:?}") };
    assert!(!detail.contains("no answer"), "it needn't be waited for: {detail}");
}
