//! `examples/envoy`, as it is but for its ports and times, between clients, a real server and an upstream.

use super::web::{Answer, ELSEWHERE, HERE, Upstream, ask, crowd, get, replaced};
use baton_client::Baton;
use baton_testkit::servers::{baton::Node, envoy::Envoy};
use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

const CONFIGURATION: &str = include_str!("../../envoy/envoy.yaml");
/// The example in which Envoy decides by itself.
const QUOTA: &str = include_str!("../../envoy/quota.yaml");
const LIMITS: &str = include_str!("../../envoy/limits.yaml");
const DEMO: &str = "X-Api-Key: demo-3b1f0c7d9a52\r\n";

/// The example's limits, with a day for a minute: nothing comes back during a test.
async fn baton() -> Node {
    Node::with_limits("embedded:", &replaced(LIMITS, "windowMillis: 60000", "windowMillis: 86400000"))
        .await
        .unwrap()
}

/// Envoy with an upstream behind it.
struct Front {
    envoy: Envoy,
    upstream: Upstream,
}

impl Front {
    /// `changed` is the example, or what somebody makes of it.
    async fn start(baton: SocketAddr, changed: &str) -> Self {
        let upstream = Upstream::start().await;
        let port = |number: u16| format!("port_value: {number} }}");
        let envoy = Envoy::start(|address| {
            let text = replaced(changed, &port(7117), &port(baton.port()));
            let text = replaced(&text, &port(8080), &port(upstream.address.port()));
            replaced(&text, &port(8000), &port(address.port()))
        });
        Self { envoy: envoy.await.unwrap(), upstream }
    }

    async fn get(&self, from: Ipv4Addr, headers: &str) -> Answer {
        get(self.envoy.address(), from, headers).await
    }
}

/// The example, for tests that count to the last one: there a machine's hiccup must not be taken for Baton's absence.
fn patient() -> String {
    replaced(CONFIGURATION, " 0.25s", " 30s")
}

#[tokio::test]
async fn of_100_requests_against_a_limit_of_50_just_50_pass_and_the_others_hear_when_to_come_back() {
    let node = baton().await;
    let front = Front::start(node.process().address, &patient()).await;

    let (passed, refused) = crowd(front.envoy.address(), 100, HERE, "").await;
    assert_eq!((passed, refused.len(), front.upstream.served()), (50, 50, 50));
    for answer in &refused {
        assert_eq!(answer.status, 429, "{answer:?}");
        assert_eq!(answer.header("ratelimit-policy"), "\"edge/remote_address\";q=50;w=86400", "{answer:?}");
        assert!(answer.header("ratelimit").starts_with("\"edge/remote_address\";r=0;t="), "{answer:?}");
        // One of 50 a day comes back every 1,728 s.
        let retry_after: u64 = answer.header("retry-after").parse().unwrap();
        assert!((1..=1728).contains(&retry_after), "{answer:?}");
        assert_eq!(answer.header("x-envoy-ratelimited"), "true");
    }
    // Another address has a count of its own, and hears what is left of it.
    let other = front.get(ELSEWHERE, "").await;
    assert_eq!((other.status, other.header("ratelimit")), (200, "\"edge/remote_address\";r=49;t=1728"));
    assert_eq!(other.headers.get("retry-after"), None);
}

#[tokio::test]
async fn a_request_that_one_descriptor_refuses_counts_for_none() {
    let node = baton().await;
    let front = Front::start(node.process().address, &patient()).await;
    let (passed, refused) = crowd(front.envoy.address(), 20, HERE, DEMO).await;
    assert_eq!((passed, refused.len()), (5, 15));
    for answer in &refused {
        let policy = "\"edge/remote_address\";q=50;w=86400, \"edge/api_key\";q=5;w=86400";
        assert_eq!((answer.status, answer.header("ratelimit-policy")), (429, policy), "{answer:?}");
    }
    let baton = Baton::connect(&node.url()).await.unwrap();
    assert_eq!(baton.limit("edge/remote_address").usage("127.0.0.1").await.unwrap().used, 5);
    assert_eq!(front.get(HERE, "X-Api-Key: another\r\n").await.status, 200);
}

