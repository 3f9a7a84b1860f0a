//! The contract's table, row by row: what succeeds.

use crate::harness::Baton;
use serde_json::json;

fn names(value: &serde_json::Value) -> Vec<&str> {
    let mut names: Vec<_> = value.as_object().unwrap().keys().map(String::as_str).collect();
    names.sort_unstable();
    names
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_is_acquired_renewed_shown_and_released_on_one_connection() {
    let baton = Baton::start().await;
    let mut client = baton.client().await;
    let body = json!({ "ownerId": "pod-1", "ttlMillis": 30_000, "wait": false, "requestId": "req-1",
                       "metadata": { "why": "migration" } });
    let body = body.to_string();
    let acquired = client.call("POST", "/v1/locks/orders/acquire", body.as_bytes()).await;
    let grant = acquired.ok();
    let fields =
        ["expiresAt", "fencingToken", "lockKey", "lockToken", "ownerId", "reentrancyCount", "ttlMillis"];
    assert_eq!(names(&grant), fields);
    assert_eq!(acquired.header("content-type"), Some("application/json"));
    assert_eq!(grant["lockKey"], "orders");
    assert_eq!((&grant["ownerId"], &grant["ttlMillis"]), (&json!("pod-1"), &json!(30_000)));
    assert_eq!(grant["reentrancyCount"], 1);

    let again = client.call("POST", "/v1/locks/orders/acquire", body.as_bytes()).await.ok();
    assert_eq!(again["lockToken"], grant["lockToken"], "the same requestId is the same grant");
    assert_eq!(again["fencingToken"], grant["fencingToken"]);

    let body =
        json!({ "lockToken": grant["lockToken"], "ownerId": "pod-1", "ttlMillis": 90_000 }).to_string();
    let renewed = client.call("POST", "/v1/locks/orders/renew", body.as_bytes()).await.ok();
    assert_eq!(names(&renewed), ["expiresAt", "fencingToken", "lockKey"]);
    assert_eq!(renewed["fencingToken"], grant["fencingToken"]);
    assert!(renewed["expiresAt"].as_u64() > grant["expiresAt"].as_u64());

    let shown = client.call("GET", "/v1/locks/orders", b"").await;
    let status = shown.ok();
    assert_eq!(status["locked"], true);
    assert_eq!(status["ownerId"], "pod-1");
    assert_eq!(status["metadata"], json!({ "why": "migration" }));
    assert_eq!(status["queueLength"], 0);
    for field in ["expiresAt", "fencingToken", "acquiredAt", "updatedAt", "ttlMillis", "reentrancyCount"] {
        assert!(status[field].is_u64(), "{field} in {status}");
    }
    let token = grant["lockToken"].as_str().unwrap();
    assert!(!shown.text.contains(token), "a status never shows the token");

    let body = json!({ "lockToken": token, "ownerId": "pod-1" }).to_string();
    for _ in 0..2 {
        let released = client.call("POST", "/v1/locks/orders/release", body.as_bytes()).await.ok();
        assert_eq!(released, json!({ "status": "RELEASED", "lockKey": "orders" }));
    }
    let free = client.call("GET", "/v1/locks/orders", b"").await;
    assert_eq!((free.status, free.json()), (404, json!({ "locked": false })));
}

/// A run of generated requests found that the largest double, written as a whole number, was refused as out of range.
#[tokio::test(flavor = "multi_thread")]
async fn numbers_in_metadata_come_back_as_they_were_put_up_to_the_largest_double() {
    let baton = Baton::start().await;
    let mut client = baton.client().await;
    for (key, number) in [("large", f64::MAX), ("small", 5e-324), ("uneven", 2.225_073_858_507_201e-308)] {
        let body = format!(r#"{{"ownerId":"a","ttlMillis":60000,"metadata":{{"n":{number}}}}}"#);
        client.call("POST", &format!("/v1/locks/{key}/acquire"), body.as_bytes()).await.ok();
        let status = client.call("GET", &format!("/v1/locks/{key}"), b"").await.ok();
        assert_eq!(status["metadata"]["n"].as_f64(), Some(number), "{key}");
    }
    let body = br#"{"ownerId":"a","ttlMillis":60000,"metadata":{"n":1e400}}"#;
    let refused = client.call("POST", "/v1/locks/huge/acquire", body).await;
    assert_eq!((refused.status, &refused.json()["field"]), (400, &json!("metadata.n")));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_is_one_percent_encoded_segment_in_its_namespace() {
    let baton = Baton::start().await;
    let body = json!({ "ownerId": "a", "ttlMillis": 60_000 });
    let mut tokens = Vec::new();
    for path in [
        "/v1/locks/a%2Fb/acquire",
        "/v1/locks/a%252Fb/acquire",
        "/v1/locks/watch/acquire",
        "/v1/locks/a%2Fb/acquire?namespace=other",
        "/v1/locks/a+b/acquire?namespace=x%20y",
    ] {
        tokens.push(baton.post(path, body.clone()).await.ok()["fencingToken"].as_u64().unwrap());
    }
    assert!(tokens.is_sorted());
    assert_eq!(baton.get("/v1/locks/a%2Fb").await.ok()["lockKey"], "a/b");
    assert_eq!(baton.get("/v1/locks/a%252Fb?namespace=default").await.ok()["lockKey"], "a%2Fb");
    assert_eq!(baton.get("/v1/locks/watch").await.ok()["lockKey"], "watch");
    assert_eq!(baton.get("/v1/locks/a%2Fb?namespace=other").await.ok()["fencingToken"], tokens[3]);
    assert_eq!(baton.get("/v1/locks/a%2Bb?namespace=x+y").await.ok()["lockKey"], "a+b");
    assert_eq!(baton.get("/v1/locks/a+b").await.status, 404);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_forced_release_says_what_it_breaks_and_stays_in_the_history() {
    let baton = Baton::start().await;
    let grant = baton.acquire("stuck", "pod-1").await;
    let forced = baton.post("/v1/locks/stuck/force-release", json!({ "reason": "pod is gone" })).await.ok();
    assert_eq!(forced["status"], "FORCE_RELEASED");
    assert_eq!(forced["previousOwner"], "pod-1");
    assert_eq!(forced["fencingToken"], grant["fencingToken"]);
    assert!(forced["warning"].as_str().is_some_and(|warning| warning.contains("fencing")));

    let body = json!({ "lockToken": grant["lockToken"], "ownerId": "pod-1", "ttlMillis": 1000 });
    assert_eq!(baton.post("/v1/locks/stuck/renew", body).await.code(409), "LOCK_EXPIRED");

    let history = baton.get("/v1/locks/stuck/history").await;
    let events = history.ok()["events"].clone();
    assert_eq!((&events[0]["event"], &events[0]["reason"]), (&json!("forced"), &json!("pod is gone")));
    assert_eq!((&events[1]["event"], &events[1]["ownerId"]), (&json!("granted"), &json!("pod-1")));
    assert!(!history.text.contains(grant["lockToken"].as_str().unwrap()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reentrant_lock_takes_as_many_releases_each_with_its_requestid() {
    let baton = Baton::start().await;
    let acquire =
        |id: &str| json!({ "ownerId": "a", "ttlMillis": 60_000, "reentrant": true, "requestId": id });
    let first = baton.post("/v1/locks/k/acquire", acquire("r1")).await.ok();
    let second = baton.post("/v1/locks/k/acquire", acquire("r2")).await.ok();
    assert_eq!(second["lockToken"], first["lockToken"]);
    assert_eq!(second["reentrancyCount"], 2);
    assert_eq!(baton.release(&first).await.field(), "requestId");
    let release = |id: &str| json!({ "ownerId": "a", "lockToken": first["lockToken"], "requestId": id });
    for id in ["x1", "x1"] {
        baton.post("/v1/locks/k/release", release(id)).await.ok();
        assert_eq!(baton.get("/v1/locks/k").await.ok()["reentrancyCount"], 1);
    }
    baton.post("/v1/locks/k/release", release("x2")).await.ok();
    assert_eq!(baton.get("/v1/locks/k").await.status, 404);
}
