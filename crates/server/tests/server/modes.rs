//! Semaphores, read/write locks and lock-delays over HTTP (L14, L17).

use crate::harness::Baton;
use serde_json::{Value, json};

fn permit(owner: &str, permits: u64) -> Value {
    json!({ "ownerId": owner, "ttlMillis": 60_000, "mode": "semaphore", "permits": permits })
}

fn shared(owner: &str) -> Value {
    json!({ "ownerId": owner, "ttlMillis": 60_000, "mode": "shared" })
}

#[tokio::test(flavor = "multi_thread")]
async fn permits_have_slots_and_are_shown_listed_queued_and_forced() {
    let baton = Baton::start().await;
    let path = "/v1/locks/pool/acquire";
    let first = baton.post(path, permit("a", 2)).await.ok();
    let second = baton.post(path, permit("b", 2)).await.ok();
    assert_eq!(
        (&first["mode"], &first["slot"], &second["slot"]),
        (&json!("semaphore"), &json!(0), &json!(1))
    );
    assert_ne!(first["fencingToken"], second["fencingToken"]);
    let full = baton.post(path, permit("c", 2)).await;
    assert_eq!(full.code(409), "LOCK_ALREADY_HELD");
    assert_eq!(full.json()["currentOwner"], "a", "whose lease ends first");

    let status = baton.get("/v1/locks/pool").await.ok();
    assert_eq!(
        (&status["mode"], &status["permits"], &status["ownerId"]),
        (&json!("semaphore"), &json!(2), &json!("a"))
    );
    let holders: Vec<_> = status["holders"]
        .as_array()
        .unwrap()
        .iter()
        .map(|holder| {
            (holder["ownerId"].as_str().unwrap(), holder["slot"].as_u64().unwrap(), &holder["fencingToken"])
        })
        .collect();
    assert_eq!(holders, [("a", 0, &first["fencingToken"]), ("b", 1, &second["fencingToken"])]);
    let list = baton.get("/v1/locks").await.ok();
    assert_eq!((&list["locks"][0]["holders"], &list["locks"][0]["mode"]), (&json!(2), &json!("semaphore")));

    let forced = json!({ "reason": "test", "fencingToken": second["fencingToken"] });
    let forced = baton.post("/v1/locks/pool/force-release", forced).await.ok();
    assert_eq!((&forced["previousOwner"], forced["takenFrom"].as_array().unwrap().len()), (&json!("b"), 1));
    let unknown = json!({ "reason": "test", "fencingToken": 1 });
    assert_eq!(baton.post("/v1/locks/pool/force-release", unknown).await.code(404), "LOCK_NOT_FOUND");
    let third = baton.post(path, permit("c", 2)).await.ok();
    assert_eq!(third["slot"], 1);
    let all = baton.post("/v1/locks/pool/force-release", json!({ "reason": "test" })).await.ok();
    let taken: Vec<_> =
        all["takenFrom"].as_array().unwrap().iter().map(|holder| &holder["ownerId"]).collect();
    assert_eq!(taken, ["a", "c"]);
    assert_eq!(baton.release(&first).await.code(409), "LOCK_EXPIRED");
}

#[tokio::test(flavor = "multi_thread")]
async fn readers_share_and_a_writer_that_waits_is_not_overtaken() {
    let baton = Baton::start().await;
    let path = "/v1/locks/table/acquire";
    let readers = [baton.post(path, shared("r1")).await.ok(), baton.post(path, shared("r2")).await.ok()];
    assert_eq!((&readers[0]["mode"], readers[0].get("slot")), (&json!("shared"), None));
    assert_eq!(
        baton.post(path, json!({ "ownerId": "w", "ttlMillis": 1000 })).await.code(409),
        "LOCK_ALREADY_HELD"
    );
    let mut writer = baton.waiter("table", "w", None).await;
    assert_eq!(baton.post(path, shared("r3")).await.code(409), "LOCK_ALREADY_HELD");
    let queue = baton.get("/v1/locks/table/queue").await.ok();
    assert_eq!(queue["waiting"][0]["mode"], "exclusive");
    for reader in &readers {
        baton.release(reader).await.ok();
    }
    let granted = writer.answer("POST").await.unwrap().ok();
    assert!(granted["fencingToken"].as_u64() > readers[1]["fencingToken"].as_u64());
    assert!(granted.get("mode").is_none());
    assert_eq!(baton.get("/v1/locks/table").await.ok()["mode"], "exclusive");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_in_use_as_another_kind_is_refused_until_it_is_free() {
    let baton = Baton::start().await;
    let path = "/v1/locks/k/acquire";
    let held = baton.post(path, permit("a", 2)).await.ok();
    for other in [permit("b", 3), shared("b"), json!({ "ownerId": "b", "ttlMillis": 1000, "wait": true })] {
        let refused = baton.post(path, other).await;
        assert_eq!(refused.code(409), "MODE_MISMATCH");
        assert_eq!(refused.json()["field"], "mode");
    }
    baton.release(&held).await.ok();
    baton.post(path, shared("b")).await.ok();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_is_closed_for_its_delay_after_an_expiry_and_not_after_a_release() {
    let baton = Baton::start().await;
    let path = "/v1/locks/k/acquire";
    let body =
        |owner: &str, ttl: u64| json!({ "ownerId": owner, "ttlMillis": ttl, "lockDelayMillis": 60_000 });
    let held = baton.post(path, body("a", 60_000)).await.ok();
    baton.release(&held).await.ok();
    baton.post(path, body("b", 100)).await.ok();
    baton.until(async || baton.get("/v1/locks/k").await.status == 404).await;
    let refused = baton.post(path, json!({ "ownerId": "c", "ttlMillis": 1000 })).await;
    assert_eq!(refused.code(409), "LOCK_DELAYED");
    let left = refused.json()["retryAfterMillis"].as_u64().unwrap();
    assert!((30_000..=63_000).contains(&left), "{left}");
    assert!(refused.json().get("currentOwner").is_none());
    let forced = baton.post("/v1/locks/k/force-release", json!({ "reason": "open it" })).await;
    assert_eq!(forced.code(404), "LOCK_NOT_FOUND", "there is nobody to take it from");
}
