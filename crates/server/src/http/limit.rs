//! `/v1/limits/{name}/…`: checking, giving back, reserving.

use super::Shared;
use super::answer::{Problem, json};
use super::calls::anybody;
use super::exchange::Exchange;
use super::input::Parameters;
use super::limits::NAME;
use super::parameters::{NameParameter, NamespaceParameter, RefusalParameter};
use super::quota;
use crate::gate::Class;
use crate::metrics::Route;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::Response;
use baton_api::limit::{
    self as wire, CheckAllRequest, CheckAllResponse, LeaseRequest, LeaseResponse, LeaseSlack,
    LimitCheckRequest, LimitCheckResponse, LimitExceeded, RefundRequest, RefundResponse, ReserveRequest,
    ReserveResponse, ReturnLeaseRequest, ReturnLeaseResponse,
};
use baton_api::limits::BODY_BYTES_MAX;
use baton_api::{ErrorBody, ErrorCode};
use baton_core::Name;
use baton_core::limit::Identity;
use baton_engine::limit::{Answered, Booked, CheckCall, Checked, Denial, LendCall, ReserveCall, Wanted};
use hyper::StatusCode;
use std::sync::Arc;

/// Whether a key may go on, and count it.
///
/// Counted before the work is done. A refusal counts nothing. The answer has the headers `RateLimit` and `RateLimit-Policy`, and a
/// refusal `Retry-After`.
#[utoipa::path(
    post, path = "/v1/limits/{name}/check", tag = "limits", operation_id = "checkLimit",
    params(NameParameter, NamespaceParameter, RefusalParameter), request_body = LimitCheckRequest,
    responses(
        (status = 200, description = "Go on", body = LimitCheckResponse),
        (status = 403, description = "LIMIT_EXCEEDED, if asked for with `refusal=403`; or FORBIDDEN", body = LimitExceeded),
        (status = 404, description = "LIMIT_NOT_FOUND", body = ErrorBody),
        (status = 422, description = "REQUEST_ID_REUSED", body = ErrorBody),
        (status = 429, description = "LIMIT_EXCEEDED: come back after `retryAfterMillis`", body = LimitExceeded),
    )
)]
pub async fn check(State(server): State<Arc<Shared>>, request: Request) -> Response {
    let (exchange, body) = Exchange::begin(server, Route::LimitCheck, request);
    let outcome = checked(&exchange, body).await;
    exchange.end(outcome)
}

async fn checked(exchange: &Exchange, body: Body) -> Result<Response, Problem> {
    let (limit, parameters) = exchange.name_and(NAME, &["namespace", "refusal"])?;
    let refusal = quota::refusal(&parameters)?;
    let request: LimitCheckRequest = exchange.read(body, BODY_BYTES_MAX).await?;
    request.check()?;
    let LimitCheckRequest { key, cost, identity, request_id, receipt } = request;
    let identity = who(identity);
    let _place = exchange.enter(Class::Work)?;
    let calls = [CheckCall { limit, key, cost, identity }];
    let wanted = Wanted { principal: anybody().to_string(), request_id, receipt };
    let answered = exchange.server.engine.check_limits(&calls, &wanted).await?;
    let response = match (&answered.refused, answered.checks.first()) {
        (None, Some(found)) => json(StatusCode::OK, &passed(found, true)),
        (Some(_), Some(found)) if cost == 0 => json(StatusCode::OK, &passed(found, false)),
        _ => exceeded(exchange, &calls, &answered, refusal)?,
    };
    Ok(quota::describe(response, &calls, &answered))
}

fn who(identity: Option<wire::Identity>) -> Identity {
    match identity {
        Some(wire::Identity::Anonymous) => Identity::Anonymous,
        Some(wire::Identity::Authenticated) | None => Identity::Authenticated,
    }
}

