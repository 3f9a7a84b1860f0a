//! Who is there, as each replica hears of it (D7).

use baton_engine::presence::Observer;
use baton_engine::replica::{Options, Replica};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

const TTL: Duration = Duration::from_secs(60);

async fn observed(directory: &tempfile::TempDir) -> (Arc<Replica>, Observer) {
    let replica = Arc::new(Replica::open(directory.path(), Options::default()).await.unwrap());
    (replica.clone(), Observer::start(replica))
}

fn alive(observer: &Observer) -> Vec<String> {
    observer.members("n", "workers", None, 10).value.members.into_iter().map(|member| member.name).collect()
}

/// Time goes on by this much, at once.
async fn pass(time: Duration) {
    tokio::time::pause();
    tokio::time::advance(time).await;
    tokio::time::resume();
}

async fn until(mut is_so: impl FnMut() -> bool) {
    let began = std::time::Instant::now();
    while !is_so() {
        assert!(began.elapsed() < Duration::from_secs(20), "it never became so");
        tokio::time::sleep_until(Instant::now() + Duration::from_millis(2)).await;
    }
}

#[tokio::test]
async fn a_refresh_counts_from_when_it_came_and_one_that_comes_again_is_no_news() {
    let (here, there) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (replica, member) = observed(&there).await;
    let mut told = replica.changes();
    member.refresh("n", "workers", "a", TTL).await.unwrap();
    let delta = told.recv().await.unwrap().delta.clone();
    assert_eq!(alive(&member), ["a"]);
    let (replica, observer) = observed(&here).await;
    // However long it was under way.
    pass(10 * TTL).await;
    replica.merge(delta.clone()).await.unwrap();
    assert_eq!(alive(&observer), ["a"]);
    pass(TTL).await;
    replica.merge(delta).await.unwrap();
    assert!(alive(&observer).is_empty() && alive(&member).is_empty());
}

#[tokio::test]
async fn who_has_been_gone_for_long_is_removed_and_nobody_else() {
    let directory = tempfile::tempdir().unwrap();
    let (replica, observer) = observed(&directory).await;
    for (member, ttl) in [("gone", TTL), ("stays", 100 * TTL)] {
        observer.refresh("n", "workers", member, ttl).await.unwrap();
    }
    assert_eq!(alive(&observer), ["gone", "stays"]);
    pass(2 * TTL).await;
    assert_eq!(alive(&observer), ["stays"]);
    assert_eq!(replica.size().rows, 2, "it may only be late");
    pass(2 * TTL).await;
    until(|| replica.size().rows == 1).await;
    assert_eq!(alive(&observer), ["stays"]);
    observer.leave("n", "workers", "stays").await.unwrap();
    assert!(alive(&observer).is_empty() && replica.size().rows == 0);
}

#[tokio::test]
async fn after_a_restart_nobody_who_is_there_is_missing() {
    let directory = tempfile::tempdir().unwrap();
    let (replica, observer) = observed(&directory).await;
    observer.refresh("n", "workers", "a", TTL).await.unwrap();
    observer.refresh("other", "workers", "b", TTL).await.unwrap();
    drop(observer);
    replica.close().await;
    drop(replica);
    let (_replica, observer) = observed(&directory).await;
    pass(TTL / 2).await;
    let members = observer.members("n", "workers", None, 10).value.members;
    assert_eq!(members.len(), 1);
    assert!(members[0].alive_for <= TTL / 2, "counted from the start, not from the first look");
}
