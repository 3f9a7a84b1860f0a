//! The server is killed, again and again, under load: what it said before still holds (L3, L7, L9), and is written down if it is to be.

use crate::http::{Answer, post};
use crate::server::Server;
use serde_json::json;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const KILLS: usize = 50;
const WORKERS: u64 = 8;
const KEYS: u64 = 3;
const PATIENCE: Duration = Duration::from_secs(5);

/// What was said, by key: tokens in the order in which they were heard.
#[derive(Default)]
struct Said {
    grants: Mutex<BTreeMap<u64, BTreeMap<u64, String>>>,
    holders: [AtomicU64; KEYS as usize],
    pairs: AtomicU64,
    retried: AtomicU64,
}

/// Calls until there is an answer that isn't "unknown": the same call each time.
fn insist(url: &str, path: &str, body: &serde_json::Value, said: &Said) -> Answer {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        assert!(Instant::now() < deadline, "no answer within a minute");
        match post(url, path, body, PATIENCE) {
            Ok(answer) if answer.status != 503 && answer.body["error"] != "STILL_WAITING" => return answer,
            _ => {
                said.retried.fetch_add(1, Ordering::Relaxed);
                std::thread::sleep(Duration::from_millis(3));
            }
        }
    }
}

fn work(url: &str, worker: u64, said: &Said, stop: &AtomicBool) {
    for round in 0.. {
        if stop.load(Ordering::Relaxed) {
            return;
        }
        let key = (worker + round) % KEYS;
        let (request_id, owner) = (format!("{worker}-{round}"), format!("worker-{worker}"));
        let path = |operation: &str| format!("/v1/locks/key-{key}/{operation}");
        let acquire = json!({
            "ownerId": owner, "ttlMillis": 600_000, "wait": true, "requestId": request_id,
        });
        let granted = insist(url, &path("acquire"), &acquire, said);
        assert_eq!(granted.status, 200, "{request_id}: {}", granted.body);
        let fencing = granted.body["fencingToken"].as_u64().unwrap();

        let holder = &said.holders[key as usize];
        let before = holder.swap(worker + 1, Ordering::SeqCst);
        assert_eq!(before, 0, "key {key}: {worker} was granted it while {before} - 1 held it");
        {
            let mut grants = said.grants.lock().unwrap();
            let grants = grants.entry(key).or_default();
            let last = grants.last_key_value().map_or(0, |(token, _)| *token);
            assert!(fencing > last, "key {key}: token {fencing} after {last}");
            grants.insert(fencing, request_id.clone());
        }
        holder.store(0, Ordering::SeqCst);

        let release = json!({"lockToken": granted.body["lockToken"], "ownerId": owner});
        let released = insist(url, &path("release"), &release, said);
        assert_eq!(released.status, 200, "{request_id} was granted, and lost: {}", released.body);
        said.pairs.fetch_add(1, Ordering::Relaxed);

        let again = insist(url, &path("acquire"), &acquire, said);
        assert_eq!(
            again.body["error"], "ALREADY_RELEASED",
            "{request_id}'s release was lost: {}",
            again.body
        );
    }
}

#[test]
fn nothing_said_is_lost_and_no_token_repeated_when_the_server_is_killed_fifty_times_under_load() {
    let mut server = Server::start_on_a_fixed_port();
    let (url, said, stop) = (server.url.clone(), Arc::new(Said::default()), Arc::new(AtomicBool::new(false)));
    let workers: Vec<_> = (0..WORKERS)
        .map(|worker| {
            let (url, said, stop) = (url.clone(), said.clone(), stop.clone());
            std::thread::spawn(move || work(&url, worker, &said, &stop))
        })
        .collect();
    for kill in 0..KILLS {
        // Until the load has got somewhere since the last start; then a moment that differs from round to round.
        let goal = said.pairs.load(Ordering::Relaxed) + 5;
        let deadline = Instant::now() + Duration::from_secs(30);
        while said.pairs.load(Ordering::Relaxed) < goal && !workers.iter().any(|worker| worker.is_finished())
        {
            assert!(Instant::now() < deadline, "the load stands still after {kill} kills");
            std::thread::sleep(Duration::from_millis(1));
        }
        std::thread::sleep(Duration::from_micros(137 * (kill as u64 % 23)));
        server.kill();
        server.restart();
    }
    stop.store(true, Ordering::Relaxed);
    for worker in workers {
        worker.join().expect("a worker's assertion failed");
    }
    let pairs = said.pairs.load(Ordering::Relaxed);
    assert!(pairs >= 5 * KILLS as u64 && said.retried.load(Ordering::Relaxed) > 0);
}

