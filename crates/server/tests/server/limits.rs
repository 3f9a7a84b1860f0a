//! Limits over HTTP: definitions, checks, headers, refusals, and what is given back.

use crate::client::Answer;
use crate::harness::Baton;
use serde_json::{Value, json};

const DAY_MS: u64 = 24 * 60 * 60 * 1000;

async fn put(baton: &Baton, limit: &str, body: Value) -> Answer {
    let path = format!("/v1/limits/{limit}");
    baton.client().await.call("PUT", &path, body.to_string().as_bytes()).await
}

async fn check(baton: &Baton, limit: &str, body: Value) -> Answer {
    baton.post(&format!("/v1/limits/{limit}/check"), body).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_limit_is_defined_looked_at_changed_and_removed() {
    let baton = Baton::start().await;
    assert_eq!(baton.get("/v1/limits/api").await.code(404), "LIMIT_NOT_FOUND");
    let made = put(&baton, "api", json!({ "limit": 5, "windowMillis": DAY_MS })).await.ok();
    assert_eq!(made["status"], "MADE");
    let definition = &made["definition"];
    assert_eq!(
        (&definition["algorithm"], &definition["mechanism"]),
        (&json!("token_bucket"), &json!("central"))
    );
    let again = put(&baton, "api", json!({ "limit": 5, "windowMillis": DAY_MS })).await.ok();
    assert_eq!((&again["status"], &again["version"]), (&json!("UNCHANGED"), &made["version"]));
    let changed =
        put(&baton, "api", json!({ "limit": 6, "windowMillis": DAY_MS, "purpose": "security" })).await.ok();
    assert_eq!(changed["status"], "CHANGED");
    assert!(changed["version"].as_u64() > made["version"].as_u64());
    // What a definition answers can be put again as it is.
    let shown = baton.get("/v1/limits/api").await.ok();
    assert_eq!(shown["definition"]["onFailure"], "closed_local");
    assert_eq!(put(&baton, "api", shown["definition"].clone()).await.ok()["status"], "UNCHANGED");
    put(&baton, "b%2Fc", json!({ "limit": 1, "calendar": "day" })).await.ok();
    let listed = baton.get("/v1/limits").await.ok();
    let mut names: Vec<_> =
        listed["limits"].as_array().unwrap().iter().map(|limit| limit["name"].clone()).collect();
    names.sort_by_key(|name| name.to_string());
    assert_eq!(names, ["api", "b/c"]);
    let removed = baton.client().await.call("DELETE", "/v1/limits/api", b"").await.ok();
    assert_eq!(removed, json!({ "status": "REMOVED", "name": "api" }));
    assert_eq!(check(&baton, "api", json!({ "key": "k" })).await.code(404), "LIMIT_NOT_FOUND");
}

#[tokio::test(flavor = "multi_thread")]
async fn checks_pass_up_to_the_limit_and_say_in_headers_what_is_left() {
    let baton = Baton::start().await;
    put(&baton, "api", json!({ "limit": 2, "windowMillis": DAY_MS, "algorithm": "fixed_window" })).await.ok();
    for left in [1, 0] {
        let passed = check(&baton, "api", json!({ "key": "acme" })).await;
        assert_eq!(passed.header("ratelimit-policy"), Some("\"api\";q=2;w=86400"));
        let limit = passed.header("ratelimit").unwrap().to_owned();
        assert!(limit.starts_with(&format!("\"api\";r={left};t=")), "{limit}");
        let body = passed.ok();
        assert_eq!(
            (&body["allowed"], &body["remaining"], &body["source"]),
            (&json!(true), &json!(left), &json!("central"))
        );
    }
    let refused = check(&baton, "api", json!({ "key": "acme" })).await;
    assert_eq!(refused.code(429), "LIMIT_EXCEEDED");
    let body = refused.json();
    assert_eq!(
        (&body["reason"], &body["name"], &body["key"]),
        (&json!("budget_exhausted"), &json!("api"), &json!("acme"))
    );
    let millis = body["retryAfterMillis"].as_u64().unwrap();
    assert!((1..=DAY_MS).contains(&millis));
    assert_eq!(refused.header("retry-after"), Some(millis.div_ceil(1_000).to_string().as_str()));
    assert!(refused.header("ratelimit").is_some_and(|limit| limit.contains("r=0")));
    check(&baton, "api", json!({ "key": "another" })).await.ok();
    let look = check(&baton, "api", json!({ "key": "acme", "cost": 0 })).await.ok();
    assert_eq!((&look["allowed"], &look["remaining"]), (&json!(false), &json!(0)));
    let never = check(&baton, "api", json!({ "key": "acme", "cost": 3 })).await;
    assert_eq!(never.code(429), "LIMIT_EXCEEDED");
    assert!(never.json()["retryAfterMillis"].is_null() && never.header("retry-after").is_none());
    let usage = baton.get("/v1/limits/api/usage?key=acme").await.ok();
    assert_eq!(
        (&usage["used"], &usage["remaining"], &usage["outstanding"]),
        (&json!(2), &json!(0), &json!(0))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_is_a_problem_document_or_a_403_if_that_is_what_is_understood() {
    let baton = Baton::start().await;
    put(&baton, "api", json!({ "limit": 1, "windowMillis": DAY_MS })).await.ok();
    check(&baton, "api", json!({ "key": "k" })).await.ok();
    let body = br#"{"key":"k"}"#;
    let head = |path: &str, accept: &str| {
        let length = body.len();
        format!("POST {path} HTTP/1.1\r\nhost: test\r\naccept: {accept}\r\ncontent-length: {length}\r\n\r\n")
    };
    let ask = async |path: &str, accept: &str| {
        let mut client = baton.client().await;
        client.send(&[head(path, accept).as_bytes(), body].concat()).await.unwrap();
        client.answer("POST").await.unwrap()
    };
    let problem = ask("/v1/limits/api/check", "text/html, application/problem+json;q=0.9").await;
    assert_eq!((problem.status, problem.header("content-type")), (429, Some("application/problem+json")));
    let document = problem.json();
    assert_eq!((&document["status"], &document["violated-policies"]), (&json!(429), &json!(["api"])));
    assert!(document["type"].as_str().is_some_and(|kind| kind.ends_with("#quota-exceeded")));
    assert_eq!(ask("/v1/limits/api/check", "*/*").await.header("content-type"), Some("application/json"));
    let forbidden = ask("/v1/limits/api/check?refusal=403", "*/*").await;
    assert_eq!(forbidden.code(403), "LIMIT_EXCEEDED");
    assert!(forbidden.header("retry-after").is_some());
    assert_eq!(ask("/v1/limits/api/check?refusal=500", "*/*").await.field(), "refusal");
}

#[tokio::test(flavor = "multi_thread")]
async fn several_limits_pass_together_or_not_at_all() {
    let baton = Baton::start().await;
    put(&baton, "wide", json!({ "limit": 10, "windowMillis": DAY_MS })).await.ok();
    put(&baton, "narrow", json!({ "limit": 1, "windowMillis": DAY_MS })).await.ok();
    let both = json!({ "checks": [{ "limit": "wide", "key": "all" }, { "limit": "narrow", "key": "me" }] });
    let passed = baton.post("/v1/limits:check", both.clone()).await;
    assert!(
        passed
            .header("ratelimit")
            .is_some_and(|limit| limit.contains("\"wide\"") && limit.contains("\"narrow\""))
    );
    assert_eq!(passed.ok()["checks"][0]["remaining"], 9);
    let refused = baton.post("/v1/limits:check", both).await;
    assert_eq!((refused.code(429), &refused.json()["name"]), ("LIMIT_EXCEEDED".into(), &json!("narrow")));
    // Where it takes several steps, they are settled behind the answer.
    baton.until(async || baton.get("/v1/limits/wide/usage?key=all").await.ok()["outstanding"] == 0).await;
    assert_eq!(baton.get("/v1/limits/wide/usage?key=all").await.ok()["used"], 1);
    let twice = json!({ "checks": [{ "limit": "wide", "key": "a" }, { "limit": "wide", "key": "a" }] });
    assert_eq!(baton.post("/v1/limits:check", twice).await.field(), "checks[1].key");
    assert_eq!(baton.post("/v1/limits:check", json!({ "checks": [] })).await.field(), "checks");
    let unknown = json!({ "checks": [{ "limit": "wide", "key": "a" }, { "limit": "none", "key": "a" }] });
    assert_eq!(baton.post("/v1/limits:check", unknown).await.code(404), "LIMIT_NOT_FOUND");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_not_used_is_given_back_and_places_in_flight_too() {
    let baton = Baton::start().await;
    put(&baton, "api", json!({ "limit": 5, "windowMillis": DAY_MS, "algorithm": "sliding_log" })).await.ok();
    let passed = check(&baton, "api", json!({ "key": "k", "cost": 5, "receipt": true })).await.ok();
    let receipt = passed["receipt"].as_str().unwrap();
    for _ in 0..2 {
        let refund =
            baton.post("/v1/limits/api/refund", json!({ "key": "k", "receipt": receipt })).await.ok();
        assert_eq!(refund, json!({ "refunded": 5 }));
    }
    assert_eq!(check(&baton, "api", json!({ "key": "k", "cost": 5 })).await.ok()["remaining"], 0);
    let forged = json!({ "key": "other", "receipt": receipt });
    assert_eq!(baton.post("/v1/limits/api/refund", forged).await.code(403), "RECEIPT_INVALID");
    put(&baton, "jobs", json!({ "limit": 1, "algorithm": "in_flight", "leaseTtlMillis": 60_000 })).await.ok();
    let place = check(&baton, "jobs", json!({ "key": "k" })).await.ok();
    assert_eq!(check(&baton, "jobs", json!({ "key": "k" })).await.code(429), "LIMIT_EXCEEDED");
    let leases = baton.get("/v1/limits/jobs/leases").await.ok();
    assert_eq!(
        (&leases["leases"][0]["leaseId"], &leases["leases"][0]["kind"]),
        (&place["leaseId"], &json!("place"))
    );
    // It is kept longer by whoever says so; a message that comes twice changes nothing.
    let kept = json!({ "key": "k", "nodeId": "me", "leaseId": place["leaseId"], "sequence": 2 });
    for _ in 0..2 {
        let kept = baton.post("/v1/limits/jobs/lease", kept.clone()).await.ok();
        assert_eq!((&kept["granted"], &kept["ttlMillis"]), (&json!(1), &json!(60_000)));
    }
    assert_eq!(baton.get("/v1/limits/jobs/leases").await.ok()["leases"][0]["holder"], "me");
    let back = json!({ "key": "k", "leaseId": place["leaseId"] });
    baton.post("/v1/limits/jobs/lease/return", back).await.ok();
    check(&baton, "jobs", json!({ "key": "k" })).await.ok();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reservation_waits_for_its_turn_and_only_buckets_have_them() {
    let baton = Baton::start().await;
    put(&baton, "api", json!({ "limit": 10, "windowMillis": 100_000 })).await.ok();
    check(&baton, "api", json!({ "key": "k", "cost": 10 })).await.ok();
    let booked =
        baton.post("/v1/limits/api/reserve", json!({ "key": "k", "maxWaitMillis": 50_000 })).await.ok();
    assert!((1..=10_000).contains(&booked["waitMillis"].as_u64().unwrap()), "{booked}");
    let far = baton.post("/v1/limits/api/reserve", json!({ "key": "k", "maxWaitMillis": 10 })).await;
    assert_eq!(far.code(429), "LIMIT_EXCEEDED");
    assert!(far.header("retry-after").is_some());
    let much = json!({ "key": "k", "cost": 11, "maxWaitMillis": 10 });
    assert_eq!(baton.post("/v1/limits/api/reserve", much).await.field(), "cost");
    put(&baton, "log", json!({ "limit": 10, "windowMillis": 10_000, "algorithm": "sliding_log" })).await.ok();
    let wrong = baton.post("/v1/limits/log/reserve", json!({ "key": "k", "maxWaitMillis": 10 })).await;
    assert_eq!(wrong.code(409), "LIMIT_MISMATCH");
    let back = json!({ "key": "k", "leaseId": "some-lease" });
    let wrong = baton.post("/v1/limits/log/lease/return", back).await;
    assert_eq!(wrong.code(409), "LIMIT_MISMATCH", "only places in flight come back like this");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_bound_is_itemised_and_adds_up() {
    let baton = Baton::start().await;
    for (algorithm, worst) in
        [("token_bucket", 120), ("sliding_window", 200), ("fixed_window", 200), ("sliding_log", 100)]
    {
        let mut body = json!({ "limit": 100, "windowMillis": 1_000, "algorithm": algorithm });
        if algorithm == "token_bucket" {
            body["burst"] = 20.into();
        }
        put(&baton, algorithm, body).await.ok();
        let bound = baton.get(&format!("/v1/limits/{algorithm}/bound")).await.ok();
        assert_eq!(bound["worst"], worst, "{bound}");
        assert_eq!(bound["measured"], json!({ "overshoot": 0 }), "nothing was let pass yet");
        let sources: Vec<_> =
            bound["items"].as_array().unwrap().iter().map(|item| item["source"].as_str().unwrap()).collect();
        assert_eq!(sources, ["mechanism", "algorithm", "store", "outage"]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_approximate_limit_says_what_it_adds_and_lends_slack() {
    let baton = Baton::start().await;
    let body = json!({ "limit": 1_000, "windowMillis": DAY_MS, "mechanism": "approximate", "algorithm": "sliding_log" });
    let made = put(&baton, "l", body.clone()).await.ok();
    assert_eq!(
        (&made["definition"]["epsilon"], &made["definition"]["lowWatermark"]),
        (&0.01.into(), &0.2.into())
    );
    assert_eq!(made["definition"]["syncMillis"], json!(null), "it follows what is used");
    let said = json!({ "epsilon": 0.02, "lowWatermark": 0, "syncMillis": 250 });
    let mut other = body;
    other.as_object_mut().unwrap().extend(said.as_object().unwrap().clone());
    put(&baton, "l", other).await.ok();
    let shown = baton.get("/v1/limits/l").await.ok();
    assert_eq!(shown["definition"]["epsilon"], 0.02);
    assert_eq!(
        (&shown["definition"]["lowWatermark"], &shown["definition"]["syncMillis"]),
        (&0.0.into(), &250.into())
    );
    let bound = baton.get("/v1/limits/l/bound").await.ok();
    assert_eq!((&bound["worst"], &bound["items"][0]["amount"]), (&1_020.into(), &20.into()), "{bound}");
    let because = bound["items"][0]["because"].as_str().unwrap();
    assert!(because.contains("lowered") && because.contains("1000 ms"), "{because}");
    let checked = check(&baton, "l", json!({ "key": "k", "identity": "anonymous" })).await.ok();
    assert_eq!((&checked["limit"], &checked["source"]), (&1_000.into(), &"central".into()));
    let ask = json!({ "key": "k", "nodeId": "n", "leaseId": "n.1", "sequence": 1, "want": 10 });
    let lent = baton.post("/v1/limits/l/lease", ask).await.ok();
    assert_eq!((&lent["granted"], &lent["ttlMillis"]), (&10.into(), &1_000.into()), "four rounds: {lent}");
    assert_eq!(lent["slack"], json!({ "maxTtlMillis": DAY_MS, "syncMillis": 250, "low": 0, "left": 999 }));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_definition_that_makes_no_sense_is_refused_with_its_field() {
    let baton = Baton::start().await;
    for (body, field) in [
        (json!({ "windowMillis": 1000 }), "limit"),
        (json!({ "limit": 0, "windowMillis": 1000 }), "limit"),
        (json!({ "limit": 1 }), "windowMillis"),
        (json!({ "limit": 1, "windowMillis": 0 }), "windowMillis"),
        (json!({ "limit": 1, "windowMillis": 1000, "algorithm": "leaky" }), "algorithm"),
        (json!({ "limit": 1, "windowMillis": 1000, "durability": "relaxed" }), "durability"),
        (json!({ "limit": 1001, "windowMillis": 1000, "algorithm": "sliding_log" }), "limit"),
        (json!({ "limit": 1_000_000_000_u64, "windowMillis": DAY_MS }), "limit"),
        (json!({ "limit": 1, "windowMillis": 1000, "burst": 2, "algorithm": "fixed_window" }), "burst"),
        (json!({ "limit": 1, "windowMillis": 1000, "calendar": "day" }), "windowMillis"),
        (json!({ "limit": 1, "calendar": "day", "algorithm": "token_bucket" }), "calendar"),
        (json!({ "limit": 1, "calendar": "day", "timeZone": "Mars/Olympus" }), "timeZone"),
        (json!({ "limit": 1, "windowMillis": 1000, "timeZone": "UTC" }), "timeZone"),
        (json!({ "limit": 1, "algorithm": "in_flight", "mechanism": "leased" }), "mechanism"),
        (json!({ "limit": 1, "windowMillis": 1000, "localCap": 2 }), "localCap"),
        (json!({ "limit": 1, "windowMillis": 1000, "mechanism": "leased", "epsilon": 0.01 }), "epsilon"),
        (json!({ "limit": 1, "windowMillis": 1000, "lowWatermark": 0.2 }), "lowWatermark"),
        (json!({ "limit": 1, "windowMillis": 1000, "syncMillis": 500 }), "syncMillis"),
        (json!({ "limit": 1, "windowMillis": 1000, "mechanism": "approximate", "epsilon": 1.1 }), "epsilon"),
        (json!({ "limit": 1, "windowMillis": 1000, "mechanism": "approximate", "epsilon": -0.1 }), "epsilon"),
        (
            json!({ "limit": 1, "windowMillis": 1000, "mechanism": "approximate", "lowWatermark": 2 }),
            "lowWatermark",
        ),
        (
            json!({ "limit": 1, "windowMillis": 1000, "mechanism": "approximate", "syncMillis": 9 }),
            "syncMillis",
        ),
        (
            json!({ "limit": 1, "windowMillis": 1000, "mechanism": "approximate", "leaseTtlMillis": 1000 }),
            "leaseTtlMillis",
        ),
        (
            json!({ "limit": 1, "windowMillis": 1000, "mechanism": "approximate", "reclaim": "optimistic" }),
            "reclaim",
        ),
        (json!({ "limit": 1, "windowMillis": 1000, "mechanism": "approximate", "audit": true }), "audit"),
        (json!({ "limit": 1, "algorithm": "in_flight", "mechanism": "approximate" }), "mechanism"),
        (json!({ "limit": 1, "windowMillis": 1000, "hotKey": "melt" }), "hotKey"),
        (json!({ "limit": 1, "windowMillis": 1000, "mechanism": "leased", "hotKey": "split" }), "hotKey"),
        (json!({ "limit": 1, "windowMillis": 1000, "hotKey": "delegate" }), "hotKey"),
        (json!({ "limit": 1, "windowMillis": 1000, "hotKey": "cap", "audit": true }), "hotKey"),
        (json!({ "limit": 1, "windowMillis": 1000, "hotKey": "cap", "hotKeyParts": 2 }), "hotKeyParts"),
        (
            json!({ "limit": 1, "windowMillis": 1000, "mechanism": "owned", "hotKey": "split", "hotKeyParts": 1 }),
            "hotKeyParts",
        ),
        (json!({ "limit": 1, "windowMillis": 1000, "mechanism": "owned", "hotKeyCap": 5 }), "hotKeyCap"),
        (
            json!({ "limit": 1, "windowMillis": 1000, "overrides": [{ "key": "", "limit": 1 }] }),
            "overrides[0].key",
        ),
        (json!({ "limit": 1, "windowMillis": 1000, "windows": 3 }), "windows"),
    ] {
        assert_eq!(put(&baton, "l", body.clone()).await.field(), field, "{body}");
    }
    assert_eq!(baton.get("/v1/limits").await.ok()["limits"], json!([]), "nothing was changed");
    for (said, shown) in [
        (json!({ "mechanism": "owned" }), json!(["delegate", null, null])),
        (json!({ "mechanism": "leased" }), json!([null, null, null])),
        (json!({ "mechanism": "owned", "hotKey": "split" }), json!(["split", 4, null])),
        (json!({ "mechanism": "owned", "hotKey": "split", "hotKeyParts": 2 }), json!(["split", 2, null])),
        (json!({ "mechanism": "owned", "hotKey": "pin" }), json!(["pin", null, null])),
        (json!({ "hotKey": "cap" }), json!(["cap", null, 1000])),
    ] {
        let mut body = json!({ "limit": 1000, "windowMillis": 1000 });
        body.as_object_mut().unwrap().extend(said.as_object().unwrap().clone());
        let definition = put(&baton, "hot", body).await.ok()["definition"].clone();
        let found = ["hotKey", "hotKeyParts", "hotKeyCap"].map(|field| definition[field].clone());
        assert_eq!(json!(found), shown, "{definition}");
    }
    put(&baton, "l", json!({ "limit": 1, "windowMillis": 1000 })).await.ok();
    for (body, field) in [
        (json!({}), "key"),
        (json!({ "key": "" }), "key"),
        (json!({ "key": "k", "cost": -1 }), "cost"),
        (json!({ "key": "k", "cost": 1_000_000_001 }), "cost"),
        (json!({ "key": "k", "requestId": "" }), "requestId"),
        (json!({ "key": "k", "identity": "somebody" }), "identity"),
    ] {
        assert_eq!(check(&baton, "l", body.clone()).await.field(), field, "{body}");
    }
    assert_eq!(baton.get("/v1/limits/l/usage").await.field(), "key");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_may_have_a_limit_of_its_own_and_a_page_of_another_site_may_change_nothing() {
    let baton = Baton::start().await;
    let own = json!([{ "key": "acme", "limit": 5 }]);
    put(&baton, "api", json!({ "limit": 1, "windowMillis": DAY_MS, "overrides": own })).await.ok();
    assert_eq!(check(&baton, "api", json!({ "key": "acme", "cost": 5 })).await.ok()["limit"], 5);
    assert_eq!(check(&baton, "api", json!({ "key": "other", "cost": 2 })).await.code(429), "LIMIT_EXCEEDED");
    let mut client = baton.client().await;
    let head = "DELETE /v1/limits/api HTTP/1.1\r\nhost: test\r\norigin: https://elsewhere\r\n\r\n";
    client.send(head.as_bytes()).await.unwrap();
    assert_eq!(client.answer("DELETE").await.unwrap().code(403), "FORBIDDEN");
    baton.get("/v1/limits/api").await.ok();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_part_of_a_leased_limit_is_lent_reported_and_given_back() {
    let baton = Baton::start().await;
    let body = json!({ "limit": 1_000, "windowMillis": DAY_MS, "algorithm": "fixed_window", "mechanism": "leased",
                       "staggered": false, "leaseTtlMillis": 60_000 });
    let shown = put(&baton, "api", body.clone()).await.ok();
    assert_eq!(
        shown.get("durability"),
        None,
        "what wasn't said isn't there, which older clients wouldn't know"
    );
    let say = async |body: Value| baton.post("/v1/limits/api/lease", body).await;
    let lent =
        say(json!({ "key": "k", "nodeId": "me", "leaseId": "a", "sequence": 1, "want": 500 })).await.ok();
    assert_eq!((&lent["granted"], &lent["ttlMillis"]), (&json!(50), &json!(60_000)), "a twentieth: {lent}");
    assert_eq!(lent["bound"], 2_000, "as of `GET …/bound`");
    let report =
        json!({ "key": "k", "nodeId": "me", "leaseId": "a", "sequence": 2, "spent": 30, "kept": 15 });
    for _ in 0..2 {
        assert_eq!(say(report.clone()).await.ok()["granted"], 15);
    }
    let late = json!({ "key": "k", "nodeId": "me", "leaseId": "a", "sequence": 1, "want": 500 });
    assert_eq!(say(late).await.ok()["granted"], 15, "what comes late changes nothing");
    let usage = baton.get("/v1/limits/api/usage?key=k").await.ok();
    assert_eq!((&usage["used"], &usage["outstanding"]), (&json!(30), &json!(15)));
    let old = json!({ "key": "k", "nodeId": "me", "leaseId": "a", "sequence": 3, "spent": 30, "want": 9, "version": 1 });
    assert_eq!(say(old).await.ok()["granted"], 15, "nothing more by another version");
    let back = json!({ "key": "k", "nodeId": "me", "leaseId": "a", "sequence": 4, "spent": 40, "kept": 0 });
    assert_eq!(say(back).await.ok()["granted"], 0);
    let usage = baton.get("/v1/limits/api/usage?key=k").await.ok();
    assert_eq!((&usage["used"], &usage["outstanding"]), (&json!(40), &json!(0)));
    for (field, value) in
        [("leaseId", json!("a b")), ("nodeId", json!("-")), ("sequence", json!(0)), ("key", json!(""))]
    {
        let mut body = json!({ "key": "k", "nodeId": "me", "leaseId": "a", "sequence": 5 });
        body[field] = value;
        assert_eq!(say(body).await.field(), field);
    }
    let unnumbered = json!({ "key": "k", "nodeId": "me", "leaseId": "a", "want": 9 });
    assert_eq!(say(unnumbered).await.field(), "sequence");
    let begun = say(json!({ "key": "k", "nodeId": "me", "want": 30 })).await.ok();
    assert_eq!(begun["granted"], 30);
    let back = json!({ "key": "k", "nodeId": "me", "leaseId": begun["leaseId"], "sequence": 2, "spent": 0, "kept": 0 });
    assert_eq!(say(back).await.ok()["granted"], 0);
    let usage = baton.get("/v1/limits/api/usage?key=k").await.ok();
    assert_eq!((&usage["used"], &usage["outstanding"]), (&json!(40), &json!(0)));
    let mut strict = body;
    strict["durability"] = json!("strict");
    strict["reclaim"] = json!("optimistic");
    strict["leaseSize"] = json!(70);
    assert_eq!(put(&baton, "api", strict).await.ok()["definition"]["durability"], "strict");
    let bound = baton.get("/v1/limits/api/bound").await.ok();
    assert_eq!((&bound["items"][0]["each"], bound.get("worst")), (&json!(70), None));
    // Without saying what it keeps, a lease may have all that it may have already.
    for (sequence, granted) in [(1, 50), (2, 50)] {
        let more = json!({ "key": "o", "nodeId": "me", "leaseId": "o", "sequence": sequence, "want": 500 });
        assert_eq!(say(more).await.ok()["granted"], granted);
    }
    let more = json!({ "key": "o", "nodeId": "me", "leaseId": "o", "sequence": 3, "kept": 50, "want": 500 });
    assert_eq!(say(more).await.ok()["granted"], 70);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_audited_limit_s_decisions_are_listed_with_who_asked_for_what() {
    let baton = Baton::start().await;
    let said = json!({ "limit": 2, "windowMillis": DAY_MS, "purpose": "billing" });
    let definition = put(&baton, "bills", said.clone()).await.ok();
    assert_eq!(definition["definition"]["audit"], true, "what is paid for is audited");
    check(&baton, "bills", json!({ "key": "acme", "cost": 2, "requestId": "r" })).await.ok();
    assert_eq!(check(&baton, "bills", json!({ "key": "acme" })).await.code(429), "LIMIT_EXCEEDED");
    check(&baton, "bills", json!({ "key": "other" })).await.ok();
    let log = baton.get("/v1/limits/bills/audit?limit=2").await.ok();
    let lines = log["lines"].as_array().unwrap();
    assert_eq!((&lines[0]["event"], &lines[0]["key"]), (&json!("allowed"), &json!("acme")));
    assert_eq!((&lines[0]["amount"], &lines[0]["remaining"]), (&json!(2), &json!(0)));
    assert_eq!((&lines[0]["source"], &lines[0]["requestId"]), (&json!("central"), &json!("r")));
    assert!(lines[0]["at"].as_u64() > Some(1_600_000_000_000) && lines[0]["node"].is_string(), "{log}");
    assert_eq!(lines[1]["event"], "refused");
    let cursor = log["nextCursor"].as_str().unwrap();
    assert_eq!(lines[1]["cursor"], cursor);
    let next = baton.get(&format!("/v1/limits/bills/audit?cursor={cursor}")).await.ok();
    assert_eq!((&next["lines"][0]["key"], &next["nextCursor"]), (&json!("other"), &Value::Null));
    let of_one = baton.get("/v1/limits/bills/audit?key=other").await.ok();
    assert_eq!(of_one["lines"].as_array().unwrap().len(), 1);
    assert_eq!(baton.get("/v1/limits/bills/audit?cursor=x").await.code(400), "INVALID_ARGUMENT");
    assert_eq!(baton.get("/v1/limits/none/audit").await.code(404), "LIMIT_NOT_FOUND");
    // By hand it can be had or not; out of a lease nothing is written down one by one.
    let without = json!({ "limit": 2, "windowMillis": DAY_MS, "purpose": "billing", "audit": false });
    assert_eq!(put(&baton, "bills", without).await.ok()["definition"]["audit"], false);
    let leased = json!({ "limit": 100, "windowMillis": DAY_MS, "mechanism": "leased", "audit": true });
    let refused = put(&baton, "leased", leased).await;
    assert_eq!(refused.json()["field"], "audit");
    let unsaid = json!({ "limit": 100, "windowMillis": DAY_MS, "mechanism": "leased", "purpose": "billing" });
    assert_eq!(put(&baton, "leased", unsaid).await.ok()["definition"]["audit"], false);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_beyond_a_limit_that_was_lowered_is_measured_beside_the_bound() {
    let baton = Baton::start().await;
    let said = |limit| json!({ "limit": limit, "windowMillis": DAY_MS, "algorithm": "fixed_window" });
    put(&baton, "l", said(10)).await.ok();
    check(&baton, "l", json!({ "key": "k", "cost": 9 })).await.ok();
    put(&baton, "l", said(4)).await.ok();
    check(&baton, "l", json!({ "key": "k" })).await.code(429);
    let measured = &baton.get("/v1/limits/l/bound").await.ok()["measured"];
    assert_eq!(measured["overshoot"], 5, "{measured}");
    assert!(measured["at"].as_u64() > Some(1_600_000_000_000), "{measured}");
    let metrics = baton.get("/metrics").await.text;
    assert!(metrics.contains("baton_limit_overshoot_ratio_bucket{le=\"2.0\"}"), "{metrics}");
}
