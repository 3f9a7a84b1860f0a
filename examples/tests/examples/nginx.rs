//! `examples/nginx/limited.conf`, as it is but for its addresses, between clients, a real server and an upstream.

use super::web::{Answer, ELSEWHERE, HERE, Upstream, ask, crowd, get, replaced};
use baton_client::{Baton, LimitDefinition};
use baton_testkit::proxy::Proxy;
use baton_testkit::servers::{baton::Node, nginx::Nginx};
use std::net::{Ipv4Addr, SocketAddr};

const CONFIGURATION: &str = include_str!("../../nginx/limited.conf");
/// So long that nothing comes back during a test.
const DAY_MS: u64 = 24 * 60 * 60 * 1000;

const ACME: &str = "X-Api-Key: demo-3b1f0c7d9a52\r\n";
const GLOBEX: &str = "X-Api-Key: demo-90e2aa41d6c8\r\n";

/// NGINX with an upstream behind it.
struct Front {
    nginx: Nginx,
    upstream: Upstream,
}

impl Front {
    /// `changed` is the example, or what somebody makes of it.
    async fn start(baton: SocketAddr, changed: &str) -> Self {
        let upstream = Upstream::start().await;
        let nginx = Nginx::start(|directory, address| {
            let socket = format!("unix:{}/baton.sock", directory.display());
            let text = replaced(changed, "127.0.0.1:7117", &baton.to_string());
            let text = replaced(&text, "127.0.0.1:8080", &upstream.address.to_string());
            let text = replaced(&text, "127.0.0.1:8000", &address.to_string());
            replaced(&text, "unix:/run/nginx-baton.sock", &socket)
        });
        Self { nginx: nginx.await.unwrap(), upstream }
    }

    /// `GET /`, from an address, with further headers.
    async fn get(&self, from: Ipv4Addr, headers: &str) -> Answer {
        get(self.nginx.address(), from, headers).await
    }

    /// The same many times at once: how many pass, and what the others are told.
    async fn crowd(&self, count: usize, from: Ipv4Addr, headers: &'static str) -> (usize, Vec<Answer>) {
        crowd(self.nginx.address(), count, from, headers).await
    }
}

/// The example, for tests that count to the last one: there a machine's hiccup must not be taken for Baton's absence.
fn patient() -> String {
    replaced(&replaced(CONFIGURATION, "timeout 250ms;", "timeout 30s;"), "timeout 3s;", "timeout 30s;")
}

/// A server with the limit that the example asks for.
async fn limited_to(limit: u64) -> (Node, Baton) {
    let node = Node::start("embedded:").await.unwrap();
    let baton = Baton::connect(node.url()).await.unwrap();
    baton.limits().put("api", &LimitDefinition::new(limit, DAY_MS)).await.unwrap();
    (node, baton)
}

#[tokio::test]
async fn of_100_requests_against_a_limit_of_50_just_50_pass_and_the_others_hear_when_to_come_back() {
    let (node, _) = limited_to(50).await;
    let front = Front::start(node.process().address, &patient()).await;

    let (passed, refused) = front.crowd(100, HERE, "").await;
    assert_eq!((passed, refused.len(), front.upstream.served()), (50, 50, 50));
    for answer in &refused {
        assert_eq!(answer.status, 429, "{answer:?}");
        assert_eq!(answer.header("ratelimit-policy"), "\"api\";q=50;w=86400", "{answer:?}");
        assert!(answer.header("ratelimit").starts_with("\"api\";r=0;t="), "{answer:?}");
        // One of 50 a day comes back every 1,728 s.
        let retry_after: u64 = answer.header("retry-after").parse().unwrap();
        assert!((1..=1728).contains(&retry_after), "{answer:?}");
    }

    // Neither another address nor those who have a key are affected, and each key has a limit of its own.
    let other = front.get(ELSEWHERE, "").await;
    assert_eq!((other.status, other.header("ratelimit")), (200, "\"api\";r=49;t=1728"), "{other:?}");
    assert_eq!(other.header("ratelimit-policy"), "\"api\";q=50;w=86400");
    assert_eq!(other.headers.get("retry-after"), None);
    let (passed, refused) = front.crowd(60, HERE, ACME).await;
    assert_eq!((passed, refused.len()), (50, 10));
    assert_eq!(front.get(HERE, GLOBEX).await.status, 200);
    assert_eq!(front.get(ELSEWHERE, ACME).await.status, 429, "a key is the same from everywhere");
}

#[tokio::test]
async fn what_the_upstream_is_asked_and_answers_goes_through_unchanged() {
    let (node, _) = limited_to(50).await;
    let front = Front::start(node.process().address, &patient()).await;

    let (head, body) = ("POST /echo HTTP/1.1\r\nContent-Length: 5\r\n", "hello");
    let answer = ask(front.nginx.address(), HERE, head, body).await;
    assert_eq!((answer.status, answer.body.as_str()), (200, "hello"), "{answer:?}");
    let answer = ask(front.nginx.address(), HERE, "GET /forbidden HTTP/1.1\r\n", "").await;
    assert_eq!(answer.status, 403, "the upstream's no isn't the limit's: {answer:?}");
}

