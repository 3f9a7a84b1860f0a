//! This node's replica and the others, over HTTP (D3, D6).
//!
//! # Layout
//! - this file: starting it, and answering others
//! - `wire`: the way to others
//! - `discover`: who the others are: a list, names, or the nodes that share the store

pub(crate) mod discover;
pub(crate) mod wire;

pub use discover::{Peers, PeersError};

use baton_core::crdt::sync::{Request, proof};
use baton_core::lock::ClusterKey;
use baton_engine::Engine;
use baton_engine::replica::Replica;
use baton_engine::replication::{Metrics, Options, Replication};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// What all nodes of a cluster know and nobody else does, where they share no store that keeps it for them.
#[derive(Clone)]
pub struct ClusterSecret(ClusterKey);

impl ClusterSecret {
    /// Of what was configured; line ends and spaces around it don't count. Nothing if it is too short to be one.
    pub fn new(secret: &str) -> Option<Self> {
        proof::key_of(secret.trim().as_bytes()).map(Self)
    }
}

impl fmt::Debug for ClusterSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ClusterSecret")
    }
}

/// The key by which replicas know each other: of the configured secret, else the one that the store keeps.
#[derive(Clone)]
pub(crate) struct Keys {
    secret: Option<ClusterSecret>,
    engine: Engine,
}

impl Keys {
    pub(crate) fn new(secret: Option<ClusterSecret>, engine: Engine) -> Self {
        Self { secret, engine }
    }

    /// Nothing while there is no secret and the store was never reached.
    pub(crate) fn key(&self) -> Option<ClusterKey> {
        self.secret.as_ref().map(|secret| secret.0.clone()).or_else(|| self.engine.cluster_key())
    }

    /// Whether a question was asked by somebody who knows it.
    pub(crate) fn know(&self, shown: &str, request: &[u8]) -> bool {
        self.key().is_some_and(|key| proof::is_of_request(&key, request, shown))
    }
}

/// Begins to replicate.
pub(crate) fn start(
    replica: Arc<Replica>,
    keys: Keys,
    peers: &Peers,
    sync: Duration,
    metrics: Metrics,
) -> Replication {
    let found = discover::find(peers, keys.engine.clone());
    let options = Options { sync, answer_within: answer_within(sync), metrics, ..Options::default() };
    Replication::start(replica, Arc::new(wire::HttpWire::new(keys)), options, found)
}

/// A peer that is stopped, and not gone, is given up on after this: longer than any network needs, and not so long that rounds
/// are left out for long.
fn answer_within(sync: Duration) -> Duration {
    (3 * sync).clamp(Duration::from_secs(2), Duration::from_secs(15))
}

/// Why another replica gets no answer.
pub(crate) enum Unanswered {
    /// There is no key any more to answer with.
    Stranger,
    /// What it says can't be read: it is of a newer version, or too large.
    Unreadable,
    /// This replica can't do it now.
    Failed(baton_engine::replica::Failure),
}

/// Answers another replica, which is known to be one; with the proof that goes with it.
pub(crate) async fn answer(
    replica: &Replica,
    keys: &Keys,
    shown: &str,
    request: &[u8],
) -> Result<(baton_core::Bytes, String), Unanswered> {
    let key = keys.key().ok_or(Unanswered::Stranger)?;
    let request = Request::decode(request).map_err(|_| Unanswered::Unreadable)?;
    let reply = replica.answer(request).await.map_err(Unanswered::Failed)?.encode();
    let proof = proof::of_answer(&key, shown, &reply);
    Ok((reply, proof))
}
