//! A claim that is ours: renewed in the background until it is completed or given up.

use super::Once;
use crate::baton::TRY_MAX;
use crate::clock::Moment;
use crate::error::Error;
use crate::held::{Held, encode};
use crate::lease::{Lease, LossReason, margin};
use crate::renewal::Renewal;
use crate::token::FencingToken;
use baton_api::once::{ClaimResponse, CompleteRequest, FailRequest, RenewClaimRequest};
use bytes::Bytes;
use serde::Serialize;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::AbortHandle;

/// A claim that is ours. Dropping it gives it up in the background, so that the next caller may try.
pub struct Claim {
    held: Arc<Kept>,
    keeper: Option<AbortHandle>,
    result_ttl: Option<Duration>,
    done: bool,
}

struct Kept {
    /// Where to send what.
    complete: String,
    fail: String,
    token: String,
    renewal: Arc<Renewal>,
}

impl Claim {
    /// A claim as it came; `sent` is when the request left that was answered with it.
    pub(super) async fn new(
        once: &Once,
        response: ClaimResponse,
        token: String,
        sent: Moment,
    ) -> Result<Self, Error> {
        let received = Moment::now();
        let fencing = FencingToken::new(response.fencing_token);
        // Whatever the wait was, the store's lease can't outlive this.
        let lease = Lease::new(Held::Lock, once.key.clone(), fencing, received.after(once.ttl));
        let ttl_millis = u64::try_from(once.ttl.as_millis()).unwrap_or(u64::MAX);
        let renewal = Arc::new(Renewal {
            baton: once.baton.clone(),
            path: once.path("renew"),
            body: encode(&RenewClaimRequest { claim_token: token.clone(), ttl_millis })?,
            ttl: once.ttl,
            lease,
        });
        let held =
            Arc::new(Kept { complete: once.path("complete"), fail: once.path("fail"), token, renewal });
        let mut claim = Self { held, keeper: None, result_ttl: once.result_ttl, done: false };
        let mut sent = sent;
        if received.since(sent) > once.ttl / 10 {
            // A wait: the lease may be almost over, or seem to be. It is renewed before anyone sees it.
            sent = match claim.held.renewal.renew().await {
                Ok(sent) => sent,
                Err(reason) => {
                    claim.done = true;
                    return Err(claim.held.renewal.lease.as_lost(reason).into());
                }
            };
        }
        let renewal = &claim.held.renewal;
        renewal.lease.renewed(renewal.deadline(sent));
        let keeper = renewal.baton.0.runtime.spawn(renewal.clone().keep(sent));
        claim.keeper = Some(keeper.abort_handle());
        Ok(claim)
    }

    /// The claim's token: give it to the resource, and let the resource refuse lower ones.
    pub fn fencing_token(&self) -> FencingToken {
        self.held.renewal.lease.fencing_token()
    }

    /// The lease, to hand to the work that runs under it.
    pub fn lease(&self) -> Lease {
        self.held.renewal.lease.clone()
    }

    /// Stores the result, for everyone to get: anything that is at most 64 KiB as JSON. An error that
    /// [is about the lease](Error::is_lease_lost) means that the claim had been lost, and nothing was stored.
    pub async fn complete(self, result: &impl Serialize) -> Result<(), Error> {
        let result = serde_json::value::to_raw_value(result);
        let result = result.map_err(|error| Error::unexpected(error.to_string()))?;
        let result_ttl_millis =
            self.result_ttl.map(|kept| u64::try_from(kept.as_millis()).unwrap_or(u64::MAX));
        let body = CompleteRequest { claim_token: self.held.token.clone(), result, result_ttl_millis };
        body.check().map_err(Error::refused)?;
        let (path, body) = (self.held.complete.clone(), encode(&body)?);
        self.end(path, body).await
    }

    /// Gives the claim up: the next caller is first, at once.
    pub async fn fail(self) -> Result<(), Error> {
        let (path, body) = (self.held.fail.clone(), self.held.fail_body()?);
        self.end(path, body).await
    }

    /// Renewals go on until it is answered: only then is the claim over.
    async fn end(mut self, path: String, body: Bytes) -> Result<(), Error> {
        let deadline = Moment::now().after(self.held.renewal.baton.0.call_timeout);
        let answered = self.held.renewal.baton.0.post(path, body, deadline, TRY_MAX).await;
        let result = match answered {
            Ok((reply, _)) if reply.status.is_success() => Ok(()),
            Ok((reply, address)) => Err(Error::from_failure(reply.refusal(&address), false)),
            Err(error) => Err(error),
        };
        // After an answer there is nothing left to give up; without one it may have been completed.
        self.done = true;
        self.stop();
        result
    }

    fn stop(&mut self) {
        if let Some(keeper) = self.keeper.take() {
            keeper.abort();
        }
        self.held.renewal.lease.end(LossReason::Released);
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        // Once the lease has run out there is nothing to give up.
        let deadline = self.held.renewal.lease.deadline().after(margin(self.held.renewal.ttl));
        self.stop();
        if !self.done {
            let held = self.held.clone();
            let deadline = deadline.min(Moment::now().after(held.renewal.baton.0.call_timeout));
            self.held.renewal.baton.0.runtime.spawn(async move {
                let Ok(body) = held.fail_body() else { return };
                // Nobody is left to be told; if it fails, the claim runs out.
                drop(held.renewal.baton.0.post(held.fail.clone(), body, deadline, TRY_MAX).await);
            });
        }
    }
}

impl std::fmt::Debug for Claim {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Claim").field("lease", &self.held.renewal.lease).finish_non_exhaustive()
    }
}

impl Kept {
    fn fail_body(&self) -> Result<Bytes, Error> {
        encode(&FailRequest { claim_token: self.token.clone() })
    }
}
