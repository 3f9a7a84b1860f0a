//! One server: connections to it that come back by themselves, and how failures are sorted.

use super::{Unopened, settings};
use crate::contract::{Reason, StoreError};
use ::redis::aio::MultiplexedConnection;
use ::redis::{AsyncConnectionConfig, Client, Cmd, PushInfo, PushKind, RedisError, Value, cmd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout_at};

/// Every call is answered in this time, one way or the other: before the engine gives up.
pub(super) const CALL_MAX: Duration = Duration::from_millis(1_500);
/// So long may it take until a connection can be used.
const CONNECT_MAX: Duration = Duration::from_millis(1_000);
/// Calls under way at one server; the next ones wait for their turn, within their time.
const CALLS_MAX: usize = 4_096;
/// Connections for commits that wait for replicas: such a one stands still meanwhile.
const WAITING_MAX: usize = 16;

/// Why there is no answer.
#[derive(Debug)]
pub(super) enum Trouble {
    /// It never left.
    NotSent(String),
    /// The server said no, with this code.
    Refused { code: String, detail: String },
    /// It left, and nothing came back.
    Lost(String),
}

/// What a server says that will be there in a while.
const NOT_YET: [&str; 5] = ["LOADING", "MASTERDOWN", "CLUSTERDOWN", "BUSY", "TRYAGAIN"];

/// What the server, or a script of ours, says before it does anything.
const BEFORE_ANYTHING: [&str; 17] = [
    "NOSCRIPT",
    "READONLY",
    "LOADING",
    "MASTERDOWN",
    "CLUSTERDOWN",
    "TRYAGAIN",
    "MOVED",
    "ASK",
    "CROSSSLOT",
    "NOPERM",
    "NOAUTH",
    "BUSY",
    "OOM",
    "MISCONF",
    "NOREPLICAS",
    "EXHAUSTED",
    "UNREADABLE",
];

impl Trouble {
    pub fn new(error: &RedisError) -> Self {
        match error.code() {
            Some(code) => {
                let detail = error.detail().unwrap_or_default().to_owned();
                Self::Refused { code: code.into(), detail }
            }
            None => Self::Lost(error.to_string()),
        }
    }

    /// Whether the server said no with this code.
    pub fn is_refusal(&self, wanted: &str) -> bool {
        matches!(self, Self::Refused { code, .. } if code == wanted)
    }

    /// Whether the records are on their way to another server, or have just arrived there: a matter of moments.
    pub fn is_passing(&self) -> bool {
        ["ASK", "TRYAGAIN", "MOVED"].iter().any(|code| self.is_refusal(code))
    }

    /// Whether it may be that another server is the one to ask.
    pub fn is_elsewhere(&self) -> bool {
        match self {
            Self::NotSent(_) | Self::Lost(_) => true,
            Self::Refused { code, .. } => {
                ["READONLY", "MASTERDOWN", "CLUSTERDOWN", "MOVED"].contains(&code.as_str())
            }
        }
    }

    /// For what has no effect: nothing was written, whatever happened.
    pub fn harmless(self) -> StoreError {
        let detail = match self {
            Self::NotSent(detail) | Self::Lost(detail) => detail,
            Self::Refused { code, detail } => format!("{code} {detail}"),
        };
        StoreError::NotApplied { reason: Reason::Unavailable, detail }
    }

    /// For a commit.
    pub fn sorted(self) -> StoreError {
        match self {
            Self::Lost(detail) => StoreError::Unknown { detail },
            Self::Refused { code, detail } if !BEFORE_ANYTHING.contains(&code.as_str()) => {
                StoreError::Unknown { detail: format!("{code} {detail}") }
            }
            Self::Refused { code, detail } => {
                let reason = if code == "OOM" { Reason::Full } else { Reason::Unavailable };
                StoreError::NotApplied { reason, detail: format!("{code} {detail}") }
            }
            Self::NotSent(_) => self.harmless(),
        }
    }
}

#[derive(Clone)]
struct Open {
    connection: MultiplexedConnection,
    /// The server has hung up.
    closed: Arc<AtomicBool>,
}

