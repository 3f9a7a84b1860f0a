//! `/v1/once`: claim, complete, renew, fail, and looking (L18).

use super::Shared;
use super::answer::{Problem, failed, json, millis};
use super::calls::anybody;
use super::exchange::Exchange;
use super::parameters::{NamespaceParameter, OnceKeyParameter};
use crate::gate::Class;
use crate::metrics::Route;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::Response;
use baton_api::limits::{BODY_BYTES_MAX, RESULT_BODY_BYTES_MAX};
use baton_api::once::{
    ClaimRequest, ClaimResponse, CompleteRequest, CompleteResponse, FailRequest, FailResponse, OnceState,
    OnceStatus, RESULT_TTL_MILLIS_DEFAULT, RenewClaimRequest, RenewClaimResponse,
};
use baton_api::{ErrorBody, ErrorCode};
use baton_core::Name;
use baton_engine::once::{ClaimCall, Claimed, OnceError, Refusal, Seen};
use hyper::StatusCode;
use serde_json::value::RawValue;
use std::sync::Arc;
use std::time::Duration;

/// What the key in the path is called.
const KEY: &str = "onceKey";

/// Claim a key: the first caller has it to do, later ones hear how far it is.
///
/// With `waitTimeoutMillis` the answer comes when it is done, when the claim has passed to the caller, or when the time is
/// over. A first caller completes, renews or fails its claim with the `claimToken`.
#[utoipa::path(
    post, path = "/v1/once/{onceKey}", tag = "once", operation_id = "claimOnce",
    params(OnceKeyParameter, NamespaceParameter), request_body = ClaimRequest,
    responses(
        (status = 200, description = "Yours to do if `first`; else running or done", body = ClaimResponse),
        (status = 409, description = "CLAIM_LOST: what this requestId claimed was given up", body = ErrorBody),
        (status = 422, description = "REQUEST_ID_REUSED", body = ErrorBody),
    )
)]
pub async fn claim(State(server): State<Arc<Shared>>, request: Request) -> Response {
    let (mut exchange, body) = Exchange::begin(server, Route::Once, request);
    let outcome = claimed(&mut exchange, body).await;
    exchange.end(outcome)
}

async fn claimed(exchange: &mut Exchange, body: Body) -> Result<Response, Problem> {
    let name = exchange.name(KEY)?;
    let request: ClaimRequest = exchange.read(body, BODY_BYTES_MAX).await?;
    request.check()?;
    let wait = Duration::from_millis(request.wait_timeout_millis.unwrap_or(0));
    exchange.waits = !wait.is_zero();
    let _place = exchange.enter(if exchange.waits { Class::Waiting } else { Class::Work })?;
    let call = ClaimCall {
        owner: request.owner_id.as_str().into(),
        principal: anybody(),
        ttl: Duration::from_millis(request.ttl_millis),
        request_id: request.request_id.clone(),
        wait,
    };
    let claimed = exchange.server.engine.claim_once(&name, call).await?;
    Ok(json(StatusCode::OK, &answer(&name, &request, claimed)?))
}

fn answer(name: &Name, request: &ClaimRequest, claimed: Claimed) -> Result<ClaimResponse, Problem> {
    let nothing = ClaimResponse {
        once_key: name.key().into(),
        first: false,
        state: OnceState::Running,
        fencing_token: 0,
        claim_token: None,
        owner_id: None,
        expires_at: 0,
        ttl_millis: None,
        retry_after_millis: None,
        completed_at: None,
        result: None,
    };
    Ok(match claimed {
        Claimed::First(first) => ClaimResponse {
            first: true,
            fencing_token: first.fencing.0,
            claim_token: Some(first.token.reveal()),
            owner_id: Some(request.owner_id.clone()),
            expires_at: first.expires_at.0,
            ttl_millis: Some(request.ttl_millis),
            ..nothing
        },
        Claimed::Later(Seen::Running(running)) => ClaimResponse {
            fencing_token: running.fencing.0,
            owner_id: Some(running.owner.as_ref().into()),
            expires_at: running.expires_at.0,
            retry_after_millis: Some(millis(running.expires_in)),
            ..nothing
        },
        Claimed::Later(Seen::Done(done)) => ClaimResponse {
            state: OnceState::Done,
            fencing_token: done.fencing.0,
            expires_at: done.expires_at.0,
            completed_at: Some(done.completed_at.0),
            result: Some(text(&done.result)?),
            ..nothing
        },
    })
}

