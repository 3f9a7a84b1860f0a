//! `/v1/batch`: several calls in one request, each answered by a line as it completes.
//!
//! A batch that can't be read is refused whole; a call whose values aren't allowed is answered by itself. All calls
//! run in the connection's own task, and what completes together is sent together.

use super::answer::{Problem, stream};
use super::exchange::Exchange;
use super::input::NAMESPACE_DEFAULT;
use super::{Shared, calls};
use crate::metrics::Route;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::Response;
use baton_api::batch::{Answer, BatchAnswer, BatchCall, BatchRequest, Call};
use baton_api::limits::{self, BATCH_BYTES_MAX, BATCH_CALLS};
use baton_core::lock::LockName;
use bytes::Bytes;
use futures_util::Stream;
use futures_util::stream::{FuturesUnordered, poll_fn};
use hyper::StatusCode;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;

/// What is sent at once, about: more waits for the socket.
const CHUNK_BYTES: usize = 32 * 1024;

/// Several lock calls in one request.
///
/// The answer is one JSON object a line, written as each call completes, in any order. Values that aren't allowed are
/// answered for their call alone, as an `error` line. Closing the connection takes what still waits out of its queues.
#[utoipa::path(
    post, path = "/v1/batch", tag = "locks", operation_id = "batch", request_body = BatchRequest,
    responses((status = 200, description = "A BatchAnswer a line", body = String, content_type = "application/x-ndjson"))
)]
pub async fn batch(State(server): State<Arc<Shared>>, request: Request) -> Response {
    let (mut exchange, body) = Exchange::begin(server, Route::Batch, request);
    exchange.waits = true;
    let outcome = begun(&exchange, body).await;
    exchange.end(outcome)
}

async fn begun(exchange: &Exchange, body: Body) -> Result<Response, Problem> {
    exchange.no_parameters()?;
    let request: BatchRequest = exchange.read(body, BATCH_BYTES_MAX).await?;
    let calls = request.calls;
    if !BATCH_CALLS.contains(&calls.len()) {
        let (min, max) = (BATCH_CALLS.start(), BATCH_CALLS.end());
        return Err(Problem::invalid(
            "calls",
            format!("calls must have {min} to {max} items, not {}", calls.len()),
        ));
    }
    let running: FuturesUnordered<_> =
        calls.into_iter().map(|call| answered(exchange.server.clone(), call)).collect();
    Ok(stream(StatusCode::OK, "application/x-ndjson", Body::from_stream(lines(running))))
}

async fn answered(server: Arc<Shared>, call: BatchCall) -> BatchAnswer {
    let id = call.id;
    let answer = made(&server, call).await.unwrap_or_else(|problem| Answer::Error(*problem.0));
    BatchAnswer { id, answer }
}

async fn made(server: &Shared, call: BatchCall) -> Result<Answer, Problem> {
    limits::check_key(&call.lock_key)?;
    let namespace = call.namespace.as_deref().unwrap_or(NAMESPACE_DEFAULT);
    limits::check_text("namespace", namespace, limits::NAMESPACE_BYTES)?;
    let lock = LockName::new(namespace, &call.lock_key);
    Ok(match call.call {
        Call::Acquire(request) => Answer::Acquire(calls::acquire(server, &lock, request).await?),
        Call::Renew(request) => Answer::Renew(calls::renew(server, &lock, request).await?),
        Call::Release(request) => Answer::Release(calls::release(server, &lock, request).await?),
    })
}

/// A chunk for whatever has completed since the last one. Calls that were committed together complete within moments of
/// each other: after the first, the others get one chance to share its chunk.
fn lines(
    mut running: FuturesUnordered<impl Future<Output = BatchAnswer>>,
) -> impl Stream<Item = Result<Bytes, Infallible>> {
    let mut chunk = Vec::new();
    let mut has_waited = false;
    poll_fn(move |cx| {
        let is_over = loop {
            if chunk.len() >= CHUNK_BYTES {
                break true;
            }
            match Pin::new(&mut running).poll_next(cx) {
                Poll::Ready(Some(answer)) => write_line(&mut chunk, &answer),
                Poll::Ready(None) => break true,
                Poll::Pending => break false,
            }
        };
        if chunk.is_empty() {
            return if is_over { Poll::Ready(None) } else { Poll::Pending };
        }
        if !is_over && !has_waited {
            has_waited = true;
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        has_waited = false;
        Poll::Ready(Some(Ok(std::mem::take(&mut chunk).into())))
    })
}

fn write_line(chunk: &mut Vec<u8>, answer: &BatchAnswer) {
    let start = chunk.len();
    if let Err(error) = serde_json::to_writer(&mut *chunk, answer) {
        tracing::error!(%error, "an answer can't be written as JSON");
        chunk.truncate(start);
        let internal = BatchAnswer { id: answer.id, answer: Answer::Error(*Problem::internal().0) };
        chunk.extend(serde_json::to_vec(&internal).unwrap_or_default());
    }
    chunk.push(b'\n');
}