/// Whether all of several checks pass: all are counted, or none.
#[utoipa::path(
    post, path = "/v1/limits:check", tag = "limits", operation_id = "checkLimits",
    params(NamespaceParameter, RefusalParameter), request_body = CheckAllRequest,
    responses(
        (status = 200, description = "Go on: all were counted", body = CheckAllResponse),
        (status = 403, description = "LIMIT_EXCEEDED, if asked for with `refusal=403`; or FORBIDDEN", body = LimitExceeded),
        (status = 404, description = "LIMIT_NOT_FOUND", body = ErrorBody),
        (status = 422, description = "REQUEST_ID_REUSED", body = ErrorBody),
        (status = 429, description = "LIMIT_EXCEEDED: `name` and `key` say which refused; nothing was counted",
            body = LimitExceeded),
    )
)]
pub async fn check_all(State(server): State<Arc<Shared>>, request: Request) -> Response {
    let (exchange, body) = Exchange::begin(server, Route::LimitsCheck, request);
    let outcome = all_checked(&exchange, body).await;
    exchange.end(outcome)
}

async fn all_checked(exchange: &Exchange, body: Body) -> Result<Response, Problem> {
    let parameters = Parameters::read(&exchange.uri, &["namespace", "refusal"])?;
    let (namespace, refusal) = (parameters.namespace()?, quota::refusal(&parameters)?);
    let request: CheckAllRequest = exchange.read(body, BODY_BYTES_MAX).await?;
    request.check()?;
    let CheckAllRequest { checks, request_id, receipt } = request;
    let calls: Vec<_> = checks
        .into_iter()
        .map(|check| CheckCall {
            limit: Name::new(namespace, &check.limit),
            key: check.key,
            cost: check.cost,
            identity: who(check.identity),
        })
        .collect();
    let _place = exchange.enter(Class::Work)?;
    let wanted = Wanted { principal: anybody().to_string(), request_id, receipt };
    let answered = exchange.server.engine.check_limits(&calls, &wanted).await?;
    let refused = answered.refused.as_ref().and_then(|(index, _)| answered.indices.get(*index));
    let is_look = refused.is_some_and(|index| calls[*index].cost == 0);
    let response = if answered.allowed || is_look {
        let short = answered.refused.as_ref().map(|(index, _)| *index);
        let checks = answered.checks.iter().enumerate();
        let checks = checks.map(|(index, found)| passed(found, Some(index) != short)).collect();
        json(StatusCode::OK, &CheckAllResponse { allowed: answered.allowed, checks })
    } else {
        exceeded(exchange, &calls, &answered, refusal)?
    };
    Ok(quota::describe(response, &calls, &answered))
}

fn passed(found: &Checked, allowed: bool) -> LimitCheckResponse {
    LimitCheckResponse {
        allowed,
        limit: found.capacity,
        remaining: found.remaining,
        reset_millis: found.reset_ms,
        source: found.source.as_str().into(),
        receipt: found.receipt.clone(),
        lease_id: found.place.as_ref().map(|place| place.lease_id.clone()),
        lease_ttl_millis: found.place.as_ref().map(|place| place.ttl_ms),
        would_refuse: found.would_refuse,
    }
}

fn exceeded(
    exchange: &Exchange,
    calls: &[CheckCall],
    answered: &Answered,
    refusal: StatusCode,
) -> Result<Response, Problem> {
    let Some((index, denial)) = answered.refused else { return Err(Problem::internal()) };
    let call = answered.indices.get(index).and_then(|index| calls.get(*index));
    let (Some(call), Some(found)) = (call, answered.checks.get(index)) else {
        return Err(Problem::internal());
    };
    let body = LimitExceeded {
        error: ErrorCode::LimitExceeded,
        message: said(call, &denial),
        allowed: false,
        name: call.limit.key().into(),
        key: call.key.clone(),
        limit: found.capacity,
        remaining: found.remaining,
        reset_millis: found.reset_ms,
        source: found.source.as_str().into(),
        reason: denial.reason.into(),
        retry_after_millis: denial.retry_after_ms,
    };
    Ok(quota::refused(exchange, refusal, &body))
}

