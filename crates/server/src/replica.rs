//! This node's replica of what needs no agreement: in a directory of its own, whatever the store is.
//!
//! It costs nothing until it is used: it is opened at the start if its directory is there, and else made by the first call that needs it.

use baton_engine::presence::Observer;
use baton_engine::replica::{OpenError, Options, Replica};
use std::path::PathBuf;
use std::sync::Arc;
use tokio::sync::OnceCell;

/// A replica, and who is present in it.
pub(crate) struct Opened {
    pub(crate) replica: Arc<Replica>,
    pub(crate) presence: Observer,
}

/// A node's replica, open or not.
pub(crate) struct NodeReplica {
    directory: PathBuf,
    opened: OnceCell<Opened>,
}

impl NodeReplica {
    /// In this directory.
    pub(crate) fn new(directory: PathBuf) -> Self {
        Self { directory, opened: OnceCell::new() }
    }

    /// Opens it if it was used before. If it can't be, the node serves all else: only calls that need the replica are refused, and each tries again.
    pub(crate) async fn open_if_there(&self) {
        if self.directory.is_dir()
            && let Err(error) = self.open().await
        {
            tracing::error!(%error, "the replica can't be opened: what needs it is refused");
        }
    }

    /// Opens it if it isn't open. If it can't be, the next call tries again.
    pub(crate) async fn open(&self) -> Result<&Opened, OpenError> {
        let open = async || {
            let replica = Arc::new(Replica::open(&self.directory, Options::default()).await?);
            Ok(Opened { presence: Observer::start(replica.clone()), replica })
        };
        self.opened.get_or_try_init(open).await
    }

    /// It, if it is open.
    pub(crate) fn opened(&self) -> Option<&Replica> {
        self.opened.get().map(|opened| &*opened.replica)
    }

    /// Lets go of its directory.
    pub(crate) async fn close(&self) {
        if let Some(opened) = self.opened.get() {
            opened.replica.close().await;
        }
    }
}
