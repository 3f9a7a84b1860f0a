//! What came in: the key in the path, the parameters behind it, the body. Whatever is wrong with them is answered
//! with the field at fault, before anything is done.

use super::answer::Problem;
use super::whole;
use axum::body::{Body, HttpBody};
use baton_api::limits;
use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use hyper::Uri;
use serde::de::DeserializeOwned;
use std::borrow::Cow;
use std::future::poll_fn;
use std::task::Poll;
use std::time::Duration;

/// The namespace of calls that don't name one.
pub(crate) const NAMESPACE_DEFAULT: &str = "default";
/// Of a body that is too long, this much more than is allowed is read and dropped, so that the client gets to see the
/// answer.
const DISCARD_BYTES_MAX: u64 = 1024 * 1024;
/// Entries on a page of a list, if nothing is said.
const LIST_LIMIT_DEFAULT: u64 = 100;
/// Bytes of a cursor; the real ones are shorter.
const CURSOR_BYTES_MAX: usize = 4096;
/// What a message may quote of a request.
const QUOTE_CHARS_MAX: usize = 200;

/// The lock key: the third segment of the path, decoded exactly once.
pub(crate) fn key(uri: &Uri) -> Result<Cow<'_, str>, Problem> {
    name(uri, "lockKey")
}

/// What the path names, as its third segment: the description calls it `field`.
pub(crate) fn name<'a>(uri: &'a Uri, field: &str) -> Result<Cow<'a, str>, Problem> {
    let segment = uri.path().split('/').nth(3).unwrap_or_default();
    let name = decode(segment, false).map_err(|why| Problem::invalid(field, format!("{field} {why}")))?;
    limits::check_name(field, &name)?;
    Ok(name)
}

/// The parameters of a query, all of them known, none twice.
#[derive(Debug)]
pub(crate) struct Parameters<'a>(Vec<(&'static str, Cow<'a, str>)>);

impl<'a> Parameters<'a> {
    pub(crate) fn read(uri: &'a Uri, known: &[&'static str]) -> Result<Self, Problem> {
        let mut found = Vec::new();
        for pair in uri.query().unwrap_or_default().split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let name =
                decode(name, true).map_err(|why| Problem::invalid("query", format!("a name {why}")))?;
            let Some(name) = known.iter().find(|known| **known == name).copied() else {
                let message = format!("unknown query parameter; known here: {}", known.join(", "));
                let name = quote(&name);
                return Err(Problem::invalid(if name.is_empty() { "query" } else { &name }, message));
            };
            if found.iter().any(|(other, _)| *other == name) {
                return Err(Problem::invalid(name, format!("{name} is given twice")));
            }
            let value = decode(value, true).map_err(|why| Problem::invalid(name, format!("{name} {why}")))?;
            found.push((name, value));
        }
        Ok(Self(found))
    }

    /// Those that every list has.
    pub(crate) fn of_list(uri: &'a Uri) -> Result<Self, Problem> {
        Self::read(uri, &["namespace", "prefix", "limit", "cursor"])
    }

    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(found, _)| *found == name).map(|(_, value)| value.as_ref())
    }

    pub(crate) fn namespace(&self) -> Result<&str, Problem> {
        let namespace = self.get("namespace").unwrap_or(NAMESPACE_DEFAULT);
        limits::check_text("namespace", namespace, limits::NAMESPACE_BYTES)?;
        Ok(namespace)
    }

    pub(crate) fn prefix(&self) -> Result<&str, Problem> {
        let prefix = self.get("prefix").unwrap_or_default();
        limits::check_text("prefix", prefix, 0..=*limits::KEY_BYTES.end())?;
        Ok(prefix)
    }

    /// Which of a namespace's, how many of them, and from where on.
    pub(crate) fn list(&self) -> Result<(&str, &str, usize, Option<&str>), Problem> {
        let (namespace, prefix) = (self.namespace()?, self.prefix()?);
        let (limit, cursor) = self.page()?;
        Ok((namespace, prefix, limit, cursor))
    }

    /// How many of a list, and from where on.
    pub(crate) fn page(&self) -> Result<(usize, Option<&str>), Problem> {
        let limit = self.number("limit", LIST_LIMIT_DEFAULT, limits::LIST_LIMIT)? as usize;
        let cursor = self.get("cursor");
        if let Some(cursor) = cursor {
            limits::check_text("cursor", cursor, 1..=CURSOR_BYTES_MAX)?;
        }
        Ok((limit, cursor))
    }

    pub(crate) fn number(
        &self,
        name: &'static str,
        default: u64,
        range: std::ops::RangeInclusive<u64>,
    ) -> Result<u64, Problem> {
        let Some(text) = self.get(name) else { return Ok(default) };
        let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        let number = if digits {
            text.parse().unwrap_or(u64::MAX)
        } else {
            return Err(Problem::invalid(name, format!("{name} must be a whole number")));
        };
        limits::check_number(name, number, range)?;
        Ok(number)
    }
}