#[tokio::test]
async fn a_header_that_no_key_could_be_is_limited_like_any_other() {
    let node = baton().await;
    let front = Front::start(node.process().address, &patient()).await;
    let baton = Baton::connect(&node.url()).await.unwrap();
    for (value, key) in [(&b"a/b%"[..], "a/b%25"), (b"", "%"), (b"caf\xe9", "caf%E9"), (&[b'x'; 50_000], "")]
    {
        let head = [b"GET / HTTP/1.1\r\nX-Api-Key: ", value, b"\r\n"].concat();
        let answer = ask(front.envoy.address(), HERE, head, "").await;
        assert_eq!(answer.status, 200);
        assert!(answer.header("ratelimit").contains("\"edge/api_key\";r=999;"), "{answer:?}");
        if !key.is_empty() {
            assert_eq!(baton.limit("edge/api_key").usage(key).await.unwrap().used, 1, "{key}");
        }
    }
}

#[tokio::test]
async fn while_baton_is_gone_everybody_passes_or_nobody_as_the_configuration_says() {
    let strict = replaced(&patient(), "failure_mode_deny: false", "failure_mode_deny: true");
    for (configuration, status) in [(patient(), 200), (strict, 500)] {
        let node = baton().await;
        let front = Front::start(node.process().address, &configuration).await;
        assert!(front.get(HERE, "").await.headers.contains_key("ratelimit"));
        node.kill().await.unwrap();
        let answer = front.get(HERE, "").await;
        assert_eq!((answer.status, answer.headers.get("ratelimit")), (status, None), "{answer:?}");
    }
}

#[tokio::test]
async fn while_baton_hangs_a_request_waits_no_longer_than_the_configuration_says() {
    let node = baton().await;
    let front = Front::start(node.process().address, CONFIGURATION).await;
    node.process().pause().unwrap();
    let answer = front.get(HERE, "").await;
    assert_eq!((answer.status, answer.headers.get("ratelimit")), (200, None), "{answer:?}");
}

/// What must happen happens within this.
const PATIENCE: Duration = Duration::from_secs(60);

#[tokio::test]
async fn with_quotas_envoy_decides_by_itself_and_all_that_passes_is_leased_before_and_counted_after() {
    const LIMIT: u64 = 6_000;
    // A fixed window, which forgets nothing while it is looked at.
    let limits = replaced(
        LIMITS,
        "60000, mechanism: leased }",
        "86400000, mechanism: leased, algorithm: fixed_window }",
    );
    let node = Node::with_limits("embedded:", &limits).await.unwrap();
    let front = Front::start(node.process().address, QUOTA).await;
    let baton = Baton::connect(&node.url()).await.unwrap();
    let limit = baton.limit("edge/quota_key");
    let until = Instant::now() + PATIENCE;
    let (mut passed, mut refused) = (0, 0);
    // The first is refused, before anything was assigned; then some pass, and what is more than was assigned doesn't.
    while passed < 30 || refused < 1 {
        let answer = front.get(HERE, "X-Api-Key: k\r\n").await;
        match answer.status {
            200 => passed += 1,
            429 => refused += 1,
            _ => panic!("{answer:?}"),
        }
        let usage = limit.usage("k").await.unwrap();
        assert!(usage.used + usage.outstanding <= LIMIT, "{usage:?}");
        assert!(usage.used <= passed, "{usage:?} of {passed}");
        assert!(passed <= usage.used + usage.outstanding, "{usage:?} of {passed}");
        assert!(Instant::now() < until, "{passed} passed, {refused} did not");
    }
    assert_eq!(front.upstream.served() as u64, passed);
    while limit.usage("k").await.unwrap().used < passed {
        assert!(Instant::now() < until, "{:?} of {passed}", limit.usage("k").await);
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert_eq!(limit.usage("k").await.unwrap().used, passed);
    let leases = limit.leases().await.unwrap().leases;
    assert_eq!(leases.len(), 1, "the stream holds it: {leases:?}");
    // Without a key there is nothing to count for.
    assert_eq!(front.get(HERE, "").await.status, 200);
}
