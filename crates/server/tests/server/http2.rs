//! gRPC's connections: on the same port as HTTP/1.1, and within the same bounds.

use crate::client::PATIENCE;
use crate::envoy::{Envoy, METHOD, asking, described, limited};
use crate::harness::Baton;
use baton_server::grpc::wire::RateLimitRequest;
use baton_testkit::dice::Dice;
use bytes::Bytes;
use futures_util::stream;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Body, Frame};
use hyper::client::conn::http2::{SendRequest, handshake};
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::{Value, json};
use std::convert::Infallible;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tonic::Code as Status;

type AnyBody = http_body_util::combinators::BoxBody<Bytes, Infallible>;

/// A connection on which requests can be anything.
async fn connected(baton: &Baton) -> SendRequest<AnyBody> {
    let stream = TcpStream::connect(baton.address).await.unwrap();
    stream.set_nodelay(true).unwrap();
    let (sender, connection) = handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    sender
}

fn request(
    path: &str,
    body: impl Body<Data = Bytes, Error = Infallible> + Send + Sync + 'static,
) -> Request<AnyBody> {
    let builder = Request::post(format!("http://test{path}")).header("te", "trailers");
    builder.header("content-type", "application/grpc").body(body.boxed()).unwrap()
}

fn full(bytes: &'static [u8]) -> Full<Bytes> {
    Full::new(Bytes::from_static(bytes))
}

async fn sent(
    sender: &mut SendRequest<AnyBody>,
    request: Request<AnyBody>,
) -> Response<hyper::body::Incoming> {
    tokio::time::timeout(PATIENCE, sender.send_request(request)).await.expect("an answer in time").unwrap()
}

