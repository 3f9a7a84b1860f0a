//! Locks to look at, and to take away by force.

use crate::baton::Baton;
use crate::error::Error;
use crate::held::Held;
use crate::path;
use crate::watch::LockWatch;
use baton_api::limits;
use baton_api::lock::{
    ForceReleaseRequest, ForceReleaseResponse, LockHistory, LockList, LockQueue, LockStatus, NotLocked,
};
use serde::de::DeserializeOwned;
use std::sync::Arc;
use std::time::Duration;

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

/// A lock to take away. Made by [`Locks::force`].
#[derive(Clone, Debug)]
#[must_use = "nothing is taken before release"]
pub struct Force {
    locks: Locks,
    key: String,
    request: ForceReleaseRequest,
}

impl Force {
    /// Only from the holder with this token; without it, from everybody who holds the lock.
    pub fn only(mut self, fencing_token: u64) -> Self {
        self.request.fencing_token = Some(fencing_token);
        self
    }

    /// Keeps the lock closed to everybody for a while: at most an hour.
    pub fn lock_delay(mut self, delay: Duration) -> Self {
        self.request.lock_delay_millis = u64::try_from(delay.as_millis()).unwrap_or(u64::MAX);
        self
    }

    /// Takes it. Sent once: a repeated one could hit the next holder.
    pub async fn release(self) -> Result<ForceReleaseResponse, Error> {
        limits::check_key(&self.key).map_err(Error::refused)?;
        self.request.check().map_err(Error::refused)?;
        let body = serde_json::to_vec(&self.request).map_err(|error| Error::unexpected(error.to_string()))?;
        let path = path::of(Held::Lock, &self.key, "force-release", self.locks.namespace.as_deref());
        let (reply, address) = self.locks.baton.0.post_once(path, body).await?;
        reply.read(&address).map_err(|failure| Error::from_failure(failure, false))
    }
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
        let (reply, address) =
            self.baton.0.get(path::of(Held::Lock, key, "", self.namespace.as_deref())).await?;
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
        self.read(path::of(Held::Lock, key, "queue", self.namespace.as_deref())).await
    }

    /// What happened to a lock, newest first.
    pub async fn history(&self, key: &str) -> Result<LockHistory, Error> {
        limits::check_key(key).map_err(Error::refused)?;
        self.read(path::of(Held::Lock, key, "history", self.namespace.as_deref())).await
    }

    /// Takes a lock from its holders, who may still be acting as if they held it: this breaks mutual exclusion by
    /// design (L10). The reason goes into the lock's history.
    pub async fn force_release(&self, key: &str, reason: &str) -> Result<ForceReleaseResponse, Error> {
        self.force(key, reason).release().await
    }

    /// The same, with more to say.
    pub fn force(&self, key: impl Into<String>, reason: impl Into<String>) -> Force {
        let request =
            ForceReleaseRequest { reason: reason.into(), fencing_token: None, lock_delay_millis: 0 };
        Force { locks: self.clone(), key: key.into(), request }
    }

    /// What happens to a lock from now on.
    pub async fn watch(&self, key: &str) -> Result<LockWatch, Error> {
        limits::check_key(key).map_err(Error::refused)?;
        LockWatch::open(&self.baton, path::of(Held::Lock, key, "watch", self.namespace.as_deref())).await
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
