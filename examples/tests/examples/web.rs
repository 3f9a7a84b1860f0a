//! Clients, and an upstream, for a proxy between them.

use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::task::{JoinHandle, JoinSet};

const ANSWER_MAX: Duration = Duration::from_secs(60);
const REQUEST_BYTES_MAX: usize = 64 * 1024;

pub const HERE: Ipv4Addr = Ipv4Addr::LOCALHOST;
pub const ELSEWHERE: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);

/// An edit that must find something to edit: an example that has changed is looked at again.
pub fn replaced(text: &str, old: &str, new: &str) -> String {
    assert!(text.contains(old), "the example has no {old:?} any more");
    text.replace(old, new)
}

/// `GET /`, from an address, with further headers.
pub async fn get(address: SocketAddr, from: Ipv4Addr, headers: &str) -> Answer {
    ask(address, from, &format!("GET / HTTP/1.1\r\n{headers}"), "").await
}

/// The same many times at once: how many pass, and what the others are told.
pub async fn crowd(
    address: SocketAddr,
    count: usize,
    from: Ipv4Addr,
    headers: &'static str,
) -> (usize, Vec<Answer>) {
    let mut asking = JoinSet::new();
    for _ in 0..count {
        asking.spawn(get(address, from, headers));
    }
    let answers = asking.join_all().await;
    let (passed, refused): (Vec<_>, Vec<_>) = answers.into_iter().partition(|found| found.status == 200);
    (passed.len(), refused)
}

#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    /// By names in lower case. Each comes once.
    pub headers: HashMap<String, String>,
    pub body: String,
}

impl Answer {
    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).unwrap_or_else(|| panic!("no {name}: {self:?}"))
    }
}

/// One request on a connection of its own. `head` is its first line and headers.
pub async fn ask(address: SocketAddr, from: Ipv4Addr, head: impl AsRef<[u8]>, body: &str) -> Answer {
    let asking = async {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind((from, 0).into()).unwrap();
        let mut stream = socket.connect(address).await.unwrap();
        let rest = format!("Host: example.com\r\nConnection: close\r\n\r\n{body}");
        stream.write_all(&[head.as_ref(), rest.as_bytes()].concat()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer
    };
    let answer = tokio::time::timeout(ANSWER_MAX, asking).await.expect("the proxy answers in time");
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
pub struct Upstream {
    pub address: SocketAddr,
    served: Arc<AtomicUsize>,
    accepting: JoinHandle<()>,
}

impl Upstream {
    pub async fn start() -> Self {
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

    pub fn served(&self) -> usize {
        self.served.load(Ordering::Relaxed)
    }
}

impl Drop for Upstream {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

/// One request a connection, as the answer says.
async fn serve(mut stream: TcpStream) {
    let mut request = String::new();
    let (head, body) = loop {
        let mut bytes = [0; 4096];
        let count = stream.read(&mut bytes).await.unwrap();
        request.push_str(&String::from_utf8_lossy(&bytes[..count]));
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
