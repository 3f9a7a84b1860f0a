//! The same without async, under the same names (feature `blocking`).
//!
//! Locks are renewed by a thread of the process's own, which starts with the first connection. Don't call this from
//! async code: it blocks, and inside a runtime of Tokio's it panics.
//!
//! ```no_run
//! # fn example() -> Result<(), baton_client::Error> {
//! use baton_client::blocking::Baton;
//! use baton_client::secs;
//!
//! let baton = Baton::connect("http://127.0.0.1:7117")?;
//! let lock = baton.lock("inventory:sku:123").ttl(secs(30)).acquire()?;
//! println!("give the resource {}", lock.fencing_token());
//! lock.release()?;
//!
//! baton.lock("k").run(|held| println!("for {:?} more, and it is renewed", held.remaining()))?;
//! # Ok(())
//! # }
//! ```

use crate::baton::BatonBuilder;
use crate::error::Error;
use crate::lease::{Lease, LeaseLost};
use crate::lock::HeldBy;
use crate::token::{FencingToken, LockToken};
use baton_api::lock::Metadata;
use baton_api::status::Status;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::runtime::{Builder, Runtime};

/// One for the process, for as long as it lives: what is released in the background must not end with a handle.
static RUNTIME: OnceLock<Runtime> = OnceLock::new();

fn runtime() -> Result<&'static Runtime, Error> {
    if let Some(runtime) = RUNTIME.get() {
        return Ok(runtime);
    }
    let made = Builder::new_multi_thread().worker_threads(1).thread_name("baton").enable_all().build();
    let made = made.map_err(|error| Error::unexpected(format!("no thread for the client: {error}")))?;
    // If another thread was quicker, this one's is dropped again, and nothing ran in it.
    Ok(RUNTIME.get_or_init(|| made))
}

/// Waits for something of the async client: elections, limits and all else that has no twin here.
///
/// ```no_run
/// # fn example() -> Result<(), baton_client::Error> {
/// use baton_client::blocking::{Baton, block_on};
///
/// let baton = Baton::connect("http://127.0.0.1:7117")?;
/// let leader = block_on(baton.asynchronous().election("scheduler").campaign())??;
/// println!("leading in epoch {}", leader.epoch());
/// block_on(leader.resign())??;
/// # Ok(())
/// # }
/// ```
pub fn block_on<Work: IntoFuture>(work: Work) -> Result<Work::Output, Error> {
    Ok(runtime()?.block_on(work.into_future()))
}

/// A client of one Baton service. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Baton(crate::Baton);

impl Baton {
    /// Connects with defaults: `http://127.0.0.1:7117`, or several addresses separated by commas.
    pub fn connect(addresses: impl AsRef<str>) -> Result<Self, Error> {
        Self::connect_with(crate::Baton::builder(), addresses)
    }

    /// Connects with a namespace, an owner or a time-out of your own, from [`Baton::builder`](crate::Baton::builder).
    pub fn connect_with(builder: BatonBuilder, addresses: impl AsRef<str>) -> Result<Self, Error> {
        runtime()?.block_on(builder.connect(addresses)).map(Self)
    }

    /// A lock to acquire.
    pub fn lock(&self, key: impl Into<String>) -> LockBuilder {
        LockBuilder(self.0.lock(key))
    }

    /// The same client with async calls, for [`block_on`].
    pub fn asynchronous(&self) -> &crate::Baton {
        &self.0
    }

    /// Who this client is to others.
    pub fn owner(&self) -> &str {
        self.0.owner()
    }

    /// The server and what its store promises.
    pub fn status(&self) -> Result<Status, Error> {
        runtime()?.block_on(self.0.status())
    }
}

/// A lock to acquire. Made by [`Baton::lock`], or from what the async one makes.
#[derive(Clone, Debug)]
#[must_use = "nothing is acquired before acquire, try_acquire or run"]
pub struct LockBuilder(crate::LockBuilder);

impl From<crate::LockBuilder> for LockBuilder {
    fn from(lock: crate::LockBuilder) -> Self {
        Self(lock)
    }
}

/// What came of trying without waiting.
#[derive(Debug)]
pub enum TryAcquire {
    /// It is ours.
    Acquired(LockGuard),
    /// Someone else has it.
    Held(HeldBy),
}