/// A result as it was given.
fn text(result: &[u8]) -> Result<Box<RawValue>, Problem> {
    serde_json::from_slice(result).map_err(|_| Problem::internal())
}

/// Store a claim's result, for everyone to get.
#[utoipa::path(
    post, path = "/v1/once/{onceKey}/complete", tag = "once", operation_id = "completeOnce",
    params(OnceKeyParameter, NamespaceParameter), request_body = CompleteRequest,
    responses(
        (status = 200, description = "The result is stored, now or by an earlier try", body = CompleteResponse),
        (status = 403, description = "NOT_CLAIM_OWNER", body = ErrorBody),
        (status = 409, description = "CLAIM_LOST or ALREADY_COMPLETED: nothing was changed", body = ErrorBody),
    )
)]
pub async fn complete(State(server): State<Arc<Shared>>, request: Request) -> Response {
    let (exchange, body) = Exchange::begin(server, Route::OnceComplete, request);
    let outcome = completed(&exchange, body).await;
    exchange.end(outcome)
}

async fn completed(exchange: &Exchange, body: Body) -> Result<Response, Problem> {
    let name = exchange.name(KEY)?;
    let request: CompleteRequest = exchange.read(body, RESULT_BODY_BYTES_MAX).await?;
    request.check()?;
    let _place = exchange.enter(Class::Urgent)?;
    let kept = Duration::from_millis(request.result_ttl_millis.unwrap_or(RESULT_TTL_MILLIS_DEFAULT));
    let result = request.result.get().as_bytes().into();
    let engine = &exchange.server.engine;
    let fencing = engine.complete_once(&name, &request.claim_token, &anybody(), result, kept).await?;
    let (status, once_key) = ("COMPLETED".into(), name.key().into());
    Ok(json(StatusCode::OK, &CompleteResponse { status, once_key, fencing_token: fencing.0 }))
}

/// Renew a claim. It never gets shorter by it.
#[utoipa::path(
    post, path = "/v1/once/{onceKey}/renew", tag = "once", operation_id = "renewOnce",
    params(OnceKeyParameter, NamespaceParameter), request_body = RenewClaimRequest,
    responses(
        (status = 200, description = "The claim was renewed", body = RenewClaimResponse),
        (status = 403, description = "NOT_CLAIM_OWNER", body = ErrorBody),
        (status = 409, description = "CLAIM_LOST or ALREADY_COMPLETED", body = ErrorBody),
    )
)]
pub async fn renew(State(server): State<Arc<Shared>>, request: Request) -> Response {
    let (exchange, body) = Exchange::begin(server, Route::OnceRenew, request);
    let outcome = renewed(&exchange, body).await;
    exchange.end(outcome)
}

async fn renewed(exchange: &Exchange, body: Body) -> Result<Response, Problem> {
    let name = exchange.name(KEY)?;
    let request: RenewClaimRequest = exchange.read(body, BODY_BYTES_MAX).await?;
    request.check()?;
    let _place = exchange.enter(Class::Urgent)?;
    let ttl = Duration::from_millis(request.ttl_millis);
    let renewed = exchange.server.engine.renew_once(&name, &request.claim_token, &anybody(), ttl).await?;
    let response = RenewClaimResponse {
        once_key: name.key().into(),
        expires_at: renewed.expires_at.0,
        fencing_token: renewed.fencing.0,
    };
    Ok(json(StatusCode::OK, &response))
}

