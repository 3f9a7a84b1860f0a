//! One request and its answer: counted, timed, and logged if it went wrong or was slow.

use super::Shared;
use super::answer::Problem;
use super::input::{self, Parameters};
use crate::gate::{Class, Place};
use crate::metrics::Route;
use crate::telemetry;
use axum::body::Body;
use axum::extract::Request;
use axum::response::Response;
use baton_api::{ErrorBody, ErrorCode};
use baton_core::Name;
use baton_core::lock::LockName;
use hyper::Uri;
use hyper::header::{ACCEPT, HOST, HeaderMap, HeaderValue, ORIGIN};
use serde::de::DeserializeOwned;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Slower than this, and not for waiting, is worth a line in the log.
const SLOW: Duration = Duration::from_secs(1);

/// A request under way. Dropped without [`Exchange::end`], its client went away.
pub(crate) struct Exchange {
    pub(crate) server: Arc<Shared>,
    pub(crate) uri: Uri,
    route: Route,
    started: Instant,
    /// What the caller calls it; given back in the answer.
    correlation: Option<HeaderValue>,
    traceparent: Option<HeaderValue>,
    /// The last event that a stream's client heard of.
    pub(crate) last_event_id: Option<HeaderValue>,
    /// What the caller reads.
    accept: Option<HeaderValue>,
    /// A browser says that another site's page sent it.
    cross_site: bool,
    /// It may wait by design: how long it takes says nothing.
    pub(crate) waits: bool,
    ended: bool,
}

impl Exchange {
    /// Takes from a request what is needed until its end, and leaves its body.
    pub(crate) fn begin(server: Arc<Shared>, route: Route, request: Request) -> (Self, Body) {
        let started = Instant::now();
        let (mut head, body) = request.into_parts();
        let correlation = head.headers.remove(telemetry::CORRELATION_ID).filter(telemetry::is_id);
        let traceparent = head.headers.remove("traceparent").filter(telemetry::is_id);
        let last_event_id = head.headers.remove("last-event-id");
        let accept = head.headers.remove(ACCEPT);
        let cross_site = is_cross_site(&head.headers);
        let exchange = Self {
            server,
            uri: head.uri,
            route,
            started,
            correlation,
            traceparent,
            last_event_id,
            accept,
            cross_site,
            waits: false,
            ended: false,
        };
        (exchange, body)
    }

    /// The lock that the path and the query name.
    pub(crate) fn lock(&self) -> Result<LockName, Problem> {
        let key = input::key(&self.uri)?;
        let parameters = Parameters::read(&self.uri, &["namespace"])?;
        Ok(LockName::new(parameters.namespace()?, &key))
    }

    /// The namespace that the query names, of a path that names nothing.
    pub(crate) fn namespace(&self) -> Result<String, Problem> {
        Ok(Parameters::read(&self.uri, &["namespace"])?.namespace()?.to_owned())
    }

    /// The election that the path and the query name.
    pub(crate) fn election(&self) -> Result<LockName, Problem> {
        let name = input::name(&self.uri, "name")?;
        let parameters = Parameters::read(&self.uri, &["namespace"])?;
        Ok(LockName::election(parameters.namespace()?, &name))
    }

    /// What the path and the query name; the path's part is called `field`.
    pub(crate) fn name(&self, field: &str) -> Result<Name, Problem> {
        self.name_and(field, &["namespace"]).map(|(name, _)| name)
    }

