//! Acquiring a lock.

use crate::acquire::Attempt;
use crate::baton::Baton;
use crate::clock::Moment;
use crate::error::Error;
use crate::guard::LockGuard;
use crate::held::Request;
use crate::lease::Lease;
use crate::permit::Semaphore;
use crate::random;
use crate::shared::SharedLock;
use baton_api::lock::{AcquireRequest, Metadata};
use baton_api::mode::LockMode;
use baton_api::{ErrorBody, ErrorCode, limits};
use std::sync::Arc;
use std::time::Duration;

pub(crate) const TTL_DEFAULT: Duration = Duration::from_secs(30);
/// How often an acquire starts anew because its grant ran out before it could be used.
pub(crate) const ROUNDS_MAX: usize = 3;

/// A lock to acquire. Made by [`Baton::lock`].
#[derive(Clone, Debug)]
#[must_use = "nothing is acquired before acquire, try_acquire or run"]
pub struct LockBuilder {
    baton: Baton,
    namespace: Option<Arc<str>>,
    key: String,
    owner: Option<String>,
    ttl: Duration,
    wait_max: Option<Duration>,
    metadata: Option<Metadata>,
    reentrant: bool,
    request_id: Option<String>,
    lock_delay: Duration,
    mode: LockMode,
    permits: Option<u64>,
}

/// What came of trying without waiting.
#[derive(Debug)]
pub enum TryAcquire<Guard = LockGuard> {
    /// It is ours.
    Acquired(Guard),
    /// Someone else has it.
    Held(HeldBy),
}

impl<Guard> TryAcquire<Guard> {
    /// The lock, if it is ours.
    pub fn acquired(self) -> Option<Guard> {
        match self {
            Self::Acquired(guard) => Some(guard),
            Self::Held(_) => None,
        }
    }

    /// The same of another guard.
    pub fn map<Other>(self, change: impl FnOnce(Guard) -> Other) -> TryAcquire<Other> {
        match self {
            Self::Acquired(guard) => TryAcquire::Acquired(change(guard)),
            Self::Held(held) => TryAcquire::Held(held),
        }
    }
}

/// Who has a lock that couldn't be acquired.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct HeldBy {
    /// The holder; nobody if the lock is free but others wait for it.
    pub owner: Option<String>,
    /// When its lease would end if not renewed.
    pub retry_after: Option<Duration>,
    /// How many wait.
    pub queue_length: u64,
    /// Which lock it is, of several that were asked for at once.
    pub lock_key: Option<String>,
}

impl LockBuilder {
    pub(crate) fn new(baton: Baton, key: String) -> Self {
        Self {
            namespace: baton.0.namespace.clone(),
            baton,
            key,
            owner: None,
            ttl: TTL_DEFAULT,
            wait_max: None,
            metadata: None,
            reentrant: false,
            request_id: None,
            lock_delay: Duration::ZERO,
            mode: LockMode::Exclusive,
            permits: None,
        }
    }

    /// Another namespace than the client's.
    pub fn namespace(mut self, namespace: impl Into<Arc<str>>) -> Self {
        self.namespace = Some(namespace.into());
        self
    }

    /// Another owner than the client's.
    pub fn owner(mut self, owner: impl Into<String>) -> Self {
        self.owner = Some(owner.into());
        self
    }

