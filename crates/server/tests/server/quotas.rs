//! Envoy's rate limit quota service, as a gRPC client sees it (40-limits): what is assigned is leased before, reports settle it.

use crate::envoy::{DAY_MS, limited};
use crate::harness::Baton;
use baton_server::grpc::quota_wire::{
    Action, Blanket, BucketId, BucketUsage, QuotaResponse, Rule, UsageReports,
};
use futures_util::stream;
use serde_json::{Value, json};
use std::time::Duration;
use tokio::sync::mpsc;
use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::Endpoint;
use tonic::{Code, Request, Streaming};
use tonic_prost::ProstCodec;

const METHOD: &str = "/envoy.service.rate_limit_quota.v3.RateLimitQuotaService/StreamRateLimitQuotas";
const PATIENCE: Duration = Duration::from_secs(20);

/// A proxy with one stream.
struct Proxy {
    reports: Option<mpsc::Sender<UsageReports>>,
    answers: Streaming<QuotaResponse>,
}

/// What a bucket was told: so many a second, or all, or nothing; and for how many seconds.
#[derive(PartialEq, Eq, Debug)]
enum Told {
    Rate(u32, i64),
    Everything,
    Nothing,
}

fn bucket(key: &str) -> BucketId {
    BucketId { bucket: [("key".to_owned(), key.into())].into() }
}

impl Proxy {
    async fn open(baton: &Baton) -> Result<Self, tonic::Status> {
        let endpoint = Endpoint::from_shared(format!("http://{}", baton.address)).unwrap();
        let mut grpc = Grpc::new(endpoint.connect().await.unwrap());
        grpc.ready().await.unwrap();
        let (reports, received) = mpsc::channel(16);
        let requests = stream::unfold(received, async |mut received: mpsc::Receiver<UsageReports>| {
            Some((received.recv().await?, received))
        });
        let path = PathAndQuery::from_static(METHOD);
        let codec = ProstCodec::<UsageReports, QuotaResponse>::default();
        let answers = grpc.streaming(Request::new(requests), path, codec).await?.into_inner();
        Ok(Self { reports: Some(reports), answers })
    }

    async fn say(&self, domain: &str, usages: Vec<BucketUsage>) {
        let reports = UsageReports { domain: domain.into(), usages };
        self.reports.as_ref().unwrap().send(reports).await.unwrap();
    }

    async fn heard(&mut self) -> Result<Option<QuotaResponse>, tonic::Status> {
        tokio::time::timeout(PATIENCE, self.answers.message()).await.expect("an answer in time")
    }

    /// Reports what passed of a key, and what didn't; what is told then.
    async fn report(&mut self, key: &str, allowed: u64, denied: u64) -> Told {
        let usage = BucketUsage { bucket_id: Some(bucket(key)), allowed, denied };
        self.say("edge", vec![usage]).await;
        let mut response = self.heard().await.unwrap().unwrap();
        assert_eq!(response.actions.len(), 1, "{response:?}");
        let action = response.actions.remove(0);
        assert_eq!(action.bucket_id, Some(bucket(key)));
        let Some(Action::Assign(assigned)) = action.action else { panic!("{action:?}") };
        let seconds = assigned.time_to_live.unwrap().seconds;
        match assigned.strategy.unwrap().rule.unwrap() {
            Rule::Blanket(rule) if rule == Blanket::AllowAll as i32 => Told::Everything,
            Rule::Blanket(_) => Told::Nothing,
            Rule::TokenBucket(bucket) => {
                assert_eq!(bucket.tokens_per_fill, Some(bucket.max_tokens));
                assert_eq!(bucket.fill_interval.unwrap().seconds, 1);
                Told::Rate(bucket.max_tokens, seconds)
            }
        }
    }
}

async fn usage(baton: &Baton, key: &str) -> (u64, u64) {
    let usage = baton.get(&format!("/v1/limits/edge%2Fkey/usage?key={key}")).await.ok();
    let number = |field: &str| usage[field].as_u64().unwrap();
    (number("used"), number("outstanding"))
}

