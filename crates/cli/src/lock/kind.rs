//! The kinds of locks that a command may run under: a plain one, a shared one, a permit, several at once.

use super::{LockArguments, about};
use baton_client::{
    Baton, BundleBuilder, BundleGuard, BundleLease, Error, Lease, LeaseLost, LockBuilder, LockGuard,
    PermitGuard, Semaphore, SharedGuard, SharedLease, SharedLock, TryAcquire,
};

/// What was asked for.
#[derive(Clone)]
pub enum Asked {
    Plain(LockBuilder),
    Shared(SharedLock),
    Permit(Semaphore),
    Bundle(BundleBuilder),
}

impl Asked {
    pub fn new(baton: &Baton, arguments: &LockArguments) -> Self {
        if !arguments.and.is_empty() {
            let keys = std::iter::once(&arguments.key).chain(&arguments.and);
            let mut bundle = baton
                .bundle(keys)
                .ttl(arguments.ttl)
                .lock_delay(arguments.lock_delay)
                .metadata(about(&arguments.command));
            if let Some(wait) = arguments.wait {
                bundle = bundle.wait_max(wait);
            }
            return Self::Bundle(bundle);
        }
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
            Self::Bundle(bundle) => bundle.acquire().await.map(Held::Bundle),
        }
    }

    pub async fn try_acquire(self) -> Result<TryAcquire<Held>, Error> {
        match self {
            Self::Plain(lock) => lock.try_acquire().await.map(|tried| tried.map(Held::Plain)),
            Self::Shared(lock) => lock.try_acquire().await.map(|tried| tried.map(Held::Shared)),
            Self::Permit(lock) => lock.try_acquire().await.map(|tried| tried.map(Held::Permit)),
            Self::Bundle(bundle) => bundle.try_acquire().await.map(|tried| tried.map(Held::Bundle)),
        }
    }
}

/// What is held.
pub enum Held {
    Plain(LockGuard),
    Shared(SharedGuard),
    Permit(PermitGuard),
    /// In the order of the command line.
    Bundle(BundleGuard),
}

impl Held {
    /// What the command is told. The token of a shared lock is not for fences, so it isn't.
    pub fn environment(&self) -> Vec<(&'static str, String)> {
        let (key, token, slot) = match self {
            Self::Plain(guard) => (guard.lock_key(), Some(guard.fencing_token()), None),
            Self::Shared(guard) => (guard.lock_key(), None, None),
            Self::Permit(guard) => (guard.lock_key(), Some(guard.fencing_token()), Some(guard.slot())),
            Self::Bundle(bundle) => {
                let first = bundle.guards().first();
                (first.map_or("", LockGuard::lock_key), first.map(LockGuard::fencing_token), None)
            }
        };
        let key = Some(("BATON_LOCK_KEY", key.to_owned()));
        let token = token.map(|token| ("BATON_FENCING_TOKEN", token.to_string()));
        let slot = slot.map(|slot| ("BATON_SLOT", slot.to_string()));
        let tokens = self.tokens().map(|tokens| ("BATON_FENCING_TOKENS", tokens));
        [key, token, slot, tokens].into_iter().flatten().collect()
    }

    /// Every key's token, of several.
    fn tokens(&self) -> Option<String> {
        let Self::Bundle(bundle) = self else { return None };
        let each = bundle.guards().iter();
        let tokens = each.map(|guard| (guard.lock_key().to_owned(), guard.fencing_token().get().into()));
        Some(serde_json::Value::Object(tokens.collect()).to_string())
    }

    pub fn lease(&self) -> HeldLease {
        match self {
            Self::Plain(guard) => HeldLease::Fenced(guard.lease()),
            Self::Shared(guard) => HeldLease::Shared(guard.lease()),
            Self::Permit(guard) => HeldLease::Fenced(guard.lease()),
            Self::Bundle(bundle) => HeldLease::Bundle(bundle.lease()),
        }
    }

    pub async fn release(self) -> Result<(), Error> {
        match self {
            Self::Plain(guard) => guard.release().await,
            Self::Shared(guard) => guard.release().await,
            Self::Permit(guard) => guard.release().await,
            Self::Bundle(bundle) => bundle.release().await,
        }
    }
}

/// How long it may be trusted.
pub enum HeldLease {
    Fenced(Lease),
    Shared(SharedLease),
    Bundle(BundleLease),
}

impl HeldLease {
    pub fn is_lost(&self) -> bool {
        match self {
            Self::Fenced(lease) => lease.is_lost(),
            Self::Shared(lease) => lease.is_lost(),
            Self::Bundle(lease) => lease.is_lost(),
        }
    }

    pub async fn lost(&self) -> LeaseLost {
        match self {
            Self::Fenced(lease) => lease.lost().await,
            Self::Shared(lease) => lease.lost().await,
            Self::Bundle(lease) => lease.lost().await,
        }
    }
}
