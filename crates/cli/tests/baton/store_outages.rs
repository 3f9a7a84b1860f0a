//! The store is away, and comes back: refusals in time, then at once, and holders are still holders (O10).

use crate::http::{Answer, post};
use crate::nodes::Nodes;
use crate::process::eventually;
use crate::server::Server;
use crate::stores::{Mortal, on_etcd, on_postgresql, on_redis};
use baton_testkit::proxy::Direction;
use serde_json::json;
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(10);
/// The deadline of a call to the store is 2 s; then there is what a busy machine takes.
const REFUSED_WITHIN: Duration = Duration::from_millis(2500);
/// What is refused without asking the store.
const AT_ONCE: Duration = Duration::from_millis(100);

fn acquire(node: &Server, key: &str) -> Answer {
    let body = json!({ "ownerId": "a", "ttlMillis": 60_000 });
    post(&node.url, &format!("/v1/locks/{key}/acquire"), &body, PATIENCE).unwrap()
}

/// A node with a lock that is held goes through an outage.
fn outlives(node: &Server, begin: impl FnOnce(), end: impl FnOnce()) {
    let granted = acquire(node, "kept");
    assert_eq!(granted.status, 200, "{}", granted.body);
    begin();
    let deadline = Instant::now() + Duration::from_secs(20);
    for round in 0.. {
        let before = Instant::now();
        let refused = acquire(node, "new");
        let taken = before.elapsed();
        assert_eq!((refused.status, refused.code()), (503, "STORE_UNAVAILABLE"), "{}", refused.body);
        assert!(taken < REFUSED_WITHIN, "an answer after {taken:?}");
        assert!(Instant::now() < deadline, "still not at once after {round} calls");
        if round >= 10 && taken < AT_ONCE {
            break;
        }
    }
    let status = |path: &str| node.get_status(path);
    assert_eq!((status("/healthz"), status("/readyz")), (200, 503));
    end();
    eventually("the node is ready again", || status("/readyz") == 200);
    let renew = json!({ "ownerId": "a", "lockToken": granted.body["lockToken"], "ttlMillis": 60_000 });
    let renewed = post(&node.url, "/v1/locks/kept/renew", &renew, PATIENCE).unwrap();
    assert_eq!(renewed.status, 200, "the holder lost it: {}", renewed.body);
    assert_eq!(renewed.fencing_token(), granted.fencing_token());
    // What was under way may have arrived, as "unknown" says; so another lock.
    let another = acquire(node, "another");
    assert_eq!(another.status, 200, "{}", another.body);
}

/// Nothing is refused, nothing is answered: each call could take as long as it may.
fn outlives_silence(url: &str) {
    let Nodes { nodes, proxies, .. } = &Nodes::start(url, 1);
    outlives(&nodes[0], || proxies[0].hold(Direction::Requests), || proxies[0].pass());
}

/// Nobody is there any more, and what comes back is another process on what is on the disk.
fn outlives_death(store: Mortal) {
    let node = Server::start_on_a_store(&store.url());
    let store = std::cell::RefCell::new(store);
    outlives(&node, || store.borrow_mut().die(), || store.borrow_mut().rise());
}

#[test]
fn a_store_that_is_away_is_said_to_be_and_work_goes_on_when_it_is_back() {
    on_etcd(outlives_silence);
    on_postgresql(outlives_silence);
    on_redis(outlives_silence);
}

#[test]
fn a_store_that_is_killed_is_said_to_be_away_and_holders_are_holders_when_it_is_started_again() {
    outlives_death(Mortal::etcd());
    outlives_death(Mortal::postgresql());
    outlives_death(Mortal::redis());
}
