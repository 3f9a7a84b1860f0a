//! `/v1/batch`: several calls in one request, each answered by a line as it completes.
//!
//! A batch that can't be read is refused whole; a call whose values aren't allowed is answered by itself. All calls of a
//! batch run in one task, whether or not the client reads its answers: others may be waiting for what they do. What
//! completes together is sent together.

use super::answer::{Problem, stream as streamed};
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
use futures_util::stream::{self, FuturesUnordered};
use hyper::StatusCode;
use std::convert::Infallible;
use std::future::{poll_fn, ready};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::sync::mpsc;
use tokio::task::AbortHandle;

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
    let answers = Answers::run(running);
    Ok(streamed(StatusCode::OK, "application/x-ndjson", Body::from_stream(answers)))
}

/// The answers of a batch's task, which ends when they are dropped: what still waits then leaves its queues.
struct Answers {
    chunks: mpsc::Receiver<Bytes>,
    task: AbortHandle,
}

impl Answers {
    fn run(running: FuturesUnordered<impl Future<Output = BatchAnswer> + Send + 'static>) -> Self {
        // At most a chunk for each call: the task never waits for the client.
        let (sender, chunks) = mpsc::channel(running.len().max(1));
        let task = tokio::spawn(async move {
            let mut lines = pin!(lines(running));
            while let Some(chunk) = poll_fn(|cx| lines.as_mut().poll_next(cx)).await {
                if sender.send(chunk).await.is_err() {
                    return;
                }
            }
        });
        Self { chunks, task: task.abort_handle() }
    }
}

impl Stream for Answers {
    type Item = Result<Bytes, Infallible>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.chunks.poll_recv(cx).map(|chunk| chunk.map(Ok))
    }
}

impl Drop for Answers {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// One call of a batch. Each has a future of its own size: many wait for locks, and those are small.
type Answered = Pin<Box<dyn Future<Output = BatchAnswer> + Send>>;

fn answered(server: Arc<Shared>, call: BatchCall) -> Answered {
    let BatchCall { id, namespace, lock_key, call } = call;
    let lock = match lock(namespace.as_deref(), &lock_key) {
        Ok(lock) => lock,
        Err(problem) => return Box::pin(ready(line(id, Err(problem)))),
    };
    match call {
        Call::Acquire(request) => {
            // It is used up before the waiting begins, and would keep its room in the future.
            let request = Box::new(request);
            Box::pin(async move {
                let answer = match calls::acquire(&server, &lock, *request).map(Box::pin) {
                    Ok(acquired) => acquired.await,
                    Err(problem) => Err(problem),
                };
                line(id, answer.map(Answer::Acquire))
            })
        }
        Call::Renew(request) => {
            Box::pin(async move { line(id, calls::renew(&server, &lock, request).await.map(Answer::Renew)) })
        }
        Call::Release(request) => {
            Box::pin(
                async move { line(id, calls::release(&server, &lock, request).await.map(Answer::Release)) },
            )
        }
    }
}

fn lock(namespace: Option<&str>, key: &str) -> Result<LockName, Problem> {
    limits::check_key(key)?;
    let namespace = namespace.unwrap_or(NAMESPACE_DEFAULT);
    limits::check_text("namespace", namespace, limits::NAMESPACE_BYTES)?;
    Ok(LockName::new(namespace, key))
}

fn line(id: u32, answer: Result<Answer, Problem>) -> BatchAnswer {
    BatchAnswer { id, answer: answer.unwrap_or_else(|problem| Answer::Error(*problem.0)) }
}

/// A chunk for whatever has completed since the last one. Calls that were committed together complete within moments of
/// each other: after the first, the others get one chance to share its chunk.
fn lines(mut running: FuturesUnordered<impl Future<Output = BatchAnswer>>) -> impl Stream<Item = Bytes> {
    let mut chunk = Vec::new();
    let mut has_waited = false;
    stream::poll_fn(move |cx| {
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
        Poll::Ready(Some(std::mem::take(&mut chunk).into()))
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
