//! How a check's outcome is shown to HTTP: the fields `RateLimit` and `RateLimit-Policy` (IETF draft 10), `Retry-After`, and
//! refusals in the form that was asked for.

use super::answer::{Problem, json, raw};
use super::exchange::Exchange;
use super::input::Parameters;
use axum::response::Response;
use baton_api::limit::LimitExceeded;
use baton_api::rate_limit::RateLimitFields;
use baton_engine::limit::{Answered, CheckCall, Checked, Source};
use hyper::StatusCode;
use hyper::header::{HeaderValue, RETRY_AFTER};
use serde_json::{Value, json as value};

/// By which policy a check was decided without the store.
const FALLBACK: &str = "baton-fallback";
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
    // So that nobody has to read the body to see that the store is away.
    if let Some(found) = answered.checks.iter().find(|found| found.source == Source::Fallback) {
        let policy = found.defined.definition.on_failure.as_str();
        response.headers_mut().insert(FALLBACK, HeaderValue::from_static(policy));
    }
    response
}

/// The fields that say so, of limits by their names.
pub(crate) fn fields<'a>(found: impl Iterator<Item = (&'a str, &'a Checked)>) -> [(&'static str, String); 2] {
    let mut fields = RateLimitFields::default();
    for (name, found) in found {
        let window_ms = found.defined.definition.window_ms;
        fields.push(name, found.capacity, Some(window_ms), found.remaining, found.reset_ms);
    }
    fields.into_fields()
}
