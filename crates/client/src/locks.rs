//! Locks to look at, and to take away by force.

use crate::baton::Baton;
use crate::error::Error;
use crate::path;
use crate::watch::LockWatch;
use baton_api::limits;
use baton_api::lock::{
    ForceReleaseRequest, ForceReleaseResponse, LockHistory, LockList, LockQueue, LockStatus, NotLocked,
};
use serde::de::DeserializeOwned;
use std::sync::Arc;

/// Locks to look at. Made by [`Baton::locks`].
#[derive(Clone, Debug)]
pub struct Locks {
    pub(crate) baton: Baton,
    pub(crate) namespace: Option<Arc<str>>,
}

/// Which page of a list.
#[derive(Clone, Default, Debug)]
pub struct ListQuery {
    /// Only keys that begin with this.
    pub prefix: Option<String>,
    /// How many a page: 1 to 1000; without it, as many as the server likes.
    pub limit: Option<u64>,
    /// Where the page begins: `next_cursor` of the one before.
    pub cursor: Option<String>,
}

impl Locks {
    pub(crate) fn new(baton: Baton) -> Self {
        Self { namespace: baton.0.namespace.clone(), baton }
    }

    /// Another namespace than the client's.
    pub fn namespace(mut self, namespace: impl Into<Arc<str>>) -> Self {
        self.namespace = Some(namespace.into());
        self
    }

    /// A lock's holder; nothing if it is free.
    pub async fn status(&self, key: &str) -> Result<Option<LockStatus>, Error> {
        limits::check_key(key).map_err(Error::refused)?;
        let (reply, address) = self.baton.0.get(path::of(key, "", self.namespace.as_deref())).await?;
        if reply.status.as_u16() == 404 && serde_json::from_slice::<NotLocked>(&reply.body).is_ok() {
            return Ok(None);
        }
        reply.read(&address).map(Some).map_err(|failure| Error::from_failure(failure, false))
    }

    /// One page of the held locks.
    pub async fn list(&self, query: &ListQuery) -> Result<LockList, Error> {
        if let Some(limit) = query.limit {
            limits::check_number("limit", limit, limits::LIST_LIMIT).map_err(Error::refused)?;
        }
        let limit = query.limit.map(|limit| limit.to_string());
        let parameters = [
            ("namespace", self.namespace.as_deref()),
            ("prefix", query.prefix.as_deref()),
            ("limit", limit.as_deref()),
            ("cursor", query.cursor.as_deref()),
        ];
        self.read(path::with_query("/v1/locks".into(), &parameters)).await
    }

    /// Who waits for a lock, next first.
    pub async fn queue(&self, key: &str) -> Result<LockQueue, Error> {
        limits::check_key(key).map_err(Error::refused)?;
        self.read(path::of(key, "queue", self.namespace.as_deref())).await
    }

    /// What happened to a lock, newest first.
    pub async fn history(&self, key: &str) -> Result<LockHistory, Error> {
        limits::check_key(key).map_err(Error::refused)?;
        self.read(path::of(key, "history", self.namespace.as_deref())).await
    }

    /// Takes a lock from its holder, who may still be acting as if it held it: this breaks mutual exclusion by
    /// design (L10). The reason goes into the lock's history. Sent once: a repeated one could hit the next holder.
    pub async fn force_release(&self, key: &str, reason: &str) -> Result<ForceReleaseResponse, Error> {
        limits::check_key(key).map_err(Error::refused)?;
        let body = ForceReleaseRequest { reason: reason.to_owned() };
        body.check().map_err(Error::refused)?;
        let body = serde_json::to_vec(&body).map_err(|error| Error::unexpected(error.to_string()))?;
        let path = path::of(key, "force-release", self.namespace.as_deref());
        let (reply, address) = self.baton.0.post_once(path, body).await?;
        reply.read(&address).map_err(|failure| Error::from_failure(failure, false))
    }

    /// What happens to a lock from now on.
    pub async fn watch(&self, key: &str) -> Result<LockWatch, Error> {
        limits::check_key(key).map_err(Error::refused)?;
        LockWatch::open(&self.baton, path::of(key, "watch", self.namespace.as_deref())).await
    }

    /// What happens from now on to all locks of the namespace whose keys begin with `prefix`.
    pub async fn watch_prefix(&self, prefix: &str) -> Result<LockWatch, Error> {
        let prefix = Some(prefix).filter(|prefix| !prefix.is_empty());
        let parameters = [("namespace", self.namespace.as_deref()), ("prefix", prefix)];
        LockWatch::open(&self.baton, path::with_query("/v1/watch/locks".into(), &parameters)).await
    }

    async fn read<T: DeserializeOwned>(&self, path: String) -> Result<T, Error> {
        let (reply, address) = self.baton.0.get(path).await?;
        reply.read(&address).map_err(|failure| Error::from_failure(failure, false))
    }
}