/// The number of a call that has no message in its answer.
fn status(response: &Response<hyper::body::Incoming>) -> &str {
    assert_eq!(
        (response.status().as_u16(), &response.headers()["content-type"]),
        (200, &"application/grpc".parse().unwrap())
    );
    response.headers()["grpc-status"].to_str().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn one_port_serves_both_and_tells_what_it_does_not_serve() {
    let baton = Baton::start().await;
    baton.get("/healthz").await.ok();
    let mut envoy = Envoy::of(baton.address);
    envoy.ask(vec![described(&[("a", "k")])]).await;
    let other = "/envoy.service.ratelimit.v3.RateLimitService/Other";
    let unknown = envoy.call(other, tonic::Request::new(asking(vec![described(&[("a", "k")])]))).await;
    assert_eq!(unknown.unwrap_err().code(), Status::Unimplemented);

    let mut sender = connected(&baton).await;
    let plain = Request::get("http://test/healthz").body(full(b"").boxed()).unwrap();
    let response = sent(&mut sender, plain).await;
    assert_eq!(response.status(), 404);
    let body: Value =
        serde_json::from_slice(&response.into_body().collect().await.unwrap().to_bytes()).unwrap();
    assert_eq!(body["error"], "NOT_FOUND", "{body}");
    for (bytes, wanted) in [
        (&b""[..], "3"),
        (b"\0\0\0\0\x09nonsense!", "3"),
        (b"\0\0\0\0\x02\x0a\x09", "3"),
        (b"\0\0\0\0\x09short", "3"),
        (b"\x01\0\0\0\x01x", "12"),
    ] {
        assert_eq!(status(&sent(&mut sender, request(METHOD, full(bytes))).await), wanted, "{bytes:?}");
    }
    let mut foreign = request(METHOD, full(b"\0\0\0\0\0"));
    foreign.headers_mut().insert("origin", "https://elsewhere".parse().unwrap());
    assert_eq!(status(&sent(&mut sender, foreign).await), "7");
    // Almost how HTTP/2 begins.
    let mut client = baton.client().await;
    client.send(b"PRI * HTTP/2.0\r\n\r\nNO\r\n\r\n").await.unwrap();
    assert_eq!(client.answer("PRI").await.unwrap().field(), "request");
    let metrics = baton.get("/metrics").await.text;
    assert!(metrics.contains(&format!("{METHOD}\",status=\"4xx\"}} 6")), "{metrics}");
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_and_connections_beyond_the_bounds_are_unavailable() {
    let baton = Baton::with(|config| config.max_in_flight = 0).await;
    let status = Envoy::of(baton.address).refused(asking(vec![described(&[("a", "k")])])).await;
    assert_eq!(status.code(), Status::Unavailable);
    assert!(status.message().starts_with("OVERLOADED"), "{status:?}");

    let baton = Baton::with(|config| config.max_connections = 1).await;
    let mut first = Envoy::of(baton.address);
    first.ask(vec![described(&[("a", "k")])]).await;
    assert_eq!(baton.client().await.answer("GET").await.unwrap().code(503), "OVERLOADED");
    first.ask(vec![described(&[("a", "k")])]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_does_not_arrive_in_time_is_not_waited_for() {
    let baton = Baton::with(|config| config.body = Duration::from_millis(50)).await;
    let mut sender = connected(&baton).await;
    let never = StreamBody::new(stream::pending::<Result<Frame<Bytes>, Infallible>>());
    assert_eq!(status(&sent(&mut sender, request(METHOD, never)).await), "3");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_says_how_much_it_takes_and_ends_when_nothing_comes() {
    let short = Duration::from_millis(100);
    let baton = Baton::with(|config| (config.idle, config.drain) = (short, short)).await;
    let mut stream = TcpStream::connect(baton.address).await.unwrap();
    stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").await.unwrap();
    let mut all = Vec::new();
    tokio::time::timeout(PATIENCE, stream.read_to_end(&mut all)).await.expect("ends in time").unwrap();
    // The first frame has the settings: a number of two bytes and its value in four, each.
    assert_eq!(all[3], 4, "{all:?}");
    let length = usize::from(u16::from_be_bytes([all[1], all[2]]));
    let settings = &all[9..9 + length];
    let set = |wanted: u16| {
        let (pairs, _) = settings.as_chunks::<6>();
        let found = pairs.iter().find(|pair| pair[..2] == wanted.to_be_bytes());
        found.map(|pair| u32::from_be_bytes([pair[2], pair[3], pair[4], pair[5]]))
    };
    assert_eq!((set(3), set(6)), (Some(1_024), Some(65_536)), "calls at a time, and bytes of headers");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_a_stop_overtakes_is_sent_elsewhere() {
    let mut baton = Baton::start().await;
    limited(&baton, "edge/a", 5, json!({})).await;
    let mut idle = baton.client().await;
    idle.call("GET", "/healthz", b"").await.ok();
    let (go_on, gone_on) = oneshot::channel::<()>();
    let message = prost_frame(&asking(vec![described(&[("a", "k")])]));
    let slow = StreamBody::new(stream::once(Box::pin(async move {
        drop(gone_on.await);
        Ok::<_, Infallible>(Frame::data(message))
    })));
    let mut sender = connected(&baton).await;
    let answer = tokio::spawn(sender.send_request(request(METHOD, slow)));
    // What comes later on the same connection is answered, so the other has arrived.
    assert_eq!(status(&sent(&mut sender, request(METHOD, full(b""))).await), "3");

    baton.stop();
    assert!(idle.answer("GET").await.is_none(), "it stops");
    go_on.send(()).unwrap();
    let answer = tokio::time::timeout(PATIENCE, answer).await.unwrap().unwrap().unwrap();
    assert_eq!(status(&answer), "14");
    baton.stopped().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_never_ends_does_not_keep_the_server() {
    let baton = Baton::with(|config| {
        (config.drain, config.body) = (Duration::from_millis(200), Duration::from_secs(3600));
    })
    .await;
    let mut sender = connected(&baton).await;
    let never = StreamBody::new(stream::pending::<Result<Frame<Bytes>, Infallible>>());
    let answer = tokio::spawn(sender.send_request(request(METHOD, never)));
    assert_eq!(status(&sent(&mut sender, request(METHOD, full(b""))).await), "3");
    baton.stopped().await;
    assert!(tokio::time::timeout(PATIENCE, answer).await.unwrap().unwrap().is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_http_2_after_all_ends_its_connection_only() {
    let baton = Baton::start().await;
    for rest in [&[0xff; 100][..], b"GET / HTTP/1.1\r\n\r\n", &[0, 0, 0, 4, 0, 0, 0, 0, 1]] {
        let mut stream = TcpStream::connect(baton.address).await.unwrap();
        stream.write_all(&[b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", rest].concat()).await.unwrap();
        let mut all = Vec::new();
        let ended = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut all)).await;
        // Perhaps by a reset: there may be bytes that nobody read.
        drop(ended.expect("ends in time"));
    }
    let mut sender = connected(&baton).await;
    let mut long = request(METHOD, full(b""));
    long.headers_mut().insert("x-long", "x".repeat(80_000).parse().unwrap());
    assert_eq!(sent(&mut sender, long).await.status(), 431);
    assert_eq!(status(&sent(&mut sender, request(METHOD, full(b""))).await), "3", "others go on");
    baton.until(async || baton.get("/metrics").await.text.contains("baton_http_connections 2\n")).await;
}

/// Found nothing yet that another seed didn't; change it to look elsewhere.
const SEED: u64 = 0x0ba7_0002;

#[tokio::test(flavor = "multi_thread")]
async fn damaged_messages_are_answered_as_what_they_still_mean_or_as_invalid() {
    let baton = Baton::start().await;
    limited(&baton, "edge/a/b", 1_000_000, json!({})).await;
    let mut sender = connected(&baton).await;
    let mut dice = Dice::new(SEED);
    let descriptor = described(&[("a", "k"), ("b", "v")]);
    let good = prost_frame(&RateLimitRequest { hits_addend: 300, ..asking(vec![descriptor; 2]) });
    let mut invalid = 0;
    for _ in 0..2_000 {
        let mut bytes = good.to_vec();
        for _ in 0..=dice.below(3) {
            let at = dice.below(bytes.len() as u64) as usize;
            match dice.below(3) {
                0 => bytes[at] = dice.number() as u8,
                1 => drop(bytes.remove(at)),
                _ => bytes.insert(at, dice.number() as u8),
            }
        }
        if dice.chance(800) {
            let length = bytes.len().saturating_sub(5) as u32;
            bytes.splice(..5.min(bytes.len()), [&[0][..], &length.to_be_bytes()].concat());
        }
        let response = sent(&mut sender, request(METHOD, Full::new(bytes.clone().into()))).await;
        let code = match response.headers().get("grpc-status") {
            Some(code) => code.clone(),
            None => response.into_body().collect().await.unwrap().trailers().unwrap()["grpc-status"].clone(),
        };
        // Compressed, as the first byte may say, is the third thing that it can be.
        assert!(code == "0" || code == "3" || (code == "12" && bytes[0] != 0), "{code:?} {bytes:?}");
        invalid += usize::from(code == "3");
    }
    assert!((100..1_900).contains(&invalid), "{invalid} of 2,000 were invalid");
}

fn prost_frame(message: &RateLimitRequest) -> Bytes {
    let message = prost::Message::encode_to_vec(message);
    [&[0][..], &(message.len() as u32).to_be_bytes(), &message].concat().into()
}
