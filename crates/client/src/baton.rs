//! The handle that everything starts from: a list of servers, and calls that are retried and fail over.

use crate::address::{self, Address};
use crate::batch::{Answered, Call};
use crate::bundle::BundleBuilder;
use crate::calendars::Calendars;
use crate::clock::Moment;
use crate::connection::{Ask, Reply};
use crate::crdt::{self, Counter, Map, Presence, Register, Set};
use crate::election::{ElectionBuilder, Elections};
use crate::error::{Error, Failure};
use crate::fence::{self, RegisteredFence};
use crate::held::encode;
use crate::host::Host;
use crate::jobs::{Job, Jobs};
use crate::limit::{CheckAll, Limit, OneCheck};
use crate::limiter::Limiter;
use crate::limits::Limits;
use crate::lock::LockBuilder;
use crate::locks::{ListQuery, Locks};
use crate::once::Once;
use crate::preview;
use crate::random;
use crate::retry::Retry;
use crate::worker::Worker;
use baton_api::cluster::{HotKeyList, NodeList, RingStatus};
use baton_api::crdt::ObjectList;
use baton_api::fence::FenceList;
use baton_api::limits;
use baton_api::preview::{PreviewRequest, PreviewResponse};
use baton_api::replication::{ReplicationStatus, RetireRequest, RetireResponse};
use baton_api::status::Status;
use bytes::Bytes;
use hyper::Method;
use serde::de::DeserializeOwned;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::Semaphore;

/// How long a call is retried, by default.
const CALL_TIMEOUT: Duration = Duration::from_secs(10);
/// How long one try of a call may take.
pub(crate) const TRY_MAX: Duration = Duration::from_secs(5);
/// Acquires that may wait for a lock at a time, each on its own connection.
const WAITING_MAX: usize = 512;

/// A client of one Baton service. Cheap to clone; clones share connections.
#[derive(Clone)]
pub struct Baton(pub(crate) Arc<Inner>);

pub(crate) struct Inner {
    hosts: Vec<Arc<Host>>,
    /// The server that calls go to, until it fails.
    current: AtomicUsize,
    pub(crate) namespace: Option<Arc<str>>,
    pub(crate) owner: String,
    pub(crate) call_timeout: Duration,
    pub(crate) runtime: Handle,
    pub(crate) waiting: Semaphore,
}

/// How to connect. Made by [`Baton::builder`].
#[derive(Clone, Default, Debug)]
pub struct BatonBuilder {
    namespace: Option<String>,
    owner: Option<String>,
    call_timeout: Option<Duration>,
}

impl BatonBuilder {
    /// The namespace of every lock that doesn't say another; without it, `default`.
    pub fn namespace(mut self, namespace: impl Into<String>) -> Self {
        self.namespace = Some(namespace.into());
        self
    }

    /// Who we are; without it, host, process id and a few random digits.
    pub fn owner(mut self, owner: impl Into<String>) -> Self {
        self.owner = Some(owner.into());
        self
    }

    /// How long a call is retried before it fails; without it, 10 s. Waiting for a lock has its own limit.
    pub fn call_timeout(mut self, timeout: Duration) -> Self {
        self.call_timeout = Some(timeout);
        self
    }

    /// Connects to one server, or to the first that answers of a list separated by commas.
    pub async fn connect(self, addresses: impl AsRef<str>) -> Result<Baton, Error> {
        let addresses = address::parse_list(addresses.as_ref())?;
        if let Some(namespace) = &self.namespace {
            limits::check_text("namespace", namespace, limits::NAMESPACE_BYTES).map_err(Error::refused)?;
        }
        let owner = self.owner.unwrap_or_else(random::owner);
        limits::check_text("ownerId", &owner, limits::OWNER_BYTES).map_err(Error::refused)?;
        let runtime = Handle::current();
        let host = |address| Arc::new(Host::new(address, runtime.clone()));
        let inner = Inner {
            hosts: addresses.into_iter().map(host).collect(),
            current: AtomicUsize::new(0),
            namespace: self.namespace.map(Into::into),
            owner,
            call_timeout: self.call_timeout.unwrap_or(CALL_TIMEOUT),
            runtime,
            waiting: Semaphore::new(WAITING_MAX),
        };
        inner.reach().await?;
        Ok(Baton(Arc::new(inner)))
    }
}

impl Baton {
    /// Connects with defaults: `http://127.0.0.1:7117`, or several addresses separated by commas.
    pub async fn connect(addresses: impl AsRef<str>) -> Result<Self, Error> {
        Self::builder().connect(addresses).await
    }

    /// Connects with a namespace, an owner or a time-out of your own.
    pub fn builder() -> BatonBuilder {
        BatonBuilder::default()
    }

