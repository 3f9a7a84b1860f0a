//! A server that answers as a test says.

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::net::TcpListener;
use tokio::task::{AbortHandle, JoinSet};

/// A lock call, alone or out of a batch.
#[derive(Clone, Debug)]
pub struct Seen {
    pub operation: String,
    pub key: String,
    pub body: Value,
    /// Which call of this operation it is, from 1.
    pub number: usize,
    /// Which request it came with, from 1.
    pub request: usize,
    pub at: Instant,
}

impl Seen {
    pub fn request_id(&self) -> &str {
        self.body["requestId"].as_str().expect("calls carry a requestId")
    }
}

/// What to do with a call. The delay of a batch is its longest.
pub enum Act {
    Answer(u16, Value),
    After(Duration, u16, Value),
    /// Take the call and never answer.
    Hang,
    /// Take the call and close the connection: the reply is lost.
    Close,
}

#[derive(Default)]
struct Log {
    seen: Vec<Seen>,
    requests: usize,
    connections: usize,
    left: usize,
}

pub struct Server {
    pub address: SocketAddr,
    log: Arc<Mutex<Log>>,
    task: AbortHandle,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

type Script = dyn Fn(&Seen) -> Act + Send + Sync;

impl Server {
    pub async fn start(script: impl Fn(&Seen) -> Act + Send + Sync + 'static) -> Self {
        Self::start_at("127.0.0.1:0".parse().unwrap(), script).await
    }

