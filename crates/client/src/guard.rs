//! A held lock: renewed in the background while it lives, released when it goes.

use crate::batch::{Call, Operation};
use crate::baton::{Baton, TRY_MAX};
use crate::clock::{Moment, sleep_until};
use crate::error::Error;
use crate::held::{self, Held, Proof};
use crate::lease::{Lease, LeaseLost, LossReason, margin};
use crate::random;
use crate::token::{FencingToken, LockToken};
use baton_api::ErrorCode;
use baton_api::batch::Answer;
use baton_api::lock::AcquireResponse;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::AbortHandle;

/// A shorter time-out of one renewal than this would give up on answers that are merely not instant.
const RENEW_TRY_MIN: Duration = Duration::from_millis(50);
/// Between renewals that failed for a reason that retrying doesn't usually mend.
const RENEW_PAUSE: Duration = Duration::from_millis(200);

/// A lock that is held. Dropping it releases it in the background; [`release`](Self::release) says how that went.
pub struct LockGuard {
    pub(crate) grant: Arc<Grant>,
    keeper: Option<AbortHandle>,
    /// One for all tries of the release, also if the first is cancelled.
    release_id: String,
    done: bool,
}

pub(crate) struct Grant {
    pub(crate) baton: Baton,
    held: Held,
    pub(crate) namespace: Option<Arc<str>>,
    pub(crate) key: Arc<str>,
    pub(crate) owner: String,
    pub(crate) token: LockToken,
    ttl: Duration,
    reentrancy_count: u32,
    slot: Option<u16>,
    pub(crate) lease: Lease,
    renew: Call,
}

impl LockGuard {
    /// A grant as it came; `sent` is when the request left that was answered with it.
    ///
    /// If the answer took long (a wait), the lease may be almost over, or seem to be: it is renewed once before
    /// anyone sees it.
    pub(crate) async fn new(
        baton: Baton,
        held: Held,
        namespace: Option<Arc<str>>,
        key: Arc<str>,
        ttl: Duration,
        response: AcquireResponse,
        sent: Moment,
    ) -> Result<Self, Error> {
        let received = Moment::now();
        let ttl = ttl.min(Duration::from_millis(response.ttl_millis));
        let fencing_token = FencingToken(response.fencing_token);
        // Whatever the wait was, the store's lease can't outlive this.
        let lease = Lease::new(held, key.clone(), fencing_token, received.after(ttl));
        let proof = Proof { token: &response.lock_token, owner: &response.owner_id };
        let renewal = held.renewal(&proof, response.ttl_millis)?;
        let grant = Arc::new(Grant {
            renew: Call {
                operation: match held {
                    Held::Lock => Operation::Renew,
                    Held::Election => Operation::RenewLeader,
                },
                namespace: namespace.clone(),
                key: key.clone(),
                body: renewal,
                fate: Arc::default(),
            },
            baton,
            held,
            namespace,
            key,
            owner: response.owner_id,
            token: LockToken::new(response.lock_token),
            ttl,
            reentrancy_count: response.reentrancy_count,
            slot: response.slot,
            lease,
        });
        let mut guard = Self { grant, keeper: None, release_id: random::request_id(), done: false };
        let mut sent = sent;
        if received.since(sent) > ttl / 10 {
            sent = match guard.grant.renew().await {
                Ok(sent) => sent,
                Err(reason) => {
                    guard.done = true;
                    return Err(guard.grant.lease.as_lost(reason).into());
                }
            };
        }
        guard.grant.lease.renewed(guard.grant.deadline(sent));
        let keeper = guard.grant.baton.0.runtime.spawn(keep(guard.grant.clone(), sent));
        guard.keeper = Some(keeper.abort_handle());
        Ok(guard)
    }

    /// The lock.
    pub fn lock_key(&self) -> &str {
        &self.grant.key
    }

    /// Who holds it: us.
    pub fn owner(&self) -> &str {
        &self.grant.owner
    }

    /// The grant's token: give it to the resource, and let the resource refuse lower ones.
    pub fn fencing_token(&self) -> FencingToken {
        self.grant.lease.fencing_token()
    }

    /// The secret that proves ownership.
    pub fn lock_token(&self) -> &LockToken {
        &self.grant.token
    }

    /// How many releases it takes, when it was acquired.
    pub fn reentrancy_count(&self) -> u32 {
        self.grant.reentrancy_count
    }

    /// Which permit of a semaphore it is.
    pub(crate) fn slot(&self) -> Option<u16> {
        self.grant.slot
    }

    /// The lease, to hand to the work that runs under it.
    pub fn lease(&self) -> Lease {
        self.grant.lease.clone()
    }

    /// Whether the lease can no longer be trusted.
    pub fn is_lost(&self) -> bool {
        self.grant.lease.is_lost()
    }

