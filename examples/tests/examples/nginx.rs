//! `examples/nginx/limited.conf`, as it is but for its addresses, between clients, a real server and an upstream.

use baton_client::{Baton, LimitDefinition};
use baton_testkit::proxy::Proxy;
use baton_testkit::servers::{baton::Node, nginx::Nginx};
use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::task::{JoinHandle, JoinSet};

const CONFIGURATION: &str = include_str!("../../nginx/limited.conf");
/// So long that nothing comes back during a test.
const DAY_MS: u64 = 24 * 60 * 60 * 1000;
const ANSWER_MAX: Duration = Duration::from_secs(60);
const REQUEST_BYTES_MAX: usize = 64 * 1024;

const HERE: Ipv4Addr = Ipv4Addr::LOCALHOST;
const ELSEWHERE: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);
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
        ask(self.nginx.address(), from, &format!("GET / HTTP/1.1\r\n{headers}"), "").await
    }

    /// The same many times at once: how many pass, and what the others are told.
    async fn crowd(&self, count: usize, from: Ipv4Addr, headers: &'static str) -> (usize, Vec<Answer>) {
        let address = self.nginx.address();
        let mut asking = JoinSet::new();
        for _ in 0..count {
            asking
                .spawn(async move { ask(address, from, &format!("GET / HTTP/1.1\r\n{headers}"), "").await });
        }
        let answers = asking.join_all().await;
        let (passed, refused): (Vec<_>, Vec<_>) = answers.into_iter().partition(|found| found.status == 200);
        (passed.len(), refused)
    }
}

/// An edit that must find something to edit: an example that has changed is looked at again.
fn replaced(text: &str, old: &str, new: &str) -> String {
    assert!(text.contains(old), "the example has no {old:?} any more");
    text.replace(old, new)
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

#[derive(Debug)]
struct Answer {
    status: u16,
    /// By names in lower case. Each comes once.
    headers: HashMap<String, String>,
    body: String,
}

impl Answer {
    fn header(&self, name: &str) -> &str {
        self.headers.get(name).unwrap_or_else(|| panic!("no {name}: {self:?}"))
    }
}

/// One request on a connection of its own. `head` is its first line and headers.
async fn ask(address: SocketAddr, from: Ipv4Addr, head: &str, body: &str) -> Answer {
    let asking = async {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind((from, 0).into()).unwrap();
        let mut stream = socket.connect(address).await.unwrap();
        let request = format!("{head}Host: example.com\r\nConnection: close\r\n\r\n{body}");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer
    };
    let answer = tokio::time::timeout(ANSWER_MAX, asking).await.expect("NGINX answers in time");
    let (head, body) = answer.split_once("\r\n\r\n").expect("an answer has a head");
    let mut lines = head.lines();
    let status = lines.next().and_then(|line| line.split(' ').nth(1)).unwrap().parse().unwrap();
    let mut headers = HashMap::new();
    for (name, value) in lines.filter_map(|line| line.split_once(": ")) {
        let before = headers.insert(name.to_lowercase(), value.to_owned());
        assert_eq!(before, None, "{name} comes twice: {answer}");
    }
    Answer { status, headers, body: body.to_owned() }
}

/// Answers every request: with its own body, or with 403 below `/forbidden`.
struct Upstream {
    address: SocketAddr,
    served: Arc<AtomicUsize>,
    accepting: JoinHandle<()>,
}

impl Upstream {
    async fn start() -> Self {
        let listener = TcpListener::bind((HERE, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let served = Arc::new(AtomicUsize::new(0));
        let counted = served.clone();
        let accepting = tokio::spawn(async move {
            // Ends with its connections when it is aborted.
            let mut serving = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                counted.fetch_add(1, Ordering::Relaxed);
                serving.spawn(serve(stream));
            }
        });
        Self { address, served, accepting }
    }

    fn served(&self) -> usize {
        self.served.load(Ordering::Relaxed)
    }
}

impl Drop for Upstream {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

/// NGINX makes a connection for each request to an upstream that isn't told otherwise.
async fn serve(mut stream: TcpStream) {
    let mut request = String::new();
    let (head, body) = loop {
        let mut bytes = [0; 4096];
        let count = stream.read(&mut bytes).await.unwrap();
        request.push_str(std::str::from_utf8(&bytes[..count]).unwrap());
        assert!(count > 0 && request.len() < REQUEST_BYTES_MAX, "not a whole request: {request}");
        if let Some((head, body)) = request.split_once("\r\n\r\n") {
            let length = head.lines().find_map(|line| line.strip_prefix("Content-Length: "));
            if body.len() >= length.map_or(0, |length| length.parse().unwrap()) {
                break (head, body);
            }
        }
    };
    let status = if head.starts_with("GET /forbidden ") { "403 Forbidden" } else { "200 OK" };
    let length = body.len();
    let answer = format!("HTTP/1.1 {status}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}");
    stream.write_all(answer.as_bytes()).await.unwrap();
}
