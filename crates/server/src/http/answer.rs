//! Answers: JSON with the right status, and the engine's outcomes in the contract's words.

use axum::body::Body;
use axum::response::Response;
use baton_api::{ErrorBody, ErrorCode};
use baton_engine::lock::{Failure, HeldBy, LockError, Refusal};
use bytes::Bytes;
use hyper::StatusCode;
use hyper::header::{CONTENT_TYPE, HeaderValue, RETRY_AFTER};
use serde::Serialize;
use std::time::Duration;

/// When to come back if nothing better is known.
const RETRY_SOON_MILLIS: u64 = 1000;
/// When to come back if room has to be made first.
const RETRY_LATER_MILLIS: u64 = 5000;

/// Why a request isn't answered with what it asked for. Boxed, since most aren't.
#[derive(Debug)]
pub(crate) struct Problem(pub(crate) Box<ErrorBody>);

impl From<ErrorBody> for Problem {
    fn from(body: ErrorBody) -> Self {
        Self(Box::new(body))
    }
}

impl From<LockError> for Problem {
    fn from(error: LockError) -> Self {
        explain(error).into()
    }
}

impl Problem {
    pub(crate) fn invalid(field: impl Into<String>, message: impl Into<String>) -> Self {
        ErrorBody::invalid(field, message).into()
    }

    pub(crate) fn overloaded(what: &str) -> Self {
        let message = format!("too many {what} at once; try again after retryAfterMillis");
        retry(ErrorBody::new(ErrorCode::Overloaded, message), RETRY_SOON_MILLIS).into()
    }

    pub(crate) fn not_ready(message: &str) -> Self {
        retry(ErrorBody::new(ErrorCode::StoreUnavailable, message), RETRY_SOON_MILLIS).into()
    }

    pub(crate) fn internal() -> Self {
        ErrorBody::new(ErrorCode::Internal, "something went wrong in the server; its log says what").into()
    }

    pub(crate) fn status(&self) -> StatusCode {
        StatusCode::from_u16(self.0.error.http_status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
    }

    pub(crate) fn into_response(self) -> Response {
        let mut response = json(self.status(), &self.0);
        // Who still waits calls again at once, whenever the lease may end: its place is kept for seconds only.
        let wait = self.0.retry_after_millis.filter(|_| self.0.error != ErrorCode::StillWaiting);
        if let Some(millis) = wait {
            response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(millis.div_ceil(1000)));
        }
        response
    }
}

/// An answer of this status with `body` as JSON.
pub(crate) fn json(status: StatusCode, body: &impl Serialize) -> Response {
    match serde_json::to_vec(body) {
        Ok(bytes) => raw(status, "application/json", bytes.into()),
        Err(error) => {
            tracing::error!(%error, "an answer can't be written as JSON");
            let bytes = Bytes::from_static(
                br#"{"error":"INTERNAL","message":"something went wrong in the server; its log says what"}"#,
            );
            raw(StatusCode::INTERNAL_SERVER_ERROR, "application/json", bytes)
        }
    }
}

/// An answer of this status with these bytes.
pub(crate) fn raw(status: StatusCode, content_type: &'static str, bytes: Bytes) -> Response {
    stream(status, content_type, Body::from(bytes))
}

