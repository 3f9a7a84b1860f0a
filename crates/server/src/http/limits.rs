//! `/v1/limits`: defining limits and looking at them.

use super::Shared;
use super::answer::{Problem, failed, json};
use super::definition;
use super::exchange::Exchange;
use super::input::Parameters;
use super::parameters::{
    KeyQueryParameter, ListParameters, NameParameter, NamespaceParameter, OptionalKeyParameter,
};
use crate::gate::Class;
use crate::metrics::Route;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::Response;
use baton_api::limit::{
    LeaseList, LeaseStatus, LimitBound, LimitBoundItem, LimitDefinition, LimitList, LimitMeasured,
    LimitStatus, LimitUsage, RemoveLimitResponse,
};
use baton_api::limits::{self, DEFINITION_BYTES_MAX};
use baton_api::{ErrorBody, ErrorCode};
use baton_core::limit::Put;
use baton_core::meter::RowKind;
use baton_engine::limit::{LimitError, LimitState};
use hyper::StatusCode;
use std::sync::Arc;

/// What the name in the path is called.
pub(super) const NAME: &str = "name";
/// Leases shown at once.
const LEASES_MAX: usize = 1_000;

/// Define a limit, or change it while it is in use.
///
/// What was counted stays counted; with another algorithm or window it starts at what was used, up to the new limit. Nodes
/// follow within moments, and a node that doesn't know of the change yet can't count by the old definition what was counted by
/// the new one.
#[utoipa::path(
    put, path = "/v1/limits/{name}", tag = "limits", operation_id = "putLimit",
    params(NameParameter, NamespaceParameter), request_body = LimitDefinition,
    responses((status = 200, description = "It is defined like this now", body = LimitStatus))
)]
pub async fn put(State(server): State<Arc<Shared>>, request: Request) -> Response {
    let (exchange, body) = Exchange::begin(server, Route::Limit, request);
    let outcome = defined(&exchange, body).await;
    exchange.end(outcome)
}

async fn defined(exchange: &Exchange, body: Body) -> Result<Response, Problem> {
    let name = exchange.name(NAME)?;
    let said: LimitDefinition = exchange.read(body, DEFINITION_BYTES_MAX).await?;
    said.check()?;
    let definition = definition::read(said)?;
    let _place = exchange.enter(Class::Work)?;
    let (put, state) = exchange.server.engine.put_limit(&name, definition).await?;
    let status = match put {
        Put::Made => "MADE",
        Put::Changed => "CHANGED",
        Put::Same(_) => "UNCHANGED",
    };
    Ok(json(StatusCode::OK, &LimitStatus { status: Some(status.into()), ..shown(&state) }))
}

/// A limit's definition.
#[utoipa::path(
    get, path = "/v1/limits/{name}", tag = "limits", operation_id = "getLimit",
    params(NameParameter, NamespaceParameter),
    responses(
        (status = 200, description = "As it stands, with what was chosen for it", body = LimitStatus),
        (status = 404, description = "LIMIT_NOT_FOUND", body = ErrorBody),
    )
)]
pub async fn get(State(server): State<Arc<Shared>>, request: Request) -> Response {
    let (exchange, _body) = Exchange::begin(server, Route::Limit, request);
    let outcome = looked_up(&exchange).await;
    exchange.end(outcome)
}

async fn looked_up(exchange: &Exchange) -> Result<Response, Problem> {
    let name = exchange.name(NAME)?;
    let _place = exchange.enter(Class::Work)?;
    Ok(json(StatusCode::OK, &shown(&exchange.server.engine.limit(&name).await?)))
}

/// Remove a limit. What was counted is forgotten when its window is over.
#[utoipa::path(
    delete, path = "/v1/limits/{name}", tag = "limits", operation_id = "removeLimit",
    params(NameParameter, NamespaceParameter),
    responses(
        (status = 200, description = "It is gone", body = RemoveLimitResponse),
        (status = 403, description = "FORBIDDEN: a web page of another site sent it", body = ErrorBody),
        (status = 404, description = "LIMIT_NOT_FOUND", body = ErrorBody),
    )
)]
pub async fn remove(State(server): State<Arc<Shared>>, request: Request) -> Response {
    let (exchange, _body) = Exchange::begin(server, Route::Limit, request);
    let outcome = removed(&exchange).await;
    exchange.end(outcome)
}

