//! `/v1/elections/{name}/…`: campaign, renew, proclaim, resign.

use super::Shared;
use super::answer::{Problem, explain, json, millis};
use super::calls::anybody;
use super::exchange::Exchange;
use super::parameters::{NameParameter, NamespaceParameter};
use crate::gate::Class;
use crate::metrics::Route;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::Response;
use baton_api::election::{
    CampaignRequest, CampaignResponse, ProclaimRequest, ProclaimResponse, RenewLeaderRequest,
    RenewLeaderResponse, ResignRequest, ResignResponse,
};
use baton_api::limits::BODY_BYTES_MAX;
use baton_api::lock::Metadata;
use baton_api::{ErrorBody, ErrorCode};
use baton_core::Bytes;
use baton_core::lock::{LockName, Mode};
use baton_engine::election::ProclaimCall;
use baton_engine::lock::{AcquireCall, HeldBy, LockError, Refusal, ReleaseCall, RenewCall, Wait};
use hyper::StatusCode;
use std::sync::Arc;
use std::time::Duration;

/// Campaign: lead, or stand by until it is your turn.
///
/// With `wait`, the answer comes when the candidate leads or the wait is over. Closing the connection withdraws it.
#[utoipa::path(
    post, path = "/v1/elections/{name}/campaign", tag = "elections", operation_id = "campaign",
    params(NameParameter, NamespaceParameter), request_body = CampaignRequest,
    responses(
        (status = 200, description = "You lead", body = CampaignResponse),
        (status = 409, description = "NOT_LEADER, WAIT_TIMEOUT, STILL_WAITING, ALREADY_RELEASED or LEADERSHIP_LOST", body = ErrorBody),
        (status = 422, description = "REQUEST_ID_REUSED", body = ErrorBody),
    )
)]
pub async fn campaign(State(server): State<Arc<Shared>>, request: Request) -> Response {
    let (mut exchange, body) = Exchange::begin(server, Route::Campaign, request);
    let outcome = campaigned(&mut exchange, body).await;
    exchange.end(outcome)
}

async fn campaigned(exchange: &mut Exchange, body: Body) -> Result<Response, Problem> {
    let election = exchange.election()?;
    let request: CampaignRequest = exchange.read(body, BODY_BYTES_MAX).await?;
    request.check()?;
    exchange.waits = request.wait;
    let wait = match (request.wait, request.wait_timeout_millis) {
        (false, _) => Wait::No,
        (true, None) => Wait::Forever,
        (true, Some(at_most)) => Wait::AtMost(Duration::from_millis(at_most)),
    };
    let _place = exchange.enter(if request.wait { Class::Waiting } else { Class::Work })?;
    let call = AcquireCall {
        owner: request.candidate_id.as_str().into(),
        principal: anybody(),
        ttl: Duration::from_millis(request.ttl_millis),
        wait,
        request_id: request.request_id,
        reentrant: false,
        metadata: request.value.as_ref().map(compact).transpose()?,
        mode: Mode::Exclusive,
        delay: Duration::ZERO,
    };
    let granted = match exchange.server.engine.campaign(&election, call, request.priority).await {
        Ok(granted) => granted,
        Err(error) => return Err(refused(&exchange.server, &election, error).await),
    };
    let response = CampaignResponse {
        election: election.key().into(),
        leader: true,
        candidate_id: request.candidate_id,
        epoch: granted.fencing.0,
        leader_token: granted.token.reveal(),
        expires_at: granted.expires_at.0,
        ttl_millis: millis(granted.ttl),
    };
    Ok(json(StatusCode::OK, &response))
}

/// Renew the leader's lease. It never gets shorter by it.
#[utoipa::path(
    post, path = "/v1/elections/{name}/renew", tag = "elections", operation_id = "renewLeader",
    params(NameParameter, NamespaceParameter), request_body = RenewLeaderRequest,
    responses(
        (status = 200, description = "You still lead", body = RenewLeaderResponse),
        (status = 404, description = "NO_LEADER", body = ErrorBody),
        (status = 409, description = "LEADERSHIP_LOST or NOT_LEADER", body = ErrorBody),
    )
)]
pub async fn renew(State(server): State<Arc<Shared>>, request: Request) -> Response {
    let (exchange, body) = Exchange::begin(server, Route::RenewLeader, request);
    let outcome = renewed(&exchange, body).await;
    exchange.end(outcome)
}

