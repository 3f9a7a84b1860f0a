//! Checks of limits over HTTP, and who else answers them: a bare handler, and Limitador's counters behind the same one.

use crate::http::{Connection, post};
use crate::load::Client;
use anyhow::Context;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::routing::post as on_post;
use axum::serve::ListenerExt;
use axum::{Json, Router};
use baton_client::wire_limit::{Algorithm, FailurePolicy, Mechanism};
use baton_client::{Baton, LimitDefinition};
use baton_testkit::process::{Process, free_address};
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// What all limits here are called.
pub const LIMIT: &str = "api";
const DAY_MS: u64 = 86_400_000;
/// Nobody is refused.
const PLENTY: u64 = 1_000_000_000_000;

/// Defines the limit at a server.
pub async fn define(address: SocketAddr, definition: &LimitDefinition) -> anyhow::Result<Baton> {
    let baton = Baton::connect(format!("http://{address}")).await?;
    baton.limits().put(LIMIT, definition).await?;
    Ok(baton)
}

/// A limit that nobody reaches, decided by the store.
pub fn central() -> LimitDefinition {
    LimitDefinition {
        algorithm: Some(Algorithm::FixedWindow),
        mechanism: Some(Mechanism::Central),
        on_failure: Some(FailurePolicy::Local),
        expected_nodes: Some(1),
        ..LimitDefinition::new(PLENTY, DAY_MS)
    }
}

/// The same, leased, with what is usual.
pub fn leased() -> LimitDefinition {
    LimitDefinition { mechanism: Some(Mechanism::Leased), ..central() }
}

/// The same with leases so large and long that what is measured is spending.
pub fn leased_long() -> LimitDefinition {
    LimitDefinition { lease_size: Some(1_000_000), lease_ttl_millis: Some(3_600_000), ..leased() }
}

/// Checks one key, over and over, one request a call.
pub struct Checks {
    connection: Connection,
    request: Vec<u8>,
}

impl Checks {
    /// So many of them, each with a key of its own.
    pub async fn connect(address: SocketAddr, clients: usize) -> anyhow::Result<Vec<Self>> {
        let mut checks = Vec::with_capacity(clients);
        for client in 0..clients {
            let connection = Connection::open(address).await?;
            checks.push(Self { connection, request: check(&format!("customer:{client:06}")) });
        }
        Ok(checks)
    }
}

/// A check of a key, ready to be sent.
pub fn check(key: &str) -> Vec<u8> {
    post(&format!("/v1/limits/{LIMIT}/check"), &format!(r#"{{"key":"{key}"}}"#))
}

impl Client for Checks {
    async fn operate(&mut self) -> anyhow::Result<Duration> {
        let began = Instant::now();
        self.connection.exchange(&self.request).await?;
        Ok(began.elapsed())
    }
}

/// What this program is started with to be such a server; nobody else needs it.
#[derive(clap::Args, Debug)]
pub struct HandlerOptions {
    #[arg(long)]
    listen: SocketAddr,
    /// With Limitador's counters
    #[arg(long)]
    limitador: bool,
}

/// A server that runs, in a process of its own.
pub struct Handler {
    /// The process.
    pub process: Process,
    _directory: tempfile::TempDir,
}

impl Handler {
    /// Starts one that decides nothing, or by Limitador.
    pub async fn start(limitador: bool) -> anyhow::Result<Self> {
        let (directory, listen) = (tempfile::tempdir()?, free_address()?);
        let here = listen.to_string();
        let arguments = ["handler", "--listen", &here].into_iter().chain(limitador.then_some("--limitador"));
        let program = std::env::current_exe()?;
        let process = Process::start("a bare handler", &program, arguments, listen, directory.path())?;
        Ok(Self { process: process.listening(directory.path()).await?, _directory: directory })
    }
}

#[derive(Deserialize)]
struct Asked {
    key: String,
    cost: Option<u64>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Answer {
    allowed: bool,
    limit: u64,
    remaining: u64,
    reset_millis: u64,
    source: &'static str,
}

/// Who is asked behind the handler: how much of a key's is left, or nothing if it is refused.
type Decide = dyn Fn(String, String, u64) -> Option<u64> + Send + Sync;

/// Serves until it is killed, with as many threads as `baton serve` has: one a core.
pub fn serve(options: &HandlerOptions) -> anyhow::Result<()> {
    let decide: Arc<Decide> =
        if options.limitador { limitador()? } else { Arc::new(|_, _, cost| Some(PLENTY - cost)) };
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let routes = Router::new().route("/v1/limits/{name}/check", on_post(answer)).with_state(decide);
        let listener = tokio::net::TcpListener::bind(options.listen).await?;
        let listener = listener.tap_io(|stream| {
            // Without it an answer may wait for more to send, which never comes.
            stream.set_nodelay(true).ok();
        });
        axum::serve(listener, routes).await.context("the handler ended")
    })
}

async fn answer(
    State(decide): State<Arc<Decide>>,
    Path(name): Path<String>,
    Json(asked): Json<Asked>,
) -> Result<Json<Answer>, StatusCode> {
    let remaining = decide(name, asked.key, asked.cost.unwrap_or(1)).ok_or(StatusCode::TOO_MANY_REQUESTS)?;
    Ok(Json(Answer { allowed: true, limit: PLENTY, remaining, reset_millis: DAY_MS, source: "local" }))
}

#[cfg(feature = "limitador")]
fn limitador() -> anyhow::Result<Arc<Decide>> {
    use limitador::RateLimiter;
    use limitador::limit::{Limit, Namespace};
    use std::collections::HashMap;

    let limiter = RateLimiter::new(100_000);
    let variable =
        "key".try_into().map_err(|error| anyhow::anyhow!("Limitador refuses a variable: {error:?}"))?;
    limiter.add_limit(Limit::new(LIMIT, PLENTY, DAY_MS / 1_000, [], [variable]));
    Ok(Arc::new(move |name, key, cost| {
        let context = HashMap::from([("key".to_owned(), key)]).into();
        let checked = limiter.check_rate_limited_and_update(&Namespace::from(name), &context, cost).ok()?;
        // Without a counter nothing was counted, and the figure would be worth nothing.
        let remaining = checked.counters.iter().filter_map(|counter| counter.remaining()).min()?;
        (!checked.limited).then_some(remaining)
    }))
}

#[cfg(not(feature = "limitador"))]
fn limitador() -> anyhow::Result<Arc<Decide>> {
    anyhow::bail!("built without Limitador")
}