async fn removed(exchange: &Exchange) -> Result<Response, Problem> {
    exchange.same_site()?;
    let name = exchange.name(NAME)?;
    let _place = exchange.enter(Class::Work)?;
    exchange.server.engine.remove_limit(&name).await?;
    Ok(json(StatusCode::OK, &RemoveLimitResponse { status: "REMOVED".into(), name: name.key().into() }))
}

/// Limits of a namespace.
#[utoipa::path(
    get, path = "/v1/limits", tag = "limits", operation_id = "listLimits",
    params(NamespaceParameter, ListParameters),
    responses((status = 200, description = "A page", body = LimitList))
)]
pub async fn list(State(server): State<Arc<Shared>>, request: Request) -> Response {
    let (exchange, _body) = Exchange::begin(server, Route::Limits, request);
    let outcome = listed(&exchange).await;
    exchange.end(outcome)
}

async fn listed(exchange: &Exchange) -> Result<Response, Problem> {
    let parameters = Parameters::of_list(&exchange.uri)?;
    let (namespace, prefix, limit, cursor) = parameters.list()?;
    let _place = exchange.enter(Class::Work)?;
    let page = exchange.server.engine.list_limits(namespace, prefix, limit, cursor).await?;
    let limits = page.limits.iter().map(shown).collect();
    Ok(json(StatusCode::OK, &LimitList { limits, next_cursor: page.next_cursor }))
}

/// What a key has used of a limit, without using any.
#[utoipa::path(
    get, path = "/v1/limits/{name}/usage", tag = "limits", operation_id = "getLimitUsage",
    params(NameParameter, NamespaceParameter, KeyQueryParameter),
    responses(
        (status = 200, description = "As of now", body = LimitUsage),
        (status = 404, description = "LIMIT_NOT_FOUND", body = ErrorBody),
    )
)]
pub async fn usage(State(server): State<Arc<Shared>>, request: Request) -> Response {
    let (exchange, _body) = Exchange::begin(server, Route::LimitUsage, request);
    let outcome = used(&exchange).await;
    exchange.end(outcome)
}

async fn used(exchange: &Exchange) -> Result<Response, Problem> {
    let (name, parameters) = exchange.name_and(NAME, &["namespace", "key"])?;
    let key = key(&parameters)?.ok_or_else(|| Problem::invalid("key", "whose usage? say it with ?key="))?;
    let _place = exchange.enter(Class::Work)?;
    let usage = exchange.server.engine.usage(&name, key).await?;
    let usage = LimitUsage {
        name: name.key().into(),
        key: key.into(),
        limit: usage.capacity,
        used: usage.used,
        outstanding: usage.outstanding,
        remaining: usage.remaining,
        reset_millis: usage.reset_ms,
    };
    Ok(json(StatusCode::OK, &usage))
}

/// What is outstanding of a limit: leases, holds and places in flight.
#[utoipa::path(
    get, path = "/v1/limits/{name}/leases", tag = "limits", operation_id = "listLimitLeases",
    params(NameParameter, NamespaceParameter),
    responses(
        (status = 200, description = "Up to 1,000 of them", body = LeaseList),
        (status = 404, description = "LIMIT_NOT_FOUND", body = ErrorBody),
    )
)]
pub async fn leases(State(server): State<Arc<Shared>>, request: Request) -> Response {
    let (exchange, _body) = Exchange::begin(server, Route::LimitLeases, request);
    let outcome = outstanding(&exchange).await;
    exchange.end(outcome)
}

async fn outstanding(exchange: &Exchange) -> Result<Response, Problem> {
    let name = exchange.name(NAME)?;
    let _place = exchange.enter(Class::Work)?;
    let (leases, more) = exchange.server.engine.leases(&name, LEASES_MAX).await?;
    let leases = leases.into_iter().map(|lease| LeaseStatus {
        key: lease.key,
        expires_in_millis: lease.row.expires_ms.saturating_sub(lease.now.0),
        lease_id: lease.row.id,
        holder: lease.row.owner,
        kind: match lease.row.kind {
            RowKind::Lease => "lease",
            RowKind::Hold => "hold",
            RowKind::Place => "place",
        }
        .into(),
        amount: lease.row.amount,
        spent: lease.row.spent,
    });
    Ok(json(StatusCode::OK, &LeaseList { leases: leases.collect(), more }))
}

