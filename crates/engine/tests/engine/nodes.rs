//! Several nodes on one store: who waits where doesn't matter.

use baton_core::lock::{LockName, Mode};
use baton_engine::lock::{AcquireCall, Granted, LockError, Refusal, ReleaseCall, Wait};
use baton_engine::{Config, Engine, Random};
use baton_testkit::faulty::Faulty;
use baton_testkit::simulated::{Faults, Node, Simulated};
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinHandle;
use tokio::time::Instant;

/// Two nodes on a store that takes up to two milliseconds each way. The clock only moves when everybody waits.
struct Ground {
    nodes: [Engine; 2],
    handles: [Arc<Node>; 2],
    lock: LockName,
}

async fn ground(seed: u64) -> Ground {
    let store = Simulated::for_many(seed);
    let handles = [store.node(Faults::none()), store.node(Faults::none())];
    let start = |index: usize| {
        let random = Random::seeded(seed * 2 + index as u64);
        Engine::start(handles[index].clone(), Config::default(), random)
    };
    let nodes = [start(0).await.unwrap(), start(1).await.unwrap()];
    Ground { nodes, handles, lock: LockName::new("default", "k") }
}

impl Ground {
    async fn acquire(&self, node: usize, owner: &str) -> Granted {
        self.nodes[node].acquire(&self.lock, call(owner, Wait::No)).await.unwrap()
    }

    async fn release(&self, node: usize, owner: &str, granted: &Granted) {
        let (token, owner) = (granted.token.reveal(), owner.into());
        let call = ReleaseCall { token, owner, principal: "".into(), request_id: None };
        self.nodes[node].release(&self.lock, call).await.unwrap();
    }

    /// Joins the queue at a node, and returns when it has.
    async fn join(&self, node: usize, owner: &'static str) -> JoinHandle<Result<Granted, LockError>> {
        let before = self.nodes[0].lock_queue(&self.lock).await.unwrap().len();
        let (engine, lock) = (self.nodes[node].clone(), self.lock.clone());
        let waiter = tokio::spawn(async move { engine.acquire(&lock, call(owner, Wait::Forever)).await });
        let deadline = Instant::now() + Duration::from_secs(5);
        while self.nodes[0].lock_queue(&self.lock).await.unwrap().len() == before {
            assert!(Instant::now() < deadline, "{owner} doesn't get into the queue");
        }
        waiter
    }
}

fn call(owner: &str, wait: Wait) -> AcquireCall {
    AcquireCall {
        owner: owner.into(),
        principal: "".into(),
        ttl: Duration::from_secs(60),
        wait,
        request_id: Some(format!("request of {owner}")),
        reentrant: false,
        metadata: None,
        mode: Mode::Exclusive,
        delay: Duration::ZERO,
    }
}

#[tokio::test(start_paused = true)]
async fn waiters_at_different_nodes_are_served_in_the_order_of_their_arrival_and_without_a_poll_interval() {
    let ground = ground(1).await;
    let mut holder = (0, "a", ground.acquire(0, "a").await);
    let mut waiters = Vec::new();
    for (node, owner) in [(1, "b"), (0, "c"), (1, "d"), (1, "e"), (0, "f")] {
        waiters.push((node, owner, ground.join(node, owner).await));
    }
    for (node, owner, waiter) in waiters {
        let (at, holding, granted) = holder;
        let before = Instant::now();
        ground.release(at, holding, &granted).await;
        let next = waiter.await.unwrap().unwrap();
        let taken = before.elapsed();
        assert!(next.fencing > granted.fencing);
        // Two commits, of up to two milliseconds each way, and the hint between them: there is nothing to read.
        assert!(taken <= Duration::from_millis(10), "{owner} at node {node} had to wait {taken:?}");
        holder = (node, owner, next);
    }
    ground.release(holder.0, holder.1, &holder.2).await;
    assert!(ground.nodes[0].lock_state(&ground.lock).await.unwrap().is_none());
}

