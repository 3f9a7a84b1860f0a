//! Health, status, metrics and the description of the API (O4, O8).

use super::Shared;
use super::answer::{Problem, json, millis, raw};
use super::exchange::Exchange;
use crate::gate::Class;
use crate::metrics::Route;
use axum::extract::{Request, State};
use axum::response::Response;
use baton_api::status::{BreakerState, BreakerStatus, GuaranteesStatus, Status, StoreStatus};
use hyper::StatusCode;
use prometheus_client::encoding::text::encode;
use std::sync::Arc;

/// Well, one way or another.
#[derive(serde::Serialize, utoipa::ToSchema)]
pub struct Health {
    /// Always `ok`: everything else is an error.
    status: &'static str,
}

/// Whether the process runs.
#[utoipa::path(
    get, path = "/healthz", tag = "operations", operation_id = "getHealth",
    responses((status = 200, description = "It runs and answers", body = Health))
)]
pub async fn health(State(server): State<Arc<Shared>>, request: Request) -> Response {
    let (exchange, _body) = Exchange::begin(server, Route::Health, request);
    let outcome = exchange.no_parameters().map(|()| json(StatusCode::OK, &Health { status: "ok" }));
    exchange.end(outcome)
}

/// Whether the store can commit, and the server isn't stopping.
#[utoipa::path(
    get, path = "/readyz", tag = "operations", operation_id = "getReadiness",
    responses((status = 200, description = "Send it work", body = Health))
)]
pub async fn ready(State(server): State<Arc<Shared>>, request: Request) -> Response {
    let (exchange, _body) = Exchange::begin(server, Route::Ready, request);
    let outcome = readiness(&exchange).await;
    exchange.end(outcome)
}

async fn readiness(exchange: &Exchange) -> Result<Response, Problem> {
    exchange.no_parameters()?;
    if exchange.server.is_stopping() {
        return Err(Problem::not_ready("the server is stopping; use another one"));
    }
    // Busy isn't broken: a balancer that took busy nodes out would only make the others busier.
    let _place = exchange.enter(Class::Urgent)?;
    if !exchange.server.engine.is_ready().await {
        return Err(Problem::not_ready("the store can't commit; see the server's log"));
    }
    Ok(json(StatusCode::OK, &Health { status: "ok" }))
}

/// Version, node, store and what it promises.
#[utoipa::path(
    get, path = "/v1/status", tag = "operations", operation_id = "getStatus",
    responses((status = 200, description = "As it is now", body = Status))
)]
pub async fn status(State(server): State<Arc<Shared>>, request: Request) -> Response {
    let (exchange, _body) = Exchange::begin(server, Route::Status, request);
    let outcome = described(&exchange).await;
    exchange.end(outcome)
}

async fn described(exchange: &Exchange) -> Result<Response, Problem> {
    exchange.no_parameters()?;
    let _place = exchange.enter(Class::Work)?;
    let server = &exchange.server;
    let (guarantees, usage) = (server.engine.store().guarantees(), server.engine.store().usage());
    let status = Status {
        version: env!("CARGO_PKG_VERSION").into(),
        node_id: format!("{:016x}", server.engine.node().0),
        uptime_millis: millis(server.started.elapsed()),
        ready: !server.is_stopping() && server.engine.is_ready().await,
        nodes: server.engine.nodes() as u64,
        store: StoreStatus {
            name: guarantees.store.into(),
            shared: guarantees.shared,
            records: usage.records,
            used_bytes: usage.used_bytes,
            budget_bytes: usage.budget_bytes,
            breaker: server.engine.store().breaker().map(|(state, lasting)| BreakerStatus {
                state: match state {
                    baton_store::BreakerState::Closed => BreakerState::Closed,
                    baton_store::BreakerState::HalfOpen => BreakerState::HalfOpen,
                    baton_store::BreakerState::Open => BreakerState::Open,
                },
                for_millis: millis(lasting),
            }),
            guarantees: GuaranteesStatus {
                on_crash: guarantees.on_crash.into(),
                on_failover: guarantees.on_failover.into(),
                on_partition: guarantees.on_partition.into(),
                on_clock_step: guarantees.on_clock_step.into(),
                ttl_min_millis: millis(guarantees.ttl_min),
                ttl_granularity_millis: millis(guarantees.ttl_granularity),
                warnings: guarantees.warnings,
            },
        },
    };
    Ok(json(StatusCode::OK, &status))
}

/// Counts and times, in Prometheus' text format.
#[utoipa::path(
    get, path = "/metrics", tag = "operations", operation_id = "getMetrics",
    responses((status = 200, description = "As of now", body = String, content_type = "application/openmetrics-text"))
)]
pub async fn metrics(State(server): State<Arc<Shared>>, request: Request) -> Response {
    let (exchange, _body) = Exchange::begin(server, Route::Metrics, request);
    let outcome = exchange.no_parameters().and_then(|()| measured(&exchange.server));
    exchange.end(outcome)
}

fn measured(server: &Shared) -> Result<Response, Problem> {
    let replica = server.replica.opened().map(|opened| opened.replica.size());
    server.metrics.refresh(&server.gates, server.engine.store().breaker(), replica);
    let mut text = String::with_capacity(32 * 1024);
    encode(&mut text, &server.registry).map_err(|error| {
        tracing::error!(%error, "the metrics can't be written");
        Problem::internal()
    })?;
    Ok(raw(StatusCode::OK, "application/openmetrics-text; version=1.0.0; charset=utf-8", text.into()))
}

/// This description.
#[utoipa::path(
    get, path = "/openapi.json", tag = "operations", operation_id = "getOpenApi",
    responses((status = 200, description = "OpenAPI 3.1", body = Object))
)]
pub async fn openapi(State(server): State<Arc<Shared>>, request: Request) -> Response {
    let (exchange, _body) = Exchange::begin(server, Route::OpenApi, request);
    let outcome = exchange
        .no_parameters()
        .map(|()| raw(StatusCode::OK, "application/json", exchange.server.openapi.clone()));
    exchange.end(outcome)
}