    /// A lock to acquire.
    pub fn lock(&self, key: impl Into<String>) -> LockBuilder {
        LockBuilder::new(self.clone(), key.into())
    }

    /// Several locks to acquire at once, all or none: 1 to 16 keys, each of them once.
    pub fn bundle<Key: Into<String>>(&self, keys: impl IntoIterator<Item = Key>) -> BundleBuilder {
        BundleBuilder::new(self.clone(), keys.into_iter().map(Into::into).collect())
    }

    /// Locks to look at: status, list, queue, history, watch, forced release.
    pub fn locks(&self) -> Locks {
        Locks::new(self.clone())
    }

    /// An election to campaign in.
    pub fn election(&self, name: impl Into<String>) -> ElectionBuilder {
        ElectionBuilder::new(self.clone(), name.into())
    }

    /// Elections to look at: who leads, who stands by, what changes.
    pub fn elections(&self) -> Elections {
        Elections::new(self.clone())
    }

    /// Something to do once: the first caller does it, all others get its result.
    pub fn once(&self, key: impl Into<String>) -> Once {
        Once::new(self.clone(), key.into())
    }

    /// A fence at the server, for a resource that can't compare tokens itself.
    pub fn fence(&self, resource: impl Into<String>) -> RegisteredFence {
        RegisteredFence::new(self.clone(), resource.into())
    }

    /// One page of the fences at the server, in the client's namespace.
    pub async fn fences(&self, query: &ListQuery) -> Result<FenceList, Error> {
        fence::list(self, self.0.namespace.as_deref(), query).await
    }

    /// A limit to ask: whether a key may go on.
    pub fn limit(&self, name: impl Into<Arc<str>>) -> Limit {
        Limit::new(self.clone(), name.into())
    }

    /// A leased limit, decided in this process: out of a part of it that was debited at the store before. Keep it.
    pub fn limiter(&self, name: impl Into<Arc<str>>) -> Limiter {
        Limiter::new(self.limit(name))
    }

    /// Several limits to ask together, all or none: 1 to 16 of `(limit, key)` or `(limit, key, cost)`, in the client's namespace.
    ///
    /// ```no_run
    /// # async fn example(baton: baton_client::Baton) -> Result<(), baton_client::Error> {
    /// let checked = baton.check_all([("per-ip", "10.1.2.3"), ("per-tenant", "acme")]).await?;
    /// if let Some(refused) = checked.refused() {
    ///     println!("{} says no", refused.name);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn check_all<One: Into<OneCheck>>(&self, checks: impl IntoIterator<Item = One>) -> CheckAll {
        CheckAll::new(self.clone(), checks.into_iter().map(Into::into).collect())
    }

    /// Limits to define, to change and to look at.
    pub fn limits(&self) -> Limits {
        Limits::new(self.clone())
    }

    /// When a schedule would be due, and how it reads; nothing is stored. What isn't a schedule is
    /// [refused](Error::is_invalid), with the [position](crate::ErrorBody::position) of the fault in it.
    ///
    /// ```no_run
    /// # async fn example(baton: baton_client::Baton) -> Result<(), baton_client::Error> {
    /// use baton_client::wire_preview::PreviewRequest;
    ///
    /// let berlin = PreviewRequest {
    ///     time_zone: Some("Europe/Berlin".into()),
    ///     ..PreviewRequest::new("30 2 * * MON-FRI")
    /// };
    /// let preview = baton.preview(&berlin).await?;
    /// println!("{}: next at {}", preview.reading, preview.next[0].local);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn preview(&self, request: &PreviewRequest) -> Result<PreviewResponse, Error> {
        preview::preview(self, request).await
    }

    /// A job to run, to pause, to look at.
    pub fn job(&self, name: impl Into<String>) -> Job {
        Job::new(self.clone(), name.into())
    }

    /// Jobs to define and to look at, and their runs.
    pub fn jobs(&self) -> Jobs {
        Jobs::new(self.clone())
    }

    /// Calendars to define and to look at: days that jobs leave out or move.
    pub fn calendars(&self) -> Calendars {
        Calendars::new(self.clone())
    }

    /// A worker that takes the runs of a queue.
    pub fn worker(&self, queue: impl Into<Arc<str>>) -> Worker {
        Worker::new(self.clone(), queue.into())
    }

    /// A counter that needs no agreement: the node that is asked answers by itself.
    pub fn counter(&self, name: impl Into<Arc<str>>) -> Counter {
        Counter::new(self.clone(), name.into())
    }

    /// A set that needs no agreement.
    pub fn set(&self, name: impl Into<Arc<str>>) -> Set {
        Set::new(self.clone(), name.into())
    }

    /// A register that needs no agreement: the last write wins.
    pub fn register(&self, name: impl Into<Arc<str>>) -> Register {
        Register::new(self.clone(), name.into())
    }

    /// A map of these.
    pub fn map(&self, name: impl Into<Arc<str>>) -> Map {
        Map::new(self.clone(), name.into())
    }

    /// A group of members that come and go.
    pub fn presence(&self, group: impl Into<Arc<str>>) -> Presence {
        Presence::new(self.clone(), group.into())
    }

    /// One page of the counters that there are, in the client's namespace.
    pub async fn counters(&self, query: &ListQuery) -> Result<ObjectList, Error> {
        crdt::list(self, "counters", query).await
    }

    /// One page of the sets.
    pub async fn sets(&self, query: &ListQuery) -> Result<ObjectList, Error> {
        crdt::list(self, "sets", query).await
    }

    /// One page of the registers.
    pub async fn registers(&self, query: &ListQuery) -> Result<ObjectList, Error> {
        crdt::list(self, "registers", query).await
    }

    /// One page of the maps.
    pub async fn maps(&self, query: &ListQuery) -> Result<ObjectList, Error> {
        crdt::list(self, "maps", query).await
    }

    /// Who this client is to others, unless a lock says another owner.
    pub fn owner(&self) -> &str {
        &self.0.owner
    }

    /// The server and what its store promises.
    pub async fn status(&self) -> Result<Status, Error> {
        self.look_at("/v1/status").await
    }

    /// The nodes that share the store, as far as the one that is asked knows.
    pub async fn nodes(&self) -> Result<NodeList, Error> {
        self.look_at("/v1/nodes").await
    }

    /// Which node owns which keys of [owned](crate::wire_limit::Mechanism::Owned) limits, as the one that is asked sees it.
    pub async fn ring(&self) -> Result<RingStatus, Error> {
        self.look_at("/v1/ring").await
    }

    /// The keys of limits that are checked far more than others at the node that is asked.
    pub async fn hot_keys(&self) -> Result<HotKeyList, Error> {
        self.look_at("/v1/hotkeys").await
    }

    /// How far the replica of the node that is asked and the others are.
    pub async fn replication(&self) -> Result<ReplicationStatus, Error> {
        self.look_at("/v1/replication").await
    }

    /// Retires a run of a replica that is over for good. It may be sent again if the outcome is unknown.
    pub async fn retire_replica(&self, actor: &str) -> Result<RetireResponse, Error> {
        let body = encode(&RetireRequest { actor: actor.into() })?;
        let (reply, address) = self.0.post_once("/v1/replication/retire".into(), body.to_vec()).await?;
        reply.read(&address).map_err(|failure| Error::from_failure(failure, false))
    }

    async fn look_at<T: DeserializeOwned>(&self, path: &str) -> Result<T, Error> {
        let (reply, address) = self.0.get(path.into()).await?;
        reply.read(&address).map_err(|failure| Error::from_failure(failure, false))
    }
}

