//! Envoy's rate limit service, as a gRPC client sees it (40-limits, A5): which limit is meant, what is counted, what is answered.

use crate::harness::Baton;
use baton_server::grpc::wire::{
    Code, DescriptorStatus, Entry, RateLimitDescriptor, RateLimitRequest, RateLimitResponse, Unit,
};
use baton_store::embedded::{Embedded, Options};
use baton_testkit::faulty::{DETAIL, Fault, Faulty};
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code as Status, Request};
use tonic_prost::ProstCodec;

pub const METHOD: &str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";
pub const DAY_MS: u64 = 24 * 60 * 60 * 1000;
const PATIENCE: Duration = Duration::from_secs(20);

/// A client of the service, on one connection.
pub struct Envoy(Grpc<Channel>);

impl Envoy {
    pub fn of(address: SocketAddr) -> Self {
        let endpoint = Endpoint::from_shared(format!("http://{address}")).unwrap().timeout(PATIENCE);
        Self(Grpc::new(endpoint.connect_lazy()))
    }

    pub async fn call(
        &mut self,
        method: &'static str,
        request: Request<RateLimitRequest>,
    ) -> Result<RateLimitResponse, tonic::Status> {
        self.0.ready().await.unwrap();
        let codec = ProstCodec::default();
        let answer = self.0.unary(request, PathAndQuery::from_static(method), codec).await?;
        Ok(answer.into_inner())
    }

    pub async fn ask(&mut self, descriptors: Vec<RateLimitDescriptor>) -> RateLimitResponse {
        self.call(METHOD, Request::new(asking(descriptors))).await.unwrap()
    }

    /// The status of a call that isn't answered.
    pub async fn refused(&mut self, request: RateLimitRequest) -> tonic::Status {
        self.call(METHOD, Request::new(request)).await.unwrap_err()
    }
}

/// A request in the domain `edge`.
pub fn asking(descriptors: Vec<RateLimitDescriptor>) -> RateLimitRequest {
    RateLimitRequest { domain: "edge".into(), descriptors, hits_addend: 0 }
}

/// A descriptor of these entries.
pub fn described(entries: &[(&str, &str)]) -> RateLimitDescriptor {
    let entries = entries.iter().map(|(key, value)| Entry { key: (*key).into(), value: (*value).into() });
    RateLimitDescriptor { entries: entries.collect(), ..RateLimitDescriptor::default() }
}

fn counting(entries: &[(&str, &str)], hits: u64) -> RateLimitDescriptor {
    RateLimitDescriptor { hits_addend: Some(hits), ..described(entries) }
}

/// Puts a limit of so many a day; `more` has further fields.
pub async fn limited(baton: &Baton, name: &str, limit: u64, more: Value) {
    let mut body = json!({ "limit": limit, "windowMillis": DAY_MS, "algorithm": "fixed_window" });
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let path = format!("/v1/limits/{}", name.replace('%', "%25").replace('/', "%2F"));
    baton.client().await.call("PUT", &path, body.to_string().as_bytes()).await.ok();
}

async fn used(baton: &Baton, name: &str, key: &str) -> u64 {
    let path = format!("/v1/limits/{}/usage?key={key}", name.replace('/', "%2F"));
    baton.get(&path).await.ok()["used"].as_u64().unwrap()
}

fn codes(answer: &RateLimitResponse) -> Vec<Code> {
    assert_eq!(
        answer.statuses.iter().any(is_over),
        answer.overall_code == Code::OverLimit as i32,
        "{answer:?}"
    );
    answer.statuses.iter().map(|status| Code::try_from(status.code).unwrap()).collect()
}

fn is_over(status: &DescriptorStatus) -> bool {
    status.code == Code::OverLimit as i32
}

