//! Doing something once (L18): who is first, what the others hear, what passes on.

use crate::client::{Answer, Client};
use crate::harness::Baton;
use baton_store::embedded::{Embedded, Options};
use baton_testkit::faulty::{Fault, Faulty};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::{Duration, Instant};

async fn claim(baton: &Baton, key: &str, owner: &str) -> Value {
    baton.post(&format!("/v1/once/{key}"), json!({ "ownerId": owner, "ttlMillis": 60_000 })).await.ok()
}

/// A connection on which a caller waits, for a key that somebody is at.
async fn waiter(baton: &Baton, key: &str, owner: &str) -> Client {
    let mut client = baton.client().await;
    let body = json!({ "ownerId": owner, "ttlMillis": 60_000, "waitTimeoutMillis": 60_000 });
    client.request("POST", &format!("/v1/once/{key}"), body.to_string().as_bytes()).await;
    client
}

async fn send(baton: &Baton, claim: &Value, action: &str, mut body: Value) -> Answer {
    body["claimToken"] = claim["claimToken"].clone();
    baton.post(&format!("/v1/once/{}/{action}", claim["onceKey"].as_str().unwrap()), body).await
}

async fn complete(baton: &Baton, claim: &Value, result: Value) -> Answer {
    send(baton, claim, "complete", json!({ "result": result })).await
}

/// A lease that this store can keep, and that is over soon.
async fn short_ttl(baton: &Baton) -> u64 {
    let status = baton.get("/v1/status").await.ok();
    status["store"]["guarantees"]["ttlMinMillis"].as_u64().unwrap().max(300)
}