async fn renewed(exchange: &Exchange, body: Body) -> Result<Response, Problem> {
    let election = exchange.election()?;
    let request: RenewLeaderRequest = exchange.read(body, BODY_BYTES_MAX).await?;
    request.check()?;
    let _place = exchange.enter(Class::Urgent)?;
    let call = RenewCall {
        token: request.leader_token,
        owner: request.candidate_id.into(),
        principal: anybody(),
        ttl: Duration::from_millis(request.ttl_millis),
    };
    match exchange.server.engine.renew(&election, call).await {
        Ok(renewed) => {
            let (epoch, expires_at) = (renewed.fencing.0, renewed.expires_at.0);
            let response = RenewLeaderResponse { election: election.key().into(), epoch, expires_at };
            Ok(json(StatusCode::OK, &response))
        }
        Err(error) => Err(refused(&exchange.server, &election, error).await),
    }
}

/// Change the leader's value.
#[utoipa::path(
    post, path = "/v1/elections/{name}/proclaim", tag = "elections", operation_id = "proclaim",
    params(NameParameter, NamespaceParameter), request_body = ProclaimRequest,
    responses(
        (status = 200, description = "Everybody sees the new value", body = ProclaimResponse),
        (status = 404, description = "NO_LEADER", body = ErrorBody),
        (status = 409, description = "LEADERSHIP_LOST or NOT_LEADER", body = ErrorBody),
    )
)]
pub async fn proclaim(State(server): State<Arc<Shared>>, request: Request) -> Response {
    let (exchange, body) = Exchange::begin(server, Route::Proclaim, request);
    let outcome = proclaimed(&exchange, body).await;
    exchange.end(outcome)
}

async fn proclaimed(exchange: &Exchange, body: Body) -> Result<Response, Problem> {
    let election = exchange.election()?;
    let request: ProclaimRequest = exchange.read(body, BODY_BYTES_MAX).await?;
    request.check()?;
    let _place = exchange.enter(Class::Work)?;
    let call = ProclaimCall {
        value: Some(compact(&request.value)?),
        token: request.leader_token,
        candidate: request.candidate_id.into(),
        principal: anybody(),
    };
    match exchange.server.engine.proclaim(&election, call).await {
        Ok(epoch) => {
            let (status, election) = ("PROCLAIMED".into(), election.key().into());
            Ok(json(StatusCode::OK, &ProclaimResponse { status, election, epoch: epoch.0 }))
        }
        Err(error) => Err(refused(&exchange.server, &election, error).await),
    }
}

/// Resign: the next candidate, or the named one, leads at once.
#[utoipa::path(
    post, path = "/v1/elections/{name}/resign", tag = "elections", operation_id = "resign",
    params(NameParameter, NamespaceParameter), request_body = ResignRequest,
    responses(
        (status = 200, description = "You don't lead any more, by this or by an earlier try", body = ResignResponse),
        (status = 404, description = "NO_LEADER", body = ErrorBody),
        (status = 409, description = "LEADERSHIP_LOST, NOT_LEADER or SUCCESSOR_NOT_WAITING", body = ErrorBody),
        (status = 422, description = "REQUEST_ID_REUSED", body = ErrorBody),
    )
)]
pub async fn resign(State(server): State<Arc<Shared>>, request: Request) -> Response {
    let (exchange, body) = Exchange::begin(server, Route::Resign, request);
    let outcome = resigned(&exchange, body).await;
    exchange.end(outcome)
}

