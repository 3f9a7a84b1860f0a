//! The paths that are served.
//!
//! # Layout
//! - [`lock`], [`views`], [`watch`]: `/v1/locks`: changing, looking at and following locks
//! - [`batch`]: `/v1/batch`, several calls in one request
//! - [`operations`]: health, status, metrics
//! - [`openapi`]: the description of all of it
//! - `calls`: one lock call, for a path as for a line of a batch
//! - `exchange`, `input`, `whole`, `answer`: what all of them share

mod answer;
pub mod batch;
mod calls;
mod exchange;
mod input;
pub mod lock;
pub mod openapi;
pub mod operations;
pub mod views;
pub mod watch;
mod whole;

use crate::gate::{Class, Gates, Place};
use crate::metrics::{Metrics, Route};
use answer::Problem;
use axum::Router;
use axum::extract::{Request, State};
use axum::response::Response;
use baton_api::{ErrorBody, ErrorCode};
use baton_engine::Engine;
use bytes::Bytes;
use exchange::Exchange;
use prometheus_client::registry::Registry;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::watch::Receiver;

/// What all requests share.
pub struct Shared {
    pub(crate) engine: Engine,
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
        Self {
            gates: Gates::new(config),
            metrics: Metrics::new(&mut registry),
            registry,
            openapi: openapi::document().into(),
            started: Instant::now(),
            stopping,
            body_within: config.body,
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
    router.method_not_allowed_fallback(method_not_allowed).fallback(not_found).with_state(server)
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
