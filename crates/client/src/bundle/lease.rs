//! How long several locks may be trusted together: until the first of them may not.

use crate::lease::{Lease, LeaseLost};
use crate::token::FencingToken;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

/// The leases of several locks, as work that runs under them sees them. Cheap to clone.
#[derive(Clone, Debug)]
pub struct BundleLease(Arc<[Lease]>);

impl BundleLease {
    pub(super) fn new(leases: Arc<[Lease]>) -> Self {
        Self(leases)
    }

    /// Each by itself, in the order the locks were asked for.
    pub fn leases(&self) -> &[Lease] {
        &self.0
    }

    /// The token of one of the locks: give it to that lock's resource.
    pub fn fencing_token(&self, lock_key: &str) -> Option<FencingToken> {
        let lease = self.0.iter().find(|lease| lease.lock_key() == lock_key);
        lease.map(Lease::fencing_token)
    }

    /// Whether one of them can no longer be trusted. A clock read each; ask before every step that matters.
    pub fn is_lost(&self) -> bool {
        self.0.iter().any(Lease::is_lost)
    }

    /// For how much longer all of them can be trusted if no renewal should succeed.
    pub fn remaining(&self) -> Duration {
        self.0.iter().map(Lease::remaining).min().unwrap_or_default()
    }

    /// Resolves when one of them can no longer be trusted.
    pub async fn lost(&self) -> LeaseLost {
        let mut each: Vec<_> = self.0.iter().map(|lease| Box::pin(lease.lost())).collect();
        poll_fn(|context| {
            let lost = each.iter_mut().map(|one| one.as_mut().poll(context));
            lost.into_iter().find(Poll::is_ready).unwrap_or(Poll::Pending)
        })
        .await
    }

    /// Runs work while all of them are trusted. When one is lost, the work is dropped where it stands.
    pub async fn run<Work: Future>(&self, work: Work) -> Result<Work::Output, LeaseLost> {
        let mut work = pin!(work);
        let mut lost = pin!(self.lost());
        poll_fn(|context| {
            // Asked before each step, so that no step begins after a deadline, however late we are woken.
            if let Poll::Ready(lost) = lost.as_mut().poll(context) {
                return Poll::Ready(Err(lost));
            }
            if let Some(lost) = self.0.iter().find_map(Lease::check) {
                return Poll::Ready(Err(lost));
            }
            work.as_mut().poll(context).map(Ok)
        })
        .await
    }
}
