//! The preview of a schedule (J11, J14).

use crate::harness::Baton;
use serde_json::json;

const PATH: &str = "/v1/jobs:preview";

#[tokio::test(flavor = "multi_thread")]
async fn the_next_times_come_with_a_reading_and_with_what_clock_changes_do() {
    let baton = Baton::start().await;
    // 2026-10-24T00:00:00Z: clocks go back in the next night.
    let body = json!({
        "schedule": "30 2 * * *", "timeZone": "Europe/Berlin", "count": 2, "from": 1_792_800_000_000_u64,
    });
    let shown = baton.post(PATH, body.clone()).await.ok();
    let expected = json!({
        "schedule": "30 2 * * *", "reading": "at 02:30 every day", "timeZone": "Europe/Berlin", "dst": "vixie",
        "neverFires": false,
        "next": [
            { "at": 1_792_801_800_000_u64, "local": "2026-10-24T02:30:00+02:00" },
            { "at": 1_792_888_200_000_u64, "local": "2026-10-25T02:30:00+02:00", "touchedBy": "repeat_skipped" },
        ],
    });
    assert_eq!(shown, expected);
    let mut literal = body;
    (literal["dst"], literal["count"]) = ("literal".into(), 3.into());
    let shown = baton.post(PATH, literal).await.ok();
    assert_eq!(
        shown["next"][2],
        json!({ "at": 1_792_891_800_000_u64, "local": "2026-10-25T02:30:00+01:00", "touchedBy": "repeated" })
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn without_more_it_is_ten_times_from_now_in_utc() {
    let baton = Baton::start().await;
    let now = baton.post("/v1/locks/k/acquire", json!({ "ownerId": "me", "ttlMillis": 60_000 })).await.ok();
    let ends_at = now["expiresAt"].as_u64().unwrap();
    let shown = baton.post(PATH, json!({ "schedule": "* * * * * *" })).await.ok();
    let next: Vec<_> =
        shown["next"].as_array().unwrap().iter().map(|time| time["at"].as_u64().unwrap()).collect();
    assert_eq!((shown["timeZone"].as_str(), next.len()), (Some("UTC"), 10));
    assert!(next.windows(2).all(|two| two[1] - two[0] == 1_000));
    assert!(next[0] > ends_at - 60_000, "the store's time: {} after {ends_at}", next[0]);
    let never = baton.post(PATH, json!({ "schedule": "0 0 30 2 *" })).await.ok();
    assert_eq!((&never["neverFires"], &never["next"]), (&json!(true), &json!([])));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_wrong_is_named_with_its_field_and_its_place() {
    let baton = Baton::start().await;
    let refused = baton.post(PATH, json!({ "schedule": "0 25 * * *" })).await;
    assert_eq!(refused.field(), "schedule");
    assert_eq!(refused.json()["position"], json!({ "start": 2, "end": 4 }));
    for (body, field) in [
        (json!({ "schedule": "" }), "schedule"),
        (json!({ "schedule": "x".repeat(257) }), "schedule"),
        (json!({ "schedule": "@daily", "timeZone": "Berlin" }), "timeZone"),
        (json!({ "schedule": "@daily", "dst": "summer" }), "dst"),
        (json!({ "schedule": "@daily", "count": 101 }), "count"),
        (json!({ "schedule": "@daily", "from": 32_503_680_000_001_u64 }), "from"),
        (json!({ "schedule": "H 0 * * *" }), "name"),
        (json!({ "schedule": "H 0 * * *", "name": ".." }), "name"),
    ] {
        assert_eq!(baton.post(PATH, body.clone()).await.field(), field, "{body}");
    }
    let named = json!({ "schedule": "H H * * *", "name": "report" });
    let one = baton.post(PATH, named.clone()).await.ok();
    assert_eq!(one["reading"], baton.post(PATH, named.clone()).await.ok()["reading"]);
    assert_ne!(one["reading"], baton.post(&format!("{PATH}?namespace=n"), named).await.ok()["reading"]);
}