#[tokio::test(start_paused = true)]
async fn a_node_that_died_is_passed_over_and_its_places_are_cleared() {
    let ground = ground(2).await;
    let first = ground.acquire(0, "a").await;
    drop(ground.join(1, "b").await);
    let second = ground.join(0, "c").await;
    ground.handles[1].kill();
    let before = Instant::now();
    ground.release(0, "a", &first).await;
    let second = second.await.unwrap().unwrap();
    let taken = before.elapsed();
    assert!(taken < Duration::from_millis(3100), "it took {taken:?} to pass a dead node over");
    ground.release(0, "c", &second).await;
    let deadline = Instant::now() + Duration::from_secs(60);
    while !ground.nodes[0].lock_queue(&ground.lock).await.unwrap().is_empty() {
        assert!(Instant::now() < deadline, "the dead node's waiter is still in the queue");
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    assert_eq!(ground.nodes[0].nodes(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_node_that_drains_sends_its_waiters_away_and_they_keep_their_places_at_another() {
    let ground = ground(3).await;
    let first = ground.acquire(0, "a").await;
    let second = ground.join(1, "b").await;
    let third = ground.join(0, "c").await;
    ground.nodes[1].drain().await;
    let told = second.await.unwrap().unwrap_err();
    assert!(matches!(told, LockError::Refused(Refusal::StillWaiting { .. })), "{told:?}");
    let (engine, lock) = (ground.nodes[0].clone(), ground.lock.clone());
    let again = tokio::spawn(async move { engine.acquire(&lock, call("b", Wait::Forever)).await });
    let is_back = async || {
        let queue = ground.nodes[0].lock_queue(&ground.lock).await.unwrap();
        queue.first().is_some_and(|first| first.connected)
    };
    let deadline = Instant::now() + Duration::from_secs(5);
    while !is_back().await {
        assert!(Instant::now() < deadline, "it doesn't get back into the queue");
    }
    ground.release(0, "a", &first).await;
    let second = again.await.unwrap().unwrap();
    ground.release(0, "b", &second).await;
    let third = third.await.unwrap().unwrap();
    assert!(third.fencing > second.fencing && second.fencing > first.fencing);
}

#[tokio::test(start_paused = true)]
async fn a_hand_over_between_nodes_is_one_store_call_at_each() {
    let store = Simulated::for_many(4);
    let stores = [0, 1].map(|_| Faulty::new(store.node(Faults::none())));
    let start = |index: usize| {
        Engine::start(Arc::new(stores[index].clone()), Config::default(), Random::seeded(index as u64))
    };
    let (one, other) = (start(0).await.unwrap(), start(1).await.unwrap());
    // Until both have looked at every lock there is, as they do at their start.
    tokio::time::sleep(Duration::from_secs(10)).await;
    let lock = LockName::new("default", "k");
    let first = one.acquire(&lock, call("a", Wait::No)).await.unwrap();
    let (engine, name) = (other.clone(), lock.clone());
    let waiter = tokio::spawn(async move { engine.acquire(&name, call("b", Wait::Forever)).await });
    let deadline = Instant::now() + Duration::from_secs(5);
    while one.lock_queue(&lock).await.unwrap().is_empty() {
        assert!(Instant::now() < deadline, "b doesn't get into the queue");
    }
    // Until the hint of it is there; less than until anybody looks by itself.
    tokio::time::sleep(Duration::from_millis(20)).await;
    let before = [stores[0].calls(), stores[1].calls()];
    let (token, owner) = (first.token.reveal(), "a".into());
    let release = ReleaseCall { token, owner, principal: "".into(), request_id: None };
    one.release(&lock, release).await.unwrap();
    assert!(waiter.await.unwrap().unwrap().fencing > first.fencing);
    let made = [stores[0].calls() - before[0], stores[1].calls() - before[1]];
    assert_eq!(made, [1, 1], "a commit at each, and nothing is read before either");
}