/// An answer of this status whose body may still be coming.
pub(crate) fn stream(status: StatusCode, content_type: &'static str, body: Body) -> Response {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}

pub(super) fn retry(body: ErrorBody, millis: u64) -> ErrorBody {
    ErrorBody { retry_after_millis: Some(millis), ..body }
}

/// The engine's no, as the contract says it.
pub(crate) fn explain(error: LockError) -> ErrorBody {
    match error {
        LockError::Refused(refusal) => refused(refusal),
        LockError::Failed(failure) => failed(failure),
    }
}

fn refused(refusal: Refusal) -> ErrorBody {
    use ErrorCode as Code;
    match refusal {
        Refusal::Held(held) => {
            let message = match &held.owner {
                Some(owner) => {
                    format!("{owner} holds the lock; try again later, or wait for it with \"wait\": true")
                }
                None => {
                    "others are in line for the lock; try again later, or wait for it with \"wait\": true"
                        .into()
                }
            };
            with(held, ErrorBody::new(Code::LockAlreadyHeld, message))
        }
        Refusal::WaitTimeout(held) => with(
            held,
            ErrorBody::new(
                Code::WaitTimeout,
                "the lock wasn't free within waitTimeoutMillis; you have left the queue, a new call joins its tail",
            ),
        ),
        Refusal::StillWaiting { request_id, held } => {
            let message = "this call has waited as long as one call may; your place is kept for 15 s, \
                           call again with this requestId";
            let body = ErrorBody::new(Code::StillWaiting, message);
            ErrorBody { request_id: Some(request_id), ..with(held, body) }
        }
        Refusal::QueueFull(held) => {
            let message =
                "as many wait for this lock as may; try again after retryAfterMillis, with some jitter";
            retry(with(held, ErrorBody::new(Code::QueueFull, message)), RETRY_SOON_MILLIS)
        }
        Refusal::Delayed(held) => {
            let message = "the last holder's lease ran out, and the lock stays closed for the lock-delay it asked for; \
                           try again after retryAfterMillis, or wait for it with \"wait\": true";
            with(held, ErrorBody::new(Code::LockDelayed, message))
        }
        Refusal::ModeMismatch { permits } => {
            let message = match permits {
                Some(permits) => format!(
                    "the key is in use as a semaphore with {permits} permits; use it so, or another key"
                ),
                None => {
                    "the key is in use as a lock with exclusive and shared holders; use it so, or another key"
                        .into()
                }
            };
            ErrorBody { field: Some("mode".into()), ..ErrorBody::new(Code::ModeMismatch, message) }
        }
        Refusal::AlreadyReleased => ErrorBody::new(
            Code::AlreadyReleased,
            "what this requestId acquired was released already; to acquire again, use a new requestId",
        ),
        Refusal::Expired => ErrorBody::new(
            Code::LockExpired,
            "the lease ran out or was forced: what you did since may have overlapped with another holder; \
             to acquire again, use a new requestId",
        ),
        Refusal::RequestIdReused => ErrorBody {
            field: Some("requestId".into()),
            ..ErrorBody::new(
                Code::RequestIdReused,
                "this requestId came with other parameters before; use a new one for each call, the same one only to \
                 repeat a call unchanged",
            )
        },
        Refusal::RequestIdMissing => ErrorBody::invalid(
            "requestId",
            "releasing a reentrant lock needs a requestId, so that a retry isn't counted twice",
        ),
        Refusal::NotOwner => ErrorBody::new(
            Code::NotLockOwner,
            "someone holds the lock, but not with this lockToken and ownerId; use both as in your acquire",
        ),
        Refusal::NotFound => ErrorBody::new(
            Code::LockNotFound,
            "nobody holds the lock, and this isn't a token that was ever given out for it",
        ),
        Refusal::NoSuchSuccessor => ErrorBody {
            field: Some("successor".into()),
            ..ErrorBody::new(
                Code::SuccessorNotWaiting,
                "the named successor doesn't stand by, so nothing was changed and you still lead; name another, or \
                 resign without one",
            )
        },
        Refusal::BadCursor => {
            ErrorBody::invalid("cursor", "cursor must be a nextCursor of an earlier page, unchanged")
        }
    }
}

/// What is known of the holder.
fn with(held: HeldBy, body: ErrorBody) -> ErrorBody {
    ErrorBody {
        current_owner: held.owner.map(|owner| owner.as_ref().into()),
        retry_after_millis: held.retry_after.map(millis),
        queue_length: Some(held.waiting),
        ..body
    }
}

pub(super) fn failed(failure: Failure) -> ErrorBody {
    match failure {
        Failure::Unavailable { unknown: false } => retry(
            ErrorBody::new(
                ErrorCode::StoreUnavailable,
                "the store can't be reached; nothing was changed, try again after retryAfterMillis",
            ),
            RETRY_SOON_MILLIS,
        ),
        Failure::Unavailable { unknown: true } => {
            let message = "the store didn't answer in time, so the call may have taken effect; send it again \
                           unchanged, with the same requestId";
            let body = ErrorBody::new(ErrorCode::StoreUnavailable, message);
            retry(ErrorBody { outcome: Some("unknown".into()), ..body }, RETRY_SOON_MILLIS)
        }
        Failure::Full => {
            let message = "the store has no room for more; releases and renewals still work, try again later";
            retry(ErrorBody::new(ErrorCode::StoreFull, message), RETRY_LATER_MILLIS)
        }
        Failure::Overloaded => *Problem::overloaded("calls for this key").0,
        Failure::Internal => *Problem::internal().0,
    }
}

/// In milliseconds, rounded up: who waits that long doesn't come too early.
pub(crate) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_outcome_has_its_code_and_says_what_to_do_next() {
        let held =
            HeldBy { owner: Some("a".into()), retry_after: Some(Duration::from_millis(1500)), waiting: 3 };
        let still = Refusal::StillWaiting { request_id: "r".into(), held: held.clone() };
        for (refusal, code) in [
            (Refusal::Held(held.clone()), ErrorCode::LockAlreadyHeld),
            (Refusal::WaitTimeout(held.clone()), ErrorCode::WaitTimeout),
            (still, ErrorCode::StillWaiting),
            (Refusal::QueueFull(held.clone()), ErrorCode::QueueFull),
            (Refusal::Delayed(held), ErrorCode::LockDelayed),
            (Refusal::ModeMismatch { permits: Some(3) }, ErrorCode::ModeMismatch),
            (Refusal::ModeMismatch { permits: None }, ErrorCode::ModeMismatch),
            (Refusal::AlreadyReleased, ErrorCode::AlreadyReleased),
            (Refusal::Expired, ErrorCode::LockExpired),
            (Refusal::RequestIdReused, ErrorCode::RequestIdReused),
            (Refusal::RequestIdMissing, ErrorCode::InvalidArgument),
            (Refusal::NotOwner, ErrorCode::NotLockOwner),
            (Refusal::NotFound, ErrorCode::LockNotFound),
            (Refusal::NoSuchSuccessor, ErrorCode::SuccessorNotWaiting),
            (Refusal::BadCursor, ErrorCode::InvalidArgument),
        ] {
            let body = explain(LockError::Refused(refusal));
            assert_eq!(body.error, code);
            assert!(body.message.len() > 20, "{body:?}");
        }
    }

    #[test]
    fn a_held_lock_says_by_whom_until_when_and_how_many_wait() {
        let held =
            HeldBy { owner: Some("a".into()), retry_after: Some(Duration::from_micros(1500)), waiting: 3 };
        let problem = Problem::from(LockError::Refused(Refusal::Held(held)));
        assert_eq!(problem.0.current_owner.as_deref(), Some("a"));
        assert_eq!((problem.0.retry_after_millis, problem.0.queue_length), (Some(2), Some(3)));
        let response = problem.into_response();
        assert_eq!(response.status(), StatusCode::CONFLICT);
        assert_eq!(response.headers()[RETRY_AFTER], "1");
    }

    #[test]
    fn failures_say_whether_anything_may_have_happened_and_when_to_come_back() {
        for (failure, code, outcome) in [
            (Failure::Unavailable { unknown: false }, ErrorCode::StoreUnavailable, None),
            (Failure::Unavailable { unknown: true }, ErrorCode::StoreUnavailable, Some("unknown")),
            (Failure::Full, ErrorCode::StoreFull, None),
            (Failure::Overloaded, ErrorCode::Overloaded, None),
        ] {
            let problem = Problem::from(LockError::Failed(failure));
            assert_eq!((problem.0.error, problem.0.outcome.as_deref()), (code, outcome));
            assert!(problem.into_response().headers().contains_key(RETRY_AFTER));
        }
        let internal = Problem::from(LockError::Failed(Failure::Internal));
        assert_eq!(internal.into_response().status(), StatusCode::INTERNAL_SERVER_ERROR);
    }
}
