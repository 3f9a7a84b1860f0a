//! From a configuration to a served store, until a signal.

use crate::config::{Config, ConfigError};
use crate::server::Server;
use baton_engine::state::StateError;
use baton_store::{OpenStoreError, StoreError};
use rustix::process::{Resource, getrlimit, setrlimit};
use std::io;
use std::net::SocketAddr;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// What the process exits with when a second signal doesn't want to wait for the drain.
const EXIT_AT_ONCE: i32 = 130;

/// Why a server doesn't run.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// It may not be served like this.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The state directory can't be used.
    #[error(transparent)]
    State(#[from] StateError),
    /// The store can't be opened.
    #[error(transparent)]
    Open(#[from] OpenStoreError),
    /// The store can't be used.
    #[error("the store can't be used: {0}")]
    Store(#[from] StoreError),
    /// The address can't be listened on.
    #[error("can't listen on {address}: {source}")]
    Listen {
        /// Which.
        address: SocketAddr,
        /// Why.
        source: io::Error,
    },
    /// Signals can't be received.
    #[error("can't receive signals: {0}")]
    Signals(io::Error),
}

/// Opens the store, serves it, and calls `ready` once it listens, which may be before the store is there. Returns after a drain, which SIGTERM
/// or SIGINT begins; another of them ends the process at once, which is as safe as a crash.
pub async fn run(config: Config, ready: impl FnOnce(&Server)) -> Result<(), RunError> {
    let mut signals = Signals::new().map_err(RunError::Signals)?;
    raise_open_files();
    let server = Server::start(config).await?;
    let address = server.address();
    tracing::info!(version = env!("CARGO_PKG_VERSION"), %address, "serving");
    ready(&server);
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let watching = tokio::spawn(async move {
        signals.next().await;
        tracing::info!("stopping; a second signal stops at once");
        drop(stop);
        signals.next().await;
        tracing::warn!("stopped at once");
        std::process::exit(EXIT_AT_ONCE);
    });
    server.serve(async move { drop(stopped.await) }).await;
    watching.abort();
    tracing::info!("stopped");
    Ok(())
}

struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    fn new() -> io::Result<Self> {
        Ok(Self { terminate: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())? })
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}

/// Every waiter is a connection, and every connection an open file: take as many as the system lets us.
fn raise_open_files() {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    if let Err(error) = setrlimit(Resource::Nofile, limit) {
        tracing::debug!(%error, "can't raise the number of open files");
    }
}
