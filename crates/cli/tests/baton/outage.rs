//! Limits while the store is away, with nodes that are killed meanwhile: what was admitted is counted, and once.

use crate::http;
use crate::process::eventually;
use crate::server::Server;
use baton_testkit::servers::redis::Redis;
use serde_json::json;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(10);

/// Whether a check is admitted; nothing if nobody could decide.
fn check(server: &Server, limit: &str) -> Option<bool> {
    let answer =
        http::post(&server.url, &format!("/v1/limits/{limit}/check"), &json!({"key": "k"}), PATIENCE);
    match answer.unwrap().status {
        200 => Some(true),
        429 => Some(false),
        _ => None,
    }
}

/// What the store has counted; nothing while it can't be asked.
fn used(server: &Server, limit: &str) -> Option<u64> {
    http::get(&server.url, &format!("/v1/limits/{limit}/usage?key=k"), PATIENCE).unwrap().body["used"]
        .as_u64()
}

fn put(server: &Server, arguments: &[&str]) {
    let output = server.run(&[&["limits", "put"], arguments].concat());
    assert_eq!(output.code, 0, "{}", output.stderr);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_open_admitted_is_counted_once_although_the_node_was_killed() {
    let mut redis = Redis::start(&[]).await.unwrap();
    let mut server = Server::start_on_a_store(&format!("redis://{}", redis.address));
    put(&server, &["bill", "--limit", "1000", "--per", "1d", "--on-failure", "open", "--local-cap", "50"]);
    assert_eq!(check(&server, "bill"), Some(true));
    redis.end(true).await.unwrap();
    let admitted = (0..60).filter(|_| check(&server, "bill") == Some(true)).count() as u64;
    assert_eq!(admitted, 50);
    server.kill();
    redis.start_again().await.unwrap();
    server.restart();
    eventually("it is counted", || used(&server, "bill") == Some(1 + admitted));
    // Settled, and not offered again by whoever comes next.
    eventually("nothing is kept", || !has_spool(&server));
    server.kill();
    server.restart();
    assert_eq!(used(&server, "bill"), Some(1 + admitted));
}

fn has_spool(server: &Server) -> bool {
    let names = std::fs::read_dir(server.file("data").join("state")).into_iter().flatten();
    names.flatten().any(|entry| entry.file_name().to_string_lossy().starts_with("spool"))
}
