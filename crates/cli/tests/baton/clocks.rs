//! Nodes whose wall clocks are minutes off, in both directions: nothing changes, the store's clock decides (rule 2, L1, L3, L5, L7).

use crate::http::{Answer, get, post};
use crate::process::eventually;
use crate::server::Server;
use crate::stores::{on_etcd, on_postgresql, on_redis};
use serde_json::json;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// What each node's wall clock is off by, as libfaketime wants to hear it and in seconds.
const OFFSETS: [(&str, i64); 3] = [("+0", 0), ("+5m", 300), ("-5m", -300)];
/// How exactly an offset must show in a log line.
const SHOWN_WITHIN_SECONDS: i64 = 60;
const TTL: Duration = Duration::from_secs(3);
const PATIENCE: Duration = Duration::from_secs(20);
/// A waiter looks each second whatever it hears; the rest is for a busy machine.
const NOTICED_WITHIN: Duration = Duration::from_secs(3);

/// Where the system keeps the library that makes a process believe in another time.
pub fn library() -> PathBuf {
    let listed =
        Command::new("sh").args(["-c", "ls /usr/lib/*/faketime/libfaketimeMT.so.1"]).output().unwrap();
    let listed = String::from_utf8(listed.stdout).unwrap();
    listed.lines().next().expect("libfaketime isn't installed").into()
}

/// What makes a process's wall clock be off by so much.
pub fn variables(offset: &str) -> Vec<(&'static str, String)> {
    vec![
        ("LD_PRELOAD", library().display().to_string()),
        ("FAKETIME", offset.to_owned()),
        // Timers go on as they should: it is the wall clock that is wrong.
        ("FAKETIME_DONT_FAKE_MONOTONIC", "1".to_owned()),
        ("FAKETIME_NO_CACHE", "1".to_owned()),
    ]
}

/// A node on this store with a wall clock that is off by so much, and with this in its environment.
pub fn node(url: &str, offset: &str, more: Vec<(&'static str, String)>) -> Server {
    Server::start_on_a_store_with(url, variables(offset).into_iter().chain(more).collect())
}

/// By how many milliseconds the last line of a node's log is ahead of this process's clock, which has gone on since.
pub fn ahead_ms(node: &Server) -> i64 {
    let log = node.log();
    let line: serde_json::Value =
        serde_json::from_str(log.lines().last().expect("it logs something")).unwrap();
    let stamp = line["timestamp"].as_str().expect("a log line has a time").to_owned();
    let millis = Command::new("date").args(["+%s%3N", "-d", &stamp]).output().unwrap();
    let millis: i64 = String::from_utf8(millis.stdout).unwrap().trim().parse().unwrap();
    millis - SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() as i64
}

fn acquire(node: &Server, owner: &str, waits: bool) -> Answer {
    let body = json!({
        "ownerId": owner, "ttlMillis": TTL.as_millis() as u64, "wait": waits, "requestId": format!("of {owner}"),
    });
    post(&node.url, "/v1/locks/k/acquire", &body, PATIENCE).unwrap()
}

fn with_token(node: &Server, act: &str, owner: &str, granted: &Answer) -> Answer {
    let mut body = json!({ "ownerId": owner, "lockToken": granted.body["lockToken"] });
    if act == "renew" {
        body["ttlMillis"] = json!(TTL.as_millis() as u64);
    }
    post(&node.url, &format!("/v1/locks/k/{act}"), &body, PATIENCE).unwrap()
}

fn queued(node: &Server, count: usize) {
    eventually(&format!("{count} are in the queue"), || {
        let queue = get(&node.url, "/v1/locks/k/queue", PATIENCE).unwrap();
        queue.body["waiting"].as_array().is_some_and(|waiting| waiting.len() == count)
    });
}

fn takes_no_notice(url: &str) {
    let nodes = OFFSETS.map(|(offset, _)| node(url, offset, Vec::new()));
    let [right, ahead, behind] = &nodes;
    let granularity =
        get(&right.url, "/v1/status", PATIENCE).unwrap().body["store"]["guarantees"]["ttlGranularityMillis"]
            .as_u64()
            .expect("the store says how late expiry may be");
    let latest = TTL + Duration::from_millis(granularity) + NOTICED_WITHIN;

    let sent = Instant::now();
    let first = acquire(ahead, "a", false);
    let held = Instant::now();
    assert_eq!(first.status, 200, "{}", first.body);
    for ((_, seconds), node) in OFFSETS.iter().zip(&nodes) {
        assert_eq!(acquire(node, "another", false).code(), "LOCK_ALREADY_HELD");
        let shown = ahead_ms(node) / 1000;
        assert!((shown - seconds).abs() < SHOWN_WITHIN_SECONDS, "off by {seconds} s, but it shows {shown} s");
    }

    std::thread::scope(|scope| {
        let mut waiters = Vec::new();
        for (place, (node, owner)) in [(behind, "b"), (right, "c"), (ahead, "d")].into_iter().enumerate() {
            waiters.push(scope.spawn(move || (acquire(node, owner, true), Instant::now())));
            queued(right, place + 1);
        }
        let mut waiters = waiters.into_iter();
        // The first holder is never heard of again: its lease runs out, neither early nor late.
        let (second, at) = waiters.next().unwrap().join().unwrap();
        assert_eq!(second.status, 200, "{}", second.body);
        assert!(second.fencing_token() > first.fencing_token());
        assert!(at >= sent + TTL, "{:?} before its time", sent + TTL - at);
        assert!(at <= held + latest, "{:?} after it was granted", at - held);
        assert_eq!(with_token(behind, "renew", "a", &first).code(), "LOCK_EXPIRED");

        // A lease that is renewed, at one node after the other, outlives its first length.
        let renewing = Instant::now();
        for round in 0.. {
            let renewed = with_token(&nodes[round % nodes.len()], "renew", "b", &second);
            assert_eq!(renewed.status, 200, "{}", renewed.body);
            if renewing.elapsed() > TTL * 2 {
                break;
            }
            std::thread::sleep(TTL / 6);
        }
        queued(right, 2);

        // Released at another node than it was taken, it goes on to the next in the queue, and so on.
        let mut holder = ("b", second);
        for (owner, waiter) in ["c", "d"].into_iter().zip(waiters) {
            let released = with_token(ahead, "release", holder.0, &holder.1);
            assert_eq!(released.status, 200, "{}", released.body);
            let (granted, _) = waiter.join().unwrap();
            assert_eq!(granted.status, 200, "{}", granted.body);
            assert!(granted.fencing_token() > holder.1.fencing_token());
            let shown = get(&behind.url, "/v1/locks/k", PATIENCE).unwrap();
            assert_eq!(shown.body["ownerId"], owner, "{}", shown.body);
            // A retry elsewhere gets the same answer.
            assert_eq!(with_token(behind, "release", holder.0, &holder.1).status, 200);
            holder = (owner, granted);
        }
        assert_eq!(with_token(behind, "release", holder.0, &holder.1).status, 200);
    });
}

#[test]
fn nodes_with_wrong_wall_clocks_on_etcd_change_nothing() {
    on_etcd(takes_no_notice);
}

#[test]
fn nodes_with_wrong_wall_clocks_on_postgresql_change_nothing() {
    on_postgresql(takes_no_notice);
}

#[test]
fn nodes_with_wrong_wall_clocks_on_redis_change_nothing() {
    on_redis(takes_no_notice);
}
