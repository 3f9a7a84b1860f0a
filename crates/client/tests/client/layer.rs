//! Routes that only a holder serves.

use crate::scripted::{Act, Server, agree, eventually, ms, refused};
use baton_client::tower::{HolderOnly, LeaseSlot};
use baton_client::{Baton, Lease};
use hyper::{Request, Response};
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tower::{ServiceBuilder, ServiceExt, service_fn};

async fn token(request: Request<()>) -> Result<Response<String>, Infallible> {
    let lease = request.extensions().get::<Lease>().unwrap();
    Ok(Response::new(lease.fencing_token().to_string()))
}

#[tokio::test]
async fn a_route_is_served_while_the_lease_is_held_and_with_its_token() {
    let server = Server::start(agree).await;
    let baton = Baton::connect(server.url()).await.unwrap();
    let slot = LeaseSlot::default();
    let route = ServiceBuilder::new().layer(HolderOnly::new(slot.clone())).service(service_fn(token));
    let ask = async || route.clone().oneshot(Request::new(())).await.unwrap();
    assert_eq!(ask().await.status(), 503);

    let lock = baton.lock("k").acquire().await.unwrap();
    slot.put(lock.lease());
    let served = ask().await;
    assert_eq!((served.status().as_u16(), served.body().as_str()), (200, "34"));

    lock.release().await.unwrap();
    let refused = ask().await;
    assert_eq!(refused.status(), 503, "what was released is not held, cleared or not");
    assert!(refused.headers().contains_key("retry-after"));
}

#[tokio::test]
async fn a_request_is_dropped_and_answered_when_the_lease_is_lost_under_it() {
    struct Dropped(Arc<AtomicBool>);
    impl Drop for Dropped {
        fn drop(&mut self) {
            self.0.store(true, Ordering::SeqCst);
        }
    }
    let server = Server::start(|seen| match seen.operation.as_str() {
        "renew" => Act::Answer(409, refused("LOCK_EXPIRED")),
        _ => agree(seen),
    })
    .await;
    let baton = Baton::connect(server.url()).await.unwrap();
    let lock = baton.lock("k").ttl(ms(600)).acquire().await.unwrap();
    let (began, dropped) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let (handler_began, handler_dropped) = (began.clone(), dropped.clone());
    let handler = service_fn(move |_: Request<()>| {
        let guard = Dropped(handler_dropped.clone());
        handler_began.store(true, Ordering::SeqCst);
        async move {
            let _guard = guard;
            std::future::pending::<Result<Response<String>, Infallible>>().await
        }
    });
    let route = ServiceBuilder::new().layer(HolderOnly::new(lock.lease())).service(handler);
    let answered = tokio::spawn(route.oneshot(Request::new(())));
    eventually("the handler runs", || began.load(Ordering::SeqCst)).await;
    assert_eq!(answered.await.unwrap().unwrap().status(), 503);
    assert!(dropped.load(Ordering::SeqCst));
}
