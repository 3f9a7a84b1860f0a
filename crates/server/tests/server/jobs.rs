//! Jobs from outside (J1, J9, J10): what is put is shown, what is asked for is done, what is wrong is named.

use crate::client::Answer;
use crate::harness::Baton;
use serde_json::{Value, json};

/// Nobody takes its runs unless a test does.
fn job() -> Value {
    json!({ "target": { "worker": { "queue": "q", "payload": "p" } } })
}

async fn send(baton: &Baton, method: &str, path: &str, body: Value) -> Answer {
    let body = if body.is_null() { String::new() } else { body.to_string() };
    baton.client().await.call(method, path, body.as_bytes()).await
}

async fn put(baton: &Baton, name: &str, body: Value) -> Value {
    send(baton, "PUT", &format!("/v1/jobs/{name}"), body).await.ok()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_is_put_shown_changed_listed_and_removed() {
    let baton = Baton::start().await;
    let mut body = job();
    body["schedule"] = json!("30 2 * * *");
    body["timeZone"] = json!("europe/berlin");
    let made = put(&baton, "a%2Fb", body.clone()).await;
    assert_eq!((&made["status"], &made["name"]), (&json!("MADE"), &json!("a/b")));
    assert_eq!(made["definition"]["timeZone"], "Europe/Berlin");
    assert!(made["nextAt"].as_u64().unwrap() > made["changedAt"].as_u64().unwrap());
    assert_eq!(put(&baton, "a%2Fb", body.clone()).await["status"], "UNCHANGED");
    body["overlap"] = json!("allow");
    let changed = put(&baton, "a%2Fb", body).await;
    assert_eq!((&changed["status"], &changed["uid"]), (&json!("CHANGED"), &made["uid"]));
    assert!(changed["version"].as_u64() > made["version"].as_u64());
    put(&baton, "c", job()).await;
    let first = baton.get("/v1/jobs?limit=1").await.ok();
    let cursor = first["nextCursor"].as_str().unwrap();
    let second = baton.get(&format!("/v1/jobs?limit=5&cursor={}", cursor.replace('/', "%2F"))).await.ok();
    let names = |list: &Value| -> Vec<String> {
        list["jobs"].as_array().unwrap().iter().map(|job| job["name"].as_str().unwrap().into()).collect()
    };
    let mut all = [names(&first), names(&second)].concat();
    all.sort();
    assert_eq!(all, ["a/b", "c"]);
    assert_eq!(send(&baton, "DELETE", "/v1/jobs/a%2Fb", Value::Null).await.ok()["status"], "REMOVED");
    assert_eq!(baton.get("/v1/jobs/a%2Fb").await.code(404), "JOB_NOT_FOUND");
    assert_eq!(send(&baton, "DELETE", "/v1/jobs/a%2Fb", Value::Null).await.code(404), "JOB_NOT_FOUND");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_is_asked_for_once_shown_and_called_off() {
    let baton = Baton::start().await;
    put(&baton, "j", job()).await;
    let ask = async || baton.post("/v1/jobs/j/run", json!({ "requestId": "r" })).await.ok()["runId"].clone();
    let run = ask().await;
    assert_eq!(ask().await, run);
    let path = format!("/v1/runs/{}", run.as_str().unwrap());
    let mut shown = baton.get(&path).await.ok();
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(20);
    while shown["state"] != "ready" {
        assert!(std::time::Instant::now() < deadline, "no worker may take it: {shown}");
        shown = baton.get(&path).await.ok();
    }
    assert_eq!((&shown["job"], &shown["trigger"]), (&json!("j"), &json!("manual")));
    assert_eq!(baton.get("/v1/jobs/j").await.ok()["active"], 1);
    let cancelled = baton.post(&format!("{path}/cancel"), json!({})).await.ok();
    assert_eq!((&cancelled["outcome"], &cancelled["reason"]), (&json!("cancelled"), &json!("requested")));
    baton.post(&format!("{path}/cancel"), json!({})).await.ok();
    let runs = baton.get("/v1/jobs/j/runs").await.ok();
    assert_eq!(runs["runs"].as_array().unwrap().len(), 1);
    assert_eq!(runs["runs"][0]["runId"], run);
    assert_eq!(baton.get("/v1/runs/none").await.code(404), "RUN_NOT_FOUND");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_is_paused_and_resumed_and_its_past_is_backfilled() {
    let baton = Baton::start().await;
    let mut body = job();
    body["schedule"] = json!("0 0 * * *");
    put(&baton, "j", body).await;
    let paused = baton.post("/v1/jobs/j/pause", json!({})).await.ok();
    assert!(paused["pausedAt"].is_u64() && paused["nextAt"].is_null(), "{paused}");
    let resumed = baton.post("/v1/jobs/j/resume", json!({ "missed": "skip" })).await.ok();
    assert!(resumed["pausedAt"].is_null() && resumed["nextAt"].is_u64(), "{resumed}");
    let day = 24 * 60 * 60 * 1000;
    let from = 1_700_006_400_000_u64 / day * day;
    let range = |days: u64| json!({ "from": from, "to": from + days * day });
    let backfilled = baton.post("/v1/jobs/j/backfill", range(3)).await.ok();
    assert_eq!(backfilled["times"], 3, "from its first moment up to, but without, its last");
    assert_eq!(baton.post("/v1/jobs/j/backfill", range(2_000)).await.field(), "to");
    assert_eq!(baton.post("/v1/jobs/j/backfill", json!({ "from": 2, "to": 1 })).await.field(), "to");
    assert_eq!(baton.post("/v1/jobs/none/pause", json!({})).await.code(404), "JOB_NOT_FOUND");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_wrong_with_a_job_is_named() {
    let baton = Baton::start().await;
    for (field, change) in [
        ("schedule", json!({ "schedule": "61 * * * *" })),
        ("timeZone", json!({ "timeZone": "Europe/Atlantis" })),
        ("timeoutMillis", json!({ "timeoutMillis": 1 })),
        ("overlap", json!({ "overlap": "perhaps" })),
        ("color", json!({ "color": "red" })),
        ("target.http.url", json!({ "target": { "http": { "url": "file:///etc/passwd" } } })),
    ] {
        let mut body = job();
        body.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
        assert_eq!(send(&baton, "PUT", "/v1/jobs/j", body).await.field(), field, "{change}");
    }
    let mut body = job();
    body["schedule"] = json!("0 61 * * *");
    let refused = send(&baton, "PUT", "/v1/jobs/j", body).await;
    assert_eq!(refused.json()["position"], json!({ "start": 2, "end": 4 }), "where in the text");
    assert_eq!(baton.get("/v1/jobs/j").await.code(404), "JOB_NOT_FOUND");
}