/// Percent-decoded, once. What isn't an escape, or isn't UTF-8 afterwards, is refused.
fn decode(text: &str, plus_is_space: bool) -> Result<Cow<'_, str>, &'static str> {
    if !text.bytes().any(|byte| byte == b'%' || (plus_is_space && byte == b'+')) {
        return Ok(Cow::Borrowed(text));
    }
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, after)) = rest.split_first() {
        rest = after;
        match first {
            b'%' => {
                let digit = |at: usize| after.get(at).and_then(|byte| char::from(*byte).to_digit(16));
                let (Some(high), Some(low)) = (digit(0), digit(1)) else {
                    return Err("has a % that isn't followed by two hexadecimal digits");
                };
                bytes.push((high * 16 + low) as u8);
                rest = &after[2..];
            }
            b'+' if plus_is_space => bytes.push(b' '),
            byte => bytes.push(byte),
        }
    }
    String::from_utf8(bytes).map(Cow::Owned).map_err(|_| "isn't UTF-8 once its percent-encoding is undone")
}

/// The whole body, if it isn't longer than allowed and arrives in time.
pub(crate) async fn body(mut body: Body, bytes_max: usize, within: Duration) -> Result<Bytes, Problem> {
    let too_long = || Problem::invalid("body", format!("the body must have at most {bytes_max} bytes"));
    if body.size_hint().lower() > bytes_max as u64 {
        discard(body, bytes_max, within).await;
        return Err(too_long());
    }
    let mut whole = std::pin::pin!(async move {
        let mut all = BytesMut::new();
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|_| Problem::invalid("body", "the body ended before its time"))?;
            if let Ok(data) = frame.into_data() {
                if all.len() + data.len() > bytes_max {
                    discard(body, bytes_max, within).await;
                    return Err(too_long());
                }
                if all.is_empty() && body.is_end_stream() {
                    return Ok(data);
                }
                all.extend_from_slice(&data);
            }
        }
        Ok(all.freeze())
    });
    // Mostly it is there already: then no timer is set.
    if let Poll::Ready(done) = poll_fn(|cx| Poll::Ready(whole.as_mut().poll(cx))).await {
        return done;
    }
    match tokio::time::timeout(within, whole).await {
        Ok(done) => done,
        Err(_) => {
            Err(Problem::invalid("body", format!("the body must arrive within {} s", within.as_secs())))
        }
    }
}

/// Closing a socket with unread bytes in it would take the answer away from the client.
async fn discard(mut body: Body, bytes_max: usize, within: Duration) {
    let mut left = bytes_max as u64 + DISCARD_BYTES_MAX;
    if body.size_hint().lower() > left {
        return;
    }
    let discarded = tokio::time::timeout(within.min(Duration::from_secs(1)), async {
        while let Some(Ok(frame)) = body.frame().await {
            left = left.saturating_sub(frame.data_ref().map_or(0, |data| data.len() as u64));
            if left == 0 {
                break;
            }
        }
    });
    drop(discarded.await);
}

/// JSON as a `T`: all of it, every field known and none twice.
pub(crate) fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Problem> {
    // What reads objects would take a list of their fields' values for one.
    if bytes.trim_ascii_start().first() == Some(&b'[') {
        return Err(Problem::invalid("body", "the body is a list; it must be a JSON object"));
    }
    // Only what fails is read again, to find out whether it can be helped, and if not, where it is wrong.
    serde_json::from_slice(bytes).or_else(|error| {
        let helped = whole::numbers(bytes).and_then(|text| serde_json::from_slice(&text).ok());
        helped.ok_or_else(|| at_fault::<T>(bytes, &error))
    })
}

fn at_fault<T: DeserializeOwned>(bytes: &[u8], error: &serde_json::Error) -> Problem {
    if bytes.is_empty() {
        return Problem::invalid("body", "the body is empty; it must be a JSON object");
    }
    let mut reader = serde_json::Deserializer::from_slice(bytes);
    let found = serde_path_to_error::deserialize::<_, T>(&mut reader);
    let (path, message) = match found {
        Err(found) => (found.path().to_string(), found.inner().to_string()),
        Ok(_) => (String::new(), error.to_string()),
    };
    let path = if path == "." { "" } else { path.as_str() };
    Problem::invalid(quote(&field(path, &message)), quote(&message))
}

/// The field that a message is about: what serde quotes if it is a name, else where it stopped.
fn field(path: &str, message: &str) -> String {
    let quoted = ["unknown field `", "missing field `", "duplicate field `"]
        .iter()
        .find_map(|start| message.strip_prefix(start))
        .and_then(|rest| rest.split('`').next());
    let found = match quoted {
        Some(name) if path.is_empty() || path == name => name.into(),
        Some(name) if path.ends_with(&format!(".{name}")) => path.into(),
        Some(name) => format!("{path}.{name}"),
        // A "?" is where the path isn't known.
        None => path.trim_end_matches(['?', '.']).to_owned(),
    };
    if found.is_empty() { "body".into() } else { found }
}