    /// Resolves when the lease can no longer be trusted.
    pub async fn lost(&self) -> LeaseLost {
        self.grant.lease.lost().await
    }

    /// Releases the lock and says how that went. An error that [is about the lease](Error::is_lease_lost) means
    /// that it had been lost before. After any other error nothing renews it any more, and it runs out.
    pub async fn release(mut self) -> Result<(), Error> {
        self.give_back(None).await
    }

    /// Gives it back, perhaps in favour of somebody. Not held from the moment of the call on.
    pub(crate) async fn give_back(&mut self, successor: Option<&str>) -> Result<(), Error> {
        self.stop();
        let deadline = Moment::now().after(self.grant.baton.0.call_timeout);
        let result = self.grant.release(&self.release_id, successor, deadline).await;
        // Who was named and isn't there leaves everything as it was: what is held here is still to be given back.
        let is_undone =
            result.as_ref().is_err_and(|error| error.code() == Some(ErrorCode::SuccessorNotWaiting));
        self.done = !is_undone;
        if is_undone {
            self.release_id = random::request_id();
        }
        result
    }

    /// Nothing renews it from here on: a lock that is being given back isn't held any more.
    fn stop(&mut self) {
        if let Some(keeper) = self.keeper.take() {
            keeper.abort();
        }
        self.grant.lease.end(LossReason::Released);
    }
}

impl Drop for LockGuard {
    fn drop(&mut self) {
        // Once the lease has run out there is nothing to give back.
        let deadline = self.grant.lease.deadline().after(margin(self.grant.ttl));
        self.stop();
        if !self.done {
            let (grant, id) = (self.grant.clone(), std::mem::take(&mut self.release_id));
            let deadline = deadline.min(Moment::now().after(self.grant.baton.0.call_timeout));
            self.grant.baton.0.runtime.spawn(async move {
                // Nobody is left to be told; if it fails, the lease runs out.
                drop(grant.release(&id, None, deadline).await);
            });
        }
    }
}

impl std::fmt::Debug for LockGuard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LockGuard")
            .field("owner", &self.grant.owner)
            .field("lease", &self.grant.lease)
            .finish_non_exhaustive()
    }
}

impl Grant {
    /// How long a lease is trusted that was granted or renewed by a request sent then.
    fn deadline(&self, sent: Moment) -> Moment {
        sent.after(self.ttl.saturating_sub(margin(self.ttl)))
    }

    /// Renews until it is confirmed, refused, or too late. Says when the request left that was confirmed.
    async fn renew(&self) -> Result<Moment, LossReason> {
        let deadline = self.lease.deadline();
        let try_max = (self.ttl / 6).clamp(RENEW_TRY_MIN, TRY_MAX);
        while !deadline.has_passed() {
            let error = match self.baton.0.call(&self.renew, deadline, try_max).await {
                Ok(answered) if matches!(answered.answer, Answer::Renew(_)) => return Ok(answered.sent),
                Ok(_) => Error::unexpected("a renew was answered with something else"),
                Err(error) => error,
            };
            match error.code().and_then(held::loss) {
                Some(reason) => return Err(reason),
                None => sleep_until(Moment::now().after(RENEW_PAUSE.min(self.ttl / 10)).min(deadline)).await,
            }
        }
        Err(LossReason::DeadlinePassed)
    }

    async fn release(
        &self,
        request_id: &str,
        successor: Option<&str>,
        deadline: Moment,
    ) -> Result<(), Error> {
        let proof = Proof { token: self.token.reveal(), owner: &self.owner };
        let call = Call {
            operation: match self.held {
                Held::Lock => Operation::Release,
                Held::Election => Operation::Resign,
            },
            namespace: self.namespace.clone(),
            key: self.key.clone(),
            body: self.held.release(&proof, request_id, successor)?,
            fate: Arc::default(),
        };
        match self.baton.0.call(&call, deadline, TRY_MAX).await {
            Ok(answered) if matches!(answered.answer, Answer::Release(_)) => Ok(()),
            Ok(_) => Err(Error::unexpected("a release was answered with something else")),
            // It had been lost before, and only shows now.
            Err(error) => Err(match error.code().and_then(held::loss) {
                Some(reason) => self.lease.as_lost(reason).into(),
                None => error,
            }),
        }
    }
}

/// Renews at a third of the TTL for as long as the lock is held (L5).
async fn keep(grant: Arc<Grant>, granted: Moment) {
    let mut renewed = granted;
    loop {
        sleep_until(renewed.after(grant.ttl / 3)).await;
        match grant.renew().await {
            Ok(sent) => renewed = sent,
            Err(reason) => return grant.lease.end(reason),
        }
        grant.lease.renewed(grant.deadline(renewed));
    }
}
