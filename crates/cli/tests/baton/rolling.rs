//! All nodes are restarted, one after the other: no lock is lost, and no place in a queue (O11, L3).

use crate::http::{Answer, get, post};
use crate::process::eventually;
use crate::server::Server;
use crate::stores::{on_etcd, on_postgresql, on_redis};
use serde_json::json;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const NODES: usize = 3;
const WAITERS: usize = 6;
/// Stands where a waiter's number does.
const HOLDER: usize = usize::MAX;
/// Shorter than all the restarts together: a holder that doesn't renew loses its lock.
const TTL: Duration = Duration::from_secs(4);
const PATIENCE: Duration = Duration::from_secs(20);
/// Everything is over within this time.
const OVER_WITHIN: Duration = Duration::from_secs(60);

/// The nodes as their clients know them: by address.
struct Nodes(Vec<String>);

impl Nodes {
    /// Asks one node after the other, beginning with `first`, until one says yes or no: as a client does that finds a
    /// node stopping, gone or not yet there.
    fn ask(&self, first: usize, key: &str, act: &str, body: &serde_json::Value) -> Answer {
        let begun = Instant::now();
        for turn in first.. {
            assert!(begun.elapsed() < OVER_WITHIN, "no node says yes or no to {act} {key}");
            let path = format!("/v1/locks/{key}/{act}");
            match post(&self.0[turn % self.0.len()], &path, body, PATIENCE) {
                Ok(answer) if answer.status == 503 || answer.code() == "STILL_WAITING" => {}
                Ok(answer) => return answer,
                Err(_) => {}
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        unreachable!("asks for ever")
    }

    fn acquire(&self, first: usize, key: &str, owner: &str) -> Answer {
        let body = json!({
            "ownerId": owner, "ttlMillis": TTL.as_millis() as u64, "wait": true, "requestId": format!("of {owner}"),
        });
        let granted = self.ask(first, key, "acquire", &body);
        assert_eq!(granted.status, 200, "{owner}: {}", granted.body);
        granted
    }

    /// Who waits, in order, and whether a node has each one's call.
    fn queue(&self, key: &str) -> Vec<(String, bool)> {
        let Ok(queue) = get(&self.0[0], &format!("/v1/locks/{key}/queue"), PATIENCE) else {
            return Vec::new();
        };
        let waiting = queue.body["waiting"].as_array().cloned().unwrap_or_default();
        let entry = |entry: &serde_json::Value| {
            (entry["ownerId"].as_str().unwrap().to_owned(), entry["connected"].as_bool().unwrap())
        };
        waiting.iter().map(entry).collect()
    }
}

/// Holds a lock until told to release it, and renews it meanwhile.
fn hold(nodes: &Nodes, key: &str, granted: &Answer, released: &AtomicBool) {
    let mut body = json!({ "ownerId": "holder", "lockToken": granted.body["lockToken"] });
    for turn in 0.. {
        if released.load(Ordering::Acquire) {
            let answer = nodes.ask(turn, key, "release", &body);
            assert_eq!(answer.status, 200, "{key}: {}", answer.body);
            return;
        }
        body["ttlMillis"] = json!(TTL.as_millis() as u64);
        let renewed = nodes.ask(turn, key, "renew", &body);
        assert_eq!(renewed.status, 200, "{key} was lost: {}", renewed.body);
        assert_eq!(renewed.fencing_token(), granted.fencing_token(), "{key} has another holder");
        body.as_object_mut().unwrap().remove("ttlMillis");
        std::thread::sleep(TTL / 8);
    }
}

/// Lets the holders go when all is said, also if that is an assertion that failed.
struct OnDrop<'a>(&'a AtomicBool);

impl Drop for OnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

fn loses_nothing(url: &str) {
    let mut servers: Vec<_> = (0..NODES).map(|_| Server::start_on_a_store(url)).collect();
    let nodes = &Nodes(servers.iter().map(|server| server.url.clone()).collect());
    let keys = ["first", "second", "third"];
    let released = &AtomicBool::new(false);
    let served = &keys.map(|_| Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        let _released = OnDrop(released);
        for (index, key) in keys.into_iter().enumerate() {
            let granted = nodes.acquire(index, key, "holder");
            served[index].lock().unwrap().push((HOLDER, granted.fencing_token()));
            scope.spawn(move || hold(nodes, key, &granted, released));
            for waiter in 0..WAITERS {
                scope.spawn(move || {
                    let owner = format!("waiter {waiter}");
                    let granted = nodes.acquire(index + waiter, key, &owner);
                    served[index].lock().unwrap().push((waiter, granted.fencing_token()));
                    let body = json!({ "ownerId": owner, "lockToken": granted.body["lockToken"] });
                    let answer = nodes.ask(index + waiter, key, "release", &body);
                    assert_eq!(answer.status, 200, "{key}: {}", answer.body);
                });
                eventually("it is in the queue", || nodes.queue(key).len() == waiter + 1);
            }
        }
        for server in &mut servers {
            server.stop();
            server.restart();
            eventually("the node is ready", || server.get_status("/readyz") == 200);
        }
        for (key, served) in keys.iter().zip(served) {
            eventually("everybody is back", || {
                let queue = nodes.queue(key);
                queue.len() == WAITERS && queue.iter().all(|(_, connected)| *connected)
            });
            let owners: Vec<_> = nodes.queue(key).into_iter().map(|(owner, _)| owner).collect();
            assert_eq!(owners, (0..WAITERS).map(|waiter| format!("waiter {waiter}")).collect::<Vec<_>>());
            assert_eq!(served.lock().unwrap().len(), 1, "{key} went to somebody while it was held");
        }
    });
    for (key, served) in keys.iter().zip(served) {
        let served = served.lock().unwrap();
        let order: Vec<_> = served.iter().skip(1).map(|(waiter, _)| *waiter).collect();
        assert_eq!(order, (0..WAITERS).collect::<Vec<_>>(), "{key}");
        assert!(served.is_sorted_by(|a, b| a.1 < b.1), "tokens of {key}: {served:?}");
    }
}

#[test]
fn a_rolling_restart_on_etcd_loses_no_lock_and_no_place() {
    on_etcd(loses_nothing);
}

#[test]
fn a_rolling_restart_on_postgresql_loses_no_lock_and_no_place() {
    on_postgresql(loses_nothing);
}

#[test]
fn a_rolling_restart_on_redis_loses_no_lock_and_no_place() {
    on_redis(loses_nothing);
}
