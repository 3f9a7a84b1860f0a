//! `/v1/locks:acquireAll`: several locks at once, all or none (L16).

use super::Shared;
use super::answer::{Problem, explain, json};
use super::calls::{self, anybody};
use super::exchange::Exchange;
use super::parameters::NamespaceParameter;
use crate::gate::Class;
use crate::metrics::Route;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::Response;
use baton_api::ErrorBody;
use baton_api::bundle::{AcquireAllRequest, AcquireAllResponse};
use baton_api::limits::BODY_BYTES_MAX;
use baton_core::lock::LockName;
use baton_engine::bundle::{BundleCall, BundleError};
use baton_engine::lock::Wait;
use hyper::StatusCode;
use std::sync::Arc;
use std::time::Duration;

/// Acquire several locks, all or none.
///
/// With `wait`, the answer comes when all of them are granted or the wait is over; nothing is held meanwhile, so that there
/// is no deadlock, in whatever order others ask. Each lock is then renewed and released by its own token. Closing the
/// connection gives everything back.
#[utoipa::path(
    post, path = "/v1/locks:acquireAll", tag = "locks", operation_id = "acquireAllLocks",
    params(NamespaceParameter), request_body = AcquireAllRequest,
    responses(
        (status = 200, description = "All of them are yours", body = AcquireAllResponse),
        (status = 409, description = "LOCK_ALREADY_HELD, LOCK_DELAYED, MODE_MISMATCH, WAIT_TIMEOUT, STILL_WAITING, ALREADY_RELEASED or LOCK_EXPIRED: none is yours, and `lockKey` says because of which", body = ErrorBody),
        (status = 422, description = "REQUEST_ID_REUSED", body = ErrorBody),
    )
)]
pub async fn acquire_all(State(server): State<Arc<Shared>>, request: Request) -> Response {
    let (mut exchange, body) = Exchange::begin(server, Route::AcquireAll, request);
    let outcome = acquired(&mut exchange, body).await;
    exchange.end(outcome)
}

async fn acquired(exchange: &mut Exchange, body: Body) -> Result<Response, Problem> {
    let namespace = exchange.namespace()?;
    let request: AcquireAllRequest = exchange.read(body, BODY_BYTES_MAX).await?;
    request.check()?;
    exchange.waits = request.wait;
    let wait = calls::wait(request.wait, request.wait_timeout_millis);
    let _place = exchange.enter(if wait == Wait::No { Class::Work } else { Class::Waiting })?;
    let locks: Vec<_> = request.lock_keys.iter().map(|key| LockName::new(&namespace, key)).collect();
    let call = BundleCall {
        locks: locks.clone(),
        owner: request.owner_id.as_str().into(),
        principal: anybody(),
        ttl: Duration::from_millis(request.ttl_millis),
        wait,
        request_id: request.request_id,
        metadata: calls::metadata(request.metadata.as_ref())?,
        delay: Duration::from_millis(request.lock_delay_millis),
    };
    let granted = exchange.server.engine.acquire_all(call).await?;
    let grants = locks.iter().zip(granted);
    let grants = grants.map(|(lock, granted)| calls::grant(lock, &request.owner_id, &granted)).collect();
    Ok(json(StatusCode::OK, &AcquireAllResponse { grants }))
}

impl From<BundleError> for Problem {
    fn from(error: BundleError) -> Self {
        let lock_key = error.lock.map(|lock| lock.key().to_owned());
        ErrorBody { lock_key, ..explain(error.error) }.into()
    }
}
