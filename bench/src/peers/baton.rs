//! Baton itself: the release binary, `baton serve`, with its defaults.

use crate::http::{Connection, Lines, post, text_of};
use crate::load::Client;
use crate::machine::Place;
use crate::peers::jobs::Sink;
use anyhow::{Context, bail};
use baton_testkit::process::{Process, free_address};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// An owner as it may be in real life.
pub const OWNER: &str = "order-service-pod-7f9c";
/// Long enough that nothing expires while it is measured.
const TTL_MS: u64 = 3_600_000;
/// How long it may take until everybody is in a queue, or out of it.
const QUEUED_MAX: Duration = Duration::from_secs(30);
/// As many as a batch takes.
pub const BATCH_MAX: usize = 256;

/// Builds the binary that belongs to this source, where this program was built.
pub fn build(place: &Place) -> anyhow::Result<PathBuf> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = std::process::Command::new(cargo);
    command.args(["build", "--release", "-p", "baton"]).current_dir(&place.source);
    let status = command.env("CARGO_TARGET_DIR", &place.target).status().context("can't run cargo")?;
    if !status.success() {
        bail!("the baton binary can't be built");
    }
    Ok(place.target.join("release/baton"))
}

/// A server on a data directory. The process goes before its directory.
pub struct Baton {
    /// The process.
    pub process: Process,
    directory: tempfile::TempDir,
}

impl Baton {
    /// Starts one on an empty directory.
    pub async fn start(binary: &Path, place: &Place) -> anyhow::Result<Self> {
        Self::start_on(binary, place.directory()?).await
    }

    /// Starts one on what is in a directory's `data`.
    pub async fn start_on(binary: &Path, directory: tempfile::TempDir) -> anyhow::Result<Self> {
        Self::serve(binary, directory, "embedded:", &[]).await
    }

    /// Starts one with a worker a core, as what it is held against has.
    pub async fn start_wide(binary: &Path, place: &Place) -> anyhow::Result<Self> {
        let workers = std::thread::available_parallelism()?.to_string();
        Self::serve(binary, place.directory()?, "embedded:", &["--workers", &workers]).await
    }

    /// Starts one whose jobs may call a sink.
    pub async fn start_for_jobs(binary: &Path, place: &Place, sink: &Sink) -> anyhow::Result<Self> {
        let allowed = sink.address.to_string();
        Self::serve(binary, place.directory()?, "embedded:", &["--job-allow", &allowed]).await
    }

    /// Starts one node of those that share a store.
    pub async fn start_with(binary: &Path, place: &Place, store: &str) -> anyhow::Result<Self> {
        Self::serve(binary, place.directory()?, store, &[]).await
    }

    async fn serve(
        binary: &Path,
        directory: tempfile::TempDir,
        store: &str,
        more: &[&str],
    ) -> anyhow::Result<Self> {
        let address = free_address()?;
        let listen = address.to_string();
        let arguments = ["serve", "--log-format", "json", "--listen", &listen, "--store", store, "--data"];
        let data = directory.path().join("data");
        let arguments = arguments.iter().map(AsRef::as_ref).chain([data.as_os_str()]);
        let arguments = arguments.chain(more.iter().map(AsRef::as_ref));
        let process = Process::start("baton", binary, arguments, address, directory.path())?;
        let process = process.listening(directory.path()).await?;
        Ok(Self { process, directory })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.process.address
    }

    /// Stops it, and gives back its directory with the data in it.
    pub async fn stop(self) -> anyhow::Result<tempfile::TempDir> {
        self.process.stop().await?;
        Ok(self.directory)
    }

    /// Acquires so many locks, `{prefix}{number}`, by batches on a few connections.
    pub async fn hold(&self, prefix: &'static str, locks: usize) -> anyhow::Result<()> {
        const CONNECTIONS: usize = 4;
        let address = self.address();
        let fill = |part: usize| async move {
            let mut connection = Connection::open(address).await?;
            let mut next = part;
            while next < locks {
                let calls = (next..locks).step_by(CONNECTIONS).take(BATCH_MAX);
                let request = batch(calls.clone().map(|lock| (format!("{prefix}{lock:06}"), false)));
                let mut lines = connection.batch(&request).await?;
                for _ in calls.clone() {
                    let line = lines.next().await?.context("a batch ended early")?;
                    if text_of(line, "lockToken").is_none() {
                        bail!("not granted: {}", String::from_utf8_lossy(line));
                    }
                }
                if lines.next().await?.is_some() {
                    bail!("a batch had more answers than calls");
                }
                connection = lines.into_connection();
                next += CONNECTIONS * BATCH_MAX;
            }
            anyhow::Ok(())
        };
        let parts: Vec<_> = (0..CONNECTIONS).map(|part| tokio::spawn(fill(part))).collect();
        for part in parts {
            part.await??;
        }
        Ok(())
    }

