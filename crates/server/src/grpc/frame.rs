//! gRPC around a message: five bytes before it, a status behind it.
//!
//! A unary call's body is read by the same bounds as every other; what is wrong with it is the caller's fault, and said to be. A stream's
//! messages are read one by one.

use crate::http::answer::Problem;
use crate::http::input;
use axum::body::Body;
use axum::response::Response;
use baton_api::{ErrorBody, ErrorCode};
use bytes::{Buf, BufMut, Bytes, BytesMut};
use http_body_util::{BodyExt, Full};
use hyper::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use prost::Message;
use std::convert::Infallible;
use std::time::Duration;

/// Bytes of a message. A proxy copies headers into it, each perhaps several times: sixteen descriptors with 60 KiB each, which is all that
/// Envoy takes of headers unless told otherwise, just fit. If a client could make a message too long, it could do so to get past its limits.
const MESSAGE_BYTES_MAX: usize = 1024 * 1024;
/// Bytes of a message of a stream: several thousand buckets' reports.
const STREAMED_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Whether it is compressed, and its length.
const PREFIX_BYTES: usize = 5;
const MEDIA_TYPE: &str = "application/grpc";

const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");
const GRPC_MESSAGE: HeaderName = HeaderName::from_static("grpc-message");
const GRPC_RETRY_PUSHBACK: HeaderName = HeaderName::from_static("grpc-retry-pushback-ms");

/// Whether a request says that it is one of gRPC, with messages that we can read.
pub(super) fn is_grpc(headers: &HeaderMap) -> bool {
    let media_type = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let kind = media_type.split(';').next().unwrap_or_default().trim();
    kind == MEDIA_TYPE || kind == "application/grpc+proto"
}

/// The one message of a request.
pub(super) async fn read<T: Message + Default>(body: Body, within: Duration) -> Result<T, Problem> {
    let bytes = input::body(body, PREFIX_BYTES + MESSAGE_BYTES_MAX, within).await?;
    decoded(message(&bytes)?)
}

fn decoded<T: Message + Default>(bytes: &[u8]) -> Result<T, Problem> {
    T::decode(bytes).map_err(|error| {
        Problem::invalid("message", input::quote(&format!("this isn't such a message: {error}")))
    })
}

fn compressed() -> Problem {
    let message = "compressed messages are not read here; send them as they are (grpc-encoding: identity)";
    ErrorBody::new(ErrorCode::NotFound, message).into()
}

fn message(bytes: &[u8]) -> Result<&[u8], Problem> {
    let Some((&[is_compressed, ref length @ ..], message)) = bytes.split_first_chunk::<PREFIX_BYTES>() else {
        return Err(Problem::invalid("message", "there is no message"));
    };
    if is_compressed != 0 {
        return Err(compressed());
    }
    if u32::from_be_bytes(*length) as usize != message.len() {
        return Err(Problem::invalid("message", "there must be one message, as long as it says"));
    }
    Ok(message)
}

/// A message, and that all is well.
pub(super) fn answer(message: &impl Message) -> Response {
    let Some(bytes) = encoded(message) else { return refusal(Problem::internal()) };
    let trailers = std::future::ready(Some(Ok::<_, Infallible>(trailers(None))));
    respond(Body::new(Full::new(bytes).with_trailers(trailers)))
}

/// A message with what gRPC puts before it; nothing if it can't be written.
pub(super) fn encoded(message: &impl Message) -> Option<Bytes> {
    let length = message.encoded_len();
    let mut bytes = BytesMut::with_capacity(PREFIX_BYTES + length);
    bytes.put_u8(0);
    bytes.put_u32(u32::try_from(length).ok()?);
    // A `BytesMut` grows, so there is always room.
    message.encode(&mut bytes).ok()?;
    Some(bytes.freeze())
}

/// The messages of a stream.
pub(super) struct Messages {
    body: Body,
    read: BytesMut,
}

impl Messages {
    pub fn new(body: Body) -> Self {
        Self { body, read: BytesMut::new() }
    }

    /// The next one; nothing when the client has said all, or has gone. May be dropped while it waits, and asked again.
    pub async fn next<T: Message + Default>(&mut self) -> Result<Option<T>, Problem> {
        loop {
            if let Some(bytes) = self.whole()? {
                return decoded(&bytes).map(Some);
            }
            let data = match self.body.frame().await {
                Some(Ok(frame)) => frame.into_data().unwrap_or_default(),
                Some(Err(_)) => return Ok(None),
                None if self.read.is_empty() => return Ok(None),
                None => return Err(Problem::invalid("message", "it ends before it is complete")),
            };
            self.read.extend_from_slice(&data);
        }
    }

