//! `/v1/workers`: workers take runs (J7); and what whoever runs an attempt says of it: that it lives, that it is done, that it
//! failed.

use super::Shared;
use super::answer::{Problem, json};
use super::exchange::Exchange;
use super::parameters::{NamespaceParameter, QueueParameter, RunIdParameter};
use super::runs;
use crate::gate::Class;
use crate::metrics::Route;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::Response;
use baton_api::ErrorBody;
use baton_api::limits::{BODY_BYTES_MAX, RESULT_BODY_BYTES_MAX};
use baton_api::worker::{
    ClaimRunRequest, ClaimRunResponse, ClaimedRun, EndRunRequest, EndRunResponse, HeartbeatRunRequest,
    HeartbeatRunResponse,
};
use baton_core::job::{AttemptEnd, Progress, Target};
use baton_core::lock::FencingToken;
use baton_engine::job::{Claim, Claimed};
use hyper::StatusCode;
use std::sync::Arc;
use std::time::Duration;

/// What the queue in the path is called.
const QUEUE: &str = "queue";

/// Take a run of a queue: the one that was to begin first.
///
/// With `waitTimeoutMillis` the answer comes when there is one, or when the time is over. Whoever has a run says that it lives before its
/// lease is over, again and again, and how it ended; what isn't heard of is taken for dead, and the run is another's.
#[utoipa::path(
    post, path = "/v1/workers/{queue}/claim", tag = "jobs", operation_id = "claimRun",
    params(QueueParameter, NamespaceParameter), request_body = ClaimRunRequest,
    responses((status = 200, description = "The caller's run, or that there is none", body = ClaimRunResponse))
)]
pub async fn claim(State(server): State<Arc<Shared>>, request: Request) -> Response {
    let (mut exchange, body) = Exchange::begin(server, Route::WorkerClaim, request);
    let outcome = claimed(&mut exchange, body).await;
    exchange.end(outcome)
}

async fn claimed(exchange: &mut Exchange, body: Body) -> Result<Response, Problem> {
    let queue = exchange.name(QUEUE)?;
    let request: ClaimRunRequest = exchange.read(body, BODY_BYTES_MAX).await?;
    request.check()?;
    let wait = Duration::from_millis(request.wait_timeout_millis.unwrap_or(0));
    // A first look at a queue takes a while, also for those who don't wait.
    exchange.waits = true;
    let _place = exchange.enter(if wait.is_zero() { Class::Work } else { Class::Waiting })?;
    let claim = Claim {
        namespace: queue.namespace().into(),
        queue: queue.key().into(),
        runner: request.owner_id,
        ttl: Duration::from_millis(request.lease_millis),
    };
    let claimed = exchange.server.engine.claim_next(&claim, wait).await?;
    let run = claimed.map(|claimed| shown(claimed, request.lease_millis));
    Ok(json(StatusCode::OK, &ClaimRunResponse { run }))
}

fn shown(claimed: Claimed, lease_millis: u64) -> ClaimedRun {
    let Claimed { begun, run, fencing, expires_at } = claimed;
    let payload = match begun.definition.target {
        Target::Worker { payload, .. } => payload,
        Target::Http(_) | Target::Command { .. } => String::new(),
    };
    ClaimedRun {
        run_id: begun.run.text(),
        job: run.job,
        namespace: run.namespace,
        scheduled_at: begun.run.place.nominal.0,
        due_at: begun.due.0,
        attempt: begun.attempt,
        fencing_token: fencing.0,
        payload,
        lease_millis,
        expires_at: expires_at.0,
        timeout_millis: begun.definition.timeout_ms,
    }
}

