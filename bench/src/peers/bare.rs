//! The least that can stand between HTTP and Redis: axum handlers with JSON bodies that run a lock's script on a
//! shared connection. It has the routes and the fields of Baton that the load uses, and nothing else of it.

use super::redis::{Lock, Recipe, connect};
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::routing::post;
use axum::serve::ListenerExt;
use axum::{Json, Router};
use baton_testkit::process::{Process, free_address};
use redis::aio::MultiplexedConnection;
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;
use std::sync::Arc;

/// What this program is started with to be that server; nobody else needs it.
#[derive(clap::Args, Debug)]
pub struct BareOptions {
    #[arg(long)]
    listen: SocketAddr,
    #[arg(long)]
    redis: SocketAddr,
}

/// A server that runs, in a process of its own.
pub struct Bare {
    /// The process.
    pub process: Process,
    _directory: tempfile::TempDir,
}

impl Bare {
    /// Starts one in front of a Redis.
    pub async fn start(redis: SocketAddr) -> anyhow::Result<Self> {
        let (directory, listen) = (tempfile::tempdir()?, free_address()?);
        let (here, there) = (listen.to_string(), redis.to_string());
        let arguments = ["bare", "--listen", &here, "--redis", &there];
        let program = std::env::current_exe()?;
        let process = Process::start("the bare handler", &program, arguments, listen, directory.path())?;
        let process = process.listening(directory.path()).await?;
        Ok(Self { process, _directory: directory })
    }
}

#[derive(Clone)]
struct Shared {
    connection: MultiplexedConnection,
    lock: Arc<Lock>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Acquire {
    owner_id: String,
    ttl_millis: u64,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Granted {
    lock_key: String,
    lock_token: String,
    owner_id: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Release {
    lock_token: String,
}

/// Serves until it is killed, with as many threads as `baton serve` has: one a core.
pub fn serve(options: &BareOptions) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let lock = Arc::new(Lock::new(Recipe::Plain));
        let shared = Shared { connection: connect(options.redis).await?, lock };
        let routes = Router::new()
            .route("/v1/locks/{key}/acquire", post(acquire))
            .route("/v1/locks/{key}/release", post(release))
            .with_state(shared);
        let listener = tokio::net::TcpListener::bind(options.listen).await?;
        let listener = listener.tap_io(|stream| {
            // Without it an answer may wait for more to send, which never comes.
            stream.set_nodelay(true).ok();
        });
        Ok(axum::serve(listener, routes).await?)
    })
}

type Answer<T> = Result<Json<T>, StatusCode>;

async fn acquire(
    State(mut shared): State<Shared>,
    Path(lock_key): Path<String>,
    Json(asked): Json<Acquire>,
) -> Answer<Granted> {
    let secret = getrandom::u64().map_err(|_| StatusCode::INTERNAL_SERVER_ERROR)?;
    let lock_token = format!("{secret:016x}");
    let taken = shared.lock.take(&mut shared.connection, &lock_key, &lock_token, asked.ttl_millis).await;
    match taken {
        Ok(0) => Err(StatusCode::CONFLICT),
        Ok(_) => Ok(Json(Granted { lock_key, lock_token, owner_id: asked.owner_id })),
        Err(_) => Err(StatusCode::SERVICE_UNAVAILABLE),
    }
}

async fn release(
    State(mut shared): State<Shared>,
    Path(lock_key): Path<String>,
    Json(asked): Json<Release>,
) -> Answer<()> {
    match shared.lock.give_up(&mut shared.connection, &lock_key, &asked.lock_token).await {
        Ok(true) => Ok(Json(())),
        Ok(false) => Err(StatusCode::CONFLICT),
        Err(_) => Err(StatusCode::SERVICE_UNAVAILABLE),
    }
}
