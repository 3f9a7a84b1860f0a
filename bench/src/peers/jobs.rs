//! Jobs of a server, and what they call: a sink that notes when a request came, and answers it at once.

use crate::http::{Connection, put};
use crate::load::Client;
use anyhow::{Context, ensure};
use baton_core::job::RunId;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";
const KEY: &[u8] = b"\r\nidempotency-key: ";
/// A run's id is shorter than this.
const KEY_BYTES_MAX: usize = 128;
/// Connections that a server's jobs are put by.
const CONNECTIONS: usize = 16;

/// Where jobs send their requests to.
pub struct Sink {
    pub address: SocketAddr,
    arrived: Arc<Mutex<Vec<(RunId, u64)>>>,
}

impl Sink {
    pub async fn start() -> anyhow::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let arrived = Arc::<Mutex<Vec<_>>>::default();
        let noted = arrived.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let noted = noted.clone();
                // It ends with the connection.
                tokio::spawn(async move { drop(serve(stream, &noted).await) });
            }
        });
        Ok(Self { address, arrived })
    }

    /// All that came so far, and when: microseconds since the Unix epoch. What is asked for later begins after it.
    pub fn take(&self) -> Vec<(RunId, u64)> {
        std::mem::take(&mut *self.arrived.lock().expect("no panic while held"))
    }

    /// How many came since the last time that they were taken.
    pub fn count(&self) -> usize {
        self.arrived.lock().expect("no panic while held").len()
    }

    /// A job that calls it.
    pub fn job(&self, schedule: &str, jitter_ms: u64) -> String {
        let url = format!("http://{}/", self.address);
        format!(
            r#"{{"schedule":"{schedule}","jitterMillis":{jitter_ms},"keepRuns":10,"target":{{"http":{{"url":"{url}"}}}}}}"#
        )
    }
}

/// Now, in microseconds since the Unix epoch.
pub fn now_us() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_micros() as u64)
}

/// Requests have no body, and one connection has one of them at a time.
async fn serve(mut stream: TcpStream, noted: &Mutex<Vec<(RunId, u64)>>) -> anyhow::Result<()> {
    stream.set_nodelay(true)?;
    let (mut buffer, mut length) = ([0; 2048], 0);
    loop {
        let read = stream.read(&mut buffer[length..]).await?;
        if read == 0 {
            return Ok(());
        }
        length += read;
        if buffer[..length].ends_with(b"\r\n\r\n") {
            let (now, head) = (now_us(), &buffer[..length]);
            let at = head.windows(KEY.len()).position(|part| part == KEY).context("no key")? + KEY.len();
            let key = head[at..].iter().take(KEY_BYTES_MAX).take_while(|byte| **byte != b'\r');
            let key = String::from_utf8(key.copied().collect())?;
            let run = RunId::parse(&key).context("not a run's id")?;
            noted.lock().expect("no panic while held").push((run, now));
            stream.write_all(ANSWER).await?;
            length = 0;
        }
    }
}

/// Puts so many jobs, `{prefix}{number}`, on a few connections.
pub async fn define(address: SocketAddr, prefix: &'static str, jobs: usize, job: &str) -> anyhow::Result<()> {
    let fill = |part: usize, job: String| async move {
        let mut connection = Connection::open(address).await?;
        for number in (part..jobs).step_by(CONNECTIONS) {
            connection.exchange(&put(&format!("/v1/jobs/{prefix}{number:06}"), &job)).await?;
        }
        anyhow::Ok(())
    };
    let parts: Vec<_> = (0..CONNECTIONS).map(|part| tokio::spawn(fill(part, job.to_owned()))).collect();
    for part in parts {
        part.await??;
    }
    Ok(())
}

/// A job as it may be in real life, due once a year.
pub fn yearly() -> &'static str {
    r#"{"schedule":"H H 1 1 *","timeZone":"Europe/Berlin","target":{"http":{"url":"https://reports.example.com/yearly"}}}"#
}

/// Edits one job over and over, so that it says something else each time.
pub struct Edits {
    connection: Connection,
    edits: [Vec<u8>; 2],
    next: usize,
}

impl Edits {
    /// So many of them, each with a job of its own.
    pub async fn connect(address: SocketAddr, clients: usize) -> anyhow::Result<Vec<Self>> {
        let mut edits = Vec::with_capacity(clients);
        for client in 0..clients {
            let edit = |month: &str| {
                put(
                    &format!("/v1/jobs/edited:{client:06}"),
                    &yearly().replace("1 1 *", &format!("1 {month} *")),
                )
            };
            let connection = Connection::open(address).await?;
            edits.push(Self { connection, edits: [edit("1"), edit("2")], next: 0 });
        }
        Ok(edits)
    }
}

impl Client for Edits {
    async fn operate(&mut self) -> anyhow::Result<Duration> {
        let began = Instant::now();
        self.connection.exchange(&self.edits[self.next]).await?;
        self.next = 1 - self.next;
        Ok(began.elapsed())
    }
}

/// How late a server says its runs were: how many at most so many seconds, for each bound of its histogram.
pub struct Buckets(Vec<(f64, f64)>);

impl Buckets {
    pub async fn read(address: SocketAddr, histogram: &str) -> anyhow::Result<Self> {
        let mut connection = Connection::open(address).await?;
        let body = connection.exchange(b"GET /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n").await?;
        let begins = format!("{histogram}_bucket{{le=\"");
        let mut buckets = Vec::new();
        for line in std::str::from_utf8(body)?.lines().filter_map(|line| line.strip_prefix(&begins)) {
            let (bound, count) = line.split_once("\"}").context("no bound")?;
            let bound = if bound == "+Inf" { f64::INFINITY } else { bound.parse()? };
            buckets.push((bound, count.trim().parse()?));
        }
        ensure!(!buckets.is_empty(), "no {histogram}");
        Ok(Self(buckets))
    }

    /// What came after another reading.
    pub fn since(mut self, before: &Self) -> Self {
        self.0.iter_mut().zip(&before.0).for_each(|((_, count), (_, before))| *count -= before);
        self
    }

    /// The part that was at most this late.
    pub fn within(&self, seconds: f64) -> f64 {
        let of = |bound: f64| self.0.iter().find(|(it, _)| *it >= bound).map_or(0.0, |(_, count)| *count);
        of(seconds) / of(f64::INFINITY).max(1.0)
    }

    /// The bound that this part of all was within, in milliseconds.
    pub fn quantile_ms(&self, part: f64) -> f64 {
        let all = self.0.last().map_or(0.0, |(_, count)| *count);
        self.0.iter().find(|(_, count)| *count >= part * all).map_or(f64::INFINITY, |(bound, _)| bound * 1e3)
    }
}
