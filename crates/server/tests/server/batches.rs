//! Several calls in one request.

use crate::harness::Baton;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Duration;

fn acquire(id: u32, key: &str) -> Value {
    json!({ "id": id, "lockKey": key, "call": { "acquire": { "ownerId": "a", "ttlMillis": 60_000 } } })
}

fn answers(text: &str) -> BTreeMap<u64, Value> {
    let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    lines.map(|line| (line["id"].as_u64().unwrap(), line["answer"].clone())).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn every_call_of_a_batch_is_answered_by_itself() {
    let baton = Baton::start().await;
    let held = baton.acquire("held", "other").await;
    let mut calls: Vec<_> = (0..200).map(|id| acquire(id, &format!("k/{id}"))).collect();
    calls.push(acquire(1000, "held"));
    calls.push(acquire(1001, ".."));
    calls.push(
        json!({ "id": 1002, "lockKey": "k", "call": { "acquire": { "ownerId": "", "ttlMillis": 1000 } } }),
    );
    calls.push(json!({ "id": 1003, "lockKey": "held", "call":
        { "renew": { "ownerId": "other", "lockToken": held["lockToken"], "ttlMillis": 70_000 } } }));
    calls.push(json!({ "id": 1004, "namespace": "\n", "lockKey": "k", "call":
        { "release": { "ownerId": "other", "lockToken": "x" } } }));
    calls.push(json!({ "id": 4_294_967_295_u32, "namespace": "n", "lockKey": "k", "call":
        { "release": { "ownerId": "other", "lockToken": "x" } } }));
    let answer = baton.post("/v1/batch", json!({ "calls": calls })).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    assert_eq!(answer.header("content-type"), Some("application/x-ndjson"));
    let answers = answers(&answer.text);
    assert_eq!(answers.len(), calls.len());
    for id in 0..200 {
        assert_eq!(answers[&id]["acquire"]["lockKey"], format!("k/{id}"));
    }
    assert_eq!(answers[&1000]["error"]["error"], "LOCK_ALREADY_HELD");
    assert_eq!(answers[&1001]["error"]["field"], "lockKey");
    assert_eq!(answers[&1002]["error"]["field"], "ownerId");
    assert_eq!(answers[&1003]["renew"]["fencingToken"], held["fencingToken"]);
    assert_eq!(answers[&1004]["error"]["field"], "namespace");
    assert_eq!(answers[&4_294_967_295]["error"]["error"], "LOCK_NOT_FOUND");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_completes_is_sent_while_others_still_wait_and_closing_takes_those_away() {
    let baton = Baton::start().await;
    baton.acquire("held", "other").await;
    let mut waiting = acquire(1, "held");
    waiting["call"]["acquire"]["wait"] = true.into();
    let mut client = baton.client().await;
    let body = json!({ "calls": [waiting, acquire(2, "free")] }).to_string();
    client.request("POST", "/v1/batch", body.as_bytes()).await;
    client.head().await.unwrap();
    let first = answers(&client.chunk().await.unwrap());
    assert_eq!(first[&2]["acquire"]["lockKey"], "free");
    baton.until(async || baton.queue("held").await == ["a"]).await;
    drop(client);
    baton.until(async || baton.queue("held").await.is_empty()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_that_cannot_be_read_is_refused_whole() {
    let baton = Baton::start().await;
    let many: Vec<_> = (0..257).map(|id| acquire(id, "k")).collect();
    let mut wrong = acquire(2, "k");
    wrong["call"]["acquire"]["ttlMillis"] = "soon".into();
    for (body, field) in [
        (json!({}), "calls"),
        (json!({ "calls": [] }), "calls"),
        (json!({ "calls": many }), "calls"),
        (json!({ "calls": [acquire(1, "k"), wrong] }), "calls[1].call.acquire.ttlMillis"),
        (json!({ "calls": [acquire(1, "k")], "more": 1 }), "more"),
    ] {
        assert_eq!(baton.post("/v1/batch", body).await.field(), field);
    }
    // A client that only starts to send its body when the server could have answered and gone gets to see why.
    let long = vec![b' '; 1024 * 1024 + 1];
    let mut client = baton.client().await;
    let head = format!("POST /v1/batch HTTP/1.1\r\nhost: test\r\ncontent-length: {}\r\n\r\n", long.len());
    client.send(head.as_bytes()).await.unwrap();
    tokio::time::sleep(Duration::from_millis(50)).await;
    client.send(&long).await.unwrap();
    assert_eq!(client.answer("POST").await.unwrap().field(), "body");
    assert_eq!(
        baton.post("/v1/batch?namespace=a", json!({ "calls": [acquire(1, "k")] })).await.field(),
        "namespace"
    );
    assert_eq!(baton.get("/v1/locks").await.ok()["locks"], json!([]), "nothing was changed");
}
