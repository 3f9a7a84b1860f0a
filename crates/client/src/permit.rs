//! One permit of a semaphore (L17).
//!
//! Several hold a permit at once, each in a slot of its own, and tokens grow within a slot. So each slot is a resource of
//! its own to a fence: remember the highest token for [`fence_key`](PermitGuard::fence_key), not for the key (F8).

use crate::error::Error;
use crate::guard::LockGuard;
use crate::lease::{Lease, LeaseLost};
use crate::lock::{LockBuilder, TryAcquire, run_under};
use crate::token::{FencingToken, LockToken};

/// A semaphore whose permit to acquire. Made by [`LockBuilder::semaphore`].
#[derive(Clone, Debug)]
#[must_use = "nothing is acquired before acquire, try_acquire or run"]
pub struct Semaphore(LockBuilder);

impl Semaphore {
    pub(crate) fn new(lock: LockBuilder) -> Self {
        Self(lock)
    }

    /// Acquires a permit, waiting in the queue if there is none.
    pub async fn acquire(self) -> Result<PermitGuard, Error> {
        self.0.acquire().await.and_then(PermitGuard::new)
    }

    /// Acquires a permit if there is one, and says who has the one that ends first if not.
    pub async fn try_acquire(self) -> Result<TryAcquire<PermitGuard>, Error> {
        match self.0.try_acquire().await? {
            TryAcquire::Acquired(guard) => PermitGuard::new(guard).map(TryAcquire::Acquired),
            TryAcquire::Held(held) => Ok(TryAcquire::Held(held)),
        }
    }

    /// Runs work under a permit, and releases it: as [`LockBuilder::run`].
    pub async fn run<Work, Running>(self, work: Work) -> Result<Running::Output, Error>
    where
        Work: FnOnce(PermitLease) -> Running,
        Running: Future,
    {
        let guard = self.acquire().await?;
        let running = work(PermitLease { lease: guard.lease(), slot: guard.slot });
        run_under(guard.guard, running).await
    }
}

/// A permit that is held. Dropping it releases it in the background; [`release`](Self::release) says how that went.
#[derive(Debug)]
pub struct PermitGuard {
    guard: LockGuard,
    slot: u16,
}

impl PermitGuard {
    fn new(guard: LockGuard) -> Result<Self, Error> {
        match guard.slot() {
            Some(slot) => Ok(Self { guard, slot }),
            None => Err(Error::unexpected("a permit was granted without a slot")),
        }
    }

    /// The semaphore.
    pub fn lock_key(&self) -> &str {
        self.guard.lock_key()
    }

    /// Who holds the permit: us.
    pub fn owner(&self) -> &str {
        self.guard.owner()
    }

    /// Which permit it is: 0 and up, and never two holders with the same.
    pub fn slot(&self) -> u16 {
        self.slot
    }

    /// What a fence remembers the highest token for: `key#slot`.
    pub fn fence_key(&self) -> String {
        fence_key(self.lock_key(), self.slot)
    }

    /// The grant's token: it grows within the slot.
    pub fn fencing_token(&self) -> FencingToken {
        self.guard.fencing_token()
    }

    /// The secret that proves ownership.
    pub fn lock_token(&self) -> &LockToken {
        self.guard.lock_token()
    }

    /// The lease, to hand to the work that runs under it.
    pub fn lease(&self) -> Lease {
        self.guard.lease()
    }

    /// Whether the lease can no longer be trusted.
    pub fn is_lost(&self) -> bool {
        self.guard.is_lost()
    }

    /// Resolves when the lease can no longer be trusted.
    pub async fn lost(&self) -> LeaseLost {
        self.guard.lost().await
    }

    /// Releases the permit and says how that went: as [`LockGuard::release`].
    pub async fn release(self) -> Result<(), Error> {
        self.guard.release().await
    }
}

/// The lease of a permit, as work that runs under it sees it.
#[derive(Clone, Debug)]
pub struct PermitLease {
    lease: Lease,
    slot: u16,
}

impl PermitLease {
    /// Which permit it is.
    pub fn slot(&self) -> u16 {
        self.slot
    }

    /// What a fence remembers the highest token for: `key#slot`.
    pub fn fence_key(&self) -> String {
        fence_key(self.lease.lock_key(), self.slot)
    }

    /// The lease itself.
    pub fn lease(&self) -> &Lease {
        &self.lease
    }
}

fn fence_key(key: &str, slot: u16) -> String {
    format!("{key}#{slot}")
}
