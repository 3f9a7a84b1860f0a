//! Waiting for a grant, on a connection of its own: closing it is how to leave. Calls follow each other under one
//! requestId until one of them is granted, or the time for waiting is over.

use crate::baton::{Inner, TRY_MAX};
use crate::clock::Moment;
use crate::connection::Ask;
use crate::error::{Error, Failure};
use crate::retry::Retry;
use baton_api::{ErrorBody, ErrorCode, limits};
use std::time::Duration;

/// One waiting call takes no longer; the server's own cap is below.
const WAIT_CALL_MAX: Duration = Duration::from_secs(630);
/// A waiting call that ends sooner than this is followed by a pause, and doesn't count as progress.
const WAIT_CALL_MIN: Duration = Duration::from_millis(200);

/// Waits until an answer is a success, and says when the request left that got it. `ask` makes a call of a requestId that
/// the server gave, if it did, and of a limit on the wait; `read` reads what was granted.
pub(crate) async fn until_granted<Grant>(
    inner: &Inner,
    give_up: Option<Moment>,
    mut ask: impl FnMut(Option<String>, Option<u64>) -> Result<Ask, Error>,
    read: impl Fn(&[u8]) -> serde_json::Result<Grant>,
) -> Result<(Grant, Moment), Error> {
    let permit = match give_up {
        Some(give_up) => match tokio::time::timeout(give_up.remaining(), inner.waiting.acquire()).await {
            Ok(permit) => permit,
            Err(_) => return Err(wait_timeout()),
        },
        None => inner.waiting.acquire().await,
    };
    let _permit = permit.map_err(|error| Error::unexpected(error.to_string()))?;
    let mut request_id = None;
    let mut retry = Retry::until(retry_deadline(inner, give_up));
    loop {
        let began = Moment::now();
        let remaining = give_up.map(|give_up| give_up.since(began));
        let ask = ask(request_id.clone(), wait_timeout_ms(remaining))?;
        let patience = remaining.map_or(WAIT_CALL_MAX, |left| WAIT_CALL_MAX.min(left + TRY_MAX));
        let (index, host) = inner.host();
        let failure = match tokio::time::timeout(patience, inner.wait_at(host, &ask)).await {
            Ok(Ok(reply)) if reply.status.is_success() => match read(&reply.body) {
                Ok(grant) => return Ok((grant, reply.sent)),
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
                request_id = body.request_id.or(request_id);
                retry = Retry::until(retry_deadline(inner, give_up));
                if was_short {
                    tokio::time::sleep(WAIT_CALL_MIN).await;
                }
            }
            failure => {
                if !was_short {
                    // It had been waiting well: what failed now has its own time to mend.
                    retry.extend(retry_deadline(inner, give_up));
                }
                inner.failed(index, &failure);
                retry.pause(failure).await?;
            }
        }
    }
}

fn retry_deadline(inner: &Inner, give_up: Option<Moment>) -> Moment {
    let deadline = Moment::now().after(inner.call_timeout);
    give_up.map_or(deadline, |give_up| deadline.min(give_up.after(TRY_MAX)))
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
