//! One acquire from its first try to its grant, under one requestId.

use crate::batch::{Call, Fate, Operation};
use crate::baton::{Baton, TRY_MAX};
use crate::clock::Moment;
use crate::error::{Error, Failure};
use crate::guard::LockGuard;
use crate::held::{Held, Request};
use crate::retry::Retry;
use baton_api::batch::Answer;
use baton_api::lock::AcquireResponse;
use baton_api::{ErrorBody, ErrorCode, limits};
use std::sync::Arc;
use std::time::Duration;

/// One waiting call takes no longer; the server's own cap is below.
const WAIT_CALL_MAX: Duration = Duration::from_secs(630);
/// A waiting call that ends sooner than this is followed by a pause, and doesn't count as progress.
const WAIT_CALL_MIN: Duration = Duration::from_millis(200);

pub(crate) struct Attempt {
    baton: Baton,
    namespace: Option<Arc<str>>,
    key: Arc<str>,
    request: Request,
    fate: Arc<Fate>,
}

impl Drop for Attempt {
    /// A grant that should still come in goes back, unless it was taken.
    fn drop(&mut self) {
        self.fate.abandon();
    }
}

impl Attempt {
    pub(crate) fn new(baton: Baton, namespace: Option<Arc<str>>, key: Arc<str>, request: Request) -> Self {
        Self { baton, namespace, key, request, fate: Arc::default() }
    }

    fn call(&self, request: &Request) -> Result<Call, Error> {
        Ok(Call {
            operation: match request.held() {
                Held::Lock => Operation::Acquire,
                Held::Election => Operation::Campaign,
            },
            namespace: self.namespace.clone(),
            key: self.key.clone(),
            body: request.encode()?,
            fate: self.fate.clone(),
        })
    }

    /// Acquires without waiting.
    pub(crate) async fn now(&self) -> Result<LockGuard, Error> {
        let call = self.call(&self.request)?;
        let deadline = Moment::now().after(self.baton.0.call_timeout);
        let answered = self.baton.0.call(&call, deadline, TRY_MAX).await?;
        match answered.answer {
            Answer::Acquire(grant) => self.granted(grant, answered.sent).await,
            _ => Err(Error::unexpected("an acquire was answered with something else")),
        }
    }

    /// Waits in the queue, on a connection of its own: closing it is how to leave.
    pub(crate) async fn wait(&self, give_up: Option<Moment>) -> Result<LockGuard, Error> {
        let inner = &self.baton.0;
        let permit = match give_up {
            Some(give_up) => match tokio::time::timeout(give_up.remaining(), inner.waiting.acquire()).await {
                Ok(permit) => permit,
                Err(_) => return Err(wait_timeout()),
            },
            None => inner.waiting.acquire().await,
        };
        let _permit = permit.map_err(|error| Error::unexpected(error.to_string()))?;
        let mut request = self.request.clone();
        let mut retry = Retry::until(self.retry_deadline(give_up));
        loop {
            let began = Moment::now();
            let remaining = give_up.map(|give_up| give_up.since(began));
            let call = self.call(&request.waiting(wait_timeout_ms(remaining)))?;
            let ask = call.ask();
            let patience = remaining.map_or(WAIT_CALL_MAX, |left| WAIT_CALL_MAX.min(left + TRY_MAX));
            let (index, host) = inner.host();
            let failure = match tokio::time::timeout(patience, inner.wait_at(host, &ask)).await {
                Ok(Ok(reply)) if reply.status.is_success() => match call.operation.read(&reply.body) {
                    Ok(Answer::Acquire(grant)) => return self.granted(grant, reply.sent).await,
                    Ok(_) => Failure::Unexpected(format!("{}: not a grant", host.address)),
                    Err(error) => Failure::Unexpected(format!("{}: {error}", host.address)),
                },
                Ok(Ok(reply)) => reply.refusal(&host.address),
                Ok(Err(failure)) => failure,
                Err(_) => Failure::Unknown(format!("{}: no answer within {patience:?}", host.address)),
            };
            let was_short = Moment::now().since(began) < WAIT_CALL_MIN;
            match failure {
                Failure::Refused(body) if body.error == ErrorCode::StillWaiting => {
                    if give_up.is_some_and(Moment::has_passed) {
                        return Err(wait_timeout());
                    }
                    if let Some(request_id) = body.request_id {
                        request.rename(request_id);
                    }
                    retry = Retry::until(self.retry_deadline(give_up));
                    if was_short {
                        tokio::time::sleep(WAIT_CALL_MIN).await;
                    }
                }
                failure => {
                    if !was_short {
                        // It had been waiting well: what failed now has its own time to mend.
                        retry.extend(self.retry_deadline(give_up));
                    }
                    inner.failed(index, &failure);
                    retry.pause(failure).await?;
                }
            }
        }
    }

    fn retry_deadline(&self, give_up: Option<Moment>) -> Moment {
        let deadline = Moment::now().after(self.baton.0.call_timeout);
        give_up.map_or(deadline, |give_up| deadline.min(give_up.after(TRY_MAX)))
    }

    async fn granted(&self, grant: AcquireResponse, sent: Moment) -> Result<LockGuard, Error> {
        self.fate.take();
        let ttl = Duration::from_millis(self.request.ttl_millis());
        let (baton, namespace, key) = (self.baton.clone(), self.namespace.clone(), self.key.clone());
        LockGuard::new(baton, self.request.held(), namespace, key, ttl, grant, sent).await
    }
}

/// The limit to send. A wait that is longer than the server takes goes without: it ends with STILL_WAITING, place
/// kept, while a limit that runs out would lose the place.
fn wait_timeout_ms(remaining: Option<Duration>) -> Option<u64> {
    let millis = u64::try_from(remaining?.as_millis()).ok()?;
    limits::WAIT_TIMEOUT_MILLIS.contains(&millis).then_some(millis)
}

/// The limit ran out here, between two calls.
fn wait_timeout() -> Error {
    Error::refused(ErrorBody::new(ErrorCode::WaitTimeout, "the wait limit ran out; try again or wait longer"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_beyond_the_servers_limit_goes_without_one_until_it_fits() {
        let seconds = |seconds| Some(Duration::from_secs(seconds));
        for (remaining, sent) in [
            (None, None),
            (seconds(0), Some(0)),
            (seconds(600), Some(600_000)),
            (seconds(601), None),
            (Some(Duration::MAX), None),
        ] {
            assert_eq!(wait_timeout_ms(remaining), sent, "{remaining:?}");
        }
    }
}
