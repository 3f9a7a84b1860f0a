//! Following a lock, or all whose keys begin alike: server-sent events (L12).
//!
//! The first thing sent is a comment: from then on nothing is missed without an `event: lost` saying so.

use super::Shared;
use super::answer::Problem;
use super::calls;
use super::events::{self, Source};
use super::exchange::Exchange;
use super::input::Parameters;
use super::parameters::{KeyParameter, NamespaceParameter, PrefixParameter};
use crate::metrics::Route;
use axum::extract::{Request, State};
use axum::response::Response;
use baton_engine::lock::{LockWatch, WatchKey, Watched};
use bytes::Bytes;
use std::sync::Arc;

/// Follow one lock.
///
/// Events are named `granted`, `released`, `expired`, `forced`; their data is a LockEvent, their id its fencing token.
/// `lost` says that some may be missing: look at the lock again.
#[utoipa::path(
    get, path = "/v1/locks/{lockKey}/watch", tag = "locks", operation_id = "watchLock",
    params(KeyParameter, NamespaceParameter),
    responses((status = 200, description = "Events as they happen", body = String, content_type = "text/event-stream"))
)]
pub async fn one(State(server): State<Arc<Shared>>, request: Request) -> Response {
    let (mut exchange, _body) = Exchange::begin(server, Route::Watch, request);
    exchange.waits = true;
    let outcome = exchange
        .lock()
        .and_then(|lock| follow(&exchange, lock.namespace(), WatchKey::Exactly(lock.key().into())));
    exchange.end(outcome)
}

/// Follow all locks of a namespace, or those whose keys begin with a prefix.
///
/// Events are as for one lock.
#[utoipa::path(
    get, path = "/v1/watch/locks", tag = "locks", operation_id = "watchLocks",
    params(NamespaceParameter, PrefixParameter),
    responses((status = 200, description = "Events as they happen", body = String, content_type = "text/event-stream"))
)]
pub async fn many(State(server): State<Arc<Shared>>, request: Request) -> Response {
    let (mut exchange, _body) = Exchange::begin(server, Route::WatchAll, request);
    exchange.waits = true;
    let outcome = Parameters::read(&exchange.uri, &["namespace", "prefix"]).and_then(|parameters| {
        let prefix = WatchKey::Prefix(parameters.prefix()?.into());
        follow(&exchange, parameters.namespace()?, prefix)
    });
    exchange.end(outcome)
}

fn follow(exchange: &Exchange, namespace: &str, key: WatchKey) -> Result<Response, Problem> {
    events::follow(exchange, || exchange.server.engine.watch_locks(namespace, &key))
}

impl Source for LockWatch {
    async fn next(&mut self) -> Option<Bytes> {
        Some(match LockWatch::next(self).await? {
            Watched::Lost => events::LOST,
            Watched::Event(event) => {
                let event = calls::event(event);
                events::event(event.event.as_str(), Some(event.fencing_token), &event)
            }
        })
    }
}