    /// How long the lock stays taken if this process dies: 100 ms to 24 h, by default 30 s. A live holder renews.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = ttl;
        self
    }

    /// How long [`acquire`](Self::acquire) waits at most; without it, until granted.
    pub fn wait_max(mut self, wait: Duration) -> Self {
        self.wait_max = Some(wait);
        self
    }

    /// A small JSON object that others see in the lock's status. At most 4 KiB.
    pub fn metadata(mut self, metadata: Metadata) -> Self {
        self.metadata = Some(metadata);
        self
    }

    /// Whether the same owner may acquire it again; it then takes as many releases.
    pub fn reentrant(mut self, reentrant: bool) -> Self {
        self.reentrant = reentrant;
        self
    }

    /// A requestId of your own: the same one gives the same grant, also from another process.
    pub fn request_id(mut self, id: impl Into<String>) -> Self {
        self.request_id = Some(id.into());
        self
    }

    /// How long the lock stays closed to everybody if our lease should run out, so that what we sent before can no
    /// longer arrive: at most an hour, by default not at all. A release opens it at once.
    pub fn lock_delay(mut self, delay: Duration) -> Self {
        self.lock_delay = delay;
        self
    }

    /// Shares the lock with others who do the same: the reader's side of a read/write lock. Say everything else before.
    pub fn shared(mut self) -> SharedLock {
        self.mode = LockMode::Shared;
        SharedLock::new(self)
    }

    /// One of `permits`, 1 to 256: the same number wherever the key is used. Say everything else before.
    pub fn semaphore(mut self, permits: u16) -> Semaphore {
        (self.mode, self.permits) = (LockMode::Semaphore, Some(permits.into()));
        Semaphore::new(self)
    }

    /// Acquires the lock, waiting in its queue if it is held. Dropping the future leaves the queue.
    pub async fn acquire(self) -> Result<LockGuard, Error> {
        let give_up = self.wait_max.map(|wait| Moment::now().after(wait));
        let mut round = 1;
        loop {
            let attempt = self.attempt()?;
            let result = match attempt.now().await {
                // A free lock costs one shared call; only a held one costs a connection to wait on.
                Err(error) if error.is_held() => attempt.wait(give_up).await,
                other => other,
            };
            match result {
                // Its grant came too late to be used, and its requestId is spent: start anew.
                Err(error) if is_spent(&error) && self.request_id.is_none() && round < ROUNDS_MAX => {
                    round += 1
                }
                other => return other,
            }
        }
    }

    /// Acquires the lock if it is free, and says who has it if not.
    pub async fn try_acquire(self) -> Result<TryAcquire, Error> {
        match self.attempt()?.now().await {
            Ok(guard) => Ok(TryAcquire::Acquired(guard)),
            Err(error) => match error.body() {
                Some(body) if error.is_held() => Ok(TryAcquire::Held(HeldBy::from(body))),
                _ => Err(error),
            },
        }
    }

    /// Runs work under the lock, and releases it. If the lease is lost, the work is dropped where it stands, and
    /// the error [says so](Error::lease_lost); it does too if the loss only shows on release.
    pub async fn run<Work, Running>(self, work: Work) -> Result<Running::Output, Error>
    where
        Work: FnOnce(Lease) -> Running,
        Running: Future,
    {
        let guard = self.acquire().await?;
        let running = work(guard.lease());
        run_under(guard, running).await
    }

    /// Checks everything, and makes the requestId.
    fn attempt(&self) -> Result<Attempt, Error> {
        limits::check_key(&self.key).map_err(Error::refused)?;
        if let Some(namespace) = &self.namespace {
            limits::check_text("namespace", namespace, limits::NAMESPACE_BYTES).map_err(Error::refused)?;
        }
        let request = AcquireRequest {
            owner_id: self.owner.clone().unwrap_or_else(|| self.baton.0.owner.clone()),
            ttl_millis: u64::try_from(self.ttl.as_millis()).unwrap_or(u64::MAX),
            wait: false,
            wait_timeout_millis: None,
            request_id: Some(self.request_id.clone().unwrap_or_else(random::request_id)),
            reentrant: self.reentrant,
            metadata: self.metadata.clone(),
            mode: self.mode,
            permits: self.permits,
            lock_delay_millis: u64::try_from(self.lock_delay.as_millis()).unwrap_or(u64::MAX),
        };
        request.check().map_err(Error::refused)?;
        let (key, request) = (self.key.as_str().into(), Request::Acquire(request));
        Ok(Attempt::new(self.baton.clone(), self.namespace.clone(), key, request))
    }
}

/// Runs work for as long as a lease lasts, and releases it.
pub(crate) async fn run_under<Running: Future>(
    guard: LockGuard,
    work: Running,
) -> Result<Running::Output, Error> {
    let output = guard.lease().run(work).await?;
    match guard.release().await {
        Err(error) if error.is_lease_lost() => Err(error),
        // If the release didn't get through, the lease runs out; the work is done all the same.
        Ok(()) | Err(_) => Ok(output),
    }
}

/// The grant was made and is over: asking again with the same requestId gives nothing new.
pub(crate) fn is_spent(error: &Error) -> bool {
    let spent = [ErrorCode::LockExpired, ErrorCode::LeadershipLost, ErrorCode::AlreadyReleased];
    error.lease_lost().is_some() || error.code().is_some_and(|code| spent.contains(&code))
}

impl From<&ErrorBody> for HeldBy {
    fn from(body: &ErrorBody) -> Self {
        Self {
            owner: body.current_owner.clone(),
            retry_after: body.retry_after_millis.map(Duration::from_millis),
            queue_length: body.queue_length.unwrap_or(0),
            lock_key: body.lock_key.clone(),
        }
    }
}
