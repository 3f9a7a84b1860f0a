//! Who leads, wherever it is: a look, a list, and a stream that goes on when its connection breaks (E6, E9).

use crate::baton::Baton;
use crate::error::Error;
use crate::held::Held;
use crate::locks::ListQuery;
use crate::path;
use crate::retry::backoff;
use crate::watch::Events;
use baton_api::election::{ElectionEvent, ElectionEventKind, ElectionList, ElectionStatus};
use baton_api::{ErrorCode, limits};
use serde::de::DeserializeOwned;
use std::sync::Arc;

/// Elections to look at. Made by [`Baton::elections`].
#[derive(Clone, Debug)]
pub struct Elections {
    baton: Baton,
    namespace: Option<Arc<str>>,
}

impl Elections {
    pub(crate) fn new(baton: Baton) -> Self {
        Self { namespace: baton.0.namespace.clone(), baton }
    }

    /// Another namespace than the client's.
    pub fn namespace(mut self, namespace: impl Into<Arc<str>>) -> Self {
        self.namespace = Some(namespace.into());
        self
    }

    /// Who leads and the first of those who stand by; nothing if nobody leads.
    pub async fn status(&self, name: &str) -> Result<Option<ElectionStatus>, Error> {
        limits::check_name("name", name).map_err(Error::refused)?;
        match self.read(path::of(Held::Election, name, "", self.namespace.as_deref())).await {
            Err(error) if error.code() == Some(ErrorCode::NoLeader) => Ok(None),
            result => result.map(Some),
        }
    }

    /// One page of the elections that somebody leads.
    pub async fn list(&self, query: &ListQuery) -> Result<ElectionList, Error> {
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
        self.read(path::with_query("/v1/elections".into(), &parameters)).await
    }

    /// Who leads now, and every change from now on.
    pub fn observe(&self, name: &str) -> Result<Observer, Error> {
        limits::check_name("name", name).map_err(Error::refused)?;
        let path = path::of(Held::Election, name, "observe", None);
        let namespace = self.namespace.clone();
        Ok(Observer {
            baton: self.baton.clone(),
            path,
            namespace,
            events: None,
            epoch: None,
            last: None,
            tries: 0,
        })
    }

    async fn read<T: DeserializeOwned>(&self, path: String) -> Result<T, Error> {
        let (reply, address) = self.baton.0.get(path).await?;
        reply.read(&address).map_err(|failure| Error::from_failure(failure, false))
    }
}

/// A stream of who leads. It connects again by itself, with jittered pauses, and goes on after the last epoch it knows.
/// Dropping it closes its connection.
pub struct Observer {
    baton: Baton,
    path: String,
    namespace: Option<Arc<str>>,
    events: Option<Events>,
    epoch: Option<u64>,
    last: Option<ElectionEvent>,
    /// Connections since the last event: each one more is made later.
    tries: u32,
}

impl Observer {
    /// Goes on after an epoch that was heard of before: whoever led since is told first, as far as it is remembered.
    pub fn after(mut self, epoch: u64) -> Self {
        self.epoch = Some(epoch);
        self
    }

    /// The next event; the first comes at once. An error means that no server could be reached for as long as a call may
    /// take; asking again goes on trying.
    pub async fn next(&mut self) -> Result<ElectionEvent, Error> {
        loop {
            let events = match &mut self.events {
                Some(events) => events,
                None => {
                    let after = self.epoch.map(|epoch| epoch.to_string());
                    let parameters =
                        [("namespace", self.namespace.as_deref()), ("afterEpoch", after.as_deref())];
                    let path = path::with_query(self.path.clone(), &parameters);
                    self.events.insert(Events::open(&self.baton, path).await?)
                }
            };
            let heard: ElectionEvent = match events.next().await {
                Some(Ok(event)) => events.read(&event)?,
                // The connection broke off, or the server stops: what comes next comes on another one.
                Some(Err(_)) | None => {
                    self.events = None;
                    tokio::time::sleep(backoff(self.tries)).await;
                    self.tries = self.tries.saturating_add(1);
                    continue;
                }
            };
            self.tries = 0;
            if self.is_news(&heard) {
                self.epoch = self.epoch.max(heard.epoch);
                self.last = Some(heard.clone());
                return Ok(heard);
            }
        }
    }

    /// A new connection begins with how things are, which may have been told already. Servers may differ in how much they
    /// have heard by now: what is older than what was told is no news.
    fn is_news(&self, heard: &ElectionEvent) -> bool {
        if heard.epoch < self.epoch && self.last.is_some() {
            return false;
        }
        match (&self.last, heard.event) {
            (None, _) => true,
            (Some(last), ElectionEventKind::Vacant) => last.event != ElectionEventKind::Vacant,
            (Some(last), ElectionEventKind::Leader) => {
                let is_over = last.event != ElectionEventKind::Leader && heard.epoch == self.epoch;
                !is_over && *last != *heard
            }
            (Some(_), ElectionEventKind::Past) => heard.epoch > self.epoch,
        }
    }
}

impl std::fmt::Debug for Observer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Observer")
            .field("path", &self.path)
            .field("epoch", &self.epoch)
            .finish_non_exhaustive()
    }
}