fn said(call: &CheckCall, denial: &Denial) -> String {
    let limit = call.limit.key();
    match denial.retry_after_ms {
        Some(_) => format!("the limit {limit:?} is used up for this key; try again after retryAfterMillis"),
        None => format!("the cost is more than the limit {limit:?} ever allows at once"),
    }
}

/// Give back what a check was counted for, because the work wasn't done; or cancel a reservation.
///
/// At most once for each receipt. What is over can't be given back: then `refunded` is less, or 0.
#[utoipa::path(
    post, path = "/v1/limits/{name}/refund", tag = "limits", operation_id = "refundLimit",
    params(NameParameter, NamespaceParameter), request_body = RefundRequest,
    responses(
        (status = 200, description = "Given back as far as it still counted", body = RefundResponse),
        (status = 403, description = "RECEIPT_INVALID: not given out for this limit and key", body = ErrorBody),
        (status = 404, description = "LIMIT_NOT_FOUND", body = ErrorBody),
    )
)]
pub async fn refund(State(server): State<Arc<Shared>>, request: Request) -> Response {
    let (exchange, body) = Exchange::begin(server, Route::LimitRefund, request);
    let outcome = refunded(&exchange, body).await;
    exchange.end(outcome)
}

async fn refunded(exchange: &Exchange, body: Body) -> Result<Response, Problem> {
    let name = exchange.name(NAME)?;
    let request: RefundRequest = exchange.read(body, BODY_BYTES_MAX).await?;
    request.check()?;
    let _place = exchange.enter(Class::Work)?;
    let engine = &exchange.server.engine;
    let refunded = engine.refund(&name, &request.key, &request.receipt, &anybody()).await?;
    Ok(json(StatusCode::OK, &RefundResponse { refunded }))
}

/// Book a time to go on, instead of being refused. For token buckets.
#[utoipa::path(
    post, path = "/v1/limits/{name}/reserve", tag = "limits", operation_id = "reserveLimit",
    params(NameParameter, NamespaceParameter), request_body = ReserveRequest,
    responses(
        (status = 200, description = "Go on after `waitMillis`", body = ReserveResponse),
        (status = 404, description = "LIMIT_NOT_FOUND", body = ErrorBody),
        (status = 409, description = "LIMIT_MISMATCH: not a token bucket", body = ErrorBody),
        (status = 422, description = "REQUEST_ID_REUSED", body = ErrorBody),
        (status = 429, description = "LIMIT_EXCEEDED: no time is near enough", body = ErrorBody),
    )
)]
pub async fn reserve(State(server): State<Arc<Shared>>, request: Request) -> Response {
    let (exchange, body) = Exchange::begin(server, Route::LimitReserve, request);
    let outcome = reserved(&exchange, body).await;
    exchange.end(outcome)
}

async fn reserved(exchange: &Exchange, body: Body) -> Result<Response, Problem> {
    let name = exchange.name(NAME)?;
    let request: ReserveRequest = exchange.read(body, BODY_BYTES_MAX).await?;
    request.check()?;
    let ReserveRequest { key, cost, max_wait_millis, request_id } = request;
    let call = ReserveCall { key, cost, wait_max_ms: max_wait_millis, request_id };
    let _place = exchange.enter(Class::Work)?;
    match exchange.server.engine.reserve(&name, &call, &anybody()).await? {
        Booked::At { wait_ms, reservation_id } => {
            Ok(json(StatusCode::OK, &ReserveResponse { wait_millis: wait_ms, reservation_id }))
        }
        Booked::No(denial) => {
            let message = "there is no room within maxWaitMillis; try again later, or wait longer";
            let body = ErrorBody::new(ErrorCode::LimitExceeded, message);
            Err(ErrorBody { retry_after_millis: denial.retry_after_ms, ..body }.into())
        }
    }
}