#[tokio::test]
async fn a_key_that_is_not_known_counts_for_its_address_whatever_is_in_it() {
    let (node, baton) = limited_to(3).await;
    let front = Front::start(node.process().address, &patient()).await;

    for made_up in
        ["X-Api-Key: mine\r\n", "X-Api-Key: x\",\"cost\":0,\"receipt\":\"\r\n", "X-Api-Key: \\\r\n"]
    {
        assert_eq!(front.get(HERE, made_up).await.status, 200);
    }
    assert_eq!(front.get(HERE, "X-Api-Key: another\r\n").await.status, 429);
    assert_eq!(baton.limit("api").usage("address:127.0.0.1").await.unwrap().used, 3);
}

#[tokio::test]
async fn keys_by_their_pattern_have_limits_of_their_own_and_nothing_that_ends_a_string_is_one() {
    let (node, baton) = limited_to(2).await;
    let with_pattern = replaced(&patient(), "# \"~^", "\"~^");
    let front = Front::start(node.process().address, &with_pattern).await;

    for key in ["mine", "another"] {
        assert_eq!(front.get(HERE, &format!("X-Api-Key: {key}\r\n")).await.status, 200);
        assert_eq!(baton.limit("api").usage(&format!("key:{key}")).await.unwrap().used, 1);
    }
    let too_long = format!("X-Api-Key: {}\r\n", "x".repeat(65));
    for unsafe_key in ["X-Api-Key: x\",\"cost\":0,\"y\":\"\r\n", &too_long] {
        assert_eq!(front.get(HERE, unsafe_key).await.status, 200);
    }
    assert_eq!(front.get(HERE, "X-Api-Key: x\\\r\n").await.status, 429);
    assert_eq!(front.get(HERE, ACME).await.status, 200, "a listed one goes before the pattern");
    assert_eq!(baton.limit("api").usage("customer:acme").await.unwrap().used, 1);
}

#[tokio::test]
async fn checks_one_after_the_other_share_a_connection() {
    let (node, _) = limited_to(10).await;
    let proxy = Proxy::start(node.process().address).await.unwrap();
    let front = Front::start(proxy.address(), &patient()).await;

    assert_eq!(front.get(HERE, "").await.status, 200);
    // Whoever wants another connection from here on doesn't get it, and nobody is limited any more.
    proxy.refuse();
    for left in (0..9).rev() {
        let answer = front.get(HERE, "").await;
        let expected = format!("\"api\";r={left};t=");
        assert!(answer.header("ratelimit").starts_with(&expected), "{left} left: {answer:?}");
    }
    for _ in 0..10 {
        assert_eq!(front.get(HERE, "").await.status, 429, "a refusal, too, leaves the connection");
    }
}

/// Uses up what the clients here may do, without NGINX and its time-outs.
async fn use_up(baton: &Baton) {
    while baton.limit("api").check("address:127.0.0.1").await.unwrap().is_allowed() {}
}

#[tokio::test]
async fn while_baton_hangs_or_is_gone_everybody_passes() {
    let (node, baton) = limited_to(5).await;
    let front = Front::start(node.process().address, CONFIGURATION).await;
    use_up(&baton).await;

    node.process().pause().unwrap();
    let answer = front.get(HERE, "").await;
    assert_eq!((answer.status, answer.headers.get("ratelimit")), (200, None), "{answer:?}");
    node.kill().await.unwrap();
    for _ in 0..20 {
        let answer = front.get(HERE, "").await;
        assert_eq!((answer.status, answer.headers.get("ratelimit")), (200, None), "{answer:?}");
    }
    assert_eq!(front.upstream.served(), 21);
}

#[tokio::test]
async fn without_the_lines_that_let_everybody_pass_nobody_does_while_baton_is_gone() {
    let (node, _) = limited_to(5).await;
    let strict = replaced(&patient(), "error_page 502 503 504 = @unlimited;", "");
    let strict = replaced(&strict, "proxy_intercept_errors on;", "");
    let front = Front::start(node.process().address, &strict).await;

    assert_eq!(front.get(HERE, "").await.status, 200);
    node.kill().await.unwrap();
    assert_eq!(front.get(HERE, "").await.status, 500);
    assert_eq!(front.upstream.served(), 1);
}

#[tokio::test]
async fn a_limit_that_is_not_defined_lets_nobody_pass_and_the_error_log_says_why() {
    let node = Node::start("embedded:").await.unwrap();
    let front = Front::start(node.process().address, &patient()).await;

    assert_eq!(front.get(HERE, "").await.status, 500);
    assert_eq!(front.upstream.served(), 0);
    let errors = front.nginx.errors().unwrap();
    assert!(errors.contains("auth request unexpected status: 404"), "{errors}");
}