async fn resigned(exchange: &Exchange, body: Body) -> Result<Response, Problem> {
    let election = exchange.election()?;
    let request: ResignRequest = exchange.read(body, BODY_BYTES_MAX).await?;
    request.check()?;
    let _place = exchange.enter(Class::Urgent)?;
    let call = ReleaseCall {
        token: request.leader_token,
        owner: request.candidate_id.into(),
        principal: anybody(),
        request_id: request.request_id,
    };
    let successor = request.successor.map(Into::into);
    match exchange.server.engine.resign(&election, call, successor).await {
        Ok(()) => {
            let response = ResignResponse { status: "RESIGNED".into(), election: election.key().into() };
            Ok(json(StatusCode::OK, &response))
        }
        Err(error) => Err(refused(&exchange.server, &election, error).await),
    }
}

fn compact(value: &Metadata) -> Result<Bytes, Problem> {
    Ok(serde_json::to_vec(value).map_err(|_| Problem::internal())?.into())
}

/// The engine's no, in the words of elections.
async fn refused(server: &Shared, election: &LockName, error: LockError) -> Problem {
    use ErrorCode as Code;
    let LockError::Refused(refusal) = error else { return error.into() };
    match refusal {
        Refusal::Held(_) => {
            let message = "someone else leads; try again later, or stand by with \"wait\": true";
            led_by(server, election, ErrorBody::new(Code::NotLeader, message)).await
        }
        Refusal::NotOwner => {
            let message =
                "someone leads, but not with this leaderToken and candidateId; use both as in your campaign";
            led_by(server, election, ErrorBody::new(Code::NotLeader, message)).await
        }
        Refusal::NotFound => {
            no_leader("nobody leads, and this isn't a leaderToken that was ever given out here")
        }
        Refusal::Expired => {
            let message = "the lease ran out or was taken away: whatever you did since as the leader is suspect; to \
                           campaign again, use a new requestId";
            led_by(server, election, ErrorBody::new(Code::LeadershipLost, message)).await
        }
        Refusal::WaitTimeout(held) => {
            let message = "you weren't elected within waitTimeoutMillis and have withdrawn; a new call joins those who \
                           stand by as the last of its priority";
            with(held, ErrorBody::new(Code::WaitTimeout, message))
        }
        Refusal::StillWaiting { request_id, held } => {
            let message = "this call has waited as long as one call may; your place is kept for 15 s, call again with \
                           this requestId";
            let body = ErrorBody::new(Code::StillWaiting, message);
            with(held, ErrorBody { request_id: Some(request_id), ..body })
        }
        Refusal::QueueFull(held) => {
            let message = "as many stand by for this election as may; try again after retryAfterMillis, with some jitter";
            let body = ErrorBody::new(Code::QueueFull, message);
            let lock = explain(LockError::Refused(Refusal::QueueFull(HeldBy::default())));
            let mut problem = with(held, body);
            problem.0.retry_after_millis = lock.retry_after_millis;
            problem
        }
        Refusal::AlreadyReleased => ErrorBody::new(
            Code::AlreadyReleased,
            "whom this requestId made leader has resigned already; to campaign again, use a new requestId",
        )
        .into(),
        refusal => LockError::Refused(refusal).into(),
    }
}

/// Nobody leads.
pub(super) fn no_leader(message: &str) -> Problem {
    ErrorBody::new(ErrorCode::NoLeader, message).into()
}

/// What is known of the leader from the moment of the refusal.
fn with(held: HeldBy, body: ErrorBody) -> Problem {
    ErrorBody {
        leader: held.owner.map(|owner| owner.as_ref().into()),
        retry_after_millis: held.retry_after.map(millis),
        queue_length: Some(held.waiting),
        ..body
    }
    .into()
}

/// Who leads, and its epoch, read together. If that can't be found out, the refusal stands without it.
async fn led_by(server: &Shared, election: &LockName, body: ErrorBody) -> Problem {
    let Ok(Some(state)) = server.engine.lock_state(election).await else { return body.into() };
    let Some(leader) = state.first() else { return body.into() };
    let epoch = Some(leader.fencing.0);
    let held = HeldBy { owner: Some(leader.owner.clone()), retry_after: None, waiting: state.waiting };
    with(held, ErrorBody { epoch, ..body })
}