/// Lease a part of a limit to spend without asking, say what was spent of it, or keep a place in flight longer.
///
/// What is lent is debited before it is spent, so that no crash admits too much. Count its life from before you sent the message, less
/// a margin. Take what you give back out of your purse before you say so. An answer to a message before the last doesn't count.
#[utoipa::path(
    post, path = "/v1/limits/{name}/lease", tag = "limits", operation_id = "leaseLimit",
    params(NameParameter, NamespaceParameter), request_body = LeaseRequest,
    responses(
        (status = 200, description = "What the lease has now", body = LeaseResponse),
        (status = 404, description = "LIMIT_NOT_FOUND", body = ErrorBody),
    )
)]
pub async fn lease(State(server): State<Arc<Shared>>, request: Request) -> Response {
    let (exchange, body) = Exchange::begin(server, Route::LimitLease, request);
    let outcome = leased(&exchange, body).await;
    exchange.end(outcome)
}

async fn leased(exchange: &Exchange, body: Body) -> Result<Response, Problem> {
    let name = exchange.name(NAME)?;
    let request: LeaseRequest = exchange.read(body, BODY_BYTES_MAX).await?;
    request.check()?;
    let engine = &exchange.server.engine;
    let call = LendCall {
        key: request.key,
        identity: who(request.identity),
        owner: request.node_id,
        lease_id: request.lease_id.unwrap_or_else(|| engine.new_lease_id()),
        sequence: request.sequence.unwrap_or(1),
        spent: request.spent,
        kept: request.kept,
        want: request.want,
        version: request.version,
        ttl_ms: request.ttl_millis.unwrap_or_default(),
    };
    let _place = exchange.enter(Class::Urgent)?;
    let lent = engine.lend(&name, &call).await?;
    let response = LeaseResponse {
        lease_id: lent.lease_id,
        granted: lent.amount,
        ttl_millis: lent.ttl_ms,
        size: lent.size,
        slack: lent.slack.map(|slack| LeaseSlack {
            max_ttl_millis: slack.ttl_max_ms,
            sync_millis: slack.sync_ms,
            low: slack.low,
            left: slack.left,
            max_size: slack.size_max,
        }),
        limit: lent.capacity,
        remaining: lent.remaining,
        reset_millis: lent.reset_ms,
        retry_after_millis: lent.retry_ms,
        bound: lent.worst,
        version: lent.version.0,
    };
    Ok(json(StatusCode::OK, &response))
}

/// Give back a place in flight.
///
/// What you have leased is given back by `/lease` with `kept` 0 and all that was spent of it.
#[utoipa::path(
    post, path = "/v1/limits/{name}/lease/return", tag = "limits", operation_id = "returnLimitLease",
    params(NameParameter, NamespaceParameter), request_body = ReturnLeaseRequest,
    responses(
        (status = 200, description = "It isn't held any more, whether or not it was", body = ReturnLeaseResponse),
        (status = 404, description = "LIMIT_NOT_FOUND", body = ErrorBody),
        (status = 409, description = "LIMIT_MISMATCH: not in_flight", body = ErrorBody),
    )
)]
pub async fn give_back(State(server): State<Arc<Shared>>, request: Request) -> Response {
    let (exchange, body) = Exchange::begin(server, Route::LimitLeaseReturn, request);
    let outcome = given_back(&exchange, body).await;
    exchange.end(outcome)
}

async fn given_back(exchange: &Exchange, body: Body) -> Result<Response, Problem> {
    let name = exchange.name(NAME)?;
    let request: ReturnLeaseRequest = exchange.read(body, BODY_BYTES_MAX).await?;
    request.check()?;
    let _place = exchange.enter(Class::Urgent)?;
    exchange.server.engine.leave(&name, &request.key, &request.lease_id, &anybody()).await?;
    Ok(json(StatusCode::OK, &ReturnLeaseResponse { status: "RETURNED".into() }))
}
