//! The kinds of locks that a command may run under: a plain one, a shared one, a permit.

use super::{LockArguments, about};
use baton_client::{
    Baton, Error, Lease, LeaseLost, LockBuilder, LockGuard, PermitGuard, Semaphore, SharedGuard, SharedLease,
    SharedLock, TryAcquire,
};

/// What was asked for.
#[derive(Clone)]
pub enum Asked {
    Plain(LockBuilder),
    Shared(SharedLock),
    Permit(Semaphore),
}

impl Asked {
    pub fn new(baton: &Baton, arguments: &LockArguments) -> Self {
        let mut lock = baton
            .lock(&arguments.key)
            .ttl(arguments.ttl)
            .lock_delay(arguments.lock_delay)
            .metadata(about(&arguments.command));
        if let Some(wait) = arguments.wait {
            lock = lock.wait_max(wait);
        }
        match arguments.permits {
            _ if arguments.shared => Self::Shared(lock.shared()),
            Some(permits) => Self::Permit(lock.semaphore(permits)),
            None => Self::Plain(lock),
        }
    }

    pub async fn acquire(self) -> Result<Held, Error> {
        match self {
            Self::Plain(lock) => lock.acquire().await.map(Held::Plain),
            Self::Shared(lock) => lock.acquire().await.map(Held::Shared),
            Self::Permit(lock) => lock.acquire().await.map(Held::Permit),
        }
    }

    pub async fn try_acquire(self) -> Result<TryAcquire<Held>, Error> {
        match self {
            Self::Plain(lock) => lock.try_acquire().await.map(|tried| tried.map(Held::Plain)),
            Self::Shared(lock) => lock.try_acquire().await.map(|tried| tried.map(Held::Shared)),
            Self::Permit(lock) => lock.try_acquire().await.map(|tried| tried.map(Held::Permit)),
        }
    }
}

/// What is held.
pub enum Held {
    Plain(LockGuard),
    Shared(SharedGuard),
    Permit(PermitGuard),
}

impl Held {
    /// What the command is told. The token of a shared lock is not for fences, so it isn't.
    pub fn environment(&self) -> Vec<(&'static str, String)> {
        let (key, token, slot) = match self {
            Self::Plain(guard) => (guard.lock_key(), Some(guard.fencing_token()), None),
            Self::Shared(guard) => (guard.lock_key(), None, None),
            Self::Permit(guard) => (guard.lock_key(), Some(guard.fencing_token()), Some(guard.slot())),
        };
        let key = Some(("BATON_LOCK_KEY", key.to_owned()));
        let token = token.map(|token| ("BATON_FENCING_TOKEN", token.to_string()));
        let slot = slot.map(|slot| ("BATON_SLOT", slot.to_string()));
        [key, token, slot].into_iter().flatten().collect()
    }

    pub fn lease(&self) -> HeldLease {
        match self {
            Self::Plain(guard) => HeldLease::Fenced(guard.lease()),
            Self::Shared(guard) => HeldLease::Shared(guard.lease()),
            Self::Permit(guard) => HeldLease::Fenced(guard.lease()),
        }
    }

    pub async fn release(self) -> Result<(), Error> {
        match self {
            Self::Plain(guard) => guard.release().await,
            Self::Shared(guard) => guard.release().await,
            Self::Permit(guard) => guard.release().await,
        }
    }
}

/// How long it may be trusted.
pub enum HeldLease {
    Fenced(Lease),
    Shared(SharedLease),
}

impl HeldLease {
    pub fn is_lost(&self) -> bool {
        match self {
            Self::Fenced(lease) => lease.is_lost(),
            Self::Shared(lease) => lease.is_lost(),
        }
    }

    pub async fn lost(&self) -> LeaseLost {
        match self {
            Self::Fenced(lease) => lease.lost().await,
            Self::Shared(lease) => lease.lost().await,
        }
    }
}
