//! A client's socket: set up for short messages, and with words for requests that aren't HTTP.
//!
//! What can't be read as a request never reaches a handler: hyper answers it by itself, with a status and nothing
//! else. Here that answer gets the same body as every other refusal.

use baton_api::{ErrorBody, ErrorCode};
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::rt::TokioIo;
use rustix::net::sockopt;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::net::TcpStream;

/// A client that vanished without a word is noticed after about 30 s, and then leaves its queues.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(15);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(5);
const KEEPALIVE_PROBES: u32 = 3;

/// What hyper's own refusals say, and none of ours does.
const BARE: &[u8] = b"content-length: 0\r\n";

pub(crate) struct Socket {
    inner: TokioIo<TcpStream>,
    /// What is written instead of a bare refusal, and how much of it is still to go.
    instead: Vec<u8>,
    written: usize,
}

impl Socket {
    pub(crate) fn new(stream: TcpStream) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        sockopt::set_socket_keepalive(&stream, true)?;
        sockopt::set_tcp_keepidle(&stream, KEEPALIVE_IDLE)?;
        sockopt::set_tcp_keepintvl(&stream, KEEPALIVE_INTERVAL)?;
        sockopt::set_tcp_keepcnt(&stream, KEEPALIVE_PROBES)?;
        Ok(Self { inner: TokioIo::new(stream), instead: Vec::new(), written: 0 })
    }

    /// The stream, for a client that speaks something else than HTTP/1.1.
    pub(crate) fn into_stream(self) -> TcpStream {
        self.inner.into_inner()
    }
}

/// The refusal with a body, if this is one without.
fn with_body(bytes: &[u8]) -> Option<Vec<u8>> {
    if !(bytes.starts_with(b"HTTP/1.1 4") && bytes.ends_with(b"\r\n\r\n")) {
        return None;
    }
    let at = bytes.windows(BARE.len()).position(|window| window == BARE)?;
    let head = [&bytes[..at], &bytes[at + BARE.len()..bytes.len() - 2]].concat();
    let (field, message) = match &bytes[9..12] {
        b"414" => ("path", "the path is too long"),
        b"431" => ("headers", "the headers are too long or too many"),
        _ => ("request", "this can't be read as an HTTP/1.1 request"),
    };
    Some(complete(&head, &ErrorBody::invalid(field, message)))
}

fn complete(head: &[u8], body: &ErrorBody) -> Vec<u8> {
    let body = serde_json::to_vec(body).unwrap_or_default();
    let rest = format!("content-type: application/json\r\ncontent-length: {}\r\n\r\n", body.len());
    [head, rest.as_bytes(), &body].concat()
}

/// The whole answer to a connection that there is no room for.
pub(crate) fn no_room() -> Vec<u8> {
    let message = "too many connections at once; try again after retryAfterMillis";
    let body = ErrorBody { retry_after_millis: Some(1000), ..ErrorBody::new(ErrorCode::Overloaded, message) };
    complete(b"HTTP/1.1 503 Service Unavailable\r\nconnection: close\r\nretry-after: 1\r\n", &body)
}

impl Read for Socket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_read(cx, buf)
    }
}

impl Write for Socket {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let this = &mut *self;
        if this.instead.is_empty() {
            match with_body(buf) {
                Some(instead) => this.instead = instead,
                None => return Pin::new(&mut this.inner).poll_write(cx, buf),
            }
        }
        while this.written < this.instead.len() {
            let rest = &this.instead[this.written..];
            match ready!(Pin::new(&mut this.inner).poll_write(cx, rest))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                bytes => this.written += bytes,
            }
        }
        this.instead.clear();
        this.written = 0;
        Poll::Ready(Ok(buf.len()))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_refusal_without_a_body_gets_one() {
        let bare = b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\ndate: today\r\n\r\n";
        let full = String::from_utf8(with_body(bare).unwrap()).unwrap();
        let (head, body) = full.split_once("\r\n\r\n").unwrap();
        assert!(head.ends_with(&format!("content-length: {}", body.len())), "{head}");
        let body: ErrorBody = serde_json::from_str(body).unwrap();
        assert_eq!(body.field.as_deref(), Some("request"));
        assert!(with_body(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").is_none());
        assert!(with_body(&with_body(bare).unwrap()).is_none());
    }
}
