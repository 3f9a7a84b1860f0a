//! The paths that are served.
//!
//! # Layout
//! - [`lock`], [`views`], [`watch`]: `/v1/locks`: changing, looking at and following locks
//! - [`bundle`]: `/v1/locks:acquireAll`, several locks at once
//! - [`election`], [`elections`], [`observe`]: `/v1/elections`, likewise
//! - [`once`]: claims and results, `/v1/once`
//! - [`fence`]: the fence registry, `/v1/fences`
//! - [`limits`], [`limit`], [`limit_log`]: `/v1/limits`: defining and looking; checking, giving back, reserving; what was decided
//! - [`counters`], [`sets`], [`registers`], [`maps`], [`presence`]: what needs no agreement, from this node's replica; `crdt`: what they share
//! - `definition`, `quota`: what a definition means; how an outcome is shown in headers
//! - [`jobs`], [`runs`]: `/v1/jobs`, `/v1/runs`: defining jobs and asking something of them; what became of a run
//! - `job_definition`: what a job's definition means; [`workers`]: taking runs, and what is said of attempts
//! - [`preview`]: `/v1/jobs:preview`, when a schedule would be due
//! - [`batch`]: `/v1/batch`, several calls in one request
//! - [`cluster`]: `/v1/nodes`, `/v1/ring`, `/v1/hotkeys`, and what other nodes forward
//! - [`replication`]: `/v1/replication`, and what other replicas ask
//! - [`operations`]: health, status, metrics
//! - [`openapi`]: the description of all of it; `parameters`: what paths and queries carry, as it shows them
//! - `calls`: one lock call, for a path as for a line of a batch
//! - `exchange`, `events`, `input`, `whole`, `answer`: what all of them share

pub(crate) mod answer;
pub mod batch;
pub mod bundle;
pub(crate) mod calendars;
pub(crate) mod calls;
pub mod cluster;
pub mod counters;
mod crdt;
mod crdt_watch;
pub(crate) mod definition;
pub mod election;
pub mod elections;
mod events;
pub(crate) mod exchange;
pub mod fence;
pub(crate) mod input;
pub(crate) mod job_definition;
pub mod jobs;
pub mod limit;
pub mod limit_log;
pub mod limits;
pub mod lock;
pub mod maps;
pub mod observe;
pub mod once;
pub mod openapi;
pub mod operations;
mod parameters;
pub mod presence;
pub mod preview;
pub(crate) mod quota;
pub mod registers;
pub mod replication;
pub mod runs;
pub mod sets;
pub mod views;
pub mod watch;
mod whole;
pub mod workers;

use crate::gate::{Class, Gates, Place};
use crate::metrics::{Metrics, Route};
use crate::replica::NodeReplica;
use answer::Problem;
use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::Response;
use baton_api::{ErrorBody, ErrorCode};
use baton_engine::Engine;
use bytes::Bytes;
use exchange::Exchange;
use hyper::Method;
use hyper::body::Incoming;
use hyper::service::Service;
use hyper_util::service::TowerToHyperService;
use prometheus_client::registry::Registry;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::watch::Receiver;

/// What all requests share.
pub struct Shared {
    pub(crate) engine: Engine,
    pub(crate) replica: Arc<NodeReplica>,
    pub(crate) gates: Gates,
    pub(crate) metrics: Metrics,
    pub(crate) registry: Registry,
    pub(crate) openapi: Bytes,
    pub(crate) started: Instant,
    /// Turns true when the server is about to stop.
    pub(crate) stopping: Receiver<bool>,
    pub(crate) body_within: Duration,
}

impl Shared {
    /// Around an engine.
    pub fn new(engine: Engine, config: &crate::Config, stopping: Receiver<bool>) -> Self {
        let mut registry = Registry::with_prefix("baton");
        engine.metrics().register(&mut registry);
        let replica = Arc::new(NodeReplica::new(config, &engine));
        replica.metrics.register(&mut registry);
        Self {
            gates: Gates::new(config),
            metrics: Metrics::new(&mut registry, engine.store().breaker().is_some()),
            registry,
            openapi: openapi::document().into(),
            started: Instant::now(),
            stopping,
            body_within: config.body,
            replica,
            engine,
        }
    }

    /// A place among the calls of a class, or the answer that there is none.
    pub(crate) fn enter(&self, class: Class) -> Result<Place, Problem> {
        self.gates.of(class).enter().ok_or_else(|| {
            self.metrics.reject(class);
            Problem::overloaded(match class {
                Class::Waiting => "waiting calls",
                Class::Urgent => "renewals and releases",
                Class::Watching => "watches",
                Class::Work => "calls",
            })
        })
    }

    /// Whether the server is about to stop.
    pub(crate) fn is_stopping(&self) -> bool {
        *self.stopping.borrow()
    }
}

/// Every path, and an answer for every other.
pub fn router(server: Arc<Shared>) -> Router {
    let (router, _described) = openapi::routes().split_for_parts();
    let router = router.route(crate::peers::PATH, axum::routing::post(cluster::forwarded));
    let router = router.route(crate::replication::wire::PATH, axum::routing::post(replication::asked));
    router.method_not_allowed_fallback(method_not_allowed).fallback(not_found).with_state(server)
}

/// Answers a request. What locks and limits live on goes to its handler by the shortest way: finding the path among all
/// others and boxing it up twice would cost as much as deciding it. Everything else goes through the router.
pub(crate) async fn serve(
    server: Arc<Shared>,
    router: TowerToHyperService<Router>,
    request: hyper::Request<Incoming>,
) -> Result<Response, Infallible> {
    let request = request.map(Body::new);
    match frequent(&request) {
        Some(Route::Acquire) => Ok(lock::acquire(State(server), request).await),
        Some(Route::Renew) => Ok(lock::renew(State(server), request).await),
        Some(Route::Release) => Ok(lock::release(State(server), request).await),
        Some(Route::LimitCheck) => Ok(limit::check(State(server), request).await),
        _ => router.call(request).await,
    }
}

/// The three calls of a lock and the one of a limit, exactly as the router knows them.
fn frequent(request: &Request) -> Option<Route> {
    let (noun, rest) = request.uri().path().strip_prefix("/v1/")?.split_once('/')?;
    let (key, verb) = rest.split_once('/')?;
    if key.is_empty() || request.method() != Method::POST {
        return None;
    }
    match (noun, verb) {
        ("locks", "acquire") => Some(Route::Acquire),
        ("locks", "renew") => Some(Route::Renew),
        ("locks", "release") => Some(Route::Release),
        ("limits", "check") => Some(Route::LimitCheck),
        _ => None,
    }
}

async fn not_found(State(server): State<Arc<Shared>>, request: Request) -> Response {
    let (exchange, _body) = Exchange::begin(server, Route::Unknown, request);
    let message = "there is no such path; GET /openapi.json lists them all";
    exchange.end(Err(ErrorBody::new(ErrorCode::NotFound, message).into()))
}

async fn method_not_allowed(State(server): State<Arc<Shared>>, request: Request) -> Response {
    let (exchange, _body) = Exchange::begin(server, Route::Unknown, request);
    let message = "this path exists, but not with this method; the Allow header lists those that do";
    exchange.end(Err(ErrorBody::new(ErrorCode::MethodNotAllowed, message).into()))
}
