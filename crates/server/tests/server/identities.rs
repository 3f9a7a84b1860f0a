//! Whether somebody is known (M4, Identity): how much slack there is for them, and who decides.

use crate::envoy::{Envoy, described, limited};
use crate::harness::Baton;
use serde_json::{Value, json};

const DAY_MS: u64 = 24 * 60 * 60 * 1000;

async fn put(baton: &Baton, limit: &str, more: Value) -> Value {
    let mut body = json!({
        "limit": 2_000, "windowMillis": DAY_MS, "algorithm": "fixed_window", "staggered": false,
    });
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let path = format!("/v1/limits/{limit}");
    baton.client().await.call("PUT", &path, body.to_string().as_bytes()).await.ok()["definition"].clone()
}

/// Who decided it; nothing if it was refused.
async fn source(baton: &Baton, key: &str, identity: &str) -> Option<String> {
    let answer = baton.post("/v1/limits/l/check", json!({ "key": key, "identity": identity })).await;
    (answer.status == 200).then(|| answer.ok()["source"].as_str().unwrap().to_owned())
}

/// What is held of two keys.
async fn held(baton: &Baton, limit: &str) -> [u64; 2] {
    let leases = baton.get(&format!("/v1/limits/{limit}/leases")).await.ok()["leases"].clone();
    let of = |key: &str| {
        let lease = leases.as_array().unwrap().iter().find(|lease| lease["key"] == key);
        lease.unwrap_or_else(|| panic!("{key} in {leases}"))["amount"].as_u64().unwrap()
    };
    [of("stranger"), of("friend")]
}

/// So seldom told of that nothing of it goes back meanwhile.
fn approximate() -> Value {
    json!({ "mechanism": "approximate", "syncMillis": 60_000 })
}