impl std::fmt::Debug for Baton {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let addresses: Vec<_> = self.0.hosts.iter().map(|host| host.address.to_string()).collect();
        f.debug_struct("Baton").field("addresses", &addresses).finish_non_exhaustive()
    }
}

impl Inner {
    /// Opens a first connection, so that a wrong address is noticed here and not in the first call.
    async fn reach(&self) -> Result<(), Error> {
        let mut failures = Vec::new();
        for (index, host) in self.hosts.iter().enumerate() {
            match host.connection().await {
                Ok(connection) => {
                    self.current.store(index, Ordering::Relaxed);
                    host.keep(connection);
                    return Ok(());
                }
                Err(Failure::NotSent(why)) => failures.push(why),
                Err(failure) => return Err(Error::from_failure(failure, false)),
            }
        }
        Err(Error::from_failure(Failure::NotSent(failures.join("; ")), false))
    }

    /// The server to ask now.
    pub(crate) fn host(&self) -> (usize, &Arc<Host>) {
        let index = self.current.load(Ordering::Relaxed) % self.hosts.len();
        (index, &self.hosts[index])
    }

    /// Goes on to the next server, unless someone else has.
    pub(crate) fn failed(&self, index: usize, failure: &Failure) {
        if failure.blames_server() && self.hosts.len() > 1 {
            let next = (index + 1) % self.hosts.len();
            self.current.compare_exchange(index, next, Ordering::Relaxed, Ordering::Relaxed).ok();
        }
    }

    /// A call that may wait for long, if there is another server to go to for no longer than this one lives.
    pub(crate) async fn wait_at(&self, host: &Host, ask: &Ask) -> Result<Reply, Failure> {
        if self.hosts.len() == 1 {
            return host.exchange(ask).await;
        }
        tokio::select! {
            biased;
            reply = host.exchange(ask) => reply,
            failure = host.falls_silent() => Err(failure),
        }
    }