/// Say that an attempt lives, and perhaps what it has written so far. Its lease never gets shorter by it.
#[utoipa::path(
    post, path = "/v1/runs/{runId}/heartbeat", tag = "jobs", operation_id = "heartbeatRun",
    params(RunIdParameter), request_body = HeartbeatRunRequest,
    responses(
        (status = 200, description = "It was heard of", body = HeartbeatRunResponse),
        (status = 404, description = "RUN_NOT_FOUND: nothing was ever called this", body = ErrorBody),
        (status = 409, description = "RUN_LOST: stop; it was called off, took too long, or is another's", body = ErrorBody),
    )
)]
pub async fn heartbeat(State(server): State<Arc<Shared>>, request: Request) -> Response {
    let (exchange, body) = Exchange::begin(server, Route::RunHeartbeat, request);
    let outcome = heard(&exchange, body).await;
    exchange.end(outcome)
}

async fn heard(exchange: &Exchange, body: Body) -> Result<Response, Problem> {
    let id = runs::id(exchange)?;
    let request: HeartbeatRunRequest = exchange.read(body, RESULT_BODY_BYTES_MAX).await?;
    request.check()?;
    let _place = exchange.enter(Class::Urgent)?;
    let (token, ttl) = (FencingToken(request.fencing_token), Duration::from_millis(request.lease_millis));
    let output = request.output.as_deref().map(str::as_bytes);
    let expires_at = exchange.server.engine.heartbeat_run(id, token, ttl, output).await?.0;
    Ok(json(StatusCode::OK, &HeartbeatRunResponse { run_id: id.text(), expires_at }))
}

/// Say that an attempt succeeded: the worker's, or one that a target answered 202 to.
#[utoipa::path(
    post, path = "/v1/runs/{runId}/complete", tag = "jobs", operation_id = "completeRun",
    params(RunIdParameter), request_body = EndRunRequest,
    responses(
        (status = 200, description = "It counts, now or since it was said before", body = EndRunResponse),
        (status = 404, description = "RUN_NOT_FOUND", body = ErrorBody),
        (status = 409, description = "RUN_LOST: it doesn't count, and nothing was changed", body = ErrorBody),
    )
)]
pub async fn complete(State(server): State<Arc<Shared>>, request: Request) -> Response {
    let (exchange, body) = Exchange::begin(server, Route::RunComplete, request);
    let outcome = ended(&exchange, body, true).await;
    exchange.end(outcome)
}

/// Say that an attempt failed: another follows if the job says so.
#[utoipa::path(
    post, path = "/v1/runs/{runId}/fail", tag = "jobs", operation_id = "failRun",
    params(RunIdParameter), request_body = EndRunRequest,
    responses(
        (status = 200, description = "It counts, now or since it was said before", body = EndRunResponse),
        (status = 404, description = "RUN_NOT_FOUND", body = ErrorBody),
        (status = 409, description = "RUN_LOST: it doesn't count, and nothing was changed", body = ErrorBody),
    )
)]
pub async fn fail(State(server): State<Arc<Shared>>, request: Request) -> Response {
    let (exchange, body) = Exchange::begin(server, Route::RunFail, request);
    let outcome = ended(&exchange, body, false).await;
    exchange.end(outcome)
}

async fn ended(exchange: &Exchange, body: Body, succeeded: bool) -> Result<Response, Problem> {
    let id = runs::id(exchange)?;
    let request: EndRunRequest = exchange.read(body, RESULT_BODY_BYTES_MAX).await?;
    request.check()?;
    let _place = exchange.enter(Class::Urgent)?;
    let end = AttemptEnd {
        succeeded,
        reason: None,
        message: request.message.unwrap_or_default(),
        output: request.output.unwrap_or_default().into_bytes().into(),
    };
    let token = FencingToken(request.fencing_token);
    let progress = exchange.server.engine.finish_run(id, token, &end).await?;
    let (outcome, next_attempt_at) = match progress {
        Progress::Ended(end) => (Some(end.outcome.as_str().into()), None),
        Progress::Waiting(until) => (None, Some(until.0)),
        Progress::Queued | Progress::Ready | Progress::Running => (None, None),
    };
    Ok(json(StatusCode::OK, &EndRunResponse { run_id: id.text(), outcome, next_attempt_at }))
}
