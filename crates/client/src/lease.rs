//! How long a grant may be trusted, and what ended it.

use crate::clock::{Moment, sleep_until};
use crate::held::Held;
use crate::token::FencingToken;
use std::fmt;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::Poll;
use std::time::Duration;
use tokio::sync::Notify;

/// The lease of a held lock, as work that runs under it sees it. Cheap to clone.
///
/// It is lost at its deadline at the latest, by a clock of this machine that counts suspend, whether or not
/// anything could be heard from the server: before the store gives the lock to anybody else (rule 2).
#[derive(Clone)]
pub struct Lease(Arc<State>);

struct State {
    held: Held,
    lock_key: Arc<str>,
    fencing_token: FencingToken,
    deadline: AtomicU64,
    /// Set once: what is lost stays lost, also if a late renewal should succeed.
    ended: OnceLock<LossReason>,
    changed: Notify,
}

/// The lease can no longer be trusted: someone else may hold the lock now.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LeaseLost {
    held: Held,
    lock_key: Arc<str>,
    fencing_token: FencingToken,
    reason: LossReason,
}

/// How it was noticed that a lease ended.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum LossReason {
    /// No renewal was confirmed before the deadline.
    DeadlinePassed,
    /// The server says that it ran out or was forced away.
    Expired,
    /// The server says that someone else holds the lock.
    NotOwner,
    /// The server says that nobody holds the lock.
    NotFound,
    /// It was released here.
    Released,
}

/// What is taken off a lease for the difference in speed between two clocks.
pub(crate) fn margin(ttl: Duration) -> Duration {
    (ttl / 500).max(Duration::from_millis(5))
}

impl Lease {
    pub(crate) fn new(held: Held, lock_key: Arc<str>, fencing_token: FencingToken, deadline: Moment) -> Self {
        Self(Arc::new(State {
            held,
            lock_key,
            fencing_token,
            deadline: AtomicU64::new(deadline.as_nanos()),
            ended: OnceLock::new(),
            changed: Notify::new(),
        }))
    }

    /// The lock.
    pub fn lock_key(&self) -> &str {
        &self.0.lock_key
    }

    /// The grant's token: give it to the resource.
    pub fn fencing_token(&self) -> FencingToken {
        self.0.fencing_token
    }

    /// Whether the lease can no longer be trusted. A clock read; ask before every step that matters.
    pub fn is_lost(&self) -> bool {
        self.check().is_some()
    }

    /// For how much longer it can be trusted if no renewal should succeed.
    pub fn remaining(&self) -> Duration {
        if self.0.ended.get().is_some() { Duration::ZERO } else { self.deadline().remaining() }
    }

    /// Resolves when the lease can no longer be trusted.
    pub async fn lost(&self) -> LeaseLost {
        loop {
            let mut changed = pin!(self.0.changed.notified());
            changed.as_mut().enable();
            if let Some(lost) = self.check() {
                return lost;
            }
            tokio::select! {
                () = changed => {}
                () = sleep_until(self.deadline()) => {}
            }
        }
    }

    /// Runs work while the lease is trusted. When it is lost, the work is dropped where it stands.
    pub async fn run<Work: Future>(&self, work: Work) -> Result<Work::Output, LeaseLost> {
        let mut work = pin!(work);
        let mut lost = pin!(self.lost());
        poll_fn(|cx| {
            // Asked before each step, so that no step begins after the deadline, however late we are woken.
            if let Poll::Ready(lost) = lost.as_mut().poll(cx) {
                return Poll::Ready(Err(lost));
            }
            if let Some(lost) = self.check() {
                return Poll::Ready(Err(lost));
            }
            work.as_mut().poll(cx).map(Ok)
        })
        .await
    }

    pub(crate) fn check(&self) -> Option<LeaseLost> {
        if self.0.ended.get().is_none() && self.deadline().has_passed() {
            self.end(LossReason::DeadlinePassed);
        }
        self.0.ended.get().map(|reason| self.as_lost(*reason))
    }

