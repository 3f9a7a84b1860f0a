//! `/v1/limits/{name}/audit` and `/leases/log`: what was decided and what became of leases, line by line.

use super::Shared;
use super::answer::{Problem, json};
use super::exchange::Exchange;
use super::limits::{NAME, key};
use super::parameters::{LogParameters, NameParameter, NamespaceParameter};
use crate::gate::Class;
use crate::metrics::Route;
use axum::extract::{Request, State};
use axum::response::Response;
use baton_api::ErrorBody;
use baton_api::limit::{LimitLog, LimitLogLine};
use baton_core::limit::{Event, Line, Log};
use baton_engine::limit::LogPosition;
use hyper::StatusCode;
use std::sync::Arc;

/// What was decided about an audited limit.
///
/// Every line was in the store before its decision was answered. It is kept for 30 days, and as long as the limit's log has
/// room: beyond about 500,000 lines the oldest go. It outlives the limit.
#[utoipa::path(
    get, path = "/v1/limits/{name}/audit", tag = "limits", operation_id = "auditLimit",
    params(NameParameter, NamespaceParameter, LogParameters),
    responses(
        (status = 200, description = "A page, oldest first", body = LimitLog),
        (status = 404, description = "LIMIT_NOT_FOUND: and there was none that was audited", body = ErrorBody),
    )
)]
pub async fn audit(State(server): State<Arc<Shared>>, request: Request) -> Response {
    let (exchange, _body) = Exchange::begin(server, Route::LimitAudit, request);
    let outcome = read(&exchange, Log::Audit).await;
    exchange.end(outcome)
}

/// What became of leases of a limit, of nodes and of processes.
///
/// Written behind the answers, so that the last lines may be missing after a crash. Kept for a day after the last of them, and about 2,000
/// lines of each limit. A holder that vanished has no last line: what it had counts as spent when its lease is over.
#[utoipa::path(
    get, path = "/v1/limits/{name}/leases/log", tag = "limits", operation_id = "logLimitLeases",
    params(NameParameter, NamespaceParameter, LogParameters),
    responses(
        (status = 200, description = "A page, oldest first", body = LimitLog),
        (status = 404, description = "LIMIT_NOT_FOUND: and there was none with leases", body = ErrorBody),
    )
)]
pub async fn leases(State(server): State<Arc<Shared>>, request: Request) -> Response {
    let (exchange, _body) = Exchange::begin(server, Route::LimitLeasesLog, request);
    let outcome = read(&exchange, Log::Leases).await;
    exchange.end(outcome)
}

async fn read(exchange: &Exchange, log: Log) -> Result<Response, Problem> {
    let (name, parameters) = exchange.name_and(NAME, &["namespace", "key", "limit", "cursor"])?;
    let (key, (limit, cursor)) = (key(&parameters)?, parameters.page()?);
    let _place = exchange.enter(Class::Work)?;
    let page = exchange.server.engine.limit_log(log, &name, key, limit, cursor).await?;
    let lines = page.lines.into_iter().map(shown).collect();
    Ok(json(StatusCode::OK, &LimitLog { lines, next_cursor: page.next_cursor }))
}

fn shown((position, line): (LogPosition, Line)) -> LimitLogLine {
    let some = |text: String| (!text.is_empty()).then_some(text);
    let is_decision =
        matches!(line.event, Event::Allowed | Event::Refused | Event::Reserved | Event::Refunded);
    let (request_id, lease_id) =
        if is_decision { (some(line.reference), None) } else { (None, some(line.reference)) };
    LimitLogLine {
        event: line.event.as_str().into(),
        at: line.at.0,
        node: format!("{:016x}", line.node),
        key: line.key,
        amount: line.amount,
        remaining: line.remaining,
        source: some(line.source),
        by: some(line.by),
        request_id,
        lease_id,
        spent: (!is_decision).then_some(line.spent),
        ttl_millis: (line.ttl_ms > 0).then_some(line.ttl_ms),
        cursor: position.to_string(),
    }
}