fn leased() -> Value {
    json!({ "mechanism": "leased", "leaseTtlMillis": 10_000 })
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_assigned_was_leased_before_and_what_is_reported_is_counted() {
    let baton = Baton::start().await;
    limited(&baton, "edge/key", 10_000, leased()).await;
    let mut proxy = Proxy::open(&baton).await.unwrap();
    assert_eq!(proxy.report("k", 2, 1).await, Told::Rate(10, 8), "for a start");
    let told = proxy.report("k", 0, 0).await;
    let Told::Rate(rate, 8) = told else { panic!("{told:?}") };
    // A second's worth at once, the rate for as long as it is assigned, and for the time that messages are under way.
    let (used, outstanding) = usage(&baton, "k").await;
    assert_eq!(used, 2, "what passed before");
    assert!(outstanding >= u64::from(rate) * (1 + 8 + 2), "{outstanding} for {rate} a second");
    let leases = baton.get("/v1/limits/edge%2Fkey/leases").await.ok();
    assert_eq!(leases["leases"].as_array().unwrap().len(), 1, "{leases}");
    proxy.report("k", 7, 0).await;
    assert_eq!(usage(&baton, "k").await.0, 2 + 7);
    // It lives on when the stream ends: the proxy may go on with what it was assigned.
    proxy.reports = None;
    assert_eq!(proxy.heard().await.unwrap(), None);
    assert!(usage(&baton, "k").await.1 > 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn several_proxies_are_never_assigned_more_than_the_limit() {
    const LIMIT: u64 = 1_000;
    let baton = Baton::start().await;
    limited(&baton, "edge/key", LIMIT, leased()).await;
    let mut proxies = Vec::new();
    for _ in 0..3 {
        proxies.push(Proxy::open(&baton).await.unwrap());
    }
    let (mut passed, mut refused) = (0, 0);
    while refused < 3 {
        refused = 0;
        for proxy in &mut proxies {
            // Each lets pass a second's worth of whatever it is told.
            match proxy.report("k", 0, 500).await {
                Told::Rate(rate, _) => {
                    passed += u64::from(rate);
                    proxy.report("k", u64::from(rate), 500).await;
                }
                Told::Nothing => refused += 1,
                Told::Everything => panic!("it is limited"),
            }
        }
        let (used, outstanding) = usage(&baton, "k").await;
        assert!(used == passed && used + outstanding <= LIMIT, "{used} of {passed} and {outstanding}");
    }
    assert!(passed > LIMIT / 2, "{passed}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_proxy_vanishes_with_counts_as_spent_when_its_lease_is_over() {
    let baton = Baton::start().await;
    limited(&baton, "edge/key", 1_000, json!({ "mechanism": "leased", "leaseTtlMillis": 100 })).await;
    let mut proxy = Proxy::open(&baton).await.unwrap();
    let told = proxy.report("k", 0, 0).await;
    assert!(matches!(told, Told::Rate(_, 1)), "{told:?}");
    let (_, outstanding) = usage(&baton, "k").await;
    drop(proxy);
    let until = std::time::Instant::now() + PATIENCE;
    while usage(&baton, "k").await != (outstanding, 0) {
        assert!(std::time::Instant::now() < until, "{:?} of {outstanding}", usage(&baton, "k").await);
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_has_no_limit_passes_what_only_counts_too_and_of_what_is_not_leased_nothing_is_said() {
    let baton = Baton::start().await;
    let mut proxy = Proxy::open(&baton).await.unwrap();
    assert_eq!(proxy.report("k", 5, 0).await, Told::Everything);
    limited(&baton, "edge/key", 100, json!({ "dryRun": true })).await;
    assert_eq!(proxy.report("k", 20, 0).await, Told::Everything);
    assert_eq!(usage(&baton, "k").await.0, 20);
    limited(&baton, "edge/key", 10, json!({})).await;
    limited(&baton, "edge/other", 1_000, leased()).await;
    let other = BucketId { bucket: [("other".to_owned(), "k".into())].into() };
    let usages =
        [bucket("k"), other.clone()].map(|id| BucketUsage { bucket_id: Some(id), ..BucketUsage::default() });
    proxy.say("edge", usages.into()).await;
    let actions = proxy.heard().await.unwrap().unwrap().actions;
    assert_eq!(actions.iter().map(|action| action.bucket_id.clone().unwrap()).collect::<Vec<_>>(), [other]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_report_that_makes_no_sense_ends_the_stream_with_the_reason() {
    let baton = Baton::start().await;
    let usage = || BucketUsage { bucket_id: Some(bucket("k")), ..BucketUsage::default() };
    let unnamed = BucketUsage { bucket_id: Some(BucketId::default()), ..BucketUsage::default() };
    for (domain, usages) in [
        ("", vec![usage()]),
        ("edge", vec![BucketUsage::default()]),
        ("edge", vec![unnamed]),
        (&*"d".repeat(600), vec![usage()]),
    ] {
        let mut proxy = Proxy::open(&baton).await.unwrap();
        proxy.say(domain, usages).await;
        assert_eq!(proxy.heard().await.unwrap_err().code(), Code::InvalidArgument, "{domain}");
    }
    let mut proxy = Proxy::open(&baton).await.unwrap();
    proxy.report("k", 0, 0).await;
    proxy.say("another", vec![usage()]).await;
    assert_eq!(proxy.heard().await.unwrap_err().code(), Code::InvalidArgument, "a stream is of one domain");
}

#[tokio::test(flavor = "multi_thread")]
async fn streams_are_bounded_and_end_when_the_server_stops() {
    let mut baton = Baton::with(|config| config.max_watchers = 1).await;
    limited(&baton, "edge/key", DAY_MS / 1000, leased()).await;
    let mut proxy = Proxy::open(&baton).await.unwrap();
    proxy.report("k", 0, 0).await;
    let refused = Proxy::open(&baton).await.err().map(|status| status.code());
    assert_eq!(refused, Some(Code::Unavailable));
    baton.stop();
    assert_eq!(proxy.heard().await.unwrap_err().code(), Code::Unavailable);
    baton.stopped().await;
}
