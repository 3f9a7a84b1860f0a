//! Baton over gRPC, where an ecosystem speaks it: Envoy's rate limit service and its rate limit quota service, v3.
//!
//! # Layout
//! - `rate_limit`: the service: one check for all of a request's descriptors
//! - `quota`: the other service: what a proxy may let pass by itself
//! - `descriptor`: which limit a descriptor means, and which key of it
//! - [`wire`], [`quota_wire`]: the messages
//! - `frame`: what gRPC puts around them
//!
//! It comes over HTTP/2, on the same port as everything else, and goes through the same gates, bounds and counters.

mod descriptor;
mod frame;
mod quota;
pub mod quota_wire;
mod rate_limit;
pub mod wire;

use crate::http::Shared;
use crate::http::answer::Problem;
use crate::http::exchange::Exchange;
use crate::http::input::NAMESPACE_DEFAULT;
use crate::metrics::Route;
use axum::body::Body;
use axum::extract::Request;
use axum::response::Response;
use baton_api::{ErrorBody, ErrorCode, limits};
use hyper::body::Incoming;
use hyper::header::HeaderValue;
use std::sync::Arc;

/// The metadata that names the namespace of the limits.
const NAMESPACE: &str = "baton-namespace";

/// Whose limits are meant.
fn namespace(said: Option<&HeaderValue>) -> Result<&str, Problem> {
    let namespace = match said.map(HeaderValue::to_str) {
        None => NAMESPACE_DEFAULT,
        Some(Ok(namespace)) => namespace,
        Some(Err(_)) => return Err(Problem::invalid(NAMESPACE, "a namespace in ASCII is needed here")),
    };
    limits::check_text(NAMESPACE, namespace, limits::NAMESPACE_BYTES)?;
    Ok(namespace)
}

/// Answers a request that came over HTTP/2.
pub(crate) async fn serve(server: Arc<Shared>, request: hyper::Request<Incoming>) -> Response {
    let request: Request = request.map(Body::new);
    if !frame::is_grpc(request.headers()) {
        let message = "over HTTP/2 only gRPC is served; everything else is, on the same port, over HTTP/1.1";
        return unknown(server, request, message, Problem::into_response);
    }
    if request.uri().path() == Route::ShouldRateLimit.template() {
        return rate_limit::should_rate_limit(server, request).await;
    }
    if request.uri().path() == Route::StreamRateLimitQuotas.template() {
        return quota::stream_quotas(server, request).await;
    }
    unknown(server, request, "there is no such method", frame::refusal)
}

fn unknown(server: Arc<Shared>, request: Request, message: &str, say: fn(Problem) -> Response) -> Response {
    let (exchange, _body) = Exchange::begin(server, Route::Unknown, request);
    exchange.end_as(Err(ErrorBody::new(ErrorCode::NotFound, message).into()), say)
}
