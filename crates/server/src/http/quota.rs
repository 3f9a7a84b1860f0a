//! How a check's outcome is shown to HTTP: the fields `RateLimit` and `RateLimit-Policy` (IETF draft 10), `Retry-After`, and
//! refusals in the form that was asked for.

use super::answer::{Problem, json, raw};
use super::exchange::Exchange;
use super::input::Parameters;
use axum::response::Response;
use baton_api::limit::LimitExceeded;
use baton_engine::limit::{Answered, CheckCall, Checked};
use hyper::StatusCode;
use hyper::header::{HeaderName, HeaderValue, RETRY_AFTER};
use serde_json::{Value, json as value};
use std::fmt::Write;

const RATE_LIMIT: HeaderName = HeaderName::from_static("ratelimit");
const RATE_LIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
const PROBLEM_JSON: &str = "application/problem+json";

/// With which status a refusal is answered: 429, or 403 for a proxy that understands nothing else.
pub(crate) fn refusal(parameters: &Parameters<'_>) -> Result<StatusCode, Problem> {
    match parameters.get("refusal") {
        None | Some("429") => Ok(StatusCode::TOO_MANY_REQUESTS),
        Some("403") => Ok(StatusCode::FORBIDDEN),
        Some(_) => Err(Problem::invalid("refusal", "refusal must be 429 or 403")),
    }
}

/// A refusal, as a problem document if that is what the caller reads.
pub(crate) fn refused(exchange: &Exchange, status: StatusCode, body: &LimitExceeded) -> Response {
    let mut response =
        if exchange.accepts(PROBLEM_JSON) { problem(status, body) } else { json(status, body) };
    if let Some(millis) = body.retry_after_millis {
        response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(millis.div_ceil(1000)));
    }
    response
}

fn problem(status: StatusCode, body: &LimitExceeded) -> Response {
    let mut document = serde_json::to_value(body).unwrap_or_default();
    if let Value::Object(members) = &mut document {
        let registered = "https://iana.org/assignments/http-problem-types#quota-exceeded";
        members.insert("type".into(), registered.into());
        members
            .insert("title".into(), "Request cannot be satisfied as assigned quota has been exceeded".into());
        members.insert("status".into(), status.as_u16().into());
        members.insert("detail".into(), body.message.clone().into());
        members.insert("violated-policies".into(), value!([body.name]));
    }
    raw(status, PROBLEM_JSON, document.to_string().into())
}

/// Says what the limits are and what is left of them.
pub(crate) fn describe(mut response: Response, calls: &[CheckCall], answered: &Answered) -> Response {
    let checks = answered.indices.iter().zip(&answered.checks);
    for (name, text) in fields(checks.map(|(index, found)| (calls[*index].limit.key(), found))) {
        if let Ok(text) = HeaderValue::try_from(text) {
            response.headers_mut().insert(name, text);
        }
    }
    response
}

/// The fields that say so, of limits by their names.
pub(crate) fn fields<'a>(found: impl Iterator<Item = (&'a str, &'a Checked)>) -> [(HeaderName, String); 2] {
    let (mut policies, mut limits) = (String::new(), String::new());
    for (name, found) in found {
        // Writing to a string doesn't fail.
        member(&mut policies, &mut limits, name, found).ok();
    }
    [(RATE_LIMIT_POLICY, policies), (RATE_LIMIT, limits)]
}

fn member(policies: &mut String, limits: &mut String, name: &str, found: &Checked) -> std::fmt::Result {
    if !policies.is_empty() {
        policies.push_str(", ");
        limits.push_str(", ");
    }
    quoted(policies, name);
    quoted(limits, name);
    let window_s = found.defined.definition.window_ms.div_ceil(1000);
    write!(policies, ";q={};w={window_s}", found.capacity)?;
    write!(limits, ";r={};t={}", found.remaining, found.reset_ms.div_ceil(1000))
}

/// A structured field's string: printable ASCII only, so that other characters are escaped as in a URL.
fn quoted(text: &mut String, name: &str) {
    text.push('"');
    for byte in name.bytes() {
        match byte {
            b'"' | b'\\' => text.extend(['\\', char::from(byte)]),
            b' '..=b'~' => text.push(char::from(byte)),
            _ => text.push_str(&format!("%{byte:02X}")),
        }
    }
    text.push('"');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_a_string_that_a_header_can_carry() {
        for (name, expected) in
            [("per-ip", "\"per-ip\""), ("a\"b\\c", "\"a\\\"b\\\\c\""), ("é", "\"%C3%A9\"")]
        {
            let mut text = String::new();
            quoted(&mut text, name);
            assert_eq!(text, expected);
            assert!(HeaderValue::try_from(text).is_ok());
        }
    }
}
