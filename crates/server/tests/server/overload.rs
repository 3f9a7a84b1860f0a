//! Bulkheads: one class of work can't starve another (O9).

use crate::harness::Baton;
use serde_json::json;

#[tokio::test(flavor = "multi_thread")]
async fn waiters_and_work_that_find_no_room_leave_renewals_and_releases_theirs() {
    let baton = Baton::with(|config| config.max_waiting = 1).await;
    let grant = baton.acquire("k", "holder").await;
    let mut waiter = baton.waiter("k", "w", None).await;
    let wait = json!({ "ownerId": "x", "ttlMillis": 1000, "wait": true });
    let refused = baton.post("/v1/locks/k/acquire", wait.clone()).await;
    assert_eq!(refused.code(503), "OVERLOADED");
    assert_eq!(
        (refused.header("retry-after"), &refused.json()["retryAfterMillis"]),
        (Some("1"), &json!(1000))
    );
    let renew = json!({ "ownerId": "holder", "lockToken": grant["lockToken"], "ttlMillis": 60_000 });
    baton.post("/v1/locks/k/renew", renew).await.ok();
    baton.release(&grant).await.ok();
    waiter.answer("POST").await.unwrap().ok();
    let mut wait = wait;
    wait["waitTimeoutMillis"] = 0.into();
    assert_eq!(
        baton.post("/v1/locks/k/acquire", wait).await.code(409),
        "WAIT_TIMEOUT",
        "its place is free again"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_beyond_the_bound_are_told_to_come_back() {
    let baton = Baton::with(|config| config.max_in_flight = 0).await;
    let body = json!({ "ownerId": "x", "ttlMillis": 1000 });
    assert_eq!(baton.post("/v1/locks/k/acquire", body.clone()).await.code(503), "OVERLOADED");
    for path in ["/v1/locks/k", "/v1/locks", "/v1/locks/k/queue", "/v1/locks/k/history", "/v1/status"] {
        assert_eq!(baton.get(path).await.code(503), "OVERLOADED", "{path}");
    }
    let release = json!({ "ownerId": "x", "lockToken": "x" });
    assert_eq!(baton.post("/v1/locks/k/release", release).await.code(404), "LOCK_NOT_FOUND");
    let batch = json!({ "calls": [{ "id": 1, "lockKey": "k", "call": { "acquire": body } }] });
    assert!(baton.post("/v1/batch", batch).await.text.contains("OVERLOADED"));
    assert_eq!(baton.get("/healthz").await.status, 200);
    assert_eq!(baton.get("/readyz").await.status, 200, "busy isn't broken");
    let metrics = baton.get("/metrics").await.text;
    assert!(metrics.contains("baton_http_rejected_total{class=\"work\"} 7"), "{metrics}");
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_beyond_the_bound_are_told_to_come_back() {
    let baton = Baton::with(|config| config.max_connections = 1).await;
    let mut first = baton.client().await;
    assert_eq!(first.call("GET", "/healthz", b"").await.status, 200);
    let refused = baton.client().await.answer("GET").await.unwrap();
    assert_eq!(refused.code(503), "OVERLOADED");
    assert_eq!(refused.header("retry-after"), Some("1"));
    drop(first);
    baton
        .until(async || {
            let mut client = baton.client().await;
            let sent = client.send(b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n").await;
            sent.is_ok() && client.answer("GET").await.is_some_and(|answer| answer.status == 200)
        })
        .await;
}
