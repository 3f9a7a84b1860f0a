//! Gossip limits over HTTP: what goes with them and what doesn't, and what is shown of them (M5).

use crate::harness::Baton;
use serde_json::{Value, json};

const DAY_MS: u64 = 24 * 60 * 60 * 1000;

async fn put(baton: &Baton, more: Value) -> crate::client::Answer {
    let mut body = json!({ "limit": 5, "windowMillis": DAY_MS, "mechanism": "gossip" });
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    body.as_object_mut().unwrap().retain(|_, value| !value.is_null());
    baton.client().await.call("PUT", "/v1/limits/edge", body.to_string().as_bytes()).await
}

#[tokio::test(flavor = "multi_thread")]
async fn what_makes_no_sense_where_no_store_is_asked_is_refused_by_its_field() {
    let baton = Baton::start().await;
    for (more, field, word) in [
        (json!({ "algorithm": "token_bucket" }), "algorithm", "fixed_window or sliding_window"),
        (json!({ "algorithm": "sliding_log" }), "algorithm", "fixed_window or sliding_window"),
        (json!({ "algorithm": "in_flight", "windowMillis": null }), "algorithm", "sliding_window"),
        (json!({ "onFailure": "open" }), "onFailure", "asks no store"),
        (json!({ "audit": true }), "audit", "central"),
        (json!({ "leaseSize": 10 }), "leaseSize", "nothing is leased"),
        (json!({ "leaseTtlMillis": 1_000 }), "leaseTtlMillis", "nothing is leased"),
        (json!({ "reclaim": "safe" }), "reclaim", "nothing is leased"),
        (json!({ "epsilon": 0.1 }), "epsilon", "approximate"),
        (json!({ "lowWatermark": 0.1 }), "lowWatermark", "approximate"),
        (json!({ "localCap": 5 }), "localCap", "open"),
        (json!({ "burst": 5 }), "burst", "token_bucket"),
        (json!({ "hotKey": "split" }), "hotKey", "owned"),
        (json!({ "anonymousMechanism": "central" }), "anonymousMechanism", "same for all"),
        (json!({ "windowMillis": 1_000, "syncMillis": 501 }), "windowMillis", "1002"),
        (json!({ "mechanism": "leased", "syncMillis": 100 }), "syncMillis", "approximate or gossip"),
    ] {
        let refused = put(&baton, more.clone()).await;
        assert_eq!(refused.code(400), "INVALID_ARGUMENT", "{more}");
        let body = refused.json();
        assert_eq!(body["field"], field, "{more}: {body}");
        assert!(body["message"].as_str().unwrap().contains(word), "{more}: {body}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_said_is_chosen_and_what_is_shown_can_be_put_again() {
    let baton = Baton::start().await;
    for (more, algorithm) in [
        (json!({}), "sliding_window"),
        (json!({ "purpose": "abuse" }), "sliding_window"),
        (json!({ "purpose": "billing" }), "fixed_window"),
        (json!({ "windowMillis": null, "calendar": "day", "timeZone": "Europe/Berlin" }), "fixed_window"),
        (json!({ "syncMillis": 50, "hotKey": "cap", "maxKeys": 7 }), "sliding_window"),
    ] {
        let made = put(&baton, more.clone()).await.ok();
        let definition = &made["definition"];
        assert_eq!(
            (&definition["algorithm"], &definition["mechanism"]),
            (&json!(algorithm), &json!("gossip"))
        );
        assert_eq!(definition["syncMillis"], *more.get("syncMillis").unwrap_or(&json!(100)));
        let again =
            baton.client().await.call("PUT", "/v1/limits/edge", definition.to_string().as_bytes()).await;
        again.ok();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn checks_usage_receipts_and_the_bound_are_as_with_any_other() {
    let baton = Baton::start().await;
    put(&baton, json!({ "algorithm": "fixed_window" })).await.ok();
    let check = async |more: Value| baton.post("/v1/limits/edge/check", more).await;
    let first = check(json!({ "key": "k", "cost": 3, "receipt": true })).await.ok();
    assert_eq!((&first["remaining"], &first["source"]), (&json!(2), &json!("local")));
    let refused = check(json!({ "key": "k", "cost": 3 })).await;
    assert_eq!(refused.code(429), "LIMIT_EXCEEDED");
    let usage = baton.get("/v1/limits/edge/usage?key=k").await.ok();
    assert_eq!((&usage["used"], &usage["remaining"]), (&json!(3), &json!(2)));
    for _ in 0..2 {
        let back = baton
            .post("/v1/limits/edge/refund", json!({ "key": "k", "receipt": first["receipt"] }))
            .await
            .ok();
        assert_eq!(back["refunded"], 3);
    }
    let usage = baton.get("/v1/limits/edge/usage?key=k").await.ok();
    assert_eq!(usage["used"], 0);
    let bound = baton.get("/v1/limits/edge/bound?key=k").await.ok();
    let sources: Vec<_> =
        bound["items"].as_array().unwrap().iter().map(|item| item["source"].clone()).collect();
    assert_eq!(sources, ["mechanism", "algorithm", "store", "partition", "clocks"]);
    let lease = json!({ "key": "k", "nodeId": "n", "leaseId": "l", "sequence": 1, "want": 5 });
    let lent = baton.post("/v1/limits/edge/lease", lease).await.ok();
    assert_eq!((&lent["granted"], &lent["ttlMillis"]), (&json!(0), &json!(0)));
    let reserved = baton.post("/v1/limits/edge/reserve", json!({ "key": "k", "maxWaitMillis": 1 })).await;
    assert_eq!(reserved.code(409), "LIMIT_MISMATCH");
    let metrics = baton.get("/metrics").await.text;
    assert!(metrics.contains("baton_limit_gossip_waiting"), "{metrics}");
}
