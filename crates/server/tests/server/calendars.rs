//! Calendars from outside (J13): what is put is shown, jobs go by it, and it stays while they do.

use crate::client::Answer;
use crate::harness::Baton;
use serde_json::{Value, json};

async fn send(baton: &Baton, method: &str, path: &str, body: Value) -> Answer {
    let body = if body.is_null() { String::new() } else { body.to_string() };
    baton.client().await.call(method, path, body.as_bytes()).await
}

fn job(policy: &str) -> Value {
    json!({
        "schedule": "0 0 * * *", "target": { "worker": { "queue": "q" } },
        "calendars": [{ "name": "c", "policy": policy }],
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_calendar_is_put_shown_listed_and_removed() {
    let baton = Baton::start().await;
    let days = json!([{ "day": "12-25..12-26", "note": "Christmas" }, { "day": "SAT..SUN" }]);
    let put = async |days: &Value| send(&baton, "PUT", "/v1/calendars/c", json!({ "days": days })).await;
    let made = put(&days).await.ok();
    assert_eq!((&made["status"], &made["days"], &made["jobs"]), (&json!("MADE"), &days, &json!(0)));
    assert_eq!(put(&days).await.ok()["status"], "UNCHANGED");
    assert_eq!(put(&json!([])).await.ok()["status"], "CHANGED");
    assert_eq!(baton.get("/v1/calendars/c").await.ok()["days"], json!([]));
    assert_eq!(baton.get("/v1/calendars").await.ok()["calendars"][0]["name"], "c");
    let wrong = put(&json!([{ "day": "SAT" }, { "day": "2026-02-30" }])).await;
    let body = wrong.json();
    assert_eq!((&body["field"], &body["position"]["end"]), (&json!("days[1].day"), &json!(10)));
    assert_eq!(send(&baton, "DELETE", "/v1/calendars/c", Value::Null).await.ok()["status"], "REMOVED");
    assert_eq!(send(&baton, "DELETE", "/v1/calendars/c", Value::Null).await.code(404), "CALENDAR_NOT_FOUND");
    assert_eq!(baton.get("/v1/calendars/c").await.code(404), "CALENDAR_NOT_FOUND");
}

#[tokio::test(flavor = "multi_thread")]
async fn jobs_go_by_a_calendar_as_it_is_and_it_stays_while_they_do() {
    let baton = Baton::start().await;
    let refused = send(&baton, "PUT", "/v1/jobs/j", job("exclude")).await;
    assert_eq!(refused.code(404), "CALENDAR_NOT_FOUND");
    let put = async |days: Value| send(&baton, "PUT", "/v1/calendars/c", json!({ "days": days })).await.ok();
    let week = ["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"];
    put(json!([{ "day": "SUN..SAT" }])).await;
    for name in ["j", "k"] {
        let made = send(&baton, "PUT", &format!("/v1/jobs/{name}"), job("exclude")).await.ok();
        assert_eq!(made["nextAt"], Value::Null, "no day is open: {made}");
    }
    assert_eq!(send(&baton, "DELETE", "/v1/calendars/c", Value::Null).await.code(409), "CALENDAR_IN_USE");
    // One day is open, wherever in the week it is today.
    let closed: Vec<_> = week[1..].iter().map(|day| json!({ "day": day })).collect();
    assert_eq!(put(json!(closed)).await["jobs"], 2);
    for name in ["j", "k"] {
        let next = baton.get(&format!("/v1/jobs/{name}")).await.ok()["nextAt"].as_u64().unwrap();
        assert_eq!((next / 86_400_000 + 4) % 7, 0, "a Sunday");
    }
    let request = json!({ "schedule": "0 0 * * *", "count": 7, "calendars": job("exclude")["calendars"] });
    let shown = baton.post("/v1/jobs:preview", request).await.ok();
    let excluded = shown["next"].as_array().unwrap().iter().filter(|time| time["excluded"] == true).count();
    assert_eq!(excluded, 6, "{shown}");
    for name in ["j", "k"] {
        send(&baton, "DELETE", &format!("/v1/jobs/{name}"), Value::Null).await.ok();
    }
    send(&baton, "DELETE", "/v1/calendars/c", Value::Null).await.ok();
}
