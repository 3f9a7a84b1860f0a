//! Server-sent events: what all streams of them have in common.

use super::answer::{Problem, stream};
use super::exchange::Exchange;
use crate::gate::{Class, Place};
use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use futures_util::stream::unfold;
use hyper::StatusCode;
use hyper::header::{CACHE_CONTROL, HeaderValue};
use std::convert::Infallible;
use std::time::Duration;
use tokio::sync::watch::Receiver;

/// A comment is sent when nothing else was for this long, so that a dead connection is noticed by both sides.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
const HELLO: Bytes = Bytes::from_static(b": watching\n\n");
const STILL_HERE: Bytes = Bytes::from_static(b":\n\n");
/// Some events are missing.
pub(super) const LOST: Bytes = Bytes::from_static(b"event: lost\ndata: {}\n\n");

/// Where events come from.
pub(super) trait Source: Send + 'static {
    /// The next event, as it is sent; nothing more when the store has gone. May be dropped while it waits.
    fn next(&mut self) -> impl Future<Output = Option<Bytes>> + Send;
}

/// Answers with a stream. Its first line is a comment: from then on the source listens.
pub(super) fn follow<S: Source>(exchange: &Exchange, open: impl FnOnce() -> S) -> Result<Response, Problem> {
    let place = exchange.enter(Class::Watching)?;
    let stopping = exchange.server.stopping.clone();
    let following = Following { source: open(), stopping, greeted: false, _place: place };
    let events = unfold(following, async |mut following| {
        let next = following.next().await?;
        Some((Ok::<_, Infallible>(next), following))
    });
    let mut response = stream(StatusCode::OK, "text/event-stream", Body::from_stream(events));
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    Ok(response)
}

/// An event of this name and id, with its data as JSON.
pub(super) fn event(name: &str, id: Option<u64>, data: &impl serde::Serialize) -> Bytes {
    let id = id.map(|id| format!("id: {id}\n")).unwrap_or_default();
    match serde_json::to_string(data) {
        Ok(data) => format!("event: {name}\n{id}data: {data}\n\n").into(),
        Err(_) => LOST,
    }
}

struct Following<S> {
    source: S,
    stopping: Receiver<bool>,
    greeted: bool,
    _place: Place,
}

impl<S: Source> Following<S> {
    /// What to send next; nothing more when the server stops.
    async fn next(&mut self) -> Option<Bytes> {
        if !self.greeted {
            self.greeted = true;
            return Some(HELLO);
        }
        tokio::select! {
            event = self.source.next() => event,
            () = tokio::time::sleep(KEEP_ALIVE) => Some(STILL_HERE),
            _ = self.stopping.wait_for(|stopping| *stopping) => None,
        }
    }
}