fn header<'a>(answer: &'a RateLimitResponse, name: &str) -> Option<&'a str> {
    let mut named = answer.response_headers_to_add.iter().filter(|header| header.key == name);
    let found = named.next().map(|header| header.value.as_str());
    assert!(named.next().is_none(), "{name} comes twice: {answer:?}");
    found
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_passes_as_often_as_its_limit_says_and_is_told_as_over_rest_what_is_left() {
    let baton = Baton::start().await;
    limited(&baton, "edge/remote_address", 2, json!({})).await;
    let mut envoy = Envoy::of(baton.address);
    for left in [1, 0] {
        let answer = envoy.ask(vec![described(&[("remote_address", "10.0.0.1")])]).await;
        assert_eq!(codes(&answer), [Code::Ok]);
        let status = &answer.statuses[0];
        let limit = status.current_limit.as_ref().unwrap();
        assert_eq!((limit.name.as_str(), limit.requests_per_unit), ("edge/remote_address", 2));
        assert_eq!((limit.unit, status.limit_remaining), (Unit::Day as i32, left));
        let reset = status.duration_until_reset.unwrap();
        assert!(reset.seconds < 86_400 && (0..1_000_000_000).contains(&reset.nanos), "{reset:?}");
        assert_eq!(header(&answer, "retry-after"), None);
    }
    let answer = envoy.ask(vec![described(&[("remote_address", "10.0.0.1")])]).await;
    assert_eq!(codes(&answer), [Code::OverLimit]);
    let check = json!({ "key": "10.0.0.1" });
    let rest = baton.post("/v1/limits/edge%2Fremote_address/check", check).await;
    assert_eq!(rest.status, 429);
    assert_eq!(header(&answer, "ratelimit-policy"), Some("\"edge/remote_address\";q=2;w=86400"));
    assert_eq!(header(&answer, "ratelimit-policy"), rest.header("ratelimit-policy"));
    // A second may have passed.
    let seconds = |text: &str, before: &str| text.strip_prefix(before).unwrap().parse::<u64>().unwrap();
    let before = "\"edge/remote_address\";r=0;t=";
    let (here, there) = (header(&answer, "ratelimit").unwrap(), rest.header("ratelimit").unwrap());
    assert!((0..=20).contains(&(seconds(here, before) - seconds(there, before))), "{here} {there}");
    let (here, there) = (header(&answer, "retry-after").unwrap(), rest.header("retry-after").unwrap());
    assert!((0..=20).contains(&(seconds(here, "") - seconds(there, ""))), "{here} {there}");
    let other = envoy.ask(vec![described(&[("remote_address", "10.0.0.2")])]).await;
    assert_eq!(codes(&other), [Code::Ok], "another value has a count of its own");
}

