//! What locks cost at the store, over HTTP, as the store itself counts it (P6).

use crate::http::{Answer, post};
use crate::server::Server;
use baton_testkit::servers::{postgres::Postgres, redis::Redis};
use serde_json::json;
use std::collections::BTreeMap;
use std::time::Duration;

/// Histories are written behind, and nodes look for each other: of so many tries the one beside which least happened counts.
const TRIES: usize = 30;

/// How many calls of the store an acquire, a renewal and a release of a free lock take at least.
fn calls(url: &str, count: impl Fn() -> u64) -> BTreeMap<&'static str, u64> {
    let node = Server::start_on_a_store(url);
    let mut fewest = BTreeMap::new();
    for turn in 0..TRIES {
        let path = format!("/v1/locks/lock-{turn}");
        let mut step = |name: &'static str, body: serde_json::Value| -> Answer {
            let before = count();
            let answer = post(&node.url, &format!("{path}/{name}"), &body, Duration::from_secs(10)).unwrap();
            let calls = count() - before;
            assert_eq!(answer.status, 200, "{name}: {}", answer.body);
            fewest.entry(name).and_modify(|fewest: &mut u64| *fewest = calls.min(*fewest)).or_insert(calls);
            answer
        };
        let granted = step("acquire", json!({ "ownerId": "a", "ttlMillis": 60_000 }));
        let token = &granted.body["lockToken"];
        step("renew", json!({ "ownerId": "a", "lockToken": token, "ttlMillis": 60_000 }));
        step("release", json!({ "ownerId": "a", "lockToken": token }));
    }
    fewest
}

fn one_each() -> BTreeMap<&'static str, u64> {
    ["acquire", "renew", "release"].into_iter().map(|name| (name, 1)).collect()
}

#[tokio::test]
async fn acquire_renew_and_release_are_one_script_each_on_redis() {
    let server = Redis::start(&[]).await.unwrap();
    let scripts = || {
        let statistics = server.say(&["INFO", "commandstats"]).unwrap();
        let calls = |line: &str| {
            let line = line.strip_prefix("cmdstat_eval")?;
            line.trim_start_matches("sha").strip_prefix(":calls=")?.split(',').next()?.parse::<u64>().ok()
        };
        statistics.lines().filter_map(calls).sum()
    };
    assert_eq!(calls(&format!("redis://{}", server.address), scripts), one_each());
}

#[tokio::test]
async fn acquire_renew_and_release_are_one_call_each_on_postgresql() {
    let mut server = Postgres::new().unwrap();
    server.start_with(&["log_statement=all"]).await.unwrap();
    // Its counters are told seconds late; its log has every statement before it is carried out.
    let called = || server.log().unwrap().matches(".commit_together($1").count() as u64;
    assert_eq!(calls(&server.url(), called), one_each());
}
