//! `/v1/locks/{lockKey}/…`: acquire, renew, release, force-release.

use super::answer::{Problem, json};
use super::exchange::Exchange;
use super::parameters::{KeyParameter, NamespaceParameter};
use super::{Shared, calls};
use crate::gate::Class;
use crate::metrics::Route;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::Response;
use baton_api::ErrorBody;
use baton_api::limits::{self, BODY_BYTES_MAX};
use baton_api::lock::{
    AcquireRequest, AcquireResponse, ForceReleaseRequest, ForceReleaseResponse, ForcedHolder, ReleaseRequest,
    ReleaseResponse, RenewRequest, RenewResponse,
};
use baton_core::lock::FencingToken;
use baton_engine::lock::ForceCall;
use hyper::StatusCode;
use std::sync::Arc;
use std::time::Duration;

/// Acquire a lock, or queue for it.
///
/// With `wait`, the answer comes when the lock is granted or the wait is over. Closing the connection leaves the queue.
#[utoipa::path(
    post, path = "/v1/locks/{lockKey}/acquire", tag = "locks", operation_id = "acquireLock",
    params(KeyParameter, NamespaceParameter), request_body = AcquireRequest,
    responses(
        (status = 200, description = "The lock is yours", body = AcquireResponse),
        (status = 409, description = "LOCK_ALREADY_HELD, LOCK_DELAYED, MODE_MISMATCH, WAIT_TIMEOUT, STILL_WAITING, ALREADY_RELEASED or LOCK_EXPIRED", body = ErrorBody),
        (status = 422, description = "REQUEST_ID_REUSED", body = ErrorBody),
    )
)]
pub async fn acquire(State(server): State<Arc<Shared>>, request: Request) -> Response {
    let (mut exchange, body) = Exchange::begin(server, Route::Acquire, request);
    let outcome = acquired(&mut exchange, body).await;
    exchange.end(outcome)
}

async fn acquired(exchange: &mut Exchange, body: Body) -> Result<Response, Problem> {
    let lock = exchange.lock()?;
    let request: AcquireRequest = exchange.read(body, BODY_BYTES_MAX).await?;
    exchange.waits = request.wait;
    Ok(json(StatusCode::OK, &calls::acquire(&exchange.server, &lock, request)?.await?))
}

/// Renew a lease. It never gets shorter by it.
#[utoipa::path(
    post, path = "/v1/locks/{lockKey}/renew", tag = "locks", operation_id = "renewLock",
    params(KeyParameter, NamespaceParameter), request_body = RenewRequest,
    responses(
        (status = 200, description = "The lease was renewed", body = RenewResponse),
        (status = 403, description = "NOT_LOCK_OWNER", body = ErrorBody),
        (status = 404, description = "LOCK_NOT_FOUND", body = ErrorBody),
        (status = 409, description = "LOCK_EXPIRED or ALREADY_RELEASED", body = ErrorBody),
    )
)]
pub async fn renew(State(server): State<Arc<Shared>>, request: Request) -> Response {
    let (exchange, body) = Exchange::begin(server, Route::Renew, request);
    let outcome = renewed(&exchange, body).await;
    exchange.end(outcome)
}

async fn renewed(exchange: &Exchange, body: Body) -> Result<Response, Problem> {
    let lock = exchange.lock()?;
    let request: RenewRequest = exchange.read(body, BODY_BYTES_MAX).await?;
    Ok(json(StatusCode::OK, &calls::renew(&exchange.server, &lock, request).await?))
}

/// Release a lock. The next in line has it at once.
#[utoipa::path(
    post, path = "/v1/locks/{lockKey}/release", tag = "locks", operation_id = "releaseLock",
    params(KeyParameter, NamespaceParameter), request_body = ReleaseRequest,
    responses(
        (status = 200, description = "The lock was released, now or by an earlier try", body = ReleaseResponse),
        (status = 403, description = "NOT_LOCK_OWNER", body = ErrorBody),
        (status = 404, description = "LOCK_NOT_FOUND", body = ErrorBody),
        (status = 409, description = "LOCK_EXPIRED or ALREADY_RELEASED", body = ErrorBody),
        (status = 422, description = "REQUEST_ID_REUSED", body = ErrorBody),
    )
)]
pub async fn release(State(server): State<Arc<Shared>>, request: Request) -> Response {
    let (exchange, body) = Exchange::begin(server, Route::Release, request);
    let outcome = released(&exchange, body).await;
    exchange.end(outcome)
}

async fn released(exchange: &Exchange, body: Body) -> Result<Response, Problem> {
    let lock = exchange.lock()?;
    let request: ReleaseRequest = exchange.read(body, BODY_BYTES_MAX).await?;
    Ok(json(StatusCode::OK, &calls::release(&exchange.server, &lock, request).await?))
}

/// Take a lock from its holders, or from one of them, with a reason.
///
/// This breaks mutual exclusion by design: a holder learns of it at its next renewal. Let resources check fencing tokens.
#[utoipa::path(
    post, path = "/v1/locks/{lockKey}/force-release", tag = "locks", operation_id = "forceReleaseLock",
    params(KeyParameter, NamespaceParameter), request_body = ForceReleaseRequest,
    responses(
        (status = 200, description = "The lock was taken from its holder", body = ForceReleaseResponse),
        (status = 404, description = "LOCK_NOT_FOUND: nobody holds it, or not with this token", body = ErrorBody),
    )
)]
pub async fn force_release(State(server): State<Arc<Shared>>, request: Request) -> Response {
    let (exchange, body) = Exchange::begin(server, Route::ForceRelease, request);
    let outcome = forced(&exchange, body).await;
    exchange.end(outcome)
}

async fn forced(exchange: &Exchange, body: Body) -> Result<Response, Problem> {
    let lock = exchange.lock()?;
    let request: ForceReleaseRequest = exchange.read(body, BODY_BYTES_MAX).await?;
    limits::check_text("reason", &request.reason, limits::REASON_BYTES)?;
    request.check()?;
    let _place = exchange.enter(Class::Work)?;
    let reason = request.reason;
    let call = ForceCall {
        fencing: request.fencing_token.map(FencingToken),
        delay: Duration::from_millis(request.lock_delay_millis),
        by: calls::anybody(),
        reason: reason.clone(),
    };
    let forced = exchange.server.engine.force_release(&lock, call).await?;
    for holder in &forced {
        tracing::warn!(
            namespace = lock.namespace(),
            lockKey = lock.key(),
            previousOwner = &*holder.owner,
            fencingToken = holder.fencing.0,
            reason,
            "a lock was forced free"
        );
    }
    let taken_from: Vec<_> = forced
        .into_iter()
        .map(|holder| ForcedHolder {
            owner_id: holder.owner.as_ref().into(),
            fencing_token: holder.fencing.0,
        })
        .collect();
    let first = taken_from.first().cloned().ok_or_else(Problem::internal)?;
    let response = ForceReleaseResponse {
        status: "FORCE_RELEASED".into(),
        lock_key: lock.key().into(),
        previous_owner: first.owner_id,
        fencing_token: first.fencing_token,
        taken_from,
        warning:
            "the previous owner may still act as if it held the lock until its next renewal; only resources \
                  that check fencing tokens are protected from it"
                .into(),
    };
    Ok(json(StatusCode::OK, &response))
}