#[test]
fn the_queue_keeps_its_order_for_those_who_come_back_after_a_kill() {
    let mut server = Server::start_on_a_fixed_port();
    let url = server.url.clone();
    let first = json!({"ownerId": "first", "ttlMillis": 600_000});
    let first = post(&url, "/v1/locks/k/acquire", &first, PATIENCE).unwrap();
    let wait = |owner: &str| {
        let (url, owner) = (url.clone(), owner.to_owned());
        std::thread::spawn(move || {
            let body = json!({
                "ownerId": owner, "ttlMillis": 600_000, "wait": true, "requestId": format!("of {owner}"),
            });
            post(&url, "/v1/locks/k/acquire", &body, Duration::from_secs(30))
        })
    };
    for (position, owner) in ["a", "b", "c", "d"].into_iter().enumerate() {
        wait(owner);
        crate::process::eventually("in the queue", || server.waiting("k") == position + 1);
    }
    server.kill();
    server.restart();
    let mut back: BTreeMap<_, _> = ["d", "b", "a", "c"].map(|owner| (owner, wait(owner))).into();
    crate::process::eventually("all are back", || {
        let queue = server.run(&["locks", "queue", "k", "--output", "json"]).stdout;
        queue.matches("\"connected\":true").count() + queue.matches("\"connected\": true").count() == 4
    });
    let mut holder = ("first".to_owned(), first.body["lockToken"].clone());
    for expected in ["a", "b", "c", "d"] {
        let release = json!({"lockToken": holder.1, "ownerId": holder.0});
        assert_eq!(post(&url, "/v1/locks/k/release", &release, PATIENCE).unwrap().status, 200);
        let granted = back.remove(expected).unwrap().join().unwrap().unwrap();
        assert_eq!(granted.body["ownerId"], expected, "{}", granted.body);
        holder = (expected.to_owned(), granted.body["lockToken"].clone());
    }
}

/// Checks keys that come once each, and tells which were answered, and how.
fn check_and_tell(url: &str, worker: u64, told: &Mutex<BTreeMap<String, &'static str>>, stop: &AtomicBool) {
    for round in 0.. {
        if stop.load(Ordering::Relaxed) {
            return;
        }
        let key = format!("{worker}-{round}");
        // Every third is more than there is.
        let body = json!({ "key": key, "cost": if round % 3 == 0 { 2 } else { 1 } });
        let event = match post(url, "/v1/limits/l/check", &body, PATIENCE).map(|answer| answer.status) {
            Ok(200) => "allowed",
            Ok(429) => "refused",
            // Nobody knows, and nobody asks again.
            _ => {
                std::thread::sleep(Duration::from_millis(3));
                continue;
            }
        };
        told.lock().unwrap().insert(key, event);
    }
}

#[test]
fn every_decision_that_was_answered_is_in_the_log_after_a_kill_and_none_is_there_twice() {
    let mut server = Server::start_on_a_fixed_port();
    let put =
        ["limits", "put", "l", "--limit", "1", "--per", "24h", "--algorithm", "fixed_window", "--audit"];
    assert_eq!(server.run(&put).code, 0);
    let (told, stop) = (Arc::new(Mutex::new(BTreeMap::new())), Arc::new(AtomicBool::new(false)));
    let workers: Vec<_> = (0..WORKERS)
        .map(|worker| {
            let (url, told, stop) = (server.url.clone(), told.clone(), stop.clone());
            std::thread::spawn(move || check_and_tell(&url, worker, &told, &stop))
        })
        .collect();
    for kill in 0..6_u64 {
        let goal = told.lock().unwrap().len() + 50;
        crate::process::eventually("the load goes on", || told.lock().unwrap().len() >= goal);
        std::thread::sleep(Duration::from_micros(137 * kill));
        server.kill();
        server.restart();
    }
    stop.store(true, Ordering::Relaxed);
    for worker in workers {
        worker.join().expect("a worker's assertion failed");
    }
    let log = server.run(&["limits", "audit", "l", "--limit", "1000000", "--output", "json"]).stdout;
    let log: serde_json::Value = serde_json::from_str(&log).unwrap();
    let mut written = BTreeMap::new();
    for line in log["lines"].as_array().unwrap() {
        let (key, event) = (line["key"].as_str().unwrap(), line["event"].as_str().unwrap());
        assert_eq!(written.insert(key, event), None, "{key} was decided once");
    }
    for (key, event) in &*told.lock().unwrap() {
        assert_eq!(written.get(key.as_str()), Some(event), "{key} was answered");
    }
}
