//! Other nodes, over HTTP: checks go to the owners of their keys, and come here from others (M3).
//!
//! # Layout
//! - this file: the way to others
//! - [`wire`]: what goes over it; `/v1/peers/check` in `http` is the other end

pub(crate) mod wire;

use baton_core::lock::NodeId;
use baton_engine::limit::CheckCall;
use baton_engine::peers::{NoAnswer, Peer, PeerVerdict, Peers, Verdicts};
use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http1::{self, SendRequest};
use hyper::header::{CONTENT_TYPE, HOST};
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use std::collections::HashMap;
use std::sync::Mutex;
use tokio::net::TcpStream;

/// Where another node takes forwarded checks.
pub(crate) const PATH: &str = "/v1/peers/check";
/// The header with the proof that the caller is a node.
pub(crate) const PROOF: &str = "baton-peer";
/// Bytes of a batch, and of its answer: 1,000 checks with the longest names and keys, and room for escapes.
pub(crate) const BODY_BYTES_MAX: usize = 4 * 1024 * 1024;

/// Connections to other nodes, one to each: there is one batch under way to each at a time.
#[derive(Default)]
pub(crate) struct HttpPeers {
    idle: Mutex<HashMap<NodeId, SendRequest<Full<Bytes>>>>,
}

impl Peers for HttpPeers {
    fn check<'a>(&'a self, peer: &'a Peer, ring: u64, calls: &'a [CheckCall]) -> Verdicts<'a> {
        Box::pin(async move {
            self.exchange(peer, ring, calls).await.map_err(|error| {
                tracing::debug!(node = %format_args!("{:016x}", peer.id.0), error, "another node can't be asked");
                NoAnswer
            })
        })
    }
}

impl HttpPeers {
    async fn exchange(
        &self,
        peer: &Peer,
        ring: u64,
        calls: &[CheckCall],
    ) -> Result<Vec<PeerVerdict>, String> {
        let text = |error: &dyn std::fmt::Display| error.to_string();
        let body = serde_json::to_vec(&wire::Checks::of(ring, calls)).map_err(|error| text(&error))?;
        let request = Request::post(PATH)
            .header(HOST, &*peer.address)
            .header(CONTENT_TYPE, "application/json")
            .header(PROOF, &peer.proof)
            .body(Full::new(Bytes::from(body)))
            .map_err(|error| text(&error))?;
        let mut connection = self.connection(peer).await?;
        // Dropped on the way, it is closed: an answer that nobody reads must not be the next one's.
        let response = connection.send_request(request).await.map_err(|error| text(&error))?;
        let status = response.status();
        let body = Limited::new(response.into_body(), BODY_BYTES_MAX).collect();
        let body = body.await.map_err(|error| text(&error))?.to_bytes();
        if status != StatusCode::OK {
            return Err(format!("it answers {status}"));
        }
        let verdicts: wire::Verdicts = serde_json::from_slice(&body).map_err(|error| text(&error))?;
        self.keep(peer.id, connection);
        Ok(verdicts.verdicts.into_iter().map(Into::into).collect())
    }

    async fn connection(&self, peer: &Peer) -> Result<SendRequest<Full<Bytes>>, String> {
        let idle = self.idle.lock().expect("no panic while held").remove(&peer.id);
        if let Some(mut connection) = idle
            && connection.ready().await.is_ok()
        {
            return Ok(connection);
        }
        let stream = TcpStream::connect(&*peer.address).await.map_err(|error| error.to_string())?;
        stream.set_nodelay(true).map_err(|error| error.to_string())?;
        let (connection, driver) =
            http1::handshake(TokioIo::new(stream)).await.map_err(|error| error.to_string())?;
        // It ends with the connection, however that ends.
        tokio::spawn(async move { drop(driver.await) });
        Ok(connection)
    }

    fn keep(&self, peer: NodeId, connection: SendRequest<Full<Bytes>>) {
        let mut idle = self.idle.lock().expect("no panic while held");
        // Of nodes that have gone nothing stays.
        idle.retain(|_, connection| !connection.is_closed());
        idle.insert(peer, connection);
    }
}
