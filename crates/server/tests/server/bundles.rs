//! Several locks at once over HTTP (L16).

use crate::harness::Baton;
use baton_store::embedded::{Embedded, Options};
use baton_testkit::faulty::{Fault, Faulty};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

const PATH: &str = "/v1/locks:acquireAll";

fn body(owner: &str, keys: &[&str]) -> Value {
    json!({ "lockKeys": keys, "ownerId": owner, "ttlMillis": 60_000 })
}

fn with(mut body: Value, more: Value) -> Value {
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    body
}

async fn is_free(baton: &Baton, key: &str) -> bool {
    baton.get(&format!("/v1/locks/{key}")).await.status == 404
}

#[tokio::test(flavor = "multi_thread")]
async fn all_are_granted_in_the_order_asked_for_and_released_one_by_one() {
    let baton = Baton::start().await;
    let request = with(body("x", &["b", "a"]), json!({ "requestId": "r", "metadata": { "why": "move" } }));
    let granted = baton.post(PATH, request.clone()).await.ok();
    let grants = granted["grants"].as_array().unwrap();
    assert_eq!(grants.iter().map(|grant| &grant["lockKey"]).collect::<Vec<_>>(), ["b", "a"]);
    for grant in grants {
        assert_eq!((&grant["ownerId"], &grant["ttlMillis"]), (&json!("x"), &json!(60_000)));
        let path = format!("/v1/locks/{}", grant["lockKey"].as_str().unwrap());
        let status = baton.get(&path).await.ok();
        assert_eq!(
            (&status["fencingToken"], &status["metadata"]["why"]),
            (&grant["fencingToken"], &json!("move"))
        );
        let renew = json!({ "lockToken": grant["lockToken"], "ownerId": "x", "ttlMillis": 90_000 });
        baton.post(&format!("{path}/renew"), renew).await.ok();
    }
    let again = baton.post(PATH, request.clone()).await.ok();
    assert_eq!(again["grants"][0]["lockToken"], grants[0]["lockToken"]);
    baton.release(&grants[0]).await.ok();
    let over = baton.post(PATH, request).await;
    assert_eq!((over.code(409).as_str(), &over.json()["lockKey"]), ("ALREADY_RELEASED", &json!("b")));
    baton.release(&grants[1]).await.ok();
    assert!(is_free(&baton, "a").await && is_free(&baton, "b").await);
}

