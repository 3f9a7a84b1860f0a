//! One HTTP/1.1 connection, driven by whoever waits for its answer.
//!
//! There is no task behind it: polling the answer polls the connection. That saves a wake-up per call, and makes
//! cancelling plain: dropping the future drops the socket, which is how a waiter leaves the queue (L2).

use crate::address::Address;
use crate::clock::Moment;
use crate::error::Failure;
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper::header::{CONTENT_TYPE, HOST, HeaderValue};
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::task::Poll;
use std::time::Duration;
use tokio::net::TcpStream;

/// How long a connection may take to come about.
const CONNECT_MAX: Duration = Duration::from_secs(3);
/// A peer that vanished without a word is noticed after about 30 s, also while only waiting.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(15);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(5);
const KEEPALIVE_PROBES: u32 = 3;
/// Bytes of an answer that is read whole; a page of 1000 locks has less.
const BODY_BYTES_MAX: usize = 8 * 1024 * 1024;

/// What to ask of a server.
pub(crate) struct Ask {
    pub(crate) method: Method,
    /// Path and query, percent-encoded.
    pub(crate) path: String,
    pub(crate) body: Bytes,
}

/// A whole answer, and when its request was sent.
pub(crate) struct Reply {
    pub(crate) status: StatusCode,
    pub(crate) body: Bytes,
    pub(crate) sent: Moment,
}

pub(crate) struct Connection {
    sender: SendRequest<Full<Bytes>>,
    driver: Driver,
    /// It served a call before, so the server may have closed it since.
    pub(crate) used: bool,
}

/// Moves bytes between the socket and the calls.
struct Driver(Option<Pin<Box<Http>>>);

type Http = http1::Connection<TokioIo<TcpStream>, Full<Bytes>>;

impl Driver {
    /// Waits for something that the connection is going to bring.
    async fn drive<F: Future>(&mut self, future: F) -> F::Output {
        let mut future = pin!(future);
        poll_fn(|cx| {
            if let Poll::Ready(output) = future.as_mut().poll(cx) {
                return Poll::Ready(output);
            }
            let Some(connection) = &mut self.0 else { return Poll::Pending };
            if connection.as_mut().poll(cx).is_ready() {
                self.0 = None;
            }
            future.as_mut().poll(cx)
        })
        .await
    }
}

impl Connection {
    pub(crate) async fn open(address: &Address) -> Result<Self, Failure> {
        let failed = |why: &dyn std::fmt::Display| Failure::NotSent(format!("{address}: {why}"));
        let connect = TcpStream::connect((address.host.as_str(), address.port));
        let stream = match tokio::time::timeout(CONNECT_MAX, connect).await {
            Ok(Ok(stream)) => stream,
            Ok(Err(error)) => return Err(failed(&error)),
            Err(_) => return Err(failed(&format_args!("no connection within {} s", CONNECT_MAX.as_secs()))),
        };
        tune(&stream).map_err(|error| failed(&error))?;
        let (sender, connection) =
            http1::handshake(TokioIo::new(stream)).await.map_err(|error| failed(&error))?;
        Ok(Self { sender, driver: Driver(Some(Box::pin(connection))), used: false })
    }

    /// Sends a request and waits for the head of its answer.
    pub(crate) async fn send(
        &mut self,
        address: &Address,
        ask: &Ask,
    ) -> Result<(Response<Incoming>, Moment), Failure> {
        let closed = |error: hyper::Error| Failure::NotSent(format!("{address}: {error}"));
        self.driver.drive(self.sender.ready()).await.map_err(closed)?;
        let mut request = Request::new(Full::new(ask.body.clone()));
        *request.method_mut() = ask.method.clone();
        *request.uri_mut() = ask
            .path
            .parse()
            .map_err(|_| Failure::NotSent(format!("{address}: the path {:?} can't be sent", ask.path)))?;
        request.headers_mut().insert(HOST, address.authority.clone());
        if matches!(*request.method(), Method::POST | Method::PUT) {
            request.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        }
        let sent = Moment::now();
        match self.driver.drive(self.sender.try_send_request(request)).await {
            Ok(response) => Ok((response, sent)),
            // If the request comes back, no byte of it left.
            Err(mut error) => Err(match error.take_message() {
                Some(_) => closed(error.into_error()),
                None => Failure::Unknown(format!("{address}: {}", error.into_error())),
            }),
        }
    }

    /// The next piece of an answer's body; nothing at its end.
    pub(crate) async fn piece(&mut self, body: &mut Incoming) -> Option<Result<Bytes, hyper::Error>> {
        loop {
            match self.driver.drive(body.frame()).await? {
                Ok(frame) => match frame.into_data() {
                    Ok(data) => return Some(Ok(data)),
                    Err(_trailers) => {}
                },
                Err(error) => return Some(Err(error)),
            }
        }
    }

    /// Sends a request and reads its whole answer.
    pub(crate) async fn exchange(&mut self, address: &Address, ask: &Ask) -> Result<Reply, Failure> {
        let (response, sent) = self.send(address, ask).await?;
        let status = response.status();
        let body = self.read(address, response.into_body()).await?;
        Ok(Reply { status, body, sent })
    }

    /// The whole of an answer's body.
    pub(crate) async fn read(&mut self, address: &Address, mut incoming: Incoming) -> Result<Bytes, Failure> {
        let mut first = Bytes::new();
        let mut all = Vec::new();
        while let Some(piece) = self.piece(&mut incoming).await {
            let piece = piece.map_err(|error| Failure::Unknown(format!("{address}: {error}")))?;
            if first.is_empty() {
                first = piece;
                continue;
            }
            if all.is_empty() {
                all.extend_from_slice(&first);
            }
            if all.len() + piece.len() > BODY_BYTES_MAX {
                return Err(Failure::Unexpected(format!("{address}: more than {BODY_BYTES_MAX} bytes")));
            }
            all.extend_from_slice(&piece);
        }
        Ok(if all.is_empty() { first } else { all.into() })
    }

    /// Whether another request can be sent on it.
    pub(crate) fn is_reusable(&self) -> bool {
        self.driver.0.is_some() && !self.sender.is_closed()
    }
}

fn tune(stream: &TcpStream) -> std::io::Result<()> {
    use rustix::net::sockopt;
    stream.set_nodelay(true)?;
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, KEEPALIVE_IDLE)?;
    sockopt::set_tcp_keepintvl(stream, KEEPALIVE_INTERVAL)?;
    sockopt::set_tcp_keepcnt(stream, KEEPALIVE_PROBES)?;
    Ok(())
}
