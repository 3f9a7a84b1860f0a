//! The contract's table, row by row: what is refused, and with which code.

use crate::harness::Baton;
use serde_json::{Value, json};

fn acquire(owner: &str) -> Value {
    json!({ "ownerId": owner, "ttlMillis": 60_000 })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_held_lock_is_refused_with_its_owner_and_its_end() {
    let baton = Baton::start().await;
    baton.acquire("k", "a").await;
    let refused = baton.post("/v1/locks/k/acquire", acquire("b")).await;
    assert_eq!(refused.code(409), "LOCK_ALREADY_HELD");
    let body = refused.json();
    assert_eq!((&body["currentOwner"], &body["queueLength"]), (&json!("a"), &json!(0)));
    let millis = body["retryAfterMillis"].as_u64().unwrap();
    assert!((50_000..=60_000).contains(&millis), "{millis}");
    assert_eq!(refused.header("retry-after"), Some(millis.div_ceil(1000).to_string().as_str()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wait_that_runs_out_leaves_the_queue() {
    let baton = Baton::start().await;
    baton.acquire("k", "a").await;
    let body = json!({ "ownerId": "b", "ttlMillis": 1000, "wait": true, "waitTimeoutMillis": 50 });
    let refused = baton.post("/v1/locks/k/acquire", body).await;
    assert_eq!(refused.code(409), "WAIT_TIMEOUT");
    assert_eq!(refused.json()["currentOwner"], "a");
    assert!(baton.queue("k").await.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_waited_long_enough_is_told_to_call_again() {
    let baton = Baton::with(|config| config.engine.call_max = std::time::Duration::from_millis(50)).await;
    baton.acquire("k", "a").await;
    let body = json!({ "ownerId": "b", "ttlMillis": 1000, "wait": true });
    let refused = baton.post("/v1/locks/k/acquire", body).await;
    assert_eq!(refused.code(409), "STILL_WAITING");
    assert!(refused.header("retry-after").is_none(), "its place doesn't last as long as the lease may");
    let id = refused.json()["requestId"].as_str().unwrap().to_owned();
    let body = json!({ "ownerId": "b", "ttlMillis": 1000, "wait": true, "requestId": id });
    let refused = baton.post("/v1/locks/k/acquire", body).await;
    assert_eq!(refused.code(409), "STILL_WAITING");
    assert_eq!(refused.json()["requestId"], id);
    assert_eq!(baton.queue("k").await, ["b"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn tokens_that_are_not_the_holders_are_told_apart() {
    let baton = Baton::start().await;
    let grant = baton.acquire("k", "a").await;
    let other = baton.acquire("other", "a").await;
    let with = |token: &Value, owner: &str| json!({ "lockToken": token, "ownerId": owner });
    let renew =
        |token: &Value, owner: &str| json!({ "lockToken": token, "ownerId": owner, "ttlMillis": 1000 });
    for (token, owner) in [(&json!("made up"), "a"), (&grant["lockToken"], "b"), (&other["lockToken"], "a")] {
        assert_eq!(baton.post("/v1/locks/k/release", with(token, owner)).await.code(403), "NOT_LOCK_OWNER");
        assert_eq!(baton.post("/v1/locks/k/renew", renew(token, owner)).await.code(403), "NOT_LOCK_OWNER");
        assert_eq!(
            baton.post("/v1/locks/free/release", with(token, owner)).await.code(404),
            "LOCK_NOT_FOUND"
        );
        assert_eq!(baton.post("/v1/locks/free/renew", renew(token, owner)).await.code(404), "LOCK_NOT_FOUND");
    }
    let forced = baton.post("/v1/locks/free/force-release", json!({ "reason": "why not" })).await;
    assert_eq!(forced.code(404), "LOCK_NOT_FOUND");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_expired_lease_is_suspect_whoever_holds_the_lock_now() {
    let baton = Baton::start().await;
    let body = json!({ "ownerId": "a", "ttlMillis": 100, "requestId": "r" });
    let grant = baton.post("/v1/locks/k/acquire", body.clone()).await.ok();
    baton.until(async || baton.get("/v1/locks/k").await.status == 404).await;
    let release = json!({ "ownerId": "a", "lockToken": grant["lockToken"] });
    let renew = json!({ "ownerId": "a", "lockToken": grant["lockToken"], "ttlMillis": 1000 });
    assert_eq!(baton.post("/v1/locks/k/release", release.clone()).await.code(409), "LOCK_EXPIRED");
    let next = baton.acquire("k", "b").await;
    assert!(next["fencingToken"].as_u64() > grant["fencingToken"].as_u64());
    assert_eq!(baton.post("/v1/locks/k/release", release).await.code(409), "LOCK_EXPIRED");
    assert_eq!(baton.post("/v1/locks/k/renew", renew).await.code(409), "LOCK_EXPIRED");
    assert_eq!(baton.post("/v1/locks/k/acquire", body).await.code(409), "LOCK_EXPIRED");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_requestid_is_for_one_call_only() {
    let baton = Baton::start().await;
    let body = json!({ "ownerId": "a", "ttlMillis": 60_000, "requestId": "r" });
    let grant = baton.post("/v1/locks/k/acquire", body.clone()).await.ok();
    let mut other = body.clone();
    other["ttlMillis"] = 50_000.into();
    let reused = baton.post("/v1/locks/k/acquire", other).await;
    assert_eq!(reused.code(422), "REQUEST_ID_REUSED");
    assert_eq!(reused.json()["field"], "requestId");
    baton.release(&grant).await.ok();
    assert_eq!(baton.post("/v1/locks/k/acquire", body).await.code(409), "ALREADY_RELEASED");
}

#[tokio::test(flavor = "multi_thread")]
async fn bad_input_is_named_by_its_field() {
    let baton = Baton::start().await;
    let long = |bytes: usize| "x".repeat(bytes);
    for (change, field) in [
        (json!({ "ownerId": "" }), "ownerId"),
        (json!({ "ownerId": long(257) }), "ownerId"),
        (json!({ "ownerId": "a\nb" }), "ownerId"),
        (json!({ "ownerId": null }), "ownerId"),
        (json!({ "ttlMillis": 99 }), "ttlMillis"),
        (json!({ "ttlMillis": 86_400_001 }), "ttlMillis"),
        (json!({ "ttlMillis": "1000" }), "ttlMillis"),
        (json!({ "wait": 1 }), "wait"),
        (json!({ "waitTimeoutMillis": 600_001 }), "waitTimeoutMillis"),
        (json!({ "waitTimeoutMillis": -1 }), "waitTimeoutMillis"),
        (json!({ "requestId": "" }), "requestId"),
        (json!({ "requestId": long(129) }), "requestId"),
        (json!({ "reentrant": true }), "requestId"),
        (json!({ "metadata": [] }), "metadata"),
        (json!({ "metadata": { "x": long(4096) } }), "metadata"),
        (json!({ "lockDelayMillis": 3_600_001 }), "lockDelayMillis"),
        (json!({ "lockDelayMillis": -1 }), "lockDelayMillis"),
        (json!({ "mode": "nonsense" }), "mode"),
        (json!({ "mode": "semaphore" }), "permits"),
        (json!({ "mode": "semaphore", "permits": 0 }), "permits"),
        (json!({ "mode": "semaphore", "permits": 257 }), "permits"),
        (json!({ "mode": "shared", "permits": 3 }), "permits"),
        (json!({ "permits": 3 }), "permits"),
        (json!({ "mode": "shared", "reentrant": true, "requestId": "r" }), "reentrant"),
        (json!({ "mode": "semaphore", "permits": 2, "reentrant": true, "requestId": "r" }), "reentrant"),
        (json!({ "nonsense": 0 }), "nonsense"),
    ] {
        let mut body = acquire("a");
        body.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
        assert_eq!(baton.post("/v1/locks/k/acquire", body.clone()).await.field(), field, "{body}");
    }
    let key = long(513);
    for (path, field) in [
        (format!("/v1/locks/{key}/acquire"), "lockKey"),
        ("/v1/locks/%2e%2e/acquire".into(), "lockKey"),
        ("/v1/locks/../acquire".into(), "lockKey"),
        ("/v1/locks//acquire".into(), "lockKey"),
        ("/v1/locks/a%00b/acquire".into(), "lockKey"),
        ("/v1/locks/%ff/acquire".into(), "lockKey"),
        ("/v1/locks/%/acquire".into(), "lockKey"),
        ("/v1/locks/k/acquire?namespace=".into(), "namespace"),
        (format!("/v1/locks/k/acquire?namespace={}", long(129)), "namespace"),
        ("/v1/locks/k/acquire?namespace=%0a".into(), "namespace"),
        ("/v1/locks/k/acquire?namespace=a&namespace=b".into(), "namespace"),
        ("/v1/locks/k/acquire?nonsense=1".into(), "nonsense"),
    ] {
        assert_eq!(baton.post(&path, acquire("a")).await.field(), field, "{path}");
    }
    for (body, field) in [
        (json!({ "reason": "" }), "reason"),
        (json!({ "reason": "  " }), "reason"),
        (json!({ "reason": "a\nb" }), "reason"),
        (json!({ "reason": long(1025) }), "reason"),
        (json!({}), "reason"),
        (json!({ "reason": "why", "lockDelayMillis": 3_600_001 }), "lockDelayMillis"),
        (json!({ "reason": "why", "fencingToken": "34" }), "fencingToken"),
    ] {
        assert_eq!(baton.post("/v1/locks/k/force-release", body).await.field(), field);
    }
    assert_eq!(baton.get("/v1/locks").await.ok()["locks"], json!([]), "nothing was changed");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_served_says_so() {
    let baton = Baton::start().await;
    for path in
        ["/", "/v1", "/v1/locks/", "/v1/locks/k/nonsense", "/v1/locks/k/acquire/", "/v1/locks:nonsense", "*"]
    {
        assert_eq!(baton.get(path).await.code(404), "NOT_FOUND", "{path}");
    }
    for (method, path, allow) in [
        ("DELETE", "/v1/locks/k", "GET,HEAD"),
        ("GET", "/v1/locks/k/acquire", "POST"),
        ("GET", "/v1/locks:acquireAll", "POST"),
        ("PATCH", "/v1/batch", "POST"),
        ("BREW", "/healthz", "GET,HEAD"),
    ] {
        let refused = baton.client().await.call(method, path, b"").await;
        assert_eq!(refused.code(405), "METHOD_NOT_ALLOWED", "{method} {path}");
        assert_eq!(refused.header("allow"), Some(allow), "{method} {path}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_that_is_too_long_or_too_slow_is_refused_before_it_is_read() {
    let baton = Baton::with(|config| config.body = std::time::Duration::from_millis(100)).await;
    let path = "/v1/locks/k/acquire";
    for bytes in [64 * 1024 + 1, 512 * 1024] {
        let body = vec![b' '; bytes];
        assert_eq!(baton.client().await.call("POST", path, &body).await.field(), "body");
    }
    for head in ["content-length: 99999999999", "content-length: 100"] {
        let mut client = baton.client().await;
        client.send(format!("POST {path} HTTP/1.1\r\n{head}\r\n\r\n").as_bytes()).await.unwrap();
        assert_eq!(client.answer("POST").await.unwrap().field(), "body", "{head}");
    }
    let mut client = baton.client().await;
    client
        .send(format!("POST {path} HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n").as_bytes())
        .await
        .unwrap();
    let chunk = format!("8000\r\n{}\r\n", " ".repeat(0x8000));
    for _ in 0..3 {
        client.send(chunk.as_bytes()).await.unwrap();
    }
    client.send(b"0\r\n\r\n").await.unwrap();
    assert_eq!(client.answer("POST").await.unwrap().field(), "body");
    let mut exact = acquire("a").to_string().into_bytes();
    exact.resize(64 * 1024, b' ');
    baton.client().await.call("POST", path, &exact).await.ok();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_web_page_of_another_site_changes_nothing() {
    let baton = Baton::start().await;
    let body = acquire("page").to_string();
    let length = body.len();
    for (origin, status) in [("http://elsewhere.example", 403), ("null", 403), ("http://baton.test", 200)] {
        let head = "POST /v1/locks/k/acquire HTTP/1.1\r\nhost: baton.test\r\ncontent-type: text/plain\r\n";
        let request = format!("{head}origin: {origin}\r\ncontent-length: {length}\r\n\r\n{body}");
        let mut client = baton.client().await;
        client.send(request.as_bytes()).await.unwrap();
        let answer = client.answer("POST").await.unwrap();
        if status == 403 {
            assert_eq!(answer.code(403), "FORBIDDEN", "{origin}");
            assert_eq!(baton.get("/v1/locks/k").await.json()["locked"], false);
        } else {
            assert_eq!(answer.ok()["ownerId"], "page", "{origin}");
        }
    }
}
