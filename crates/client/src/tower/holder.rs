//! Routes that only the holder of a lease serves.

use crate::election::Leader;
use crate::lease::Lease;
use hyper::header::{HeaderValue, RETRY_AFTER};
use hyper::{Request, Response, StatusCode};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use tower_layer::Layer;
use tower_service::Service;

/// Says which lease this process holds now, if it holds one: of a leader, or of a lock.
pub trait Holding: Clone + Send {
    /// The lease; it may be lost already.
    fn lease(&self) -> Option<Lease>;
}

impl Holding for Lease {
    fn lease(&self) -> Option<Lease> {
        Some(self.clone())
    }
}

impl Holding for Leader {
    fn lease(&self) -> Option<Lease> {
        Some(Leader::lease(self))
    }
}

impl<F: Fn() -> Option<Lease> + Clone + Send> Holding for F {
    fn lease(&self) -> Option<Lease> {
        self()
    }
}

/// A place for the lease that comes and goes: the routes look here, and whoever campaigns or acquires puts it here.
#[derive(Clone, Default, Debug)]
pub struct LeaseSlot(Arc<Mutex<Option<Lease>>>);

impl LeaseSlot {
    /// The routes are served from here on, for as long as this lease is trusted.
    pub fn put(&self, lease: Lease) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(lease);
    }

    /// The routes are refused from here on. A lease that is lost needs no clearing.
    pub fn clear(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

impl Holding for LeaseSlot {
    fn lease(&self) -> Option<Lease> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Lets requests through while a lease is held, and answers 503 otherwise.
///
/// The handler finds the [`Lease`] in the request's extensions: its fencing token (a leader's epoch) belongs into
/// everything the handler writes. If the lease is lost while a request is served, the handler is dropped where it
/// stands and the answer is 503: what it began may be half done, which is what the fence is for.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
/// use baton_client::Lease;
/// use baton_client::tower::{HolderOnly, LeaseSlot};
/// use hyper::{Request, Response};
/// use tower::{ServiceBuilder, ServiceExt, service_fn};
///
/// let slot = LeaseSlot::default();
/// let dispatch = service_fn(async |request: Request<String>| {
///     let lease = request.extensions().get::<Lease>().expect("the layer puts it there");
///     Ok::<_, std::convert::Infallible>(Response::new(format!("dispatched under {}", lease.fencing_token())))
/// });
/// let route = ServiceBuilder::new().layer(HolderOnly::new(slot.clone())).service(dispatch);
///
/// let response = route.oneshot(Request::new(String::new())).await.unwrap();
/// assert_eq!(response.status(), 503, "nobody has put a lease into the slot");
/// # });
/// ```
#[derive(Clone, Debug)]
pub struct HolderOnly<H> {
    holding: H,
}

impl<H: Holding> HolderOnly<H> {
    /// A layer that asks `holding` at each request.
    pub fn new(holding: H) -> Self {
        Self { holding }
    }
}

impl<H: Clone, S> Layer<S> for HolderOnly<H> {
    type Service = HolderOnlyService<H, S>;

    fn layer(&self, inner: S) -> Self::Service {
        HolderOnlyService { holding: self.holding.clone(), inner }
    }
}

/// A service behind [`HolderOnly`].
#[derive(Clone, Debug)]
pub struct HolderOnlyService<H, S> {
    holding: H,
    inner: S,
}

impl<H, S, Body, Answer> Service<Request<Body>> for HolderOnlyService<H, S>
where
    H: Holding,
    S: Service<Request<Body>, Response = Response<Answer>>,
    S::Future: Send + 'static,
    S::Error: 'static,
    Answer: Default + 'static,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<S::Response, S::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, mut request: Request<Body>) -> Self::Future {
        let Some(lease) = self.holding.lease().filter(|lease| !lease.is_lost()) else {
            return Box::pin(async { Ok(refused()) });
        };
        request.extensions_mut().insert(lease.clone());
        let serving = self.inner.call(request);
        Box::pin(async move { lease.run(serving).await.unwrap_or_else(|_lost| Ok(refused())) })
    }
}

/// Someone else may hold it, or nobody: the client should ask again, or elsewhere.
fn refused<Answer: Default>() -> Response<Answer> {
    let mut response = Response::new(Answer::default());
    *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
    response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
    response
}