#[tokio::test(flavor = "multi_thread")]
async fn one_of_several_checks_says_whether_it_is_of_somebody_known() {
    let baton = Baton::start().await;
    put(&baton, "l", approximate()).await;
    let checks = json!([
        { "limit": "l", "key": "stranger", "identity": "anonymous" },
        { "limit": "l", "key": "friend", "identity": "authenticated" },
    ]);
    for _ in 0..2 {
        assert_eq!(baton.post("/v1/limits:check", json!({ "checks": checks })).await.ok()["allowed"], true);
    }
    assert_eq!(held(&baton, "l").await, [20, 100], "a hundredth of the limit, and a twentieth");
    let wrong = json!([{ "limit": "l", "key": "k", "identity": "somebody" }]);
    let answer = baton.post("/v1/limits:check", json!({ "checks": wrong })).await;
    assert_eq!(answer.field(), "checks[0].identity");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_proxy_says_it_in_an_entry_that_is_in_neither_name_nor_key() {
    let baton = Baton::start().await;
    limited(&baton, "edge/who", 2_000, approximate()).await;
    let mut envoy = Envoy::of(baton.address);
    for _ in 0..2 {
        envoy
            .ask(vec![
                described(&[("who", "stranger"), ("baton_identity", "anonymous")]),
                described(&[("baton_identity", "authenticated"), ("who", "friend")]),
            ])
            .await;
    }
    assert_eq!(held(&baton, "edge%2Fwho").await, [20, 100]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_that_leases_for_strangers_is_lent_less() {
    let baton = Baton::start().await;
    put(&baton, "l", approximate()).await;
    let lend = async |key: &str, identity: Value| {
        let ask = json!({
            "key": key, "identity": identity, "nodeId": "n", "leaseId": key, "sequence": 1, "want": 1_000,
        });
        let lent = baton.post("/v1/limits/l/lease", ask).await.ok();
        (lent["granted"].as_u64().unwrap(), lent["slack"]["maxSize"].clone())
    };
    assert_eq!(lend("stranger", json!("anonymous")).await, (20, json!(20)));
    assert_eq!(lend("friend", json!(null)).await, (100, json!(null)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_definition_may_name_another_mechanism_for_those_who_are_not_known() {
    let baton = Baton::start().await;
    let said = json!({ "mechanism": "central", "anonymousMechanism": "leased" });
    let shown = put(&baton, "l", said).await;
    assert_eq!((&shown["mechanism"], &shown["anonymousMechanism"]), (&json!("central"), &json!("leased")));
    for key in ["a", "both"] {
        assert_eq!(source(&baton, key, "anonymous").await.as_deref(), Some("central"), "it comes once");
        assert_eq!(source(&baton, key, "anonymous").await.as_deref(), Some("renewed"));
        assert_eq!(source(&baton, key, "anonymous").await.as_deref(), Some("local"));
    }
    for _ in 0..4 {
        assert_eq!(source(&baton, "both", "authenticated").await.as_deref(), Some("central"));
    }
    let ask = json!({ "key": "k", "nodeId": "n", "leaseId": "n.1", "sequence": 1, "want": 10 });
    let lent = baton.post("/v1/limits/l/lease", ask.clone()).await.ok();
    assert_eq!((&lent["granted"], &lent["ttlMillis"]), (&json!(0), &json!(0)), "it isn't leased to these");
    let mut ask = ask;
    (ask["identity"], ask["leaseId"]) = ("anonymous".into(), "n.2".into());
    assert_eq!(baton.post("/v1/limits/l/lease", ask).await.ok()["granted"], 10);
    let bound = baton.get("/v1/limits/l/bound").await.ok();
    let because = bound["items"][0]["because"].as_str().unwrap();
    assert!(because.starts_with("central: ") && because.contains("anonymous leased: "), "{because}");
}

#[tokio::test(flavor = "multi_thread")]
async fn both_classes_count_on_one_meter_and_what_is_exact_for_one_stays_so() {
    let baton = Baton::start().await;
    // 10 % more, half of it in each of two windows, and for strangers only.
    let said =
        json!({ "limit": 400, "anonymousMechanism": "approximate", "epsilon": 0.1, "lowWatermark": 0 });
    put(&baton, "l", said).await;
    let mut admitted = 0;
    for identity in ["anonymous", "authenticated"].into_iter().cycle().take(400) {
        admitted += u64::from(source(&baton, "k", identity).await.is_some());
    }
    while source(&baton, "k", "authenticated").await.is_some() {
        admitted += 1;
        assert!(admitted <= 400, "the store decides for those who are known, by the limit itself");
    }
    let mut refused = 0;
    while refused < 3 {
        match source(&baton, "k", "anonymous").await {
            Some(_) => admitted += 1,
            None => {
                refused += 1;
                // Longer than a no stands.
                tokio::time::sleep(std::time::Duration::from_millis(120)).await;
            }
        }
    }
    assert!((401..=420).contains(&admitted), "{admitted} of 400 and 20 besides");
    assert_eq!(source(&baton, "k", "authenticated").await, None);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_does_not_go_with_a_mechanism_does_not_go_with_one_for_strangers_either() {
    let baton = Baton::start().await;
    let client = &mut baton.client().await;
    for (more, field) in [
        (json!({ "anonymousMechanism": "gossip" }), "anonymousMechanism"),
        (json!({ "mechanism": "gossip", "anonymousMechanism": "leased" }), "anonymousMechanism"),
        (json!({ "anonymousMechanism": "leased", "audit": true }), "audit"),
        (json!({ "anonymousMechanism": "leased", "epsilon": 0.1 }), "epsilon"),
        (json!({ "anonymousMechanism": "leased", "hotKey": "split" }), "hotKey"),
        (json!({ "anonymousMechanism": "approximate", "reclaim": "optimistic" }), "reclaim"),
        (json!({ "anonymousMechanism": "approximate", "leaseTtlMillis": 1_000 }), "leaseTtlMillis"),
    ] {
        let mut body = json!({ "limit": 1_000, "windowMillis": 1_000 });
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let answer = client.call("PUT", "/v1/limits/l", body.to_string().as_bytes()).await;
        assert_eq!(answer.field(), field, "{body}");
    }
    let both = json!({ "mechanism": "owned", "anonymousMechanism": "approximate", "leaseTtlMillis": 1_000, "hotKey": "pin" });
    assert_eq!(put(&baton, "l", both).await["epsilon"], 0.01, "each has what goes with it");
    let same = put(&baton, "l", json!({ "mechanism": "leased", "anonymousMechanism": "leased" })).await;
    assert_eq!(same["anonymousMechanism"], json!(null), "the same for all is no mechanism of their own");
}
