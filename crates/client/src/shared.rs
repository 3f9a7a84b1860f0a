//! A lock that is shared with others: the reader's side of a read/write lock (L17).
//!
//! Many readers hold it at once, each with a number of its own. So a resource that refuses lower numbers would refuse
//! readers who hold the lock: these types don't give out a [`FencingToken`](crate::FencingToken) at all (F8). A reader that
//! was paused reads, at worst, what a writer has changed since; the writer's own writes are fenced by the writer's token.

use crate::error::Error;
use crate::guard::LockGuard;
use crate::lease::{Lease, LeaseLost};
use crate::lock::{LockBuilder, TryAcquire, run_under};
use crate::token::LockToken;
use std::time::Duration;

/// A lock to share. Made by [`LockBuilder::shared`].
#[derive(Clone, Debug)]
#[must_use = "nothing is acquired before acquire, try_acquire or run"]
pub struct SharedLock(LockBuilder);

impl SharedLock {
    pub(crate) fn new(lock: LockBuilder) -> Self {
        Self(lock)
    }

    /// Acquires it, waiting while somebody holds it exclusively, or waits to.
    pub async fn acquire(self) -> Result<SharedGuard, Error> {
        self.0.acquire().await.map(SharedGuard)
    }

    /// Acquires it if that can be done at once, and says who is in the way if not.
    pub async fn try_acquire(self) -> Result<TryAcquire<SharedGuard>, Error> {
        Ok(self.0.try_acquire().await?.map(SharedGuard))
    }

    /// Runs work under it, and releases it: as [`LockBuilder::run`].
    pub async fn run<Work, Running>(self, work: Work) -> Result<Running::Output, Error>
    where
        Work: FnOnce(SharedLease) -> Running,
        Running: Future,
    {
        let guard = self.acquire().await?;
        let running = work(guard.lease());
        run_under(guard.0, running).await
    }
}

/// A lock that is shared. Dropping it releases it in the background; [`release`](Self::release) says how that went.
#[derive(Debug)]
pub struct SharedGuard(LockGuard);

impl SharedGuard {
    /// The lock.
    pub fn lock_key(&self) -> &str {
        self.0.lock_key()
    }

    /// Who holds it: us.
    pub fn owner(&self) -> &str {
        self.0.owner()
    }

    /// The secret that proves ownership.
    pub fn lock_token(&self) -> &LockToken {
        self.0.lock_token()
    }

    /// The lease, to hand to the work that runs under it.
    pub fn lease(&self) -> SharedLease {
        SharedLease(self.0.lease())
    }

    /// Whether the lease can no longer be trusted.
    pub fn is_lost(&self) -> bool {
        self.0.is_lost()
    }

    /// Resolves when the lease can no longer be trusted.
    pub async fn lost(&self) -> LeaseLost {
        self.0.lost().await
    }

    /// Releases it and says how that went: as [`LockGuard::release`].
    pub async fn release(self) -> Result<(), Error> {
        self.0.release().await
    }
}

/// The lease of a shared lock, as work that runs under it sees it: as [`Lease`], without a token for fences.
#[derive(Clone, Debug)]
pub struct SharedLease(Lease);

impl SharedLease {
    /// The lock.
    pub fn lock_key(&self) -> &str {
        self.0.lock_key()
    }

    /// Whether the lease can no longer be trusted. A clock read; ask before every step that matters.
    pub fn is_lost(&self) -> bool {
        self.0.is_lost()
    }

    /// For how much longer it can be trusted if no renewal should succeed.
    pub fn remaining(&self) -> Duration {
        self.0.remaining()
    }

    /// Resolves when the lease can no longer be trusted.
    pub async fn lost(&self) -> LeaseLost {
        self.0.lost().await
    }
}