    /// Lets so many more wait for a lock by as few connections as can be, and waits until they all do.
    pub async fn queue(&self, key: &str, waiters: usize) -> anyhow::Result<Vec<Lines>> {
        let mut streams = Vec::new();
        let before = self.queue_length(key).await?;
        let mut left = waiters;
        while left > 0 {
            let calls = left.min(BATCH_MAX);
            let request = batch((0..calls).map(|_| (key.to_owned(), true)));
            streams.push(Connection::open(self.address()).await?.batch(&request).await?);
            left -= calls;
        }
        self.queued(key, before + waiters).await?;
        Ok(streams)
    }

    /// Waits until exactly that many wait for a lock.
    pub async fn queued(&self, key: &str, waiters: usize) -> anyhow::Result<()> {
        let until = Instant::now() + QUEUED_MAX;
        loop {
            // While many join or leave, a look at the lock may be refused.
            let length = self.queue_length(key).await;
            if length.as_ref().is_ok_and(|length| *length == waiters) {
                return Ok(());
            }
            if Instant::now() > until {
                let length = length?;
                bail!("{length} are in the queue of {key}, not {waiters}, after {QUEUED_MAX:?}");
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    async fn queue_length(&self, key: &str) -> anyhow::Result<usize> {
        queue_length(&mut Connection::open(self.address()).await?, key).await
    }
}

/// How many wait for a lock.
pub async fn queue_length(connection: &mut Connection, key: &str) -> anyhow::Result<usize> {
    let request = format!("GET /v1/locks/{key} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n");
    let body = connection.exchange(request.as_bytes()).await?;
    let body = std::str::from_utf8(body)?;
    let (_, length) = body.split_once("\"queueLength\":").context("no queueLength")?;
    let end = length.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(length.len());
    Ok(length[..end].parse()?)
}

/// A request with several acquires: each its key, and whether it waits.
fn batch(calls: impl Iterator<Item = (String, bool)>) -> Vec<u8> {
    let calls: Vec<_> = calls
        .enumerate()
        .map(|(id, (key, wait))| {
            let acquire = acquire_body(wait);
            format!(r#"{{"id":{id},"lockKey":"{key}","call":{{"acquire":{acquire}}}}}"#)
        })
        .collect();
    post("/v1/batch", &format!(r#"{{"calls":[{}]}}"#, calls.join(",")))
}

fn acquire_body(wait: bool) -> String {
    format!(r#"{{"ownerId":"{OWNER}","ttlMillis":{TTL_MS},"wait":{wait}}}"#)
}

/// One user of one lock, on a connection of its own, one request a call.
pub struct LockUser {
    connection: Connection,
    acquire: Vec<u8>,
    key: String,
}

impl LockUser {
    /// Connects.
    pub async fn connect(address: SocketAddr, key: &str, wait: bool) -> anyhow::Result<Self> {
        Ok(Self {
            connection: Connection::open(address).await?,
            acquire: post(&format!("/v1/locks/{key}/acquire"), &acquire_body(wait)),
            key: key.to_owned(),
        })
    }

    /// Gives the token.
    pub async fn acquire(&mut self) -> anyhow::Result<String> {
        let body = self.connection.exchange(&self.acquire).await?;
        Ok(text_of(body, "lockToken").context("a grant without a token")?.to_owned())
    }

    /// With the token of a grant, whoever got it.
    pub async fn release(&mut self, token: &str) -> anyhow::Result<()> {
        let body = format!(r#"{{"lockToken":"{token}","ownerId":"{OWNER}"}}"#);
        let request = post(&format!("/v1/locks/{}/release", self.key), &body);
        self.connection.exchange(&request).await?;
        Ok(())
    }

    /// Lets the request of an acquire leave, and doesn't wait for the answer.
    pub async fn begin_acquire(self) -> anyhow::Result<Lines> {
        self.connection.batch(&self.acquire).await
    }
}

/// Acquire and release, over and over.
pub struct Pairs(pub LockUser);

impl Pairs {
    /// So many of them, each with a lock of its own.
    pub async fn connect(address: SocketAddr, clients: usize) -> anyhow::Result<Vec<Self>> {
        let mut users = Vec::with_capacity(clients);
        for client in 0..clients {
            users.push(Self(LockUser::connect(address, &format!("pair:{client}"), false).await?));
        }
        Ok(users)
    }
}

impl Client for Pairs {
    async fn operate(&mut self) -> anyhow::Result<Duration> {
        let began = Instant::now();
        let token = self.0.acquire().await?;
        self.0.release(&token).await?;
        Ok(began.elapsed())
    }
}

/// Renew, over and over.
pub struct Renewals {
    connection: Connection,
    renew: Vec<u8>,
}

impl Renewals {
    /// Acquires the lock that is renewed.
    pub async fn connect(address: SocketAddr, key: &str) -> anyhow::Result<Self> {
        let mut user = LockUser::connect(address, key, false).await?;
        let token = user.acquire().await?;
        let body = format!(r#"{{"lockToken":"{token}","ownerId":"{OWNER}","ttlMillis":{TTL_MS}}}"#);
        let renew = post(&format!("/v1/locks/{key}/renew"), &body);
        Ok(Self { connection: user.connection, renew })
    }
}

impl Client for Renewals {
    async fn operate(&mut self) -> anyhow::Result<Duration> {
        let began = Instant::now();
        self.connection.exchange(&self.renew).await?;
        Ok(began.elapsed())
    }
}