    /// The same, and the query, which has no other parameters than those known.
    pub(crate) fn name_and(
        &self,
        field: &str,
        known: &[&'static str],
    ) -> Result<(Name, Parameters<'_>), Problem> {
        let key = input::name(&self.uri, field)?;
        let parameters = Parameters::read(&self.uri, known)?;
        Ok((Name::new(parameters.namespace()?, &key), parameters))
    }

    /// Whether the caller asked for this media type by its name.
    pub(crate) fn accepts(&self, media_type: &str) -> bool {
        let accept = self.accept.as_ref().and_then(|accept| accept.to_str().ok()).unwrap_or_default();
        accept.split(',').any(|range| range.split(';').next().unwrap_or_default().trim() == media_type)
    }

    /// A page of another site may not change anything: any page in a browser on this machine can send to a loopback address.
    pub(crate) fn same_site(&self) -> Result<(), Problem> {
        if self.cross_site {
            let message =
                "a web page of another site may not change anything here; call without an Origin header";
            return Err(ErrorBody::new(ErrorCode::Forbidden, message).into());
        }
        Ok(())
    }

    /// The body, as a `T`. Whatever has a body changes something.
    pub(crate) async fn read<T: DeserializeOwned>(&self, body: Body, bytes_max: usize) -> Result<T, Problem> {
        self.same_site()?;
        input::parse(&input::body(body, bytes_max, self.server.body_within).await?)
    }

    /// A path without a query.
    pub(crate) fn no_parameters(&self) -> Result<(), Problem> {
        Parameters::read(&self.uri, &[]).map(drop)
    }

    /// A place among the calls of a class.
    pub(crate) fn enter(&self, class: Class) -> Result<Place, Problem> {
        self.server.enter(class)
    }

    /// Turns the outcome into the answer.
    pub(crate) fn end(self, outcome: Result<Response, Problem>) -> Response {
        self.end_as(outcome, Problem::into_response)
    }

    /// The same where a problem is said in another way. It is counted as what it is, whatever status that travels with.
    pub(crate) fn end_as(
        mut self,
        outcome: Result<Response, Problem>,
        say: impl FnOnce(Problem) -> Response,
    ) -> Response {
        self.ended = true;
        let latency = self.started.elapsed();
        let code = outcome.as_ref().err().map(|problem| problem.0.error);
        let status = match &outcome {
            Ok(response) => response.status(),
            Err(problem) => problem.status(),
        };
        let mut response = outcome.unwrap_or_else(say);
        self.server.metrics.ended(self.route, Some(status));
        if !self.waits {
            self.server.metrics.took(self.route, latency);
        }
        if status.is_server_error() || (latency > SLOW && !self.waits) {
            self.log(code, status.as_u16(), latency);
        }
        if let Some(id) = self.correlation.take() {
            response.headers_mut().insert(telemetry::CORRELATION_ID, id);
        }
        response
    }

    #[cold]
    fn log(&self, code: Option<ErrorCode>, status: u16, latency: Duration) {
        let correlation = telemetry::correlation(self.correlation.as_ref(), self.traceparent.as_ref());
        let parameters = Parameters::of_list(&self.uri);
        let namespace = parameters.as_ref().ok().and_then(|found| found.namespace().ok()).unwrap_or_default();
        let (route, error) = (self.route.template(), code.map_or("", ErrorCode::as_str));
        let latency_ms = latency.as_secs_f64() * 1000.0;
        if code == Some(ErrorCode::Internal) {
            tracing::error!(
                correlationId = correlation,
                namespace,
                latencyMs = latency_ms,
                route,
                status,
                error,
                "a call failed"
            );
        } else if status >= 500 {
            tracing::warn!(
                correlationId = correlation,
                namespace,
                latencyMs = latency_ms,
                route,
                status,
                error,
                "a call was refused"
            );
        } else {
            tracing::warn!(
                correlationId = correlation,
                namespace,
                latencyMs = latency_ms,
                route,
                status,
                error,
                "a call was slow"
            );
        }
    }
}

/// Programs send no Origin; a browser sends the page's, which is ours only if it names the host that is called.
fn is_cross_site(headers: &HeaderMap) -> bool {
    let Some(origin) = headers.get(ORIGIN) else { return false };
    let site = origin.to_str().ok().and_then(|origin| origin.split_once("://")).map(|(_, site)| site);
    let host = headers.get(HOST).and_then(|host| host.to_str().ok());
    site.is_none() || site != host
}

impl Drop for Exchange {
    fn drop(&mut self) {
        if !self.ended {
            self.server.metrics.ended(self.route, None);
        }
    }
}
