//! The SDK with a list of servers, one of which is killed: what is held stays held, who waits keeps waiting (L3, E9).

use crate::server::Server;
use baton_client::{Baton, BatonBuilder, LockGuard};
use baton_testkit::servers::redis::Redis;
use std::time::Duration;

const TTL: Duration = Duration::from_secs(4);

struct Nodes {
    first: Server,
    second: Server,
    _store: Redis,
}

impl Nodes {
    async fn start() -> Self {
        let store = Redis::start(&[]).await.unwrap();
        let url = format!("redis://{}", store.address);
        let (first, second) = (Server::start_on_a_store(&url), Server::start_on_a_store(&url));
        Self { first, second, _store: store }
    }

    /// A client that starts with the first.
    async fn connect(&self, builder: BatonBuilder) -> Baton {
        builder.connect(format!("{},{}", self.first.url, self.second.url)).await.unwrap()
    }
}

/// Longer than a lease: without a renewal at the second server, it would be lost.
async fn outlives_a_lease(lock: &LockGuard) {
    let lost = tokio::time::timeout(TTL + TTL / 2, lock.lost()).await;
    assert!(lost.is_err(), "{lost:?}");
}

async fn acquire(baton: &Baton, key: &str) -> LockGuard {
    baton.lock(key).ttl(TTL).acquire().await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_outlives_the_server_it_was_acquired_at() {
    let mut nodes = Nodes::start().await;
    let baton = nodes.connect(Baton::builder()).await;
    let lock = acquire(&baton, "held").await;
    let token = lock.fencing_token();
    nodes.first.kill();
    outlives_a_lease(&lock).await;
    let status = baton.locks().status("held").await.unwrap().unwrap();
    assert_eq!(status.fencing_token, token.get());
    lock.release().await.unwrap();
    assert!(acquire(&baton, "held").await.fencing_token() > token);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiter_goes_on_waiting_at_the_next_server_and_keeps_its_place() {
    let mut nodes = Nodes::start().await;
    let holder = nodes.connect(Baton::builder().owner("holder")).await;
    let lock = acquire(&holder, "queued").await;
    let mut waiting = Vec::new();
    for (number, owner) in ["one", "two", "three"].into_iter().enumerate() {
        let waiter = nodes.connect(Baton::builder().owner(owner)).await;
        waiting.push((owner, tokio::spawn(async move { acquire(&waiter, "queued").await })));
        let locks = holder.locks();
        eventually(async || locks.queue("queued").await.unwrap().waiting.len() == number + 1).await;
    }
    nodes.first.kill();
    eventually(async || parked(&nodes.second) == 3).await;
    lock.release().await.unwrap();
    let mut token = None;
    for (owner, waiter) in waiting {
        let guard = tokio::time::timeout(Duration::from_secs(30), waiter).await;
        let guard = guard.unwrap_or_else(|_| panic!("{owner} was forgotten")).unwrap();
        assert_eq!(guard.owner(), owner);
        assert!(Some(guard.fencing_token()) > token, "{owner} came before its turn");
        token = Some(guard.fencing_token());
        guard.release().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_stands_still_keeps_neither_a_lock_nor_a_waiter() {
    let nodes = Nodes::start().await;
    let holder = nodes.connect(Baton::builder().owner("holder")).await;
    let (kept, given) = (acquire(&holder, "kept").await, acquire(&holder, "given").await);
    let waiter = nodes.connect(Baton::builder().owner("waiter")).await;
    let waiting = tokio::spawn(async move { acquire(&waiter, "given").await });
    eventually(async || parked(&nodes.first) == 1).await;
    // It keeps its connections, and answers nothing.
    nodes.first.pause();
    outlives_a_lease(&kept).await;
    let token = given.fencing_token();
    given.release().await.unwrap();
    let granted = tokio::time::timeout(Duration::from_secs(30), waiting).await;
    assert!(granted.expect("the waiter went on").unwrap().fencing_token() > token);
    nodes.first.resume();
    assert!(!kept.is_lost());
}

/// How many calls wait at a node.
fn parked(node: &Server) -> usize {
    let metrics = crate::http::text(&node.url, "/metrics", Duration::from_secs(10));
    let line = metrics.lines().find(|line| line.starts_with("baton_lock_parked "));
    line.and_then(|line| line.rsplit(' ').next()?.parse().ok()).unwrap_or(0)
}

async fn eventually(mut is_so: impl AsyncFnMut() -> bool) {
    let began = std::time::Instant::now();
    while !is_so().await {
        assert!(began.elapsed() < Duration::from_secs(10), "never came true");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