    /// A lock call that doesn't wait: sent with others, retried under its one requestId.
    pub(crate) async fn call(
        &self,
        call: &Call,
        deadline: Moment,
        try_max: Duration,
    ) -> Result<Answered, Error> {
        let mut retry = Retry::until(deadline);
        loop {
            let (index, host) = self.host();
            let patience = try_max.min(deadline.remaining());
            let failure = match tokio::time::timeout(patience, host.call(call.clone())).await {
                Ok(Ok(answered)) => return Ok(answered),
                Ok(Err(failure)) => failure,
                Err(_) => Failure::Unknown(format!("{}: no answer within {patience:?}", host.address)),
            };
            self.failed(index, &failure);
            retry.pause(failure).await?;
        }
    }

    /// A read: may be repeated as it is.
    pub(crate) async fn get(&self, path: String) -> Result<(Reply, Address), Error> {
        let ask = Ask { method: Method::GET, path, body: Default::default() };
        self.repeat(&ask, Moment::now().after(self.call_timeout)).await
    }

    /// A request that does no more when it is sent twice than when it is sent once.
    pub(crate) async fn repeat(&self, ask: &Ask, deadline: Moment) -> Result<(Reply, Address), Error> {
        let mut retry = Retry::until(deadline);
        loop {
            let (index, host) = self.host();
            let failure = match tokio::time::timeout(TRY_MAX, host.exchange(ask)).await {
                Ok(Ok(reply)) if reply.status.as_u16() == 503 => reply.refusal(&host.address),
                Ok(Ok(reply)) => return Ok((reply, host.address.clone())),
                Ok(Err(failure)) => failure,
                Err(_) => Failure::Unknown(format!("{}: no answer within {TRY_MAX:?}", host.address)),
            };
            self.failed(index, &failure);
            retry.pause(failure).await?;
        }
    }

    /// A write that may be repeated as it is, by its requestId or by what it does.
    pub(crate) async fn post(
        &self,
        path: String,
        body: Bytes,
        deadline: Moment,
        try_max: Duration,
    ) -> Result<(Reply, Address), Error> {
        let ask = Ask { method: Method::POST, path, body };
        let mut retry = Retry::until(deadline);
        loop {
            let (index, host) = self.host();
            let patience = try_max.min(deadline.remaining());
            let failure = match tokio::time::timeout(patience, host.exchange(&ask)).await {
                Ok(Ok(reply)) if reply.status.is_server_error() => reply.refusal(&host.address),
                Ok(Ok(reply)) => return Ok((reply, host.address.clone())),
                Ok(Err(failure)) => failure,
                Err(_) => Failure::Unknown(format!("{}: no answer within {patience:?}", host.address)),
            };
            self.failed(index, &failure);
            retry.pause(failure).await?;
        }
    }

    /// A write that is known again only by the server that may have done it: sent again there, and to another one only as long as no try
    /// can have been applied.
    pub(crate) async fn at_one(&self, ask: &Ask, deadline: Moment) -> Result<(Reply, Address), Error> {
        let mut retry = Retry::until(deadline);
        let mut bound_to = None;
        loop {
            let index = bound_to.unwrap_or_else(|| self.host().0);
            let host = &self.hosts[index];
            let patience = TRY_MAX.min(deadline.remaining());
            let failure = match tokio::time::timeout(patience, host.exchange(ask)).await {
                Ok(Ok(reply)) if reply.status.is_server_error() => reply.refusal(&host.address),
                Ok(Ok(reply)) => return Ok((reply, host.address.clone())),
                Ok(Err(failure)) => failure,
                Err(_) => Failure::Unknown(format!("{}: no answer within {patience:?}", host.address)),
            };
            if failure.may_have_applied() {
                bound_to = Some(index);
            }
            self.failed(index, &failure);
            retry.pause(failure).await?;
        }
    }

    /// A write without a requestId: sent again only if it never left.
    pub(crate) async fn post_once(&self, path: String, body: Vec<u8>) -> Result<(Reply, Address), Error> {
        self.send_once(&Ask { method: Method::POST, path, body: body.into() }).await
    }

    /// The same for any method.
    pub(crate) async fn send_once(&self, ask: &Ask) -> Result<(Reply, Address), Error> {
        let mut retry = Retry::until(Moment::now().after(self.call_timeout));
        loop {
            let (index, host) = self.host();
            let failure = match tokio::time::timeout(TRY_MAX, host.exchange(ask)).await {
                Ok(Ok(reply)) => return Ok((reply, host.address.clone())),
                Ok(Err(failure)) => failure,
                Err(_) => Failure::Unknown(format!("{}: no answer within {TRY_MAX:?}", host.address)),
            };
            self.failed(index, &failure);
            if failure.may_have_applied() {
                return Err(Error::from_failure(failure, true));
            }
            retry.pause(failure).await?;
        }
    }
}