#[tokio::test(flavor = "multi_thread")]
async fn of_a_hundred_racing_callers_one_is_first_and_all_others_get_its_result() {
    let baton = Arc::new(Baton::start().await);
    let racing: Vec<_> = (0..100)
        .map(|number| {
            let baton = baton.clone();
            tokio::spawn(async move {
                let mut client = waiter(&baton, "k", &format!("caller-{number}")).await;
                let claim = client.answer("POST").await.unwrap().ok();
                if claim["first"] == true {
                    let owner = claim["ownerId"].clone();
                    complete(&baton, &claim, json!({ "by": owner })).await.ok();
                }
                claim
            })
        })
        .collect();
    let mut claims = Vec::new();
    for caller in racing {
        claims.push(caller.await.unwrap());
    }
    let firsts: Vec<_> = claims.iter().filter(|claim| claim["first"] == true).collect();
    let [first] = firsts[..] else { panic!("{} were first", firsts.len()) };
    for later in claims.iter().filter(|claim| claim["first"] == false) {
        assert_eq!((&later["state"], &later["result"]["by"]), (&json!("done"), &first["ownerId"]), "{later}");
        assert_eq!(later["fencingToken"], first["fencingToken"]);
        assert!(later.get("claimToken").is_none(), "{later}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_crashed_first_caller_s_claim_passes_to_one_who_waits_and_the_crashed_one_changes_nothing_any_more()
{
    let baton = Baton::start().await;
    let body = json!({ "ownerId": "crashed", "ttlMillis": short_ttl(&baton).await, "requestId": "r" });
    let crashed = baton.post("/v1/once/k", body).await.ok();
    assert_eq!((&crashed["first"], &crashed["state"]), (&json!(true), &json!("running")));
    let mut waiters = [waiter(&baton, "k", "w1").await, waiter(&baton, "k", "w2").await];
    // One of them is first in its turn; the other one waits on.
    let (next, mut other) = {
        let [one, two] = &mut waiters;
        tokio::select! {
            answer = one.answer("POST") => (answer.unwrap().ok(), waiters.into_iter().nth(1).unwrap()),
            answer = two.answer("POST") => (answer.unwrap().ok(), waiters.into_iter().next().unwrap()),
        }
    };
    assert_eq!(next["first"], true, "{next}");
    assert!(next["fencingToken"].as_u64() > crashed["fencingToken"].as_u64());
    for (action, body) in
        [("complete", json!({ "result": 1 })), ("renew", json!({ "ttlMillis": 60_000 })), ("fail", json!({}))]
    {
        assert_eq!(send(&baton, &crashed, action, body).await.code(409), "CLAIM_LOST", "{action}");
    }
    assert_eq!(baton.get("/v1/once/k").await.ok()["fencingToken"], next["fencingToken"]);
    complete(&baton, &next, json!("mine")).await.ok();
    assert_eq!(complete(&baton, &crashed, json!("late")).await.code(409), "CLAIM_LOST");
    assert_eq!(other.answer("POST").await.unwrap().ok()["result"], "mine");
}

#[tokio::test(flavor = "multi_thread")]
async fn later_callers_hear_who_is_at_it_and_for_how_long() {
    let baton = Baton::start().await;
    let first = claim(&baton, "k", "a").await;
    let later = claim(&baton, "k", "b").await;
    assert_eq!(
        (&later["first"], &later["state"], &later["ownerId"]),
        (&json!(false), &json!("running"), &json!("a"))
    );
    assert_eq!(later["fencingToken"], first["fencingToken"]);
    let left = later["retryAfterMillis"].as_u64().unwrap();
    assert!((50_000..=60_000).contains(&left), "{left}");
    let shown = baton.get("/v1/once/k").await;
    assert!(
        !shown.text.contains(first["claimToken"].as_str().unwrap()) && !shown.text.contains("claimToken")
    );
    assert_eq!((&shown.ok()["state"], &shown.ok()["ownerId"]), (&json!("running"), &json!("a")));
    let body = json!({ "ownerId": "c", "ttlMillis": 1000, "waitTimeoutMillis": 50 });
    assert_eq!(
        baton.post("/v1/once/k", body).await.ok()["state"],
        "running",
        "a wait that runs out says how far it is"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_retried_claim_is_the_same_claim_renewed() {
    let baton = Baton::start().await;
    let body = json!({ "ownerId": "a", "ttlMillis": 60_000, "requestId": "r" });
    let first = baton.post("/v1/once/k", body.clone()).await.ok();
    let again = baton.post("/v1/once/k", body.clone()).await.ok();
    for field in ["first", "claimToken", "fencingToken"] {
        assert_eq!(again[field], first[field], "{field}");
    }
    assert!(again["expiresAt"].as_u64() >= first["expiresAt"].as_u64());
    let mut other = body.clone();
    other["ttlMillis"] = 50_000.into();
    let reused = baton.post("/v1/once/k", other).await;
    assert_eq!(
        (reused.code(422).as_str(), &reused.json()["field"]),
        ("REQUEST_ID_REUSED", &json!("requestId"))
    );
    send(&baton, &first, "fail", json!({})).await.ok();
    assert_eq!(baton.post("/v1/once/k", body).await.code(409), "CLAIM_LOST", "given up is given up");
}

#[tokio::test(flavor = "multi_thread")]
async fn who_gives_up_lets_a_waiting_caller_try_at_once() {
    let baton = Baton::start().await;
    let first = claim(&baton, "k", "a").await;
    let mut waiter = waiter(&baton, "k", "b").await;
    assert_eq!(send(&baton, &first, "fail", json!({})).await.ok()["status"], "FAILED");
    let next = waiter.answer("POST").await.unwrap().ok();
    assert_eq!((&next["first"], &next["ownerId"]), (&json!(true), &json!("b")), "{next}");
    assert!(next["fencingToken"].as_u64() > first["fencingToken"].as_u64());
    send(&baton, &first, "fail", json!({})).await.ok();
    assert_eq!(
        baton.get("/v1/once/k").await.ok()["ownerId"],
        "b",
        "giving up twice takes nothing from the next one"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_result_stays_as_it_is_over_retries_and_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let baton = Baton::open(directory.path(), |_| {}).await;
    let first = claim(&baton, "k", "a").await;
    let done = complete(&baton, &first, json!({ "charge": "ch_1" })).await.ok();
    assert_eq!((&done["status"], &done["fencingToken"]), (&json!("COMPLETED"), &first["fencingToken"]));
    assert_eq!(
        complete(&baton, &first, json!({ "charge": "ch_1" })).await.ok(),
        done,
        "the same answer again"
    );
    assert_eq!(complete(&baton, &first, json!({ "charge": "ch_2" })).await.code(409), "ALREADY_COMPLETED");
    assert_eq!(send(&baton, &first, "fail", json!({})).await.code(409), "ALREADY_COMPLETED");
    let renew = send(&baton, &first, "renew", json!({ "ttlMillis": 1000 })).await;
    assert_eq!(renew.code(409), "ALREADY_COMPLETED");
    baton.stopped().await;
    let baton = Baton::open(directory.path(), |_| {}).await;
    let later = claim(&baton, "k", "b").await;
    assert_eq!((&later["state"], &later["result"]), (&json!("done"), &json!({ "charge": "ch_1" })));
    let kept = later["expiresAt"].as_u64().unwrap() - later["completedAt"].as_u64().unwrap();
    // A day, less what has passed of it; a store's TTL may be rounded up.
    assert!((86_300_000..=86_405_000).contains(&kept), "{kept}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_result_is_kept_for_as_long_as_asked_and_byte_for_byte() {
    let baton = Baton::start().await;
    for (key, result) in
        [("number", "12345678901234567890123"), ("spaces", r#"{ "b" : 1,  "a": [1.0] }"#), ("null", "null")]
    {
        let first = claim(&baton, key, "a").await;
        let token = first["claimToken"].as_str().unwrap();
        let body = format!(r#"{{"claimToken":"{token}","result":{result}}}"#);
        let path = format!("/v1/once/{key}/complete");
        baton.client().await.call("POST", &path, body.as_bytes()).await.ok();
        let shown = baton.get(&format!("/v1/once/{key}")).await.text;
        assert!(shown.contains(&format!(r#""result":{result}}}"#)), "{shown}");
    }
    let first = claim(&baton, "brief", "a").await;
    send(&baton, &first, "complete", json!({ "result": 1, "resultTtlMillis": 1000 })).await.ok();
    assert_eq!(claim(&baton, "brief", "b").await["result"], 1);
    baton.until(async || baton.get("/v1/once/brief").await.status == 404).await;
    assert_eq!(claim(&baton, "brief", "b").await["first"], true, "what is forgotten is done again");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_result_may_have_64_kib_and_no_more() {
    let baton = Baton::start().await;
    let first = claim(&baton, "k", "a").await;
    let text = |bytes: usize| json!("x".repeat(bytes - 2));
    assert_eq!(complete(&baton, &first, text(64 * 1024 + 1)).await.field(), "result");
    assert_eq!(complete(&baton, &first, text(96 * 1024)).await.field(), "body");
    complete(&baton, &first, text(64 * 1024)).await.ok();
    assert_eq!(claim(&baton, "k", "b").await["result"], text(64 * 1024));
}

#[tokio::test(flavor = "multi_thread")]
async fn tokens_of_others_are_refused_and_namespaces_are_apart() {
    let baton = Baton::start().await;
    let (first, other) = (claim(&baton, "k", "a").await, claim(&baton, "other", "a").await);
    let lock = baton.acquire("k", "a").await;
    for token in [&json!("made up"), &other["claimToken"], &lock["lockToken"]] {
        let forged = json!({ "onceKey": "k", "claimToken": token });
        for (action, body) in [
            ("complete", json!({ "result": 1 })),
            ("renew", json!({ "ttlMillis": 1000 })),
            ("fail", json!({})),
        ] {
            assert_eq!(send(&baton, &forged, action, body).await.code(403), "NOT_CLAIM_OWNER", "{action}");
        }
    }
    let release = json!({ "ownerId": "a", "lockToken": first["claimToken"] });
    assert_eq!(baton.post("/v1/locks/k/release", release).await.code(403), "NOT_LOCK_OWNER");
    let elsewhere =
        baton.post("/v1/once/k?namespace=n", json!({ "ownerId": "a", "ttlMillis": 1000 })).await.ok();
    assert_eq!(elsewhere["first"], true);
    assert_eq!(baton.get("/v1/once/unknown").await.code(404), "ONCE_NOT_FOUND");
}

#[tokio::test(flavor = "multi_thread")]
async fn bad_input_is_named_by_its_field() {
    let baton = Baton::start().await;
    let long = |bytes: usize| "x".repeat(bytes);
    for (action, body, field) in [
        ("", json!({ "ttlMillis": 1000 }), "ownerId"),
        ("", json!({ "ownerId": "a" }), "ttlMillis"),
        ("", json!({ "ownerId": "", "ttlMillis": 1000 }), "ownerId"),
        ("", json!({ "ownerId": "a", "ttlMillis": 99 }), "ttlMillis"),
        ("", json!({ "ownerId": "a", "ttlMillis": 1000, "requestId": "" }), "requestId"),
        ("", json!({ "ownerId": "a", "ttlMillis": 1000, "waitTimeoutMillis": 600_001 }), "waitTimeoutMillis"),
        ("", json!({ "ownerId": "a", "ttlMillis": 1000, "wait": true }), "wait"),
        ("/complete", json!({ "claimToken": "t" }), "result"),
        ("/complete", json!({ "result": 1 }), "claimToken"),
        ("/complete", json!({ "claimToken": long(257), "result": 1 }), "claimToken"),
        ("/complete", json!({ "claimToken": "t", "result": 1, "resultTtlMillis": 999 }), "resultTtlMillis"),
        (
            "/complete",
            json!({ "claimToken": "t", "result": 1, "resultTtlMillis": 2_592_000_001_u64 }),
            "resultTtlMillis",
        ),
        ("/complete", json!({ "claimToken": "t", "result": 1, "more": 1 }), "more"),
        ("/renew", json!({ "claimToken": "t" }), "ttlMillis"),
        ("/renew", json!({ "claimToken": "", "ttlMillis": 1000 }), "claimToken"),
        ("/fail", json!({}), "claimToken"),
        ("/fail", json!({ "claimToken": "t", "reason": "x" }), "reason"),
    ] {
        let path = format!("/v1/once/k{action}");
        assert_eq!(baton.post(&path, body.clone()).await.field(), field, "{path} {body}");
    }
    for path in [format!("/v1/once/{}", long(513)), "/v1/once/%2e".into(), "/v1/once/a%00b".into()] {
        let body = json!({ "ownerId": "a", "ttlMillis": 1000 });
        assert_eq!(baton.post(&path, body).await.field(), "onceKey", "{path}");
    }
    assert_eq!(baton.get("/v1/once/k").await.status, 404, "nothing was changed");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_waiting_caller_hears_how_far_it_is_when_the_server_stops() {
    let mut baton = Baton::start().await;
    claim(&baton, "k", "a").await;
    let mut waiter = waiter(&baton, "k", "b").await;
    baton
        .until(async || baton.get("/metrics").await.text.contains(r#"http_in_flight{class="waiting"} 1"#))
        .await;
    baton.stop();
    assert_eq!(waiter.answer("POST").await.unwrap().ok()["state"], "running");
    baton.stopped().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_of_unknown_outcome_is_said_to_be_unknown_and_its_retry_gets_one_claim() {
    for fault in [Fault::Lost, Fault::AnswerLost, Fault::Silent] {
        let directory = tempfile::tempdir().unwrap();
        let store = Faulty::new(Arc::new(Embedded::open(directory.path(), Options::default()).unwrap()));
        let deadline = Duration::from_millis(300);
        let handle = Arc::new(store.clone());
        let baton = Baton::on(handle, |config| config.engine.store_deadline = deadline).await;
        let body = json!({ "ownerId": "a", "ttlMillis": 60_000, "requestId": "r" });
        store.set(fault);
        let began = Instant::now();
        let refused = baton.post("/v1/once/k", body.clone()).await;
        assert_eq!(
            (refused.code(503).as_str(), &refused.json()["outcome"]),
            ("STORE_UNAVAILABLE", &json!("unknown"))
        );
        assert!(began.elapsed() < deadline * 4, "{fault:?}: {:?}", began.elapsed());
        store.set(Fault::None);
        let first = baton.post("/v1/once/k", body.clone()).await.ok();
        assert_eq!(first["first"], true, "{fault:?}: {first}");
        assert_eq!(claim(&baton, "k", "b").await["first"], false);
        store.set(fault);
        assert_eq!(complete(&baton, &first, json!(1)).await.json()["outcome"], "unknown", "{fault:?}");
        store.set(Fault::None);
        complete(&baton, &first, json!(1)).await.ok();
        assert_eq!(claim(&baton, "k", "b").await["result"], 1);
    }
}