    pub(crate) fn deadline(&self) -> Moment {
        Moment::from_nanos(self.0.deadline.load(Ordering::Acquire))
    }

    /// Moves the deadline. Only while it is trusted does it come alive for longer.
    pub(crate) fn renewed(&self, deadline: Moment) {
        self.0.deadline.store(deadline.as_nanos(), Ordering::Release);
    }

    pub(crate) fn end(&self, reason: LossReason) {
        // Whoever noticed first is right.
        self.0.ended.get_or_init(|| reason);
        self.0.changed.notify_waiters();
    }

    pub(crate) fn as_lost(&self, reason: LossReason) -> LeaseLost {
        let State { held, lock_key, fencing_token, .. } = &*self.0;
        LeaseLost { held: *held, lock_key: lock_key.clone(), fencing_token: *fencing_token, reason }
    }
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lease")
            .field("lock_key", &self.0.lock_key)
            .field("fencing_token", &self.0.fencing_token)
            .field("remaining", &self.remaining())
            .finish_non_exhaustive()
    }
}

impl LeaseLost {
    /// The lock.
    pub fn lock_key(&self) -> &str {
        &self.lock_key
    }

    /// The token of the lost grant: resources that saw a higher one refuse it.
    pub fn fencing_token(&self) -> FencingToken {
        self.fencing_token
    }

    /// How it was noticed.
    pub fn reason(&self) -> LossReason {
        self.reason
    }
}

impl fmt::Display for LeaseLost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let why = match self.reason {
            LossReason::DeadlinePassed => "no renewal was confirmed in time",
            LossReason::Expired => "the server says that it ran out or was forced away",
            LossReason::NotOwner => "the server says that someone else has it",
            LossReason::NotFound => "the server says that nobody has it",
            LossReason::Released => "it was given back",
        };
        let (key, token) = (&self.lock_key, self.fencing_token);
        match self.held {
            Held::Lock => write!(
                f,
                "the lease of {key:?} (fencing token {token}) is lost: {why}; what it guarded is suspect"
            ),
            Held::Election => write!(
                f,
                "the leadership of election {key:?} (epoch {token}) is lost: {why}; what was done under it is suspect"
            ),
        }
    }
}

impl std::error::Error for LeaseLost {}

#[cfg(test)]
mod tests {
    use super::*;

    fn lease(for_ms: u64) -> Lease {
        Lease::new(
            Held::Lock,
            "k".into(),
            FencingToken(7),
            Moment::now().after(Duration::from_millis(for_ms)),
        )
    }

    #[test]
    fn the_margin_is_a_five_hundredth_but_at_least_five_milliseconds() {
        for (ttl_ms, margin_ms) in [(100, 5), (2_500, 5), (30_000, 60), (86_400_000, 172_800)] {
            assert_eq!(margin(Duration::from_millis(ttl_ms)), Duration::from_millis(margin_ms), "{ttl_ms}");
        }
    }

    #[tokio::test]
    async fn a_lease_is_lost_at_its_deadline_without_anyone_saying_so_and_stays_lost() {
        let lease = lease(30);
        assert!(!lease.is_lost());
        assert_eq!(lease.lost().await.reason(), LossReason::DeadlinePassed);
        lease.renewed(Moment::now().after(Duration::from_secs(60)));
        assert!(lease.is_lost() && lease.remaining().is_zero());
    }

    #[tokio::test]
    async fn everyone_who_waits_for_the_loss_hears_of_it_at_once() {
        let lease = lease(60_000);
        let others: Vec<_> = (0..3)
            .map(|_| {
                let lease = lease.clone();
                tokio::spawn(async move { lease.lost().await })
            })
            .collect();
        tokio::task::yield_now().await;
        lease.end(LossReason::Expired);
        for other in others {
            assert_eq!(other.await.unwrap().reason(), LossReason::Expired);
        }
    }
}
