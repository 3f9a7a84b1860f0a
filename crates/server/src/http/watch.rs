//! Following a lock, or all whose keys begin alike: server-sent events (L12).
//!
//! The first thing sent is a comment: from then on nothing is missed without an `event: lost` saying so.

use super::Shared;
use super::answer::{Problem, stream};
use super::calls;
use super::exchange::Exchange;
use super::input::Parameters;
use super::openapi::{KeyParameter, NamespaceParameter, PrefixParameter};
use crate::gate::{Class, Place};
use crate::metrics::Route;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::Response;
use baton_engine::lock::{LockWatch, WatchKey, Watched};
use bytes::Bytes;
use futures_util::stream::unfold;
use hyper::StatusCode;
use hyper::header::{CACHE_CONTROL, HeaderValue};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch::Receiver;

/// A comment is sent when nothing else was for this long, so that a dead connection is noticed by both sides.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
const HELLO: Bytes = Bytes::from_static(b": watching\n\n");
const STILL_HERE: Bytes = Bytes::from_static(b":\n\n");
const LOST: Bytes = Bytes::from_static(b"event: lost\ndata: {}\n\n");

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
    let place = exchange.enter(Class::Watching)?;
    let watch = exchange.server.engine.watch_locks(namespace, &key);
    let following =
        Following { watch, stopping: exchange.server.stopping.clone(), greeted: false, _place: place };
    let events = unfold(following, async |mut following| {
        let next = following.next().await?;
        Some((Ok::<_, Infallible>(next), following))
    });
    let mut response = stream(StatusCode::OK, "text/event-stream", Body::from_stream(events));
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    Ok(response)
}

struct Following {
    watch: LockWatch,
    stopping: Receiver<bool>,
    greeted: bool,
    _place: Place,
}

impl Following {
    /// What to send next; nothing more when the server stops.
    async fn next(&mut self) -> Option<Bytes> {
        if !self.greeted {
            self.greeted = true;
            return Some(HELLO);
        }
        tokio::select! {
            watched = self.watch.next() => watched.map(event),
            () = tokio::time::sleep(KEEP_ALIVE) => Some(STILL_HERE),
            _ = self.stopping.wait_for(|stopping| *stopping) => None,
        }
    }
}

fn event(watched: Watched) -> Bytes {
    match watched {
        Watched::Lost => LOST,
        Watched::Event(event) => {
            let event = calls::event(event);
            let name = event.event.as_str();
            match serde_json::to_string(&event) {
                Ok(data) => format!("event: {name}\nid: {}\ndata: {data}\n\n", event.fencing_token).into(),
                Err(_) => LOST,
            }
        }
    }
}
