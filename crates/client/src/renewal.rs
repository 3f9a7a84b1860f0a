//! Keeping what is ours: a claim or a run is renewed in the background until it is over or lost.

use crate::baton::{Baton, TRY_MAX};
use crate::clock::{Moment, sleep_until};
use crate::error::Error;
use crate::lease::{Lease, LossReason, margin};
use baton_api::ErrorCode;
use bytes::Bytes;
use std::sync::Arc;
use std::time::Duration;

/// A shorter time-out of one renewal than this would give up on answers that are merely not instant.
const RENEW_TRY_MIN: Duration = Duration::from_millis(50);
/// Between renewals that failed for a reason that retrying doesn't usually mend.
const RENEW_PAUSE: Duration = Duration::from_millis(200);

/// What is renewed, and how.
pub(crate) struct Renewal {
    pub(crate) baton: Baton,
    pub(crate) path: String,
    pub(crate) body: Bytes,
    pub(crate) ttl: Duration,
    pub(crate) lease: Lease,
}

impl Renewal {
    /// Until when a lease may be trusted that was confirmed by an answer to what left at `sent`.
    pub(crate) fn deadline(&self, sent: Moment) -> Moment {
        sent.after(self.ttl.saturating_sub(margin(self.ttl)))
    }

    /// Renews until it is confirmed, refused, or too late. Says when the request left that was confirmed.
    pub(crate) async fn renew(&self) -> Result<Moment, LossReason> {
        let deadline = self.lease.deadline();
        let try_max = (self.ttl / 6).clamp(RENEW_TRY_MIN, TRY_MAX);
        while !deadline.has_passed() {
            let asked = self.baton.0.post(self.path.clone(), self.body.clone(), deadline, try_max).await;
            let error = match asked {
                Ok((reply, _)) if reply.status.is_success() => return Ok(reply.sent),
                Ok((reply, address)) => Error::from_failure(reply.refusal(&address), false),
                Err(error) => error,
            };
            match error.code() {
                Some(ErrorCode::ClaimLost | ErrorCode::AlreadyCompleted | ErrorCode::RunLost) => {
                    return Err(LossReason::Expired);
                }
                Some(ErrorCode::NotClaimOwner) => return Err(LossReason::NotOwner),
                Some(ErrorCode::RunNotFound) => return Err(LossReason::NotFound),
                _ => sleep_until(Moment::now().after(RENEW_PAUSE.min(self.ttl / 10)).min(deadline)).await,
            }
        }
        Err(LossReason::DeadlinePassed)
    }

    /// Renews at a third of the TTL for as long as it is held.
    pub(crate) async fn keep(self: Arc<Self>, confirmed: Moment) {
        let mut renewed = confirmed;
        loop {
            sleep_until(renewed.after(self.ttl / 3)).await;
            match self.renew().await {
                Ok(sent) => renewed = sent,
                Err(reason) => return self.lease.end(reason),
            }
            self.lease.renewed(self.deadline(renewed));
        }
    }
}