/// How much more than the limit may pass, at worst, and why.
#[utoipa::path(
    get, path = "/v1/limits/{name}/bound", tag = "limits", operation_id = "getLimitBound",
    params(NameParameter, NamespaceParameter, OptionalKeyParameter),
    responses(
        (status = 200, description = "Every reason, with its number", body = LimitBound),
        (status = 404, description = "LIMIT_NOT_FOUND", body = ErrorBody),
    )
)]
pub async fn bound(State(server): State<Arc<Shared>>, request: Request) -> Response {
    let (exchange, _body) = Exchange::begin(server, Route::LimitBound, request);
    let outcome = bounded(&exchange).await;
    exchange.end(outcome)
}

async fn bounded(exchange: &Exchange) -> Result<Response, Problem> {
    let (name, parameters) = exchange.name_and(NAME, &["namespace", "key"])?;
    let key = key(&parameters)?.unwrap_or_default();
    let _place = exchange.enter(Class::Work)?;
    let (bound, window_ms, measured) = exchange.server.engine.bound(&name, key).await?;
    let items = bound.items.iter().map(|item| LimitBoundItem {
        source: item.source.into(),
        amount: item.amount,
        each: item.each,
        because: item.because.clone(),
    });
    let response = LimitBound {
        name: name.key().into(),
        limit: bound.limit,
        window_millis: window_ms,
        worst: bound.worst(),
        items: items.collect(),
        measured: LimitMeasured { overshoot: measured.amount, at: measured.at.map(|at| at.0) },
    };
    Ok(json(StatusCode::OK, &response))
}

pub(super) fn key<'a>(parameters: &'a Parameters<'_>) -> Result<Option<&'a str>, Problem> {
    let key = parameters.get("key");
    key.map_or(Ok(()), |key| limits::check_text("key", key, limits::KEY_BYTES))?;
    Ok(key)
}

fn shown(state: &LimitState) -> LimitStatus {
    LimitStatus {
        name: state.name.clone(),
        definition: definition::shown(&state.defined.definition),
        version: state.defined.version.0,
        changed_at: state.defined.definition.changed_at.0,
        status: None,
    }
}

impl From<LimitError> for Problem {
    fn from(error: LimitError) -> Self {
        match error {
            LimitError::Failed(failure) => failed(failure).into(),
            LimitError::NotFound { limit } => {
                let message = format!("there is no limit {limit:?}; PUT /v1/limits/{{name}} defines one");
                ErrorBody { field: Some("name".into()), ..ErrorBody::new(ErrorCode::LimitNotFound, message) }
                    .into()
            }
            LimitError::BadCursor => {
                Self::invalid("cursor", "cursor must be a nextCursor of an earlier page, unchanged")
            }
            LimitError::BadReceipt => {
                let message = "this receipt wasn't given out for this limit and key";
                ErrorBody::new(ErrorCode::ReceiptInvalid, message).into()
            }
            LimitError::RequestIdReused => {
                let message = "this requestId came with other parameters before; use a new one for each call, the same \
                               one only to repeat a call unchanged";
                let body = ErrorBody::new(ErrorCode::RequestIdReused, message);
                ErrorBody { field: Some("requestId".into()), ..body }.into()
            }
            LimitError::WrongAlgorithm => {
                let message = "only a token_bucket can book a time; check it instead, and come back after retryAfterMillis";
                ErrorBody::new(ErrorCode::LimitMismatch, message).into()
            }
            LimitError::NoPlaces => {
                let message = "only an in_flight limit has places to return; of a lease say to /lease what was spent of \
                               it, and \"kept\":0";
                ErrorBody::new(ErrorCode::LimitMismatch, message).into()
            }
            LimitError::CostTooHigh { capacity } => Self::invalid(
                "cost",
                format!("cost must be at most {capacity}, what the limit holds at once"),
            ),
            LimitError::Twice => Self::invalid("checks", "the same key of the same limit is checked twice"),
        }
    }
}
