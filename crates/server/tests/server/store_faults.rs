//! What a failing store looks like from outside (L13, O8, O10): the code, whether anything may have happened, when to
//! come back, and nothing that is only for the log. And that it is all over when the store is well again.

use crate::client::Answer;
use crate::harness::Baton;
use baton_store::Breaker;
use baton_store::embedded::{Embedded, Options};
use baton_testkit::faulty::{DETAIL, Fault, Faulty};
use baton_testkit::servers::redis::Redis;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tempfile::TempDir;

const DEADLINE: Duration = Duration::from_secs(1);

/// A server, a lock that is held on it, and the store to break.
struct Patient {
    baton: Baton,
    store: Faulty,
    grant: Value,
    _directory: TempDir,
}

impl Patient {
    async fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let embedded = Embedded::open(directory.path(), Options::default()).unwrap();
        let store = Faulty::new(Arc::new(embedded));
        let handle = Arc::new(store.clone());
        let baton = Baton::on(handle, |config| config.engine.store_deadline = DEADLINE).await;
        let grant = baton.acquire("held", "a").await;
        Self { baton, store, grant, _directory: directory }
    }

    async fn acquire(&self, key: &str) -> Answer {
        let body = json!({ "ownerId": "b", "ttlMillis": 60_000, "requestId": "r" });
        self.baton.post(&format!("/v1/locks/{key}/acquire"), body).await
    }

    async fn renew(&self) -> Answer {
        let body = json!({ "ownerId": "a", "lockToken": self.grant["lockToken"], "ttlMillis": 60_000 });
        self.baton.post("/v1/locks/held/renew", body).await
    }

    /// Nothing of the store and no secret is in an answer.
    fn assert_discreet(&self, answer: &Answer) {
        let shown = format!("{}{}", answer.head, answer.text);
        assert!(!shown.contains(DETAIL), "{shown}");
        assert!(!shown.contains(self.grant["lockToken"].as_str().unwrap()), "{shown}");
    }

    /// The process is alive, and asks for no work.
    async fn assert_alive_but_not_ready(&self) {
        self.baton.get("/healthz").await.ok();
        let ready = self.baton.get("/readyz").await;
        assert_eq!(ready.code(503), "STORE_UNAVAILABLE");
        assert_eq!(ready.header("retry-after"), Some("1"));
        self.assert_discreet(&ready);
    }

    /// The same server serves, the holder of before is the holder still, and the refused key can be had.
    async fn assert_recovers(&self) {
        self.store.set(Fault::None);
        self.baton.get("/readyz").await.ok();
        assert_eq!(self.renew().await.ok()["fencingToken"], self.grant["fencingToken"]);
        assert_eq!(self.acquire("held").await.json()["currentOwner"], "a");
        let granted = self.acquire("new").await.ok();
        assert!(granted["fencingToken"].as_u64() > self.grant["fencingToken"].as_u64());
        assert_eq!(self.acquire("new").await.ok()["lockToken"], granted["lockToken"]);
        self.baton.release(&self.grant).await.ok();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_cannot_be_reached_is_said_to_have_changed_nothing() {
    let patient = Patient::new().await;
    patient.store.set(Fault::Unavailable);
    let refused = patient.acquire("new").await;
    assert_eq!(refused.code(503), "STORE_UNAVAILABLE");
    assert_eq!((refused.header("retry-after"), &refused.json()["outcome"]), (Some("1"), &Value::Null));
    assert_eq!(refused.json()["retryAfterMillis"], 1000);
    patient.assert_discreet(&refused);
    for answer in [
        patient.renew().await,
        patient.baton.release(&patient.grant).await,
        patient.baton.get("/v1/locks/held").await,
        patient.baton.get("/v1/locks").await,
        patient.baton.get("/v1/locks/held/queue").await,
    ] {
        assert_eq!(answer.code(503), "STORE_UNAVAILABLE");
        assert_eq!((answer.header("retry-after"), &answer.json()["outcome"]), (Some("1"), &Value::Null));
        patient.assert_discreet(&answer);
    }
    patient.assert_alive_but_not_ready().await;
    patient.assert_recovers().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_store_takes_nothing_new_and_keeps_what_is_held() {
    let patient = Patient::new().await;
    patient.store.set(Fault::Full);
    let refused = patient.acquire("new").await;
    assert_eq!(refused.code(503), "STORE_FULL");
    assert_eq!((refused.header("retry-after"), &refused.json()["outcome"]), (Some("5"), &Value::Null));
    assert_eq!(refused.json()["retryAfterMillis"], 5000);
    patient.assert_discreet(&refused);
    patient.assert_alive_but_not_ready().await;
    patient.renew().await.ok();
    patient.assert_recovers().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_should_be_impossible_is_an_internal_error_without_details() {
    let patient = Patient::new().await;
    patient.store.set(Fault::Invalid);
    let refused = patient.acquire("new").await;
    assert_eq!(refused.code(500), "INTERNAL");
    assert_eq!(refused.header("retry-after"), None);
    let fields: Vec<_> = refused.json().as_object().unwrap().keys().cloned().collect();
    assert_eq!(fields, ["error", "message"]);
    patient.assert_discreet(&refused);
    patient.assert_alive_but_not_ready().await;
    patient.assert_recovers().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_outcome_that_stays_unknown_is_said_to_be_unknown_within_the_deadline() {
    // What never arrived, what arrived without an answer, and what nobody says anything about look alike.
    for fault in [Fault::Lost, Fault::AnswerLost, Fault::Silent] {
        let patient = Patient::new().await;
        patient.store.set(fault);
        let started = Instant::now();
        let acquire = patient.acquire("new").await;
        let renew = patient.renew().await;
        let took = started.elapsed();
        assert!(took < DEADLINE * 4, "two calls with {fault:?} took {took:?}");
        for refused in [acquire, renew] {
            assert_eq!(refused.code(503), "STORE_UNAVAILABLE", "{fault:?}");
            assert_eq!(refused.json()["outcome"], "unknown", "{fault:?}");
            assert!(refused.json()["message"].as_str().unwrap().contains("same requestId"));
            assert_eq!(refused.header("retry-after"), Some("1"));
            patient.assert_discreet(&refused);
        }
        patient.assert_alive_but_not_ready().await;
        patient.assert_recovers().await;
    }
}

/// The state that the metrics show, of which there is one, and for how long.
async fn breaker_in_metrics(baton: &Baton) -> (String, f64) {
    let text = baton.get("/metrics").await.text;
    let value = |line: &str| line.rsplit(' ').next().unwrap().parse::<f64>().unwrap();
    let states: Vec<_> = text.lines().filter(|line| line.starts_with("baton_store_breaker{")).collect();
    assert_eq!(states.len(), 3, "{text}");
    let held: Vec<_> = states.iter().filter(|line| value(line) == 1.0).collect();
    assert_eq!(held.len(), 1, "{states:?}");
    let state = held[0].split('"').nth(1).unwrap().to_owned();
    let seconds = text.lines().find(|line| line.starts_with("baton_store_breaker_state_seconds "));
    (state, value(seconds.unwrap()))
}

#[tokio::test(flavor = "multi_thread")]
async fn the_breaker_of_a_server_that_is_stopped_shows_in_status_and_metrics_and_closes_when_it_is_back() {
    let mut redis = Redis::start(&[]).await.unwrap();
    let url = format!("redis://{}", redis.address);
    let baton = Baton::with(|config| config.store = url).await;
    let breaker = async || baton.get("/v1/status").await.ok()["store"]["breaker"].clone();
    assert_eq!(breaker().await["state"], "closed");
    assert_eq!(breaker_in_metrics(&baton).await.0, "closed");

    let stopped = Instant::now();
    redis.end(true).await.unwrap();
    let refusing = ["open", "half-open"];
    baton.until(async || refusing.contains(&breaker().await["state"].as_str().unwrap())).await;
    // It goes on counting while probes fail.
    let lasting = async || breaker().await["forMillis"].as_u64().unwrap();
    let first = lasting().await;
    baton.until(async || lasting().await > first + 300).await;
    assert!(u128::from(lasting().await) <= stopped.elapsed().as_millis());
    let (state, seconds) = breaker_in_metrics(&baton).await;
    assert!(refusing.contains(&state.as_str()), "{state}");
    assert!(seconds >= 0.3 && seconds <= stopped.elapsed().as_secs_f64(), "{seconds}");

    let back = Instant::now();
    redis.start_again().await.unwrap();
    baton.until(async || breaker().await["state"] == "closed").await;
    assert!(u128::from(lasting().await) <= back.elapsed().as_millis(), "it counts anew");
    assert_eq!(breaker_in_metrics(&baton).await.0, "closed");
    baton.get("/readyz").await.ok();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_is_no_server_has_no_breaker_to_show() {
    let baton = Baton::with(|config| config.store = "embedded:".into()).await;
    assert_eq!(baton.get("/v1/status").await.ok()["store"].get("breaker"), None);
    assert!(!baton.get("/metrics").await.text.contains("breaker"));
}

/// So many call at once.
const CALLERS: usize = 8;

#[tokio::test(flavor = "multi_thread")]
async fn once_the_breaker_is_open_no_check_waits_for_a_store_that_hangs_and_its_first_victims_are_few() {
    let redis = Redis::start(&[]).await.unwrap();
    let directory = tempfile::tempdir().unwrap();
    let store = baton_store::open(&format!("redis://{}", redis.address), directory.path()).await.unwrap();
    let counted = Faulty::new(store);
    let breaker = Breaker::new(Arc::new(counted.clone()));
    let baton = Baton::on(breaker.clone(), |_| {}).await;
    let body = json!({"limit": 1_000_000, "windowMillis": 60_000, "onFailure": "open"}).to_string();
    baton.client().await.call("PUT", "/v1/limits/l", body.as_bytes()).await.ok();
    let check = async || baton.post("/v1/limits/l/check", json!({ "key": "k" })).await.ok();
    assert_eq!(check().await["source"], "central");

    redis.process().unwrap().pause().unwrap();
    let before = counted.calls();
    let hanging = Instant::now();
    while !breaker.is_open() {
        assert!(hanging.elapsed() < Duration::from_secs(20), "it never opens");
        let victims = (0..CALLERS).map(|_| check());
        let answers = futures_util::future::join_all(victims).await;
        assert!(answers.iter().all(|answer| answer["source"] == "fallback"));
    }
    // Those who called at once, once more for who came before the fifth failed, and what the node itself asks.
    let victims = counted.calls() - before;
    assert!(victims <= 4 * CALLERS as u64, "{victims} calls were made to a store that hangs");

    let shown = baton.post("/v1/limits/l/check", json!({ "key": "k" })).await;
    assert_eq!(shown.header("baton-fallback"), Some("open"), "visible without reading the body");
    let (before, began) = (counted.calls(), Instant::now());
    for _ in 0..500 {
        assert_eq!(check().await["source"], "fallback");
    }
    let (calls, probes) = (counted.calls() - before, 2 + began.elapsed().as_secs());
    assert!(calls <= probes, "{calls} calls, although there are at most {probes} probes");
    redis.process().unwrap().resume().unwrap();
    baton.until(async || check().await["source"] == "central").await;
    let shown = baton.post("/v1/limits/l/check", json!({ "key": "k" })).await;
    assert_eq!(shown.header("baton-fallback"), None);
}
