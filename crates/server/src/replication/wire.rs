//! The way to other replicas: one connection for each lane to each of them.

use super::Keys;
use crate::peers::PROOF;
use baton_core::crdt::sync::{MESSAGE_BYTES_MAX, proof};
use baton_engine::replication::{Answering, Lane, NoAnswer, Wire};
use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http1::{self, SendRequest};
use hyper::header::HOST;
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use std::collections::HashMap;
use std::sync::Mutex;
use tokio::net::TcpStream;

/// Where replicas are asked.
pub(crate) const PATH: &str = "/v1/peers/replica";

type Connection = SendRequest<Full<Bytes>>;

/// Connections to other replicas, by address and lane. Bounded by how many replicas there may be.
pub(crate) struct HttpWire {
    keys: Keys,
    idle: Mutex<HashMap<(Box<str>, Lane), Connection>>,
}

impl Wire for HttpWire {
    fn exchange<'a>(&'a self, address: &'a str, lane: Lane, request: &'a [u8]) -> Answering<'a> {
        Box::pin(async move { self.ask(address, lane, request).await.map_err(NoAnswer) })
    }
}

impl HttpWire {
    pub(crate) fn new(keys: Keys) -> Self {
        Self { keys, idle: Mutex::default() }
    }

    async fn ask(&self, address: &str, lane: Lane, body: &[u8]) -> Result<baton_core::Bytes, String> {
        let text = |error: &dyn std::fmt::Display| error.to_string();
        let key = self
            .keys
            .key()
            .ok_or("there is no cluster secret, and the store that keeps one was never reached")?;
        let shown = proof::of_request(&key, body);
        let request = Request::post(PATH)
            .header(HOST, address)
            .header(PROOF, &shown)
            .body(Full::new(Bytes::copy_from_slice(body)))
            .map_err(|error| text(&error))?;
        let mut connection = self.connection(address, lane).await?;
        // Dropped on the way, it is closed: an answer that nobody reads must not be the next one's.
        let response = connection.send_request(request).await.map_err(|error| text(&error))?;
        let (status, answered) = (response.status(), response.headers().get(PROOF).cloned());
        let answer = Limited::new(response.into_body(), MESSAGE_BYTES_MAX).collect();
        let answer = answer.await.map_err(|error| text(&error))?.to_bytes();
        if status != StatusCode::OK {
            return Err(format!("it answers {status}"));
        }
        let answered = answered.as_ref().and_then(|proof| proof.to_str().ok()).unwrap_or_default();
        if !proof::is_of_answer(&key, &shown, &answer, answered) {
            return Err("it doesn't prove that it is of this cluster".into());
        }
        self.keep(address, lane, connection);
        Ok(answer[..].into())
    }

    async fn connection(&self, address: &str, lane: Lane) -> Result<Connection, String> {
        let idle = self.idle.lock().expect("no panic while held").remove(&(address.into(), lane));
        if let Some(mut connection) = idle
            && connection.ready().await.is_ok()
        {
            return Ok(connection);
        }
        let stream = TcpStream::connect(address).await.map_err(|error| error.to_string())?;
        stream.set_nodelay(true).map_err(|error| error.to_string())?;
        let (connection, driver) =
            http1::handshake(TokioIo::new(stream)).await.map_err(|error| error.to_string())?;
        // It ends with the connection, however that ends.
        tokio::spawn(async move { drop(driver.await) });
        Ok(connection)
    }

    fn keep(&self, address: &str, lane: Lane, connection: Connection) {
        let mut idle = self.idle.lock().expect("no panic while held");
        // Of replicas that have gone nothing stays.
        idle.retain(|_, connection| !connection.is_closed());
        idle.insert((address.into(), lane), connection);
    }
}
