//! Routes that a key may use only so often.

use crate::limit::{Allowed, Checked, Refused};
use crate::limiter::Limiter;
use baton_api::rate_limit::RateLimitFields;
use hyper::header::{CONTENT_TYPE, HeaderValue, RETRY_AFTER};
use hyper::http::request::Parts;
use hyper::{HeaderMap, Request, Response, StatusCode};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tower_layer::Layer;
use tower_service::Service;

/// When to come back if nobody could say whether to go on.
const UNKNOWN_RETRY: Duration = Duration::from_secs(1);

/// Lets a request through if its key may go on, and answers 429 otherwise.
///
/// The key is what `key` makes of a request: an account, an API key's id, an address. A request for which it gives `None` isn't
/// limited. Every answer has the fields `RateLimit` and `RateLimit-Policy` (IETF draft 10), a refusal also `Retry-After` and a
/// problem document as its body. A place in flight is kept until the handler has made its response.
///
/// If nobody can say (Baton is away, and the limit's own policy couldn't help), the answer is 503: see [`admit_if_unknown`](Self::admit_if_unknown).
///
/// Layers on top of each other are checks one after the other: what the outer one counted stays counted if the inner one refuses. Where
/// that matters, use [`Baton::check_all`](crate::Baton::check_all) in the handler.
///
/// ```no_run
/// # use baton_client::Baton;
/// # use baton_client::tower::Limited;
/// # use hyper::{Request, Response};
/// # use tower::{ServiceBuilder, service_fn};
/// # async fn example(baton: Baton) {
/// let by_account = Limited::new(baton.limiter("api"), |request| {
///     Some(request.headers.get("x-account")?.to_str().ok()?.to_owned())
/// });
/// let orders = service_fn(async |_: Request<String>| Ok::<_, std::convert::Infallible>(Response::new(String::new())));
/// let route = ServiceBuilder::new().layer(by_account).service(orders);
/// # let _ = route;
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Limited<K> {
    limiter: Limiter,
    key: K,
    cost: u64,
    admit_if_unknown: bool,
}

impl<K: Fn(&Parts) -> Option<String>> Limited<K> {
    /// A layer that asks `limiter` at each request, for the key that `key` finds in it.
    pub fn new(limiter: Limiter, key: K) -> Self {
        Self { limiter, key, cost: 1, admit_if_unknown: false }
    }

    /// How much each request uses; 1 if nothing is said.
    pub fn cost(mut self, cost: u64) -> Self {
        self.cost = cost;
        self
    }

    /// Lets requests through, uncounted, when nobody can say whether they may: for limits that keep a service polite, not for those
    /// that protect it.
    pub fn admit_if_unknown(mut self) -> Self {
        self.admit_if_unknown = true;
        self
    }
}

impl<K: Clone, S> Layer<S> for Limited<K> {
    type Service = LimitedService<K, S>;

    fn layer(&self, inner: S) -> Self::Service {
        LimitedService { limited: self.clone(), inner }
    }
}

/// A service behind [`Limited`].
#[derive(Clone, Debug)]
pub struct LimitedService<K, S> {
    limited: Limited<K>,
    inner: S,
}

impl<K, S, Body, Answer> Service<Request<Body>> for LimitedService<K, S>
where
    K: Fn(&Parts) -> Option<String>,
    S: Service<Request<Body>, Response = Response<Answer>> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: 'static,
    Body: Send + 'static,
    Answer: From<String> + 'static,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<S::Response, S::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let (parts, body) = request.into_parts();
        let key = (self.limited.key)(&parts);
        let request = Request::from_parts(parts, body);
        // The one that said it was ready is the one that is called.
        let clone = self.inner.clone();
        let mut inner = std::mem::replace(&mut self.inner, clone);
        let Some(key) = key else {
            return Box::pin(async move { inner.call(request).await });
        };
        let (limiter, cost) = (self.limited.limiter.clone(), self.limited.cost);
        let admit_if_unknown = self.limited.admit_if_unknown;
        Box::pin(async move {
            match limiter.check(&key, cost).await {
                Ok(Checked::Allowed(allowed)) => {
                    let mut response = inner.call(request).await?;
                    describe_allowed(response.headers_mut(), limiter.name(), &allowed);
                    Ok(response)
                }
                Ok(Checked::Refused(refused)) => Ok(refusal(&refused)),
                Err(_) if admit_if_unknown => inner.call(request).await,
                Err(_) => Ok(unknown()),
            }
        })
    }
}

fn describe_allowed(headers: &mut HeaderMap, name: &str, allowed: &Allowed) {
    describe(headers, name, allowed.limit, allowed.remaining, allowed.reset);
}

/// The fields are lists: a layer adds its member to what others have said.
fn describe(headers: &mut HeaderMap, name: &str, limit: u64, remaining: u64, reset: Duration) {
    let mut fields = RateLimitFields::default();
    fields.push(name, limit, None, remaining, reset.as_millis() as u64);
    for (name, text) in fields.into_fields() {
        if let Ok(text) = HeaderValue::try_from(text) {
            headers.append(name, text);
        }
    }
}

fn refusal<Answer: From<String>>(refused: &Refused) -> Response<Answer> {
    let status = StatusCode::TOO_MANY_REQUESTS;
    let mut response = problem(status, refused.retry_after, {
        // Without the key: it may be something that only the server should know.
        serde_json::json!({
            "type": "https://iana.org/assignments/http-problem-types#quota-exceeded",
            "title": "Request cannot be satisfied as assigned quota has been exceeded",
            "status": status.as_u16(),
            "violated-policies": [refused.name],
        })
    });
    describe(response.headers_mut(), &refused.name, refused.limit, refused.remaining, refused.reset);
    response
}

fn unknown<Answer: From<String>>() -> Response<Answer> {
    let status = StatusCode::SERVICE_UNAVAILABLE;
    let body = serde_json::json!({ "title": "It is not known whether a limit allows this", "status": status.as_u16() });
    problem(status, Some(UNKNOWN_RETRY), body)
}

fn problem<Answer: From<String>>(
    status: StatusCode,
    retry_after: Option<Duration>,
    body: serde_json::Value,
) -> Response<Answer> {
    let mut response = Response::new(Answer::from(body.to_string()));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
    if let Some(retry_after) = retry_after {
        headers.insert(RETRY_AFTER, HeaderValue::from((retry_after.as_millis() as u64).div_ceil(1000)));
    }
    response
}