/// Give a claim up: the next caller is first, at once.
#[utoipa::path(
    post, path = "/v1/once/{onceKey}/fail", tag = "once", operation_id = "failOnce",
    params(OnceKeyParameter, NamespaceParameter), request_body = FailRequest,
    responses(
        (status = 200, description = "The claim was given up, now or by an earlier try", body = FailResponse),
        (status = 403, description = "NOT_CLAIM_OWNER", body = ErrorBody),
        (status = 409, description = "CLAIM_LOST or ALREADY_COMPLETED", body = ErrorBody),
    )
)]
pub async fn fail(State(server): State<Arc<Shared>>, request: Request) -> Response {
    let (exchange, body) = Exchange::begin(server, Route::OnceFail, request);
    let outcome = given_up(&exchange, body).await;
    exchange.end(outcome)
}

async fn given_up(exchange: &Exchange, body: Body) -> Result<Response, Problem> {
    let name = exchange.name(KEY)?;
    let request: FailRequest = exchange.read(body, BODY_BYTES_MAX).await?;
    request.check()?;
    let _place = exchange.enter(Class::Urgent)?;
    exchange.server.engine.fail_once(&name, &request.claim_token, &anybody()).await?;
    Ok(json(StatusCode::OK, &FailResponse { status: "FAILED".into(), once_key: name.key().into() }))
}

/// How far a key is, and what came of it.
#[utoipa::path(
    get, path = "/v1/once/{onceKey}", tag = "once", operation_id = "getOnce",
    params(OnceKeyParameter, NamespaceParameter),
    responses(
        (status = 200, description = "It is claimed or done", body = OnceStatus),
        (status = 404, description = "ONCE_NOT_FOUND: nobody has claimed it", body = ErrorBody),
    )
)]
pub async fn status(State(server): State<Arc<Shared>>, request: Request) -> Response {
    let (exchange, _body) = Exchange::begin(server, Route::Once, request);
    let outcome = looked_at(&exchange).await;
    exchange.end(outcome)
}

async fn looked_at(exchange: &Exchange) -> Result<Response, Problem> {
    let name = exchange.name(KEY)?;
    let _place = exchange.enter(Class::Work)?;
    let Some(seen) = exchange.server.engine.once_state(&name).await? else {
        let message = "nobody has claimed this key, or what came of it is forgotten; claim it with POST";
        return Err(ErrorBody::new(ErrorCode::OnceNotFound, message).into());
    };
    let once_key = name.key().into();
    let status = match seen {
        Seen::Running(running) => OnceStatus {
            once_key,
            state: OnceState::Running,
            fencing_token: running.fencing.0,
            owner_id: Some(running.owner.as_ref().into()),
            claimed_at: Some(running.claimed_at.0),
            completed_at: None,
            expires_at: running.expires_at.0,
            result: None,
        },
        Seen::Done(done) => OnceStatus {
            once_key,
            state: OnceState::Done,
            fencing_token: done.fencing.0,
            owner_id: None,
            claimed_at: None,
            completed_at: Some(done.completed_at.0),
            expires_at: done.expires_at.0,
            result: Some(text(&done.result)?),
        },
    };
    Ok(json(StatusCode::OK, &status))
}

impl From<OnceError> for Problem {
    fn from(error: OnceError) -> Self {
        let (code, message) = match error {
            OnceError::Failed(failure) => return failed(failure).into(),
            OnceError::Refused(Refusal::Lost) => (
                ErrorCode::ClaimLost,
                "the claim ran out or was given up, and nothing was changed: another caller may be at it; to claim \
                 again, use a new requestId",
            ),
            OnceError::Refused(Refusal::AlreadyCompleted) => (
                ErrorCode::AlreadyCompleted,
                "this claim was completed before, and its result stays as it is; GET shows it",
            ),
            OnceError::Refused(Refusal::NotOwner) => (
                ErrorCode::NotClaimOwner,
                "this isn't a claimToken that was given out for this key; use it as it came with `first: true`",
            ),
            OnceError::Refused(Refusal::RequestIdReused) => {
                let message = "this requestId came with other parameters before; use a new one for each caller, the \
                               same one only to repeat a call unchanged";
                let body = ErrorBody::new(ErrorCode::RequestIdReused, message);
                return ErrorBody { field: Some("requestId".into()), ..body }.into();
            }
        };
        ErrorBody::new(code, message).into()
    }
}