#[tokio::test(flavor = "multi_thread")]
async fn refusals_say_because_of_which_lock_and_leave_nothing() {
    let baton = Baton::with(|config| config.engine.queue_max = 1).await;
    let held = baton.acquire("b", "other").await;
    let refused = baton.post(PATH, body("x", &["a", "b"])).await;
    assert_eq!(refused.code(409), "LOCK_ALREADY_HELD");
    let said = refused.json();
    assert_eq!((&said["lockKey"], &said["currentOwner"]), (&json!("b"), &json!("other")));
    assert!(refused.header("retry-after").is_some() && is_free(&baton, "a").await);

    let waiting = json!({ "wait": true, "waitTimeoutMillis": 30 });
    let refused = baton.post(PATH, with(body("x", &["a", "b"]), waiting.clone())).await;
    assert_eq!((refused.code(409).as_str(), &refused.json()["lockKey"]), ("WAIT_TIMEOUT", &json!("b")));

    let _waiter = baton.waiter("b", "w", None).await;
    let refused = baton.post(PATH, with(body("x", &["a", "b"]), waiting)).await;
    assert_eq!((refused.code(503).as_str(), &refused.json()["lockKey"]), ("QUEUE_FULL", &json!("b")));

    let permit = json!({ "ownerId": "p", "ttlMillis": 60_000, "mode": "semaphore", "permits": 2 });
    baton.post("/v1/locks/pool/acquire", permit).await.ok();
    let refused = baton.post(PATH, body("x", &["a", "pool"])).await;
    assert_eq!((refused.code(409).as_str(), &refused.json()["lockKey"]), ("MODE_MISMATCH", &json!("pool")));

    let delayed = json!({ "ownerId": "d", "ttlMillis": 100, "lockDelayMillis": 60_000 });
    baton.post("/v1/locks/closed/acquire", delayed).await.ok();
    baton.until(async || is_free(&baton, "closed").await).await;
    let refused = baton.post(PATH, body("x", &["a", "closed"])).await;
    assert_eq!((refused.code(409).as_str(), &refused.json()["lockKey"]), ("LOCK_DELAYED", &json!("closed")));
    assert!(is_free(&baton, "a").await);
    baton.release(&held).await.ok();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_requestid_is_for_the_same_locks_only() {
    let baton = Baton::start().await;
    let id = json!({ "requestId": "r" });
    baton.post(PATH, with(body("x", &["a", "b"]), id.clone())).await.ok();
    let reused = baton.post(PATH, with(body("x", &["a", "c"]), id.clone())).await;
    assert_eq!(
        (reused.code(422).as_str(), &reused.json()["field"]),
        ("REQUEST_ID_REUSED", &json!("requestId"))
    );
    let elsewhere =
        baton.post(&format!("{PATH}?namespace=other"), with(body("x", &["a", "c"]), id)).await.ok();
    assert_eq!(elsewhere["grants"].as_array().unwrap().len(), 2);
    let alone = json!({ "ownerId": "x", "ttlMillis": 60_000, "requestId": "r" });
    assert_eq!(baton.post("/v1/locks/a/acquire", alone.clone()).await.code(409), "LOCK_ALREADY_HELD");
    baton.post("/v1/locks/d/acquire", alone).await.ok();
}

#[tokio::test(flavor = "multi_thread")]
async fn bad_input_is_named_by_its_field() {
    let baton = Baton::start().await;
    let many: Vec<_> = (0..17).map(|number| number.to_string()).collect();
    for (change, field) in [
        (json!({ "lockKeys": [] }), "lockKeys"),
        (json!({ "lockKeys": many }), "lockKeys"),
        (json!({ "lockKeys": ["a", "b", "a"] }), "lockKeys[2]"),
        (json!({ "lockKeys": ["a", ".."] }), "lockKeys[1]"),
        (json!({ "lockKeys": ["a", "\u{7}"] }), "lockKeys[1]"),
        (json!({ "lockKeys": ["a", 1] }), "lockKeys[1]"),
        (json!({ "lockKeys": "a" }), "lockKeys"),
        (json!({ "lockKeys": null }), "lockKeys"),
        (json!({ "ttlMillis": 99 }), "ttlMillis"),
        (json!({ "ownerId": "" }), "ownerId"),
        (json!({ "waitTimeoutMillis": 600_001 }), "waitTimeoutMillis"),
        (json!({ "requestId": "" }), "requestId"),
        (json!({ "metadata": { "x": "y".repeat(4096) } }), "metadata"),
        (json!({ "lockDelayMillis": 3_600_001 }), "lockDelayMillis"),
        (json!({ "mode": "shared" }), "mode"),
        (json!({ "permits": 2 }), "permits"),
        (json!({ "reentrant": true }), "reentrant"),
    ] {
        assert_eq!(
            baton.post(PATH, with(body("x", &["a"]), change.clone())).await.field(),
            field,
            "{change}"
        );
    }
    assert_eq!(baton.post(PATH, json!({ "ownerId": "x", "ttlMillis": 1000 })).await.field(), "lockKeys");
    assert_eq!(baton.post(&format!("{PATH}?namespace="), body("x", &["a"])).await.field(), "namespace");
    assert_eq!(baton.post(&format!("{PATH}?prefix=a"), body("x", &["a"])).await.field(), "prefix");
    assert_eq!(baton.get("/v1/locks").await.ok()["locks"], json!([]), "nothing was changed");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_waiter_gets_all_when_the_last_is_free_and_one_that_disconnects_leaves_nothing() {
    let baton = Baton::start().await;
    let held = baton.acquire("b", "other").await;
    let request = with(body("x", &["a", "b"]), json!({ "wait": true })).to_string();
    let mut gone = baton.client().await;
    gone.request("POST", PATH, request.as_bytes()).await;
    baton.until(async || baton.queue("b").await == ["x"]).await;
    assert!(is_free(&baton, "a").await, "nothing is held while it waits");
    drop(gone);
    baton.until(async || baton.queue("b").await.is_empty()).await;
    let mut waiter = baton.client().await;
    waiter.request("POST", PATH, request.as_bytes()).await;
    baton.until(async || baton.queue("b").await == ["x"]).await;
    baton.release(&held).await.ok();
    let granted = waiter.answer("POST").await.unwrap().ok();
    for grant in granted["grants"].as_array().unwrap() {
        baton.release(grant).await.ok();
    }
    assert!(is_free(&baton, "a").await && is_free(&baton, "b").await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_waited_long_enough_is_told_to_call_again_and_its_place_is_kept() {
    let baton = Baton::with(|config| config.engine.call_max = Duration::from_millis(50)).await;
    let held = baton.acquire("b", "other").await;
    let request = with(body("x", &["a", "b"]), json!({ "wait": true }));
    let told = baton.post(PATH, request.clone()).await;
    assert_eq!((told.code(409).as_str(), &told.json()["lockKey"]), ("STILL_WAITING", &json!("b")));
    let request = with(request, json!({ "requestId": told.json()["requestId"] }));
    let told = baton.post(PATH, request.clone()).await;
    assert_eq!(told.code(409), "STILL_WAITING");
    assert_eq!((baton.queue("b").await, is_free(&baton, "a").await), (vec!["x".to_owned()], true));
    baton.release(&held).await.ok();
    assert_eq!(baton.post(PATH, request).await.ok()["grants"].as_array().unwrap().len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_fails_grants_nothing_and_the_same_call_is_answered_when_it_is_well() {
    for fault in [Fault::Unavailable, Fault::Lost, Fault::AnswerLost] {
        let directory = tempfile::tempdir().unwrap();
        let store = Faulty::new(Arc::new(Embedded::open(directory.path(), Options::default()).unwrap()));
        let deadline = Duration::from_millis(200);
        let handle = Arc::new(store.clone());
        let baton = Baton::on(handle, |config| config.engine.store_deadline = deadline).await;
        let request = with(body("x", &["a", "b"]), json!({ "requestId": "r" }));
        store.set(fault);
        let failed = baton.post(PATH, request.clone()).await;
        assert_eq!(failed.code(503), "STORE_UNAVAILABLE", "{fault:?}");
        store.set(Fault::None);
        let granted = baton.post(PATH, request.clone()).await.ok();
        for grant in granted["grants"].as_array().unwrap() {
            baton.release(grant).await.ok();
        }
        assert!(is_free(&baton, "a").await && is_free(&baton, "b").await, "{fault:?}");
    }
}