/// One server.
pub(super) struct Link {
    client: Client,
    pub address: String,
    shared: Mutex<Option<Open>>,
    /// One connects, the others wait for it; and when that failed last.
    connecting: tokio::sync::Mutex<Option<(Instant, String)>>,
    calls: Semaphore,
    waiting: Semaphore,
    idle: Mutex<Vec<Open>>,
}

impl Link {
    pub fn new(client: Client) -> Self {
        let address = client.get_connection_info().addr().to_string();
        Self {
            client,
            address,
            shared: Mutex::default(),
            connecting: tokio::sync::Mutex::default(),
            calls: Semaphore::new(CALLS_MAX),
            waiting: Semaphore::new(WAITING_MAX),
            idle: Mutex::default(),
        }
    }

    /// A connection that hands what the server sends by itself to `push`. Without looking at its role.
    pub async fn connect(
        &self,
        push: impl Fn(PushInfo) + Send + Sync + 'static,
    ) -> Result<MultiplexedConnection, Unopened> {
        let push = move |information: PushInfo| {
            push(information);
            Ok::<(), ()>(())
        };
        let settings = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(CONNECT_MAX))
            .set_response_timeout(Some(CALL_MAX))
            .set_push_sender(push);
        let connecting = self.client.get_multiplexed_async_connection_with_config(&settings);
        match tokio::time::timeout(CONNECT_MAX, connecting).await {
            Ok(Ok(connection)) => Ok(connection),
            Ok(Err(error)) if error.is_connection_dropped() && !error.is_connection_refusal() => Err(
                Unopened::Refused(format!("{}: {error}; is it TLS (rediss) on one side only?", self.address)),
            ),
            Ok(Err(error)) => Err(self.unopened(&error)),
            Err(_) => {
                Err(Unopened::Unreachable(format!("{}: no connection within {CONNECT_MAX:?}", self.address)))
            }
        }
    }

    /// Whether it can be had at all.
    pub async fn reach(&self) -> Result<(), Unopened> {
        self.open().await.map(drop)
    }

    /// Why there is no connection: a server that doesn't answer, or isn't up to it yet, may be there later.
    pub fn unopened(&self, error: &RedisError) -> Unopened {
        let detail = format!("{}: {error}", self.address);
        let passes = error.code().is_some_and(|code| NOT_YET.contains(&code));
        // A certificate that isn't accepted is an error of I/O too, but will not be accepted later.
        let is_refused_by_us = detail.contains("certificate");
        if passes || (error.is_io_error() && !is_refused_by_us) || error.is_timeout() {
            Unopened::Unreachable(detail)
        } else {
            Unopened::Refused(detail)
        }
    }

    /// A connection to a primary that keeps what it is given.
    async fn open(&self) -> Result<Open, Unopened> {
        let closed = Arc::new(AtomicBool::new(false));
        let flag = closed.clone();
        let push = move |information: PushInfo| {
            if information.kind == PushKind::Disconnection {
                flag.store(true, Ordering::Release);
            }
        };
        let mut connection = self.connect(push).await?;
        let role = connection.send_packed_command(&cmd("ROLE")).await.and_then(Value::extract_error);
        match role {
            Ok(Value::Array(parts)) if parts.first() == Some(&Value::BulkString(b"master".to_vec())) => {}
            Ok(_) => return Err(format!("{} is a replica: name its primary", self.address).into()),
            // Who may not ask is told by the first write.
            Err(error) if error.code() == Some("NOPERM") => {}
            Err(error) => return Err(self.unopened(&error)),
        }
        // Each time: it may be another server than before, one that was promoted.
        let memory = connection.send_packed_command(cmd("INFO").arg("memory")).await;
        let memory = memory.and_then(Value::extract_error).map_err(|error| self.unopened(&error))?;
        if settings::may_evict(&settings::information(memory)) {
            return Err(format!(
                "{} may evict records to make room, and with them locks: set maxmemory-policy noeviction",
                self.address
            )
            .into());
        }
        Ok(Open { connection, closed })
    }

    async fn shared(&self) -> Result<Open, String> {
        let asked = Instant::now();
        let usable = |open: &Open| !open.closed.load(Ordering::Acquire);
        let present = || self.shared.lock().expect("no panic while held").clone().filter(usable);
        if let Some(open) = present() {
            return Ok(open);
        }
        let mut connecting = self.connecting.lock().await;
        if let Some(open) = present() {
            return Ok(open);
        }
        // Who was waiting while it failed doesn't try in turn.
        if let Some((failed, why)) = &*connecting
            && *failed > asked
        {
            return Err(why.clone());
        }
        match self.open().await {
            Ok(open) => {
                *connecting = None;
                *self.shared.lock().expect("no panic while held") = Some(open.clone());
                Ok(open)
            }
            Err(why) => {
                let is_refused = matches!(why, Unopened::Refused(_));
                let why = why.to_string();
                // Waiting alone doesn't help: said once, as it is tried again all the time.
                if is_refused && connecting.as_ref().is_none_or(|(_, before)| *before != why) {
                    tracing::warn!("Redis can't be used: {why}");
                }
                *connecting = Some((Instant::now(), why.clone()));
                Err(why)
            }
        }
    }

    /// One command, on the connection that all share.
    pub async fn call(&self, command: &Cmd, until: Instant) -> Result<Value, Trouble> {
        let late = |_| Trouble::NotSent(format!("{}: no connection in time", self.address));
        let ready = async {
            let permit = self.calls.acquire().await.expect("never closed");
            Ok((permit, self.shared().await?))
        };
        let (_permit, mut open) = timeout_at(until, ready).await.map_err(late)?.map_err(Trouble::NotSent)?;
        let sent = open.connection.send_packed_command(command);
        let answer = match timeout_at(until, sent).await {
            Ok(answer) => answer.and_then(Value::extract_error).map_err(|error| Trouble::new(&error)),
            Err(_) => Err(Trouble::Lost(format!("{}: no answer within {CALL_MAX:?}", self.address))),
        };
        if answer.as_ref().is_err_and(Trouble::is_elsewhere) {
            // Also one that merely was slow: it may be a connection into nothing.
            open.closed.store(true, Ordering::Release);
        }
        answer
    }

    /// One command, and how many replicas had it in time.
    pub async fn call_and_wait(
        &self,
        command: &Cmd,
        replicas: u32,
        wait_max: Duration,
        until: Instant,
    ) -> Result<(Value, u32), Trouble> {
        let late = |_| Trouble::NotSent(format!("{}: no connection in time", self.address));
        let ready = async {
            let permit = self.waiting.acquire().await.expect("never closed");
            let idle = self.idle.lock().expect("no panic while held").pop();
            match idle.filter(|open| !open.closed.load(Ordering::Acquire)) {
                Some(open) => Ok((permit, open)),
                None => Ok((permit, self.open().await.map_err(|why| why.to_string())?)),
            }
        };
        let (_permit, open) = timeout_at(until, ready).await.map_err(late)?.map_err(Trouble::NotSent)?;
        let (mut first, mut second) = (open.connection.clone(), open.connection.clone());
        let mut wait = cmd("WAIT");
        wait.arg(replicas).arg(u64::try_from(wait_max.as_millis()).unwrap_or(u64::MAX));
        // Both leave together, in this order: one round trip.
        let both =
            async { tokio::join!(first.send_packed_command(command), second.send_packed_command(&wait)) };
        let (answer, acknowledged) = timeout_at(until, both)
            .await
            .map_err(|_| Trouble::Lost(format!("{}: no answer within {CALL_MAX:?}", self.address)))?;
        let answer = answer.and_then(Value::extract_error).map_err(|error| Trouble::new(&error))?;
        match acknowledged.and_then(Value::extract_error) {
            Ok(Value::Int(count)) => {
                self.idle.lock().expect("no panic while held").push(open);
                Ok((answer, u32::try_from(count).unwrap_or(0)))
            }
            Ok(_) => Err(Trouble::Lost("WAIT was answered strangely".into())),
            Err(error) => Err(Trouble::Lost(format!("WAIT: {error}"))),
        }
    }
}
