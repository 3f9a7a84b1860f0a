//! This node's replica of what needs no agreement: in a directory of its own, whatever the store is.
//!
//! It costs nothing until it is used: it is opened at the start if its directory is there or peers were named, and else made by the first
//! call that needs it, a local one or another replica's.

use crate::Config;
use crate::replication::{self, Keys, Peers};
use baton_engine::Engine;
use baton_engine::limit::{Opening, ReplicaSource};
use baton_engine::presence::Observer;
use baton_engine::replica::{OpenError, Options, Replica};
use baton_engine::replication::{Metrics, PeerStatus, Replication};
use std::path::PathBuf;
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::sync::OnceCell;

/// A replica, who is present in it, and how it keeps up with the others.
pub(crate) struct Opened {
    pub(crate) replica: Arc<Replica>,
    pub(crate) presence: Observer,
    pub(crate) replication: Replication,
}

/// A node's replica, open or not.
pub(crate) struct NodeReplica {
    directory: PathBuf,
    opened: OnceCell<Opened>,
    pub(crate) keys: Keys,
    peers: Peers,
    sync: Duration,
    pub(crate) metrics: Metrics,
}

impl NodeReplica {
    /// As it is configured.
    pub(crate) fn new(config: &Config, engine: &Engine) -> Self {
        Self {
            directory: config.replica(),
            opened: OnceCell::new(),
            keys: Keys::new(config.cluster_secret.clone(), engine.clone()),
            peers: config.peers.clone(),
            sync: config.sync,
            metrics: Metrics::default(),
        }
    }

    /// Opens it if it was used before, or if peers were named. If it can't be, the node serves all else: only calls that need the replica are refused,
    /// and each tries again.
    pub(crate) async fn open_if_wanted(&self) {
        let has_peers = matches!(&self.peers, Peers::Listed(places) if !places.is_empty());
        if (has_peers || self.directory.is_dir())
            && let Err(error) = self.open().await
        {
            tracing::error!(%error, "the replica can't be opened: what needs it is refused");
        }
    }

    /// Lets the engine have it, for limits whose counts spread. The engine doesn't keep it alive.
    pub(crate) fn connect(self: &Arc<Self>, engine: &Engine) {
        let opened = self.opened().map(|opened| opened.replica.clone());
        engine.connect_replica(Arc::new(Source(Arc::downgrade(self))), opened);
    }

    /// Opens it if it isn't open. If it can't be, the next call tries again.
    pub(crate) async fn open(&self) -> Result<&Opened, OpenError> {
        let open = async || {
            let replica = Arc::new(Replica::open(&self.directory, Options::default()).await?);
            let metrics = self.metrics.clone();
            let replication =
                replication::start(replica.clone(), self.keys.clone(), &self.peers, self.sync, metrics);
            Ok(Opened { presence: Observer::start(replica.clone()), replica, replication })
        };
        self.opened.get_or_try_init(open).await
    }

    /// It, if it is open.
    pub(crate) fn opened(&self) -> Option<&Opened> {
        self.opened.get()
    }

    /// Lets go of its directory.
    pub(crate) async fn close(&self) {
        if let Some(opened) = self.opened.get() {
            opened.replication.stop();
            opened.replica.close().await;
        }
    }
}

/// The replica, as the engine sees it.
struct Source(Weak<NodeReplica>);

impl ReplicaSource for Source {
    fn open(&self) -> Opening<'_> {
        Box::pin(async {
            let replica = self.0.upgrade().ok_or(OpenError::Gone)?;
            Ok(replica.open().await?.replica.clone())
        })
    }

    fn peers(&self) -> Vec<PeerStatus> {
        let replica = self.0.upgrade();
        let opened = replica.as_ref().and_then(|replica| replica.opened());
        opened.map(|opened| opened.replication.peers()).unwrap_or_default()
    }
}
