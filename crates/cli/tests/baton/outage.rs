//! Limits while the store is away, with nodes that are killed meanwhile: what was admitted is counted, and once.

use crate::http;
use crate::process::{self, eventually};
use crate::server::{Server, binary};
use baton_testkit::servers::etcd::Etcd;
use baton_testkit::servers::postgres::Postgres;
use baton_testkit::servers::redis::Redis;
use serde_json::json;
use std::fmt::Debug;
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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_starts_without_its_store_knows_limits_from_before_and_goes_on_when_it_comes() {
    let mut redis = Redis::start(&[]).await.unwrap();
    let mut server = Server::start_on_a_store(&format!("redis://{}", redis.address));
    put(&server, &["bill", "--limit", "1000", "--per", "1d", "--on-failure", "open", "--local-cap", "50"]);
    put(&server, &["mail", "--limit", "90", "--per", "1d", "--on-failure", "local", "--expected-nodes", "3"]);
    put(&server, &["login", "--limit", "90", "--per", "1d", "--on-failure", "local"]);
    eventually("the limits are written down", || {
        let copy = std::fs::read(server.file("data/state/limits")).unwrap_or_default();
        ["bill", "mail", "login"]
            .iter()
            .all(|name| copy.windows(name.len()).any(|bytes| bytes == name.as_bytes()))
    });
    redis.end(true).await.unwrap();
    let admitted = (0..20).filter(|_| check(&server, "bill") == Some(true)).count();
    assert_eq!(admitted, 20);
    server.kill();

    server.restart();
    assert_eq!((server.get_status("/healthz"), server.get_status("/readyz")), (200, 503));
    let admitted = (0..60).filter(|_| check(&server, "bill") == Some(true)).count();
    assert_eq!(admitted, 30, "what the one before admitted is of the same cap");
    let admitted = (0..60).filter(|_| check(&server, "mail") == Some(true)).count();
    assert_eq!(admitted, 30, "one of three");
    assert_eq!(check(&server, "login"), Some(false), "nobody knows how many there are");
    let unknown = http::post(&server.url, "/v1/limits/other/check", &json!({"key": "k"}), PATIENCE).unwrap();
    assert_eq!((unknown.status, unknown.code()), (503, "STORE_UNAVAILABLE"));
    let body = json!({"ownerId": "a", "ttlMillis": 60_000});
    let lock = http::post(&server.url, "/v1/locks/l/acquire", &body, PATIENCE).unwrap();
    assert_eq!((lock.status, lock.code()), (503, "STORE_UNAVAILABLE"));
    let body = json!({"ownerId": "a", "lockToken": "x"});
    let lock = http::post(&server.url, "/v1/locks/l/release", &body, PATIENCE).unwrap();
    assert_eq!((lock.status, lock.code()), (503, "STORE_UNAVAILABLE"));

    redis.start_again().await.unwrap();
    eventually("it is ready", || server.get_status("/readyz") == 200);
    eventually("all is counted", || used(&server, "bill") == Some(50) && used(&server, "mail") == Some(30));
    assert_eq!(check(&server, "login"), Some(true));
    assert_eq!(server.run(&["lock", "l", "--", "true"]).code, 0);
    server.stop();
}

/// A first start, before there is a store at that address.
async fn starts_before<E: Debug>(url: &str, store: impl Future<Output = Result<(), E>>) {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("limits.yaml");
    let text =
        "limits: {api: {limit: 100, windowMillis: 86400000, onFailure: closed_local, expectedNodes: 4}}";
    std::fs::write(&file, text).unwrap();
    let variables = vec![("BATON_LIMITS", file.display().to_string())];
    let mut server = Server::stopped_on_a_store_with(url, variables);
    server.restart();
    assert_eq!(server.get_status("/readyz"), 503);
    assert_eq!((0..50).filter(|_| check(&server, "api") == Some(true)).count(), 25);
    store.await.unwrap();
    eventually("it is ready", || server.get_status("/readyz") == 200);
    eventually("it is counted by what the file says", || used(&server, "api") == Some(25));
    assert_eq!(check(&server, "api"), Some(true));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_first_start_without_postgresql_knows_the_limits_of_its_file() {
    let mut store = Postgres::new().unwrap();
    starts_before(&store.url(), store.start()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_first_start_without_etcd_knows_the_limits_of_its_file() {
    let mut store = Etcd::new(1).unwrap();
    starts_before(&store.url(), store.start()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_time_will_not_mend_still_ends_the_start() {
    let redis = Redis::start(&["--requirepass", "right"]).await.unwrap();
    let place = tempfile::tempdir().unwrap();
    let state = place.path().join("state");
    let start = |store: &str| {
        let mut command = binary();
        command.args(["serve", "--listen", "127.0.0.1:0", "--store", store, "--state"]).arg(&state);
        process::run(command.arg("--data").arg(place.path().join("data")))
    };
    for (store, why) in [
        (format!("redis://:wrong@{}", redis.address), "password"),
        (format!("redis://{}", redis.address), "NOAUTH"),
        ("redis://".to_owned(), "host:port"),
        ("nonsense://somewhere".to_owned(), "no store for"),
    ] {
        let output = start(&store);
        assert_eq!(output.code, 74, "{}", output.stderr);
        assert!(output.stderr.contains(why), "{why}: {}", output.stderr);
    }
    std::fs::create_dir(&state).unwrap();
    std::fs::write(state.join("limits"), b"batonlim\xff").unwrap();
    let output = start("redis://127.0.0.1:1");
    assert_eq!(output.code, 74);
    assert!(output.stderr.contains("newer"), "{}", output.stderr);
}

fn has_spool(server: &Server) -> bool {
    let names = std::fs::read_dir(server.file("data").join("state")).into_iter().flatten();
    names.flatten().any(|entry| entry.file_name().to_string_lossy().starts_with("spool"))
}