    /// A message of which all was read.
    fn whole(&mut self) -> Result<Option<Bytes>, Problem> {
        let Some(&[is_compressed, ref length @ ..]) = self.read.first_chunk::<PREFIX_BYTES>() else {
            return Ok(None);
        };
        if is_compressed != 0 {
            return Err(compressed());
        }
        let length = u32::from_be_bytes(*length) as usize;
        if length > STREAMED_BYTES_MAX {
            let message = format!("a message has at most {STREAMED_BYTES_MAX} bytes");
            return Err(Problem::invalid("message", message));
        }
        if self.read.len() < PREFIX_BYTES + length {
            return Ok(None);
        }
        self.read.advance(PREFIX_BYTES);
        Ok(Some(self.read.split_to(length).freeze()))
    }
}

/// How a stream has ended.
pub(super) fn trailers(problem: Option<&Problem>) -> HeaderMap {
    let mut trailers = HeaderMap::new();
    match problem {
        None => drop(trailers.insert(GRPC_STATUS, HeaderValue::from(0))),
        Some(problem) => say(problem, &mut trailers),
    }
    trailers
}

/// Why there is no message.
pub(super) fn refusal(problem: Problem) -> Response {
    let mut response = respond(Body::from(Bytes::new()));
    say(&problem, response.headers_mut());
    response
}

fn say(problem: &Problem, headers: &mut HeaderMap) {
    let body = &problem.0;
    headers.insert(GRPC_STATUS, HeaderValue::from(status(body.error)));
    if let Ok(text) = HeaderValue::try_from(escaped(&format!("{}: {}", body.error, body.message))) {
        headers.insert(GRPC_MESSAGE, text);
    }
    if let Some(millis) = body.retry_after_millis {
        headers.insert(GRPC_RETRY_PUSHBACK, HeaderValue::from(millis));
    }
}

pub(super) fn respond(body: Body) -> Response {
    let mut response = Response::new(body);
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(MEDIA_TYPE));
    response
}

/// gRPC's numbers. Whatever can't be decided now is UNAVAILABLE, never UNKNOWN: it may be asked again, here or elsewhere.
fn status(code: ErrorCode) -> u16 {
    const INVALID_ARGUMENT: u16 = 3;
    const PERMISSION_DENIED: u16 = 7;
    const UNIMPLEMENTED: u16 = 12;
    const INTERNAL: u16 = 13;
    const UNAVAILABLE: u16 = 14;
    match code {
        ErrorCode::InvalidArgument => INVALID_ARGUMENT,
        ErrorCode::Forbidden => PERMISSION_DENIED,
        ErrorCode::NotFound => UNIMPLEMENTED,
        ErrorCode::Overloaded | ErrorCode::StoreFull | ErrorCode::StoreUnavailable => UNAVAILABLE,
        _ => INTERNAL,
    }
}

/// As gRPC writes text into a header.
fn escaped(text: &str) -> String {
    text.bytes().fold(String::with_capacity(text.len()), |mut escaped, byte| {
        match byte {
            b'%' => escaped.push_str("%25"),
            b' '..=b'~' => escaped.push(char::from(byte)),
            _ => escaped.push_str(&format!("%{byte:02X}")),
        }
        escaped
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(outcome: Result<&[u8], Problem>) -> ErrorCode {
        outcome.unwrap_err().0.error
    }

    #[test]
    fn a_message_is_as_long_as_its_prefix_says_and_not_compressed() {
        assert_eq!(message(&[0, 0, 0, 0, 2, 7, 8]).unwrap(), [7, 8]);
        assert_eq!(message(&[0, 0, 0, 0, 0]).unwrap(), [0; 0]);
        for bad in
            [&[][..], &[0, 0, 0, 0], &[0, 0, 0, 0, 2, 7], &[0, 0, 0, 0, 1, 7, 8], &[0, 255, 255, 255, 255]]
        {
            assert_eq!(code(message(bad)), ErrorCode::InvalidArgument, "{bad:?}");
        }
        assert_eq!(code(message(&[1, 0, 0, 0, 1, 7])), ErrorCode::NotFound);
    }

    #[test]
    fn only_a_bug_is_internal_and_what_may_be_asked_again_is_unavailable() {
        for (code, wanted) in [
            (ErrorCode::InvalidArgument, 3),
            (ErrorCode::Forbidden, 7),
            (ErrorCode::NotFound, 12),
            (ErrorCode::Internal, 13),
            (ErrorCode::StoreUnavailable, 14),
            (ErrorCode::StoreFull, 14),
            (ErrorCode::Overloaded, 14),
        ] {
            assert_eq!(status(code), wanted, "{code}");
        }
    }

    #[test]
    fn a_status_s_text_survives_in_a_header() {
        assert_eq!(escaped("50% of é\n"), "50%25 of %C3%A9%0A");
    }
}