impl TryAcquire {
    /// The lock, if it is ours.
    pub fn acquired(self) -> Option<LockGuard> {
        match self {
            Self::Acquired(guard) => Some(guard),
            Self::Held(_) => None,
        }
    }
}

impl LockBuilder {
    /// Another namespace than the client's.
    pub fn namespace(self, namespace: impl Into<Arc<str>>) -> Self {
        Self(self.0.namespace(namespace))
    }

    /// Another owner than the client's.
    pub fn owner(self, owner: impl Into<String>) -> Self {
        Self(self.0.owner(owner))
    }

    /// How long the lock stays taken if this process dies: 100 ms to 24 h, by default 30 s.
    pub fn ttl(self, ttl: Duration) -> Self {
        Self(self.0.ttl(ttl))
    }

    /// How long [`acquire`](Self::acquire) waits at most; without it, until granted.
    pub fn wait_max(self, wait: Duration) -> Self {
        Self(self.0.wait_max(wait))
    }

    /// A small JSON object that others see in the lock's status. At most 4 KiB.
    pub fn metadata(self, metadata: Metadata) -> Self {
        Self(self.0.metadata(metadata))
    }

    /// Whether the same owner may acquire it again; it then takes as many releases.
    pub fn reentrant(self, reentrant: bool) -> Self {
        Self(self.0.reentrant(reentrant))
    }

    /// A requestId of your own: the same one gives the same grant, also from another process.
    pub fn request_id(self, id: impl Into<String>) -> Self {
        Self(self.0.request_id(id))
    }

    /// Acquires the lock, waiting in its queue if it is held.
    pub fn acquire(self) -> Result<LockGuard, Error> {
        runtime()?.block_on(self.0.acquire()).map(LockGuard)
    }

    /// Acquires the lock if it is free, and says who has it if not.
    pub fn try_acquire(self) -> Result<TryAcquire, Error> {
        Ok(match runtime()?.block_on(self.0.try_acquire())? {
            crate::TryAcquire::Acquired(guard) => TryAcquire::Acquired(LockGuard(guard)),
            crate::TryAcquire::Held(held) => TryAcquire::Held(held),
        })
    }

    /// Runs work under the lock, and releases it. Nothing can stop work that blocks: it must
    /// [ask the lease](Lease::is_lost) before every step that matters. If the lease was lost when it is done, the error says so.
    pub fn run<T>(self, work: impl FnOnce(&Lease) -> T) -> Result<T, Error> {
        let guard = self.acquire()?;
        let lease = guard.lease();
        let output = work(&lease);
        if let Some(lost) = lease.check() {
            return Err(lost.into());
        }
        match guard.release() {
            Err(error) if error.is_lease_lost() => Err(error),
            // If the release didn't get through, the lease runs out; the work is done all the same.
            Ok(()) | Err(_) => Ok(output),
        }
    }
}

/// A lock that is held. Dropping it releases it in the background, unless the process ends first: then it runs out.
#[derive(Debug)]
pub struct LockGuard(crate::LockGuard);

impl LockGuard {
    /// The lock.
    pub fn lock_key(&self) -> &str {
        self.0.lock_key()
    }

    /// Who holds it: us.
    pub fn owner(&self) -> &str {
        self.0.owner()
    }

    /// The grant's token: give it to the resource, and let the resource refuse lower ones.
    pub fn fencing_token(&self) -> FencingToken {
        self.0.fencing_token()
    }

    /// The secret that proves ownership.
    pub fn lock_token(&self) -> &LockToken {
        self.0.lock_token()
    }

    /// How many releases it takes, when it was acquired.
    pub fn reentrancy_count(&self) -> u32 {
        self.0.reentrancy_count()
    }

    /// The lease, to hand to the work that runs under it.
    pub fn lease(&self) -> Lease {
        self.0.lease()
    }

    /// Whether the lease can no longer be trusted. A clock read; ask before every step that matters.
    pub fn is_lost(&self) -> bool {
        self.0.is_lost()
    }

    /// Returns when the lease can no longer be trusted.
    pub fn lost(&self) -> Result<LeaseLost, Error> {
        Ok(runtime()?.block_on(self.0.lost()))
    }

    /// Releases the lock and says how that went.
    pub fn release(self) -> Result<(), Error> {
        runtime()?.block_on(self.0.release())
    }
}