/// At most so much, and without control characters, so that it can be shown.
pub(crate) fn quote(text: &str) -> String {
    text.chars().filter(|char| !char.is_control()).take(QUOTE_CHARS_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use baton_api::batch::BatchRequest;
    use baton_api::lock::AcquireRequest;

    fn uri(text: &str) -> Uri {
        text.parse().unwrap()
    }

    #[test]
    fn a_key_is_one_segment_decoded_once() {
        for (path, wanted) in [
            ("/v1/locks/a", "a"),
            ("/v1/locks/a%2Fb/acquire", "a/b"),
            ("/v1/locks/a%252Fb/acquire", "a%2Fb"),
            ("/v1/locks/a+b", "a+b"),
            ("/v1/locks/%D0%BA", "к"),
            ("/v1/locks/watch", "watch"),
        ] {
            assert_eq!(key(&uri(path)).unwrap(), wanted, "{path}");
        }
        for path in [
            "/v1/locks/%",
            "/v1/locks/%4",
            "/v1/locks/%zz",
            "/v1/locks/%ff",
            "/v1/locks/%2e%2e",
            "/v1/locks/a%00",
        ] {
            let problem = key(&uri(path)).unwrap_err();
            assert_eq!(problem.0.field.as_deref(), Some("lockKey"), "{path}");
        }
    }

    #[test]
    fn parameters_that_nobody_reads_are_refused() {
        let known = ["namespace", "limit"];
        let at = uri("/v1/locks?namespace=a+b%2B&limit=7");
        let parameters = Parameters::read(&at, &known).unwrap();
        assert_eq!(parameters.namespace().unwrap(), "a b+");
        assert_eq!(parameters.number("limit", 1, 1..=9).unwrap(), 7);
        for (query, field) in [
            ("nonsense=1", "nonsense"),
            ("limit=1&limit=1", "limit"),
            ("namespace=%zz", "namespace"),
            ("%zz", "query"),
        ] {
            let at = uri(&format!("/v1/locks?{query}"));
            let problem = Parameters::read(&at, &known).unwrap_err();
            assert_eq!(problem.0.field.as_deref(), Some(field), "{query}");
        }
        for text in ["", "-1", "%2B1", "1.0", "0", "10", "99999999999999999999999"] {
            let at = uri(&format!("/v1/locks?limit={text}"));
            let problem = Parameters::read(&at, &known).unwrap().number("limit", 1, 1..=9).unwrap_err();
            assert_eq!(problem.0.field.as_deref(), Some("limit"), "{text}");
        }
    }

    #[test]
    fn a_body_that_cannot_be_read_names_its_field() {
        for (body, field) in [
            ("", "body"),
            ("nonsense", "body"),
            ("[]", "body"),
            (r#" ["a",1000]"#, "body"),
            ("null", "body"),
            ("{", "body"),
            ("{}", "ownerId"),
            (r#"{"ownerId":"a"}"#, "ttlMillis"),
            (r#"{"ownerId":1,"ttlMillis":1000}"#, "ownerId"),
            (r#"{"ownerId":"a","ttlMillis":-1}"#, "ttlMillis"),
            (r#"{"ownerId":"a","ttlMillis":1.5}"#, "ttlMillis"),
            (r#"{"ownerId":"a","ttlMillis":1000,"lockDelaySeconds":0}"#, "lockDelaySeconds"),
            (r#"{"ownerId":"a","ttlMillis":1000,"ownerId":"b"}"#, "ownerId"),
            (r#"{"ownerId":"a","ttlMillis":1000,"metadata":[]}"#, "metadata"),
            (r#"{"ownerId":"a","ttlMillis":1000} x"#, "body"),
        ] {
            let problem = parse::<AcquireRequest>(body.as_bytes()).unwrap_err();
            assert_eq!(problem.0.field.as_deref(), Some(field), "{body}: {problem:?}");
        }
        assert!(parse::<AcquireRequest>(br#"{"ownerId":"a","ttlMillis":1000,"requestId":null}"#).is_ok());
        let parsed: AcquireRequest = parse(br#"{"ownerId":"1.0","ttlMillis":1000.0}"#).unwrap();
        assert_eq!((parsed.owner_id.as_str(), parsed.ttl_millis), ("1.0", 1000));
    }

    #[test]
    fn a_fault_inside_a_batch_is_named_with_its_place() {
        for (call, field) in [
            (r#"{"acquire":{"ownerId":"a"}}"#, "calls[0].call.acquire.ttlMillis"),
            (r#"{"acquire":{"ownerId":"a","ttlMillis":"x"}}"#, "calls[0].call.acquire.ttlMillis"),
            (r#"{"acquire":{"ownerId":"a","ttlMillis":1,"x":1}}"#, "calls[0].call.acquire.x"),
        ] {
            let body = format!(r#"{{"calls":[{{"id":1,"lockKey":"k","call":{call}}}]}}"#);
            let problem = parse::<BatchRequest>(body.as_bytes()).err().unwrap();
            assert_eq!(problem.0.field.as_deref(), Some(field), "{call}: {problem:?}");
        }
    }
}
