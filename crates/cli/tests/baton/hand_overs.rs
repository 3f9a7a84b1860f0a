//! A lock goes from node to node: by a hint, and not when somebody happens to look (L3, P6).

use crate::http::{Answer, post};
use crate::process::eventually;
use crate::server::Server;
use crate::stores::{on_etcd, on_postgresql, on_redis};
use serde_json::json;
use std::time::{Duration, Instant};

const HAND_OVERS: usize = 20;
/// For all of them. Without hints each would wait for a look, which comes once in a second.
const MOST: Duration = Duration::from_millis(500 * HAND_OVERS as u64);
const PATIENCE: Duration = Duration::from_secs(20);

fn acquire(node: &str, turn: usize) -> Answer {
    let owner = format!("owner {turn}");
    let body = json!({ "ownerId": owner, "ttlMillis": 60_000, "wait": true, "requestId": owner });
    let granted = post(node, "/v1/locks/handed/acquire", &body, PATIENCE).unwrap();
    assert_eq!(granted.status, 200, "{owner}: {}", granted.body);
    granted
}

#[allow(clippy::print_stdout, reason = "how long it took is worth knowing also when it is fine")]
fn goes_to_and_fro(url: &str) {
    let nodes = [Server::start_on_a_store(url), Server::start_on_a_store(url)];
    let mut granted = acquire(&nodes[0].url, 0);
    let mut total = Duration::ZERO;
    for turn in 1..=HAND_OVERS {
        let (holder, waiter) = (&nodes[(turn - 1) % 2], nodes[turn % 2].url.clone());
        let next = std::thread::spawn(move || (acquire(&waiter, turn), Instant::now()));
        eventually("it waits", || holder.waiting("handed") == 1);
        let released = Instant::now();
        let owner = format!("owner {}", turn - 1);
        let release = json!({ "ownerId": owner, "lockToken": granted.body["lockToken"] });
        let answer = post(&holder.url, "/v1/locks/handed/release", &release, PATIENCE).unwrap();
        assert_eq!(answer.status, 200, "{}", answer.body);
        let (handed, at) = next.join().unwrap();
        assert!(handed.fencing_token() > granted.fencing_token());
        (granted, total) = (handed, total + at.saturating_duration_since(released));
    }
    println!("{HAND_OVERS} hand-overs in {total:?}");
    assert!(total < MOST, "{HAND_OVERS} hand-overs took {total:?}: as if nobody gave hints");
}

#[test]
fn a_lock_is_handed_over_between_nodes_by_hints_on_etcd() {
    on_etcd(goes_to_and_fro);
}

#[test]
fn a_lock_is_handed_over_between_nodes_by_hints_on_postgresql() {
    on_postgresql(goes_to_and_fro);
}

#[test]
fn a_lock_is_handed_over_between_nodes_by_hints_on_redis() {
    on_redis(goes_to_and_fro);
}
