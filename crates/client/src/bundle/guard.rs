//! Several locks that are held: each renewed in the background, all released together.

use super::lease::BundleLease;
use crate::baton::Baton;
use crate::clock::Moment;
use crate::error::Error;
use crate::guard::LockGuard;
use crate::held::Held;
use crate::lease::LeaseLost;
use crate::token::FencingToken;
use baton_api::lock::AcquireResponse;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;

/// Several locks that are held. Dropping it releases them in the background; [`release`](Self::release) says how that went.
#[derive(Debug)]
pub struct BundleGuard {
    /// In the order they were asked for.
    guards: Vec<LockGuard>,
}

impl BundleGuard {
    /// Grants as they came; `sent` is when the request left that was answered with them.
    pub(super) async fn new(
        baton: &Baton,
        namespace: Option<Arc<str>>,
        ttl: Duration,
        grants: Vec<AcquireResponse>,
        sent: Moment,
    ) -> Result<Self, Error> {
        let owned = (baton.clone(), namespace, grants);
        // By itself: if nobody waits for it any more, the guards are dropped when all are there, and give everything back.
        let making = baton.0.runtime.spawn(async move {
            let (baton, namespace, grants) = owned;
            let mut making = JoinSet::new();
            for (place, grant) in grants.into_iter().enumerate() {
                let (baton, namespace, key) =
                    (baton.clone(), namespace.clone(), grant.lock_key.as_str().into());
                making.spawn(async move {
                    (place, LockGuard::new(baton, Held::Lock, namespace, key, ttl, grant, sent).await)
                });
            }
            let mut made = making.join_all().await;
            made.sort_by_key(|(place, _)| *place);
            made.into_iter().map(|(_, guard)| guard).collect::<Result<Vec<_>, _>>()
        });
        let made = making.await.map_err(|error| Error::unexpected(error.to_string()))?;
        made.map(|guards| Self { guards })
    }

    /// The locks, in the order they were asked for.
    pub fn lock_keys(&self) -> impl Iterator<Item = &str> {
        self.guards.iter().map(LockGuard::lock_key)
    }

    /// Each lock by itself.
    pub fn guards(&self) -> &[LockGuard] {
        &self.guards
    }

    /// The token of one of the locks: give it to that lock's resource, and let the resource refuse lower ones.
    pub fn fencing_token(&self, lock_key: &str) -> Option<FencingToken> {
        let guard = self.guards.iter().find(|guard| guard.lock_key() == lock_key);
        guard.map(LockGuard::fencing_token)
    }

    /// The leases, to hand to the work that runs under them.
    pub fn lease(&self) -> BundleLease {
        BundleLease::new(self.guards.iter().map(LockGuard::lease).collect())
    }

    /// Whether one of the leases can no longer be trusted.
    pub fn is_lost(&self) -> bool {
        self.guards.iter().any(LockGuard::is_lost)
    }

    /// Resolves when one of the leases can no longer be trusted.
    pub async fn lost(&self) -> LeaseLost {
        self.lease().lost().await
    }

    /// Releases all of them and says how that went: as [`LockGuard::release`], of the first that didn't go well.
    pub async fn release(self) -> Result<(), Error> {
        let mut guards = self.guards;
        // Whoever waits for the same locks stands in the first one's queue: when it gets that, the others are free.
        guards.sort_by(|one, other| other.lock_key().cmp(one.lock_key()));
        let first = guards.pop();
        let mut releasing = JoinSet::new();
        for guard in guards {
            releasing.spawn(guard.release());
        }
        let mut results = releasing.join_all().await;
        if let Some(first) = first {
            results.push(first.release().await);
        }
        let is_lost = |result: &Result<(), Error>| result.as_ref().is_err_and(Error::is_lease_lost);
        if let Some(lost) = results.iter().position(is_lost) {
            return results.swap_remove(lost);
        }
        results.into_iter().collect()
    }
}
