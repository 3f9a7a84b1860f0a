//! `/v1/fences`: checking tokens, looking at fences, forgetting one (F3).

use super::Shared;
use super::answer::{Problem, failed, json};
use super::calls::anybody;
use super::exchange::Exchange;
use super::input::Parameters;
use super::parameters::{ListParameters, NamespaceParameter, ResourceParameter};
use crate::gate::Class;
use crate::metrics::Route;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::Response;
use baton_api::fence::{CheckRequest, CheckResponse, FenceList, FenceStatus, ForgetRequest, ForgetResponse};
use baton_api::limits::BODY_BYTES_MAX;
use baton_api::{ErrorBody, ErrorCode};
use baton_engine::fence::{CheckCall, FenceError, FenceState};
use hyper::StatusCode;
use std::sync::Arc;

/// What the key in the path is called.
const KEY: &str = "resource";

/// Check a fencing token, and remember it.
///
/// Accepts a token that isn't lower than any before, or that is higher if `strict`. The check is not one step with what
/// you do to the resource next: it narrows the window for a stale writer, and doesn't close it. If the resource can
/// compare tokens itself, let it.
#[utoipa::path(
    post, path = "/v1/fences/{resource}/check", tag = "fences", operation_id = "checkFence",
    params(ResourceParameter, NamespaceParameter), request_body = CheckRequest,
    responses(
        (status = 200, description = "Accepted: no higher token was seen", body = CheckResponse),
        (status = 409, description = "STALE_TOKEN: `highest` was seen", body = ErrorBody),
    )
)]
pub async fn check(State(server): State<Arc<Shared>>, request: Request) -> Response {
    let (exchange, body) = Exchange::begin(server, Route::FenceCheck, request);
    let outcome = checked(&exchange, body).await;
    exchange.end(outcome)
}

async fn checked(exchange: &Exchange, body: Body) -> Result<Response, Problem> {
    let name = exchange.name(KEY)?;
    let request: CheckRequest = exchange.read(body, BODY_BYTES_MAX).await?;
    request.check()?;
    let _place = exchange.enter(Class::Work)?;
    let CheckRequest { token, strict, request_id } = request;
    let call = CheckCall { token, strict, principal: anybody(), request_id };
    exchange.server.engine.check_fence(&name, call).await?;
    let response = CheckResponse { resource: name.key().into(), accepted: true, highest: token };
    Ok(json(StatusCode::OK, &response))
}

/// The highest token of a resource.
#[utoipa::path(
    get, path = "/v1/fences/{resource}", tag = "fences", operation_id = "getFence",
    params(ResourceParameter, NamespaceParameter),
    responses(
        (status = 200, description = "What was seen", body = FenceStatus),
        (status = 404, description = "FENCE_NOT_FOUND: no token was checked", body = ErrorBody),
    )
)]
pub async fn status(State(server): State<Arc<Shared>>, request: Request) -> Response {
    let (exchange, _body) = Exchange::begin(server, Route::Fence, request);
    let outcome = looked_at(&exchange).await;
    exchange.end(outcome)
}

async fn looked_at(exchange: &Exchange) -> Result<Response, Problem> {
    let name = exchange.name(KEY)?;
    let _place = exchange.enter(Class::Work)?;
    Ok(json(StatusCode::OK, &shown(exchange.server.engine.fence_state(&name).await?)))
}

/// Fences, page by page.
#[utoipa::path(
    get, path = "/v1/fences", tag = "fences", operation_id = "listFences",
    params(NamespaceParameter, ListParameters),
    responses((status = 200, description = "A page of fences", body = FenceList))
)]
pub async fn list(State(server): State<Arc<Shared>>, request: Request) -> Response {
    let (exchange, _body) = Exchange::begin(server, Route::Fences, request);
    let outcome = listed(&exchange).await;
    exchange.end(outcome)
}

async fn listed(exchange: &Exchange) -> Result<Response, Problem> {
    let parameters = Parameters::of_list(&exchange.uri)?;
    let (namespace, prefix, limit, cursor) = parameters.list()?;
    let _place = exchange.enter(Class::Work)?;
    let page = exchange.server.engine.list_fences(namespace, prefix, limit, cursor).await?;
    let fences = page.fences.into_iter().map(shown).collect();
    Ok(json(StatusCode::OK, &FenceList { fences, next_cursor: page.next_cursor }))
}

/// Forget a fence, with a reason.
///
/// From then on it accepts any token, also a stale one: only when nobody uses the resource any more.
#[utoipa::path(
    post, path = "/v1/fences/{resource}/forget", tag = "fences", operation_id = "forgetFence",
    params(ResourceParameter, NamespaceParameter), request_body = ForgetRequest,
    responses(
        (status = 200, description = "The fence was forgotten", body = ForgetResponse),
        (status = 404, description = "FENCE_NOT_FOUND: no token was checked", body = ErrorBody),
    )
)]
pub async fn forget(State(server): State<Arc<Shared>>, request: Request) -> Response {
    let (exchange, body) = Exchange::begin(server, Route::FenceForget, request);
    let outcome = forgotten(&exchange, body).await;
    exchange.end(outcome)
}

async fn forgotten(exchange: &Exchange, body: Body) -> Result<Response, Problem> {
    let name = exchange.name(KEY)?;
    let request: ForgetRequest = exchange.read(body, BODY_BYTES_MAX).await?;
    request.check()?;
    let _place = exchange.enter(Class::Work)?;
    let fence = exchange.server.engine.forget_fence(&name).await?;
    let (namespace, resource, highest) = (name.namespace(), name.key(), fence.highest);
    tracing::warn!(namespace, resource, highest, reason = request.reason, "a fence was forgotten");
    let response = ForgetResponse {
        status: "FORGOTTEN".into(),
        resource: resource.into(),
        highest,
        warning: "any token is accepted now, also one that was stale before".into(),
    };
    Ok(json(StatusCode::OK, &response))
}

fn shown(fence: FenceState) -> FenceStatus {
    FenceStatus {
        resource: fence.resource,
        highest: fence.highest,
        raised_at: fence.raised_at.0,
        accepted: fence.tally.accepted,
        refused: fence.tally.refused,
    }
}

impl From<FenceError> for Problem {
    fn from(error: FenceError) -> Self {
        match error {
            FenceError::Failed(failure) => failed(failure).into(),
            FenceError::Stale { highest } => {
                let message = format!(
                    "token {highest} was seen: another holder has come since, so don't write; stop acting as the holder"
                );
                let body = ErrorBody::new(ErrorCode::StaleToken, message);
                ErrorBody { highest: Some(highest), ..body }.into()
            }
            FenceError::NotFound => {
                let message = "no token was ever checked for this resource; the first check makes its fence";
                ErrorBody::new(ErrorCode::FenceNotFound, message).into()
            }
            FenceError::BadCursor => {
                Self::invalid("cursor", "cursor must be a nextCursor of an earlier page, unchanged")
            }
        }
    }
}
