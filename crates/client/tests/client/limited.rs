//! Routes that a key may use only so often.

use crate::scripted::{Act, Server, eventually, refused};
use baton_client::Baton;
use baton_client::tower::Limited;
use hyper::{Request, Response};
use serde_json::{Value, json};
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tower::{Layer, ServiceExt, service_fn};

/// Passes checks of `acme`, refuses `globex`, and can't say for anybody else.
fn script(key: &Value) -> Act {
    let passed =
        json!({"allowed": true, "limit": 100, "remaining": 42, "resetMillis": 1300, "source": "central"});
    let exceeded = json!({
        "error": "LIMIT_EXCEEDED", "message": "used up", "allowed": false, "name": "api", "key": key, "limit": 100,
        "remaining": 0, "resetMillis": 1300, "source": "central", "reason": "budget_exhausted", "retryAfterMillis": 250,
    });
    match key.as_str() {
        Some("acme") => Act::Answer(200, passed),
        Some("globex") => Act::Answer(429, exceeded),
        _ => Act::Answer(503, refused("STORE_UNAVAILABLE")),
    }
}

/// Where the key is.
fn account(request: &hyper::http::request::Parts) -> Option<String> {
    Some(request.headers.get("x-account")?.to_str().ok()?.to_owned())
}

fn request(account: Option<&str>) -> Request<()> {
    let request =
        account.iter().fold(Request::builder(), |request, account| request.header("x-account", *account));
    request.body(()).unwrap()
}

fn header<'a>(response: &'a Response<String>, name: &str) -> Vec<&'a str> {
    response.headers().get_all(name).iter().map(|value| value.to_str().unwrap()).collect()
}

#[tokio::test]
async fn who_may_go_on_is_told_what_is_left_and_who_may_not_is_told_when_to_come_back() {
    let server = Server::start(|seen| script(&seen.body["key"])).await;
    let limiter = Baton::connect(server.url()).await.unwrap().limiter("api");
    let served = Arc::new(AtomicUsize::new(0));
    let counted = served.clone();
    let handler = service_fn(move |_: Request<()>| {
        counted.fetch_add(1, Ordering::SeqCst);
        async { Ok::<_, Infallible>(Response::new("served".to_owned())) }
    });
    let strict = Limited::new(limiter, account).cost(3);
    let polite = strict.clone().admit_if_unknown();
    let strict = strict.layer(handler.clone());
    let ask = async |account| strict.clone().oneshot(request(account)).await.unwrap();

    let passed = ask(Some("acme")).await;
    assert_eq!((passed.status().as_u16(), passed.body().as_str()), (200, "served"));
    assert_eq!(header(&passed, "ratelimit-policy"), ["\"api\";q=100"]);
    assert_eq!(header(&passed, "ratelimit"), ["\"api\";r=42;t=2"]);
    assert_eq!(server.seen("check").last().unwrap().body["cost"], 3);

    let refused = ask(Some("globex")).await;
    assert_eq!(
        (refused.status().as_u16(), served.load(Ordering::SeqCst)),
        (429, 1),
        "the handler isn't asked"
    );
    assert_eq!(header(&refused, "retry-after"), ["1"]);
    assert_eq!(header(&refused, "ratelimit"), ["\"api\";r=0;t=2"]);
    assert_eq!(header(&refused, "content-type"), ["application/problem+json"]);
    let body: Value = serde_json::from_str(refused.body()).unwrap();
    assert_eq!((&body["status"], &body["violated-policies"]), (&json!(429), &json!(["api"])));
    assert!(!refused.body().contains("globex"), "a key may be a secret");

    let unknown = ask(Some("initech")).await;
    assert_eq!((unknown.status().as_u16(), served.load(Ordering::SeqCst)), (503, 1), "nobody said yes");
    assert_eq!(header(&unknown, "retry-after"), ["1"]);
    let admitted = polite.layer(handler).oneshot(request(Some("initech"))).await.unwrap();
    assert_eq!((admitted.status().as_u16(), header(&admitted, "ratelimit").len()), (200, 0));

    let asked = server.requests();
    assert_eq!(ask(None).await.status(), 200);
    assert_eq!(server.requests(), asked, "without a key nobody is asked");
}

#[tokio::test]
async fn layers_on_top_of_each_other_each_say_their_own() {
    let server = Server::start(|seen| script(&seen.body["key"])).await;
    let baton = Baton::connect(server.url()).await.unwrap();
    let handler = service_fn(async |_: Request<()>| Ok::<_, Infallible>(Response::new(String::new())));
    let inner = Limited::new(baton.limiter("api"), account).layer(handler);
    let both = Limited::new(baton.limiter("all"), |_| Some("acme".into())).layer(inner);
    let passed = both.oneshot(request(Some("acme"))).await.unwrap();
    assert_eq!(header(&passed, "ratelimit"), ["\"api\";r=42;t=2", "\"all\";r=42;t=2"]);
}

#[tokio::test]
async fn a_place_in_flight_is_kept_until_the_handler_is_done() {
    let server = Server::start(|seen| match seen.operation.as_str() {
        "check" => {
            let Act::Answer(status, mut body) = script(&json!("acme")) else { unreachable!() };
            (body["leaseId"], body["leaseTtlMillis"]) = ("p1".into(), 60_000.into());
            Act::Answer(status, body)
        }
        _ => Act::Answer(200, json!({"status": "RETURNED"})),
    })
    .await;
    let baton = Baton::connect(server.url()).await.unwrap();
    let limiter = baton.limiter("api");
    let (begun, may_end) = (Arc::new(tokio::sync::Notify::new()), Arc::new(tokio::sync::Notify::new()));
    let (begins, ends) = (begun.clone(), may_end.clone());
    let handler = service_fn(move |_: Request<()>| {
        let (begins, ends) = (begins.clone(), ends.clone());
        async move {
            begins.notify_one();
            ends.notified().await;
            Ok::<_, Infallible>(Response::new(String::new()))
        }
    });
    let serving = tokio::spawn(Limited::new(limiter, account).layer(handler).oneshot(request(Some("acme"))));
    begun.notified().await;
    // Whatever was sent before these has arrived when they are answered.
    for _ in 0..20 {
        let allowed = baton.limit("api").check("acme").await.unwrap().allowed().unwrap();
        drop(allowed.place.unwrap().keep());
    }
    assert_eq!(server.seen("lease/return").len(), 0, "its place was given back while it is served");
    may_end.notify_one();
    serving.await.unwrap().unwrap();
    eventually("the place goes back", || server.seen("lease/return").len() == 1).await;
}
