//! Shares in an outage, with several nodes: they add up to the limit, and don't grow because nodes can't be seen.

use super::limits::definition;
use baton_core::Name;
use baton_core::limit::{Definition, Identity, Policy};
use baton_core::meter::Algorithm;
use baton_engine::limit::{Answered, CheckCall, Wanted};
use baton_engine::{Config, Engine, Random};
use baton_testkit::faulty::{Fault, Faulty};
use baton_testkit::simulated::{Faults, Simulated};
use std::sync::Arc;
use std::time::Duration;

const DAY_MS: u64 = 24 * 60 * 60 * 1000;

struct Node {
    engine: Engine,
    store: Faulty,
}

fn name() -> Name {
    Name::new("default", "l")
}

/// Nodes that know each other, and a limit of a hundred a day.
async fn nodes(number: u64, on_failure: Policy) -> Vec<Node> {
    let world = Simulated::for_many(number);
    let mut nodes = Vec::new();
    for seed in 0..number {
        let store = Faulty::new(world.node(Faults::none()));
        let engine =
            Engine::start(Arc::new(store.clone()), Config::default(), Random::seeded(seed)).await.unwrap();
        nodes.push(Node { engine, store });
    }
    let definition = Definition { on_failure, ..definition(Algorithm::FixedWindow, 100, DAY_MS) };
    nodes[0].engine.put_limit(&name(), definition).await.unwrap();
    for node in &nodes {
        while node.engine.nodes() < nodes.len() {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        node.check("before", 1).await;
    }
    nodes
}

impl Node {
    async fn check(&self, key: &str, cost: u64) -> Answered {
        let calls = [CheckCall { limit: name(), key: key.into(), cost, identity: Identity::default() }];
        self.engine.check_limits(&calls, &Wanted::default()).await.unwrap()
    }

    /// How many of a key it admits.
    async fn admits(&self, key: &str) -> u64 {
        let mut admitted = 0;
        while self.check(key, 1).await.allowed {
            admitted += 1;
        }
        admitted
    }
}

fn all(nodes: &[Node], fault: Fault) {
    nodes.iter().for_each(|node| node.store.set(fault));
}

#[tokio::test(start_paused = true)]
async fn the_shares_of_all_nodes_add_up_to_the_limit() {
    for number in [1, 3, 7] {
        let nodes = nodes(number, Policy::ClosedLocal).await;
        all(&nodes, Fault::Unavailable);
        let mut admitted = Vec::new();
        for node in &nodes {
            admitted.push(node.admits("k").await);
        }
        assert_eq!(admitted.iter().sum::<u64>(), 100, "{admitted:?}");
        assert!(
            admitted.iter().all(|share| (100 / number..=100 / number + 1).contains(share)),
            "{admitted:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_node_that_is_back_before_the_others_has_no_larger_share() {
    let nodes = nodes(3, Policy::ClosedLocal).await;
    all(&nodes, Fault::Unavailable);
    // Longer than sessions last.
    tokio::time::sleep(Duration::from_secs(60)).await;
    nodes[0].store.set(Fault::None);
    while nodes[0].engine.nodes() > 1 {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    nodes[0].store.set(Fault::Unavailable);
    assert!(nodes[0].admits("k").await <= 34);
}

#[tokio::test(start_paused = true)]
async fn a_snapshot_knows_what_others_have_spent_and_the_last_word_does_not() {
    for (policy, admitted) in [(Policy::Snapshot, 15), (Policy::Local, 45)] {
        let nodes = nodes(2, policy).await;
        assert!(nodes[0].check("k", 10).await.allowed);
        assert!(nodes[1].check("k", 60).await.allowed);
        tokio::time::sleep(Duration::from_secs(80)).await;
        all(&nodes, Fault::Unavailable);
        assert_eq!(nodes[0].admits("k").await, admitted, "{policy:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn without_a_snapshot_or_with_an_old_one_nothing_is_admitted() {
    let nodes = nodes(2, Policy::Snapshot).await;
    assert!(nodes[0].check("old", 10).await.allowed);
    tokio::time::sleep(Duration::from_secs(9 * 60)).await;
    assert!(nodes[0].check("new", 10).await.allowed);
    // The first isn't in use any more, and its last snapshot is more than five minutes ago.
    tokio::time::sleep(Duration::from_secs(8 * 60)).await;
    all(&nodes, Fault::Unavailable);
    assert_eq!(nodes[0].admits("new").await, 45);
    for key in ["old", "never seen"] {
        let refused = nodes[0].check(key, 1).await.refused.expect(key).1;
        assert_eq!((refused.reason, refused.retry_after_ms.is_some()), ("store_unavailable", true), "{key}");
    }
}