    pub async fn start_at(
        address: SocketAddr,
        script: impl Fn(&Seen) -> Act + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind(address).await.unwrap();
        let address = listener.local_addr().unwrap();
        let log = Arc::<Mutex<Log>>::default();
        let script: Arc<Script> = Arc::new(script);
        let task = tokio::spawn(serve(listener, log.clone(), script)).abort_handle();
        Self { address, log, task }
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Calls of one operation, in order of arrival.
    pub fn seen(&self, operation: &str) -> Vec<Seen> {
        let log = self.log.lock().unwrap();
        log.seen.iter().filter(|seen| seen.operation == operation).cloned().collect()
    }

    pub fn requests(&self) -> usize {
        self.log.lock().unwrap().requests
    }

    pub fn connections(&self) -> usize {
        self.log.lock().unwrap().connections
    }

    /// Requests whose client went away before the answer.
    pub fn left(&self) -> usize {
        self.log.lock().unwrap().left
    }
}

async fn serve(listener: TcpListener, log: Arc<Mutex<Log>>, script: Arc<Script>) {
    // Dropped with the server, and every connection with it.
    let mut connections = JoinSet::new();
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        stream.set_nodelay(true).unwrap();
        log.lock().unwrap().connections += 1;
        let (log, script) = (log.clone(), script.clone());
        connections.spawn(async move {
            let service = service_fn(move |request| handle(request, log.clone(), script.clone()));
            hyper::server::conn::http1::Builder::new()
                .serve_connection(TokioIo::new(stream), service)
                .await
                .ok();
        });
    }
}

/// Counts a request as left if it is dropped before its answer.
struct Present(Option<Arc<Mutex<Log>>>);

impl Drop for Present {
    fn drop(&mut self) {
        if let Some(log) = self.0.take() {
            log.lock().unwrap().left += 1;
        }
    }
}

async fn handle(
    request: Request<Incoming>,
    log: Arc<Mutex<Log>>,
    script: Arc<Script>,
) -> Result<Response<Full<Bytes>>, std::io::Error> {
    let path = request.uri().path().to_owned();
    let method = request.method().as_str().to_lowercase();
    let body = request.into_body().collect().await.unwrap().to_bytes();
    let body: Value = serde_json::from_slice(&body).unwrap_or(Value::Null);
    let calls: Vec<(String, String, Value)> = match path.strip_prefix("/v1/locks/") {
        Some(rest) => {
            let (key, operation) = rest.rsplit_once('/').unwrap();
            vec![(operation.to_owned(), key.to_owned(), body)]
        }
        None if path.starts_with("/v1/limits/") => {
            let rest = &path["/v1/limits/".len()..];
            let (name, operation) = rest.split_once('/').unwrap_or((rest, &method));
            vec![(operation.to_owned(), name.to_owned(), body)]
        }
        None if path == "/v1/limits:check" => vec![("checkAll".to_owned(), String::new(), body)],
        None if path == "/v1/locks:acquireAll" => vec![("acquireAll".to_owned(), String::new(), body)],
        None => body["calls"].as_array().unwrap().iter().map(of_batch).collect(),
    };
    let acts: Vec<_> = calls
        .into_iter()
        .enumerate()
        .map(|(index, (operation, key, body))| {
            let seen = {
                let mut log = log.lock().unwrap();
                log.requests += usize::from(index == 0);
                let number = 1 + log.seen.iter().filter(|seen| seen.operation == operation).count();
                let seen = Seen { operation, key, body, number, request: log.requests, at: Instant::now() };
                log.seen.push(seen.clone());
                seen
            };
            let act = script(&seen);
            (seen, act)
        })
        .collect();
    let mut present = Present(Some(log));
    let mut answers = Vec::new();
    let mut delay = Duration::ZERO;
    for (seen, act) in acts {
        match act {
            Act::Answer(status, value) => answers.push((seen, status, value)),
            Act::After(after, status, value) => {
                delay = delay.max(after);
                answers.push((seen, status, value));
            }
            Act::Hang => std::future::pending().await,
            Act::Close => {
                present.0 = None;
                return Err(std::io::Error::other("closed by the script"));
            }
        }
    }
    tokio::time::sleep(delay).await;
    present.0 = None;
    let response = if path == "/v1/batch" {
        // Any order will do: the last goes first.
        let lines: String =
            answers.iter().rev().map(|(seen, status, value)| line(seen, *status, value)).collect();
        Response::new(Full::new(lines.into()))
    } else {
        let (_, status, value) = &answers[0];
        Response::builder().status(*status).body(Full::new(value.to_string().into())).unwrap()
    };
    Ok(response)
}

fn of_batch(call: &Value) -> (String, String, Value) {
    let (operation, body) = call["call"].as_object().unwrap().iter().next().unwrap();
    let mut body = body.clone();
    body["id"] = call["id"].clone();
    (operation.clone(), call["lockKey"].as_str().unwrap().to_owned(), body)
}

fn line(seen: &Seen, status: u16, value: &Value) -> String {
    let kind = if status == 200 { seen.operation.as_str() } else { "error" };
    format!("{}\n", json!({"id": seen.body["id"], "answer": {kind: value}}))
}

pub fn granted(seen: &Seen) -> Value {
    json!({
        "lockKey": seen.key, "lockToken": format!("secret-{}", seen.key), "ownerId": seen.body["ownerId"],
        "fencingToken": 34, "expiresAt": 0, "ttlMillis": seen.body["ttlMillis"], "reentrancyCount": 1,
    })
}

/// All that were asked for at once, each with a token of its own.
pub fn granted_all(seen: &Seen) -> Value {
    let keys = seen.body["lockKeys"].as_array().unwrap().iter();
    let grants = keys.enumerate().map(|(index, key)| {
        let key = key.as_str().unwrap().to_owned();
        let mut grant = granted(&Seen { key, ..seen.clone() });
        grant["fencingToken"] = (34 + index).into();
        grant
    });
    json!({ "grants": grants.collect::<Vec<_>>() })
}

pub fn refused(code: &str) -> Value {
    json!({"error": code, "message": "as the script says", "currentOwner": "someone", "queueLength": 2})
}

/// Grants, renews and releases whatever is asked.
pub fn agree(seen: &Seen) -> Act {
    Act::Answer(
        200,
        match seen.operation.as_str() {
            "acquire" => granted(seen),
            "acquireAll" => granted_all(seen),
            "renew" => json!({"lockKey": seen.key, "expiresAt": 0, "fencingToken": 34}),
            "release" => json!({"status": "RELEASED", "lockKey": seen.key}),
            other => panic!("{other} is not a lock call"),
        },
    )
}

/// Waits for something to become true, within 5 s.
pub async fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < Duration::from_secs(5), "never came true: {what}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

pub const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}
