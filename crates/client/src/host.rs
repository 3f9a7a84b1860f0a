//! One server as seen from here: its address, its idle connections, and the calls collected for it.

use crate::address::Address;
use crate::batch::Queue;
use crate::clock::Moment;
use crate::connection::{Ask, Connection, Reply};
use crate::error::Failure;
use crate::random;
use baton_api::ErrorBody;
use hyper::Method;
use serde::de::DeserializeOwned;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::runtime::Handle;

/// Idle connections kept per server.
const IDLE_MAX: usize = 16;
/// How long a server that somebody waits at may be silent before it is asked whether it is still there.
const SILENCE_MAX: Duration = Duration::from_secs(5);
/// How long it may take to say so.
const SIGN_OF_LIFE_MAX: Duration = Duration::from_secs(3);

pub(crate) struct Host {
    pub(crate) address: Address,
    /// Where lanes run.
    pub(crate) runtime: Handle,
    idle: Mutex<Vec<Connection>>,
    queue: Mutex<Queue>,
    /// When it last answered while somebody waited.
    heard: AtomicU64,
    /// Held by whoever asks for a sign of life: one question does for all who wait.
    asking: tokio::sync::Mutex<()>,
}

impl Host {
    pub(crate) fn new(address: Address, runtime: Handle) -> Self {
        Self {
            address,
            runtime,
            idle: Mutex::default(),
            queue: Mutex::default(),
            heard: AtomicU64::new(0),
            asking: tokio::sync::Mutex::default(),
        }
    }

    /// Resolves when the server has stopped answering. One that stands still keeps its connections open, and would keep
    /// whoever waits for a lock there too, for as long as it likes.
    pub(crate) async fn falls_silent(&self) -> Failure {
        loop {
            let jitter = random::up_to(SILENCE_MAX.as_millis() as u64 / 4);
            tokio::time::sleep(SILENCE_MAX + Duration::from_millis(jitter)).await;
            let _asking = self.asking.lock().await;
            let heard = Moment::from_nanos(self.heard.load(Ordering::Relaxed));
            if Moment::now().since(heard) < SILENCE_MAX {
                continue;
            }
            let ask = Ask { method: Method::GET, path: "/healthz".into(), body: Default::default() };
            match tokio::time::timeout(SIGN_OF_LIFE_MAX, self.exchange(&ask)).await {
                Ok(Ok(_)) => self.heard.store(Moment::now().as_nanos(), Ordering::Relaxed),
                Ok(Err(failure)) => return failure,
                Err(_) => {
                    return Failure::Unknown(format!(
                        "{}: no answer within {SIGN_OF_LIFE_MAX:?}",
                        self.address
                    ));
                }
            }
        }
    }

    /// The calls that wait to be sent. Never held over an await.
    pub(crate) fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn idle(&self) -> MutexGuard<'_, Vec<Connection>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An idle connection, or a new one.
    pub(crate) async fn connection(&self) -> Result<Connection, Failure> {
        let idle = self.idle().pop();
        match idle {
            Some(connection) => Ok(connection),
            None => Connection::open(&self.address).await,
        }
    }

    /// Keeps a connection for later, if it can be used again.
    pub(crate) fn keep(&self, mut connection: Connection) {
        connection.used = true;
        let mut idle = self.idle();
        if connection.is_reusable() && idle.len() < IDLE_MAX {
            idle.push(connection);
        }
    }

    /// One request on a connection of its own, for as long as the future lives.
    pub(crate) async fn exchange(&self, ask: &Ask) -> Result<Reply, Failure> {
        let mut connection = self.connection().await?;
        let mut result = connection.exchange(&self.address, ask).await;
        if connection.used && matches!(result, Err(Failure::NotSent(_))) {
            // The server closed it while it lay idle: that says nothing about the server now.
            connection = Connection::open(&self.address).await?;
            result = connection.exchange(&self.address, ask).await;
        }
        if result.is_ok() {
            self.keep(connection);
        }
        result
    }
}

impl Reply {
    /// The body as what it should be, or why it isn't.
    pub(crate) fn read<T: DeserializeOwned>(&self, address: &Address) -> Result<T, Failure> {
        if !self.status.is_success() {
            return Err(self.refusal(address));
        }
        serde_json::from_slice(&self.body)
            .map_err(|error| Failure::Unexpected(format!("{address}: {} with {error}", self.status)))
    }

    /// Why the server said no.
    pub(crate) fn refusal(&self, address: &Address) -> Failure {
        match serde_json::from_slice::<ErrorBody>(&self.body) {
            Ok(body) => Failure::Refused(Box::new(body)),
            // A proxy in between that lost its server speaks HTML: nobody knows what became of the call.
            Err(_) if self.status.is_server_error() => {
                Failure::Unknown(format!("{address}: {}", self.status))
            }
            Err(_) => Failure::Unexpected(format!("{address}: {}", self.status)),
        }
    }
}
