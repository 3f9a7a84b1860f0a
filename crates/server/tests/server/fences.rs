//! The fence registry (F3, F5, F7).

use crate::client::Answer;
use crate::harness::Baton;
use serde_json::{Value, json};
use std::sync::Arc;

async fn check(baton: &Baton, resource: &str, token: u64) -> Answer {
    baton.post(&format!("/v1/fences/{resource}/check"), json!({ "token": token })).await
}

async fn stale(baton: &Baton, resource: &str, body: Value) -> u64 {
    let refused = baton.post(&format!("/v1/fences/{resource}/check"), body).await;
    assert_eq!(refused.code(409), "STALE_TOKEN");
    refused.json()["highest"].as_u64().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn lower_tokens_are_stale_and_equal_ones_are_not() {
    let baton = Baton::start().await;
    assert_eq!(baton.get("/v1/fences/r").await.code(404), "FENCE_NOT_FOUND");
    let accepted = json!({ "resource": "r", "accepted": true, "highest": 34 });
    assert_eq!(check(&baton, "r", 34).await.ok(), accepted);
    assert_eq!(check(&baton, "r", 34).await.ok(), accepted, "a holder writes many times");
    check(&baton, "r", 35).await.ok();
    assert_eq!(stale(&baton, "r", json!({ "token": 34 })).await, 35);
    assert_eq!(stale(&baton, "r", json!({ "token": 35, "strict": true })).await, 35);
    baton.post("/v1/fences/r/check", json!({ "token": 36, "strict": true })).await.ok();
    check(&baton, "other", 1).await.ok();
    baton.post("/v1/fences/r/check?namespace=n", json!({ "token": 1 })).await.ok();
    check(&baton, "r", (1 << 53) - 1).await.ok();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repeated_strict_check_is_accepted_again_and_another_s_is_not() {
    let baton = Baton::start().await;
    let body = json!({ "token": 34, "strict": true, "requestId": "mine" });
    for _ in 0..2 {
        baton.post("/v1/fences/r/check", body.clone()).await.ok();
    }
    assert_eq!(stale(&baton, "r", json!({ "token": 34, "strict": true, "requestId": "yours" })).await, 34);
    assert_eq!(stale(&baton, "r", json!({ "token": 34, "strict": true })).await, 34);
}

#[tokio::test(flavor = "multi_thread")]
async fn racing_checks_leave_the_highest_and_none_below_it_is_accepted_after() {
    let baton = Arc::new(Baton::start().await);
    let racing: Vec<_> = (1..=50_u64)
        .map(|token| {
            let baton = baton.clone();
            tokio::spawn(async move { (token, check(&baton, "r", token).await.status) })
        })
        .collect();
    for check in racing {
        let (token, status) = check.await.unwrap();
        assert!(status == 200 || (status == 409 && token < 50), "{token}: {status}");
    }
    assert_eq!(baton.get("/v1/fences/r").await.ok()["highest"], 50);
    for token in [1, 49] {
        assert_eq!(stale(&baton, "r", json!({ "token": token })).await, 50);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_seen_is_known_after_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let baton = Baton::open(directory.path(), |_| {}).await;
    check(&baton, "r", 34).await.ok();
    baton.stopped().await;
    let baton = Baton::open(directory.path(), |_| {}).await;
    assert_eq!(stale(&baton, "r", json!({ "token": 33 })).await, 34);
}

#[tokio::test(flavor = "multi_thread")]
async fn checks_are_counted_for_people_and_for_metrics() {
    let baton = Baton::start().await;
    for token in [34, 34, 35] {
        check(&baton, "r", token).await.ok();
    }
    stale(&baton, "r", json!({ "token": 1 })).await;
    let fence = baton.get("/v1/fences/r").await.ok();
    let counts = (fence["highest"].as_u64(), fence["accepted"].as_u64(), fence["refused"].as_u64());
    assert_eq!(counts, (Some(35), Some(3), Some(1)));
    assert!(fence["raisedAt"].as_u64() > Some(1_600_000_000_000));
    let metrics = baton.get("/metrics").await.text;
    for line in [
        r#"baton_fence_checks_total{outcome="accepted"} 3"#,
        r#"baton_fence_checks_total{outcome="stale"} 1"#,
    ] {
        assert!(metrics.contains(line), "{line} in {metrics}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn fences_are_listed_page_by_page_and_forgotten_only_when_told() {
    let baton = Baton::start().await;
    for number in 0..7 {
        check(&baton, &format!("table:{number}"), 10 + number).await.ok();
    }
    check(&baton, "bucket", 1).await.ok();
    let mut seen = Vec::new();
    let mut path = "/v1/fences?prefix=table:&limit=3".to_owned();
    loop {
        let page = baton.get(&path).await.ok();
        let fences = page["fences"].as_array().unwrap();
        assert!(fences.len() <= 3);
        seen.extend(fences.iter().map(|fence| fence["resource"].as_str().unwrap().to_owned()));
        let Some(cursor) = page["nextCursor"].as_str() else { break };
        path = format!("/v1/fences?prefix=table:&limit=3&cursor={cursor}");
    }
    seen.sort_unstable();
    assert_eq!(seen, (0..7).map(|number| format!("table:{number}")).collect::<Vec<_>>());
    assert_eq!(baton.get("/v1/fences?cursor=nonsense").await.field(), "cursor");

    let reason = json!({ "reason": "the table is gone" });
    let forgotten = baton.post("/v1/fences/table:1/forget", reason.clone()).await.ok();
    assert_eq!((&forgotten["status"], &forgotten["highest"]), (&json!("FORGOTTEN"), &json!(11)));
    assert_eq!(baton.post("/v1/fences/table:1/forget", reason).await.code(404), "FENCE_NOT_FOUND");
    check(&baton, "table:1", 1).await.ok();
    assert_eq!(stale(&baton, "table:2", json!({ "token": 1 })).await, 12, "no other is");
}

#[tokio::test(flavor = "multi_thread")]
async fn bad_input_is_named_by_its_field() {
    let baton = Baton::start().await;
    for (body, field) in [
        (json!({}), "token"),
        (json!({ "token": 0 }), "token"),
        (json!({ "token": 1_u64 << 53 }), "token"),
        (json!({ "token": -1 }), "token"),
        (json!({ "token": "34" }), "token"),
        (json!({ "token": 1, "strict": 1 }), "strict"),
        (json!({ "token": 1, "requestId": "" }), "requestId"),
        (json!({ "token": 1, "more": 1 }), "more"),
    ] {
        assert_eq!(baton.post("/v1/fences/r/check", body.clone()).await.field(), field, "{body}");
    }
    for body in [json!({}), json!({ "reason": " " }), json!({ "reason": "a\nb" })] {
        assert_eq!(baton.post("/v1/fences/r/forget", body).await.field(), "reason");
    }
    assert_eq!(check(&baton, "%2e%2e", 1).await.field(), "resource");
    assert_eq!(baton.get("/v1/fences").await.ok()["fences"], json!([]), "nothing was changed");
}