#[tokio::test(flavor = "multi_thread")]
async fn all_descriptors_are_counted_or_none_and_those_without_a_limit_pass() {
    let baton = Baton::start().await;
    limited(&baton, "edge/address", 100, json!({})).await;
    limited(&baton, "edge/tenant/path", 1, json!({})).await;
    let mut envoy = Envoy::of(baton.address);
    let descriptors = || {
        vec![
            described(&[("nobody", "defined")]),
            described(&[("address", "a")]),
            described(&[("tenant", "acme"), ("path", "/v1")]),
        ]
    };
    let answer = envoy.ask(descriptors()).await;
    assert_eq!(codes(&answer), [Code::Ok; 3]);
    assert_eq!(answer.statuses[0], DescriptorStatus { code: Code::Ok as i32, ..Default::default() });
    assert_eq!((answer.statuses[1].limit_remaining, answer.statuses[2].limit_remaining), (99, 0));
    let policies = "\"edge/address\";q=100;w=86400, \"edge/tenant/path\";q=1;w=86400";
    assert_eq!(header(&answer, "ratelimit-policy"), Some(policies));

    let answer = envoy.ask(descriptors()).await;
    assert_eq!(codes(&answer), [Code::Ok, Code::Ok, Code::OverLimit]);
    assert_eq!(used(&baton, "edge/address", "a").await, 1, "the refusal of another counts nothing");
    assert_eq!(used(&baton, "edge/tenant/path", "acme//v1").await, 1);

    let answer = envoy.ask(vec![described(&[("nobody", "defined")])]).await;
    assert_eq!((codes(&answer), answer.response_headers_to_add.len()), (vec![Code::Ok], 0));
    let metrics = baton.get("/metrics").await.text;
    for line in [
        "baton_envoy_descriptors_total{limit=\"none\"} 3",
        "baton_envoy_descriptors_total{limit=\"found\"} 4",
        &format!("baton_http_requests_total{{route=\"{METHOD}\",status=\"2xx\"}} 3"),
    ] {
        assert!(metrics.contains(line), "{line} in {metrics}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_costs_what_it_says_for_all_descriptors_or_for_one() {
    let baton = Baton::start().await;
    limited(&baton, "edge/a", 100, json!({})).await;
    limited(&baton, "edge/b", 100, json!({})).await;
    let mut envoy = Envoy::of(baton.address);
    let descriptors = vec![described(&[("a", "k")]), counting(&[("b", "k")], 2)];
    let request = RateLimitRequest { hits_addend: 5, ..asking(descriptors) };
    let answer = envoy.call(METHOD, Request::new(request)).await.unwrap();
    assert_eq!((answer.statuses[0].limit_remaining, answer.statuses[1].limit_remaining), (95, 98));
    assert_eq!((used(&baton, "edge/a", "k").await, used(&baton, "edge/b", "k").await), (5, 2));
}

#[tokio::test(flavor = "multi_thread")]
async fn zero_hits_look_and_a_look_at_what_is_used_up_refuses_everything() {
    let baton = Baton::start().await;
    limited(&baton, "edge/a", 1, json!({})).await;
    limited(&baton, "edge/b", 100, json!({})).await;
    let mut envoy = Envoy::of(baton.address);
    let mixed = || vec![described(&[("b", "k")]), counting(&[("a", "k")], 0)];
    for _ in 0..3 {
        assert_eq!(codes(&envoy.ask(mixed()).await), [Code::Ok, Code::Ok]);
    }
    assert_eq!(used(&baton, "edge/a", "k").await, 0);
    envoy.ask(vec![described(&[("a", "k")])]).await;
    let answer = envoy.ask(mixed()).await;
    assert_eq!(codes(&answer), [Code::Ok, Code::OverLimit]);
    assert!(header(&answer, "retry-after").is_some(), "{answer:?}");
    assert_eq!(used(&baton, "edge/b", "k").await, 3, "nothing was counted");
    assert_eq!(codes(&envoy.ask(vec![counting(&[("a", "k")], 0)]).await), [Code::OverLimit]);
}

#[tokio::test(flavor = "multi_thread")]
async fn descriptors_that_mean_the_same_key_count_for_it_together() {
    let baton = Baton::start().await;
    limited(&baton, "edge/a", 5, json!({})).await;
    let mut envoy = Envoy::of(baton.address);
    let twice = || vec![described(&[("a", "k")]), counting(&[("a", "k")], 2)];
    let answer = envoy.ask(twice()).await;
    assert_eq!(codes(&answer), [Code::Ok, Code::Ok]);
    assert_eq!(header(&answer, "ratelimit-policy"), Some("\"edge/a\";q=5;w=86400"));
    assert_eq!(used(&baton, "edge/a", "k").await, 3);
    assert_eq!(codes(&envoy.ask(twice()).await), [Code::OverLimit, Code::OverLimit]);
    assert_eq!(used(&baton, "edge/a", "k").await, 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_limit_that_only_counts_refuses_nobody() {
    let baton = Baton::start().await;
    limited(&baton, "edge/a", 1, json!({ "dryRun": true })).await;
    let mut envoy = Envoy::of(baton.address);
    for _ in 0..5 {
        assert_eq!(codes(&envoy.ask(vec![described(&[("a", "k")])]).await), [Code::Ok]);
    }
    assert_eq!(codes(&envoy.ask(vec![counting(&[("a", "k")], 0)]).await), [Code::Ok], "nor does a look");
}

#[tokio::test(flavor = "multi_thread")]
async fn limits_are_those_of_the_namespace_that_the_call_s_metadata_names() {
    let baton = Baton::start().await;
    let body = json!({ "limit": 1, "windowMillis": DAY_MS, "algorithm": "fixed_window" }).to_string();
    let path = "/v1/limits/edge%2Fa?namespace=shop";
    baton.client().await.call("PUT", path, body.as_bytes()).await.ok();
    let mut envoy = Envoy::of(baton.address);
    let within = |namespace: &str| {
        let mut request = Request::new(asking(vec![described(&[("a", "k")])]));
        request.metadata_mut().insert("baton-namespace", namespace.parse().unwrap());
        request
    };
    assert!(envoy.ask(vec![described(&[("a", "k")])]).await.statuses[0].current_limit.is_none());
    assert_eq!(codes(&envoy.call(METHOD, within("shop")).await.unwrap()), [Code::Ok]);
    assert_eq!(codes(&envoy.call(METHOD, within("shop")).await.unwrap()), [Code::OverLimit]);
    let status = envoy.call(METHOD, within(&"x".repeat(129))).await.unwrap_err();
    assert_eq!(status.code(), Status::InvalidArgument);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_meant_is_an_invalid_argument_and_counts_nothing() {
    let baton = Baton::start().await;
    limited(&baton, "edge/a", 5, json!({})).await;
    let mut envoy = Envoy::of(baton.address);
    let fine = || described(&[("a", "k")]);
    for (request, said) in [
        (RateLimitRequest { domain: String::new(), ..asking(vec![fine()]) }, "domain"),
        (asking(vec![]), "descriptors"),
        (asking(vec![fine(); 17]), "descriptors"),
        (asking(vec![fine(), described(&[])]), "entries"),
        (asking(vec![fine(), described(&[("", "v")])]), "key"),
        (asking(vec![fine(), described(&[(&"k".repeat(600), "v")])]), "512"),
        (RateLimitRequest { hits_addend: u32::MAX, ..asking(vec![fine()]) }, "hits_addend"),
        (asking(vec![counting(&[("a", "k")], 600_000_000); 2]), "hits_addend"),
        (asking(vec![RateLimitDescriptor { is_negative_hits: true, ..fine() }]), "receipt"),
        (asking(vec![described(&[("a", &"v".repeat(2 << 20))])]), "bytes"),
    ] {
        let status = envoy.refused(request).await;
        assert_eq!(status.code(), Status::InvalidArgument, "{status:?}");
        assert!(status.message().contains(said), "{said}: {status:?}");
    }
    assert_eq!(used(&baton, "edge/a", "k").await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_cannot_get_past_its_limit_by_the_value_it_is_counted_for() {
    let baton = Baton::start().await;
    limited(&baton, "edge/header", 1, json!({})).await;
    let mut envoy = Envoy::of(baton.address);
    for value in [&b""[..], b"\0\n", b"\xff\xfe", &[b'x'; 60_000]] {
        let entry = Entry { key: "header".into(), value: value.to_vec() };
        let descriptor = RateLimitDescriptor { entries: vec![entry], ..RateLimitDescriptor::default() };
        let answer = envoy.ask(vec![descriptor.clone()]).await;
        assert_eq!(codes(&answer), [Code::Ok], "{:?}", &value[..value.len().min(9)]);
        // As many copies, also of the longest, as there may be descriptors.
        let answer = envoy.ask(vec![descriptor; 16]).await;
        assert_eq!(answer.overall_code, Code::OverLimit as i32, "{:?}", &value[..value.len().min(9)]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn without_the_store_the_policy_decides_and_where_none_is_known_it_is_unavailable() {
    let directory = tempfile::tempdir().unwrap();
    let store = Faulty::new(Arc::new(Embedded::open(directory.path(), Options::default()).unwrap()));
    let baton = Baton::on(Arc::new(store.clone()), |config| {
        config.engine.store_deadline = Duration::from_secs(1);
    })
    .await;
    limited(&baton, "edge/open", 5, json!({ "onFailure": "open" })).await;
    limited(&baton, "edge/closed", 5, json!({})).await;
    let mut envoy = Envoy::of(baton.address);
    let known = || vec![described(&[("open", "k")]), described(&[("nobody", "defined")])];
    assert_eq!(codes(&envoy.ask(known()).await), [Code::Ok, Code::Ok]);
    for fault in [Fault::Unavailable, Fault::Lost] {
        store.set(fault);
        assert_eq!(codes(&envoy.ask(known()).await), [Code::Ok, Code::Ok], "{fault:?}");
        let answer = envoy.ask(vec![described(&[("closed", "k")])]).await;
        assert_eq!(codes(&answer), [Code::OverLimit], "{fault:?}");
        let status = envoy.refused(asking(vec![described(&[("unheard-of", "k")])])).await;
        assert_eq!(status.code(), Status::Unavailable, "{fault:?}: {status:?}");
        assert_eq!(status.metadata().get("grpc-retry-pushback-ms").unwrap(), "1000");
        assert!(!status.message().contains(DETAIL), "{status:?}");
    }
    store.set(Fault::None);
    assert_eq!(codes(&envoy.ask(vec![described(&[("unheard-of", "k")])]).await), [Code::Ok]);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_leased_and_what_is_not_are_counted_together_or_not_at_all() {
    let baton = Baton::start().await;
    limited(&baton, "edge/leased", 200, json!({ "mechanism": "leased" })).await;
    limited(&baton, "edge/central", 1_000, json!({})).await;
    let mut envoy = Envoy::of(baton.address);
    let mut passed = 0;
    for _ in 0..300 {
        let both = vec![described(&[("leased", "k")]), described(&[("central", "k")])];
        let answer = envoy.ask(both).await;
        let codes = codes(&answer);
        assert!(codes == [Code::Ok, Code::Ok] || codes == [Code::OverLimit, Code::Ok], "{answer:?}");
        passed += u64::from(answer.overall_code == Code::Ok as i32);
    }
    assert!((1..=200).contains(&passed), "{passed}");
    assert_eq!(used(&baton, "edge/central", "k").await, passed);
}
