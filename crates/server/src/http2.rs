//! Connections that begin as HTTP/2 does: for gRPC, on the same port as HTTP/1.1.
//!
//! Such a connection carries many calls at a time, so it needs bounds that one call at a time doesn't.

use crate::config::Config;
use crate::grpc;
use crate::http::Shared;
use bytes::Bytes;
use hyper::body::Incoming;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use std::convert::Infallible;
use std::io::Cursor;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio::sync::watch;

/// Calls at a time on one connection, as many as Envoy has under way by default. Who has more waits, or makes another connection.
const STREAMS_MAX: u32 = 1_024;
/// Bytes of a request's headers; longer ones are refused, or end the connection.
const HEADER_BYTES_MAX: u32 = 64 * 1024;
/// A client that vanished is noticed after 30 s, as it is on every other connection.
const KEEPALIVE: Duration = Duration::from_secs(15);

/// Tells a connection that something came on it: a stream that is in use keeps it open.
#[derive(Clone)]
pub(crate) struct Heard(Arc<AtomicBool>);

impl Heard {
    pub(crate) fn note(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// How such connections are served.
pub(crate) struct Http2 {
    builder: http2::Builder<TokioExecutor>,
    idle: Duration,
    drain: Duration,
}

impl Http2 {
    pub(crate) fn new(config: &Config) -> Self {
        let mut builder = http2::Builder::new(TokioExecutor::new());
        builder
            .timer(TokioTimer::new())
            .max_concurrent_streams(STREAMS_MAX)
            .max_header_list_size(HEADER_BYTES_MAX)
            // A proxy gives up on what takes it too long, perhaps on all of it at once. Beyond this the connection is ended: a client that
            // only ever gives up is none that wants to know.
            .max_pending_accept_reset_streams(STREAMS_MAX as usize)
            .keep_alive_interval(KEEPALIVE)
            .keep_alive_timeout(KEEPALIVE);
        Self { builder, idle: config.idle, drain: config.drain }
    }

    /// Serves a connection of which `read` was read, until it ends, is idle, or the server stops.
    pub(crate) async fn serve(
        &self,
        (stream, read): (TcpStream, Bytes),
        server: Arc<Shared>,
        mut stopping: watch::Receiver<bool>,
        mut aborted: watch::Receiver<()>,
    ) {
        let (reading, writing) = stream.into_split();
        let stream = tokio::io::join(Cursor::new(read).chain(reading), writing);
        let heard = Arc::new(AtomicBool::new(true));
        let answer = {
            let heard = heard.clone();
            move |mut request: hyper::Request<Incoming>| {
                heard.store(true, Ordering::Relaxed);
                request.extensions_mut().insert(Heard(heard.clone()));
                let server = server.clone();
                async move { Ok::<_, Infallible>(grpc::serve(server, request).await) }
            }
        };
        let mut connection = pin!(self.builder.serve_connection(TokioIo::new(stream), service_fn(answer)));
        let mut looks = tokio::time::interval(self.idle);
        loop {
            tokio::select! {
                biased;
                _ = connection.as_mut() => return,
                _ = stopping.wait_for(|stopping| *stopping) => break,
                _ = looks.tick() => {
                    // No call since the last look: between one and two times as long as may be. One under way is still answered.
                    if !heard.swap(false, Ordering::Relaxed) {
                        break;
                    }
                }
            }
        }
        connection.as_mut().graceful_shutdown();
        tokio::select! {
            biased;
            ended = tokio::time::timeout(self.drain, connection) => drop(ended),
            _ = aborted.changed() => {}
        }
    }
}
