//! Following what a replica has: server-sent events from what becomes durable, local and merged.
//!
//! The first thing sent is a comment: from then on nothing is missed without being told.

use super::answer::Problem;
use super::crdt::{self, NAME, to_core, to_wire};
use super::events::{self, Source};
use super::exchange::Exchange;
use axum::response::Response;
use baton_api::crdt::{CrdtKind, MapChange, MapField, SetChange};
use baton_core::Name;
use baton_core::crdt::{Change, Kind, Object, RowKey};
use baton_engine::replica::{Replica, Told};
use bytes::Bytes;
use serde::Serialize;
use std::collections::BTreeSet;
use std::sync::Arc;
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::{RecvError, TryRecvError};

/// Changes that are told together, at most.
const TOGETHER_MAX: usize = 256;

/// Follows something that has one row: as it is now, and whenever it changes.
pub(super) async fn value<S: Serialize + 'static>(
    exchange: &Exchange,
    kinds: &[CrdtKind],
    state: fn(&Replica, &Name, CrdtKind) -> S,
) -> Result<Response, Problem> {
    let (name, parameters) = exchange.name_and(NAME, &["namespace", "kind"])?;
    let kind = crdt::kind(&parameters, kinds)?;
    let replica = crdt::opened(exchange).await?.replica.clone();
    let key = crdt::object(&name).row(to_core(kind));
    let show = move |replica: &Replica| events::event("value", None, &state(replica, &name, kind));
    events::follow(exchange, || Value { changes: replica.changes(), replica, key, show, is_told: false })
}

struct Value<F> {
    changes: Receiver<Arc<Told>>,
    replica: Arc<Replica>,
    key: RowKey,
    show: F,
    /// Whether it was said how it is.
    is_told: bool,
}

impl<F: Fn(&Replica) -> Bytes + Send + 'static> Source for Value<F> {
    async fn next(&mut self) -> Option<Bytes> {
        while self.is_told {
            match self.changes.recv().await {
                Ok(told) => self.is_told = !told.delta.changes.iter().any(|change| change.key == self.key),
                // What it is now is all there is to know.
                Err(RecvError::Lagged(_)) => self.is_told = false,
                Err(RecvError::Closed) => return None,
            }
        }
        self.is_told = true;
        // What has come by now is in the answer.
        while matches!(self.changes.try_recv(), Ok(_) | Err(TryRecvError::Lagged(_))) {}
        Some((self.show)(&self.replica))
    }
}

/// Follows the elements of a set.
pub(super) async fn set(exchange: &Exchange) -> Result<Response, Problem> {
    let name = exchange.name(NAME)?;
    let replica = crdt::opened(exchange).await?.replica.clone();
    let object = crdt::object(&name);
    let prefix = object.row(Kind::Set).bytes().to_vec();
    let show = move |replica: &Replica, keys: BTreeSet<RowKey>| {
        let read = replica.are_there(&keys);
        let of = |wanted: bool| {
            let found = keys.iter().zip(&read.value).filter(|(_, is_there)| **is_there == wanted);
            found.map(|(key, _)| crdt::text(key.parts().element)).collect()
        };
        let (added, removed, context) = (of(true), of(false), read.context.to_text());
        events::event("changed", None, &SetChange { set: name.key().into(), added, removed, context })
    };
    events::follow(exchange, || Rows { changes: replica.changes(), replica, prefix, show, lost: false })
}

/// Follows the fields of a map.
pub(super) async fn map(exchange: &Exchange) -> Result<Response, Problem> {
    let name = exchange.name(NAME)?;
    let replica = crdt::opened(exchange).await?.replica.clone();
    let prefix = Object::map_prefix(name.namespace(), name.key());
    let show = move |replica: &Replica, keys: BTreeSet<RowKey>| {
        let context = replica.context().to_text();
        let field = |key: &RowKey| {
            let parts = key.parts();
            Some(MapField { field: parts.field?.into(), kind: to_wire(parts.kind) })
        };
        let fields: BTreeSet<_> = keys.iter().filter_map(field).collect();
        let fields = fields.into_iter().collect();
        events::event("changed", None, &MapChange { map: name.key().into(), fields, context })
    };
    events::follow(exchange, || Rows { changes: replica.changes(), replica, prefix, show, lost: false })
}

struct Rows<F> {
    changes: Receiver<Arc<Told>>,
    replica: Arc<Replica>,
    /// What the names of its rows begin with.
    prefix: Vec<u8>,
    show: F,
    /// Whether it has to be said that some changes were missed.
    lost: bool,
}

impl<F: Fn(&Replica, BTreeSet<RowKey>) -> Bytes + Send + 'static> Source for Rows<F> {
    async fn next(&mut self) -> Option<Bytes> {
        if std::mem::take(&mut self.lost) {
            return Some(events::LOST);
        }
        let mut keys = BTreeSet::new();
        while keys.is_empty() {
            match self.changes.recv().await {
                Ok(told) => self.gather(&told.delta.changes, &mut keys),
                Err(RecvError::Lagged(_)) => return Some(events::LOST),
                Err(RecvError::Closed) => return None,
            }
        }
        // Those that came with it are told with it.
        while keys.len() < TOGETHER_MAX {
            match self.changes.try_recv() {
                Ok(told) => self.gather(&told.delta.changes, &mut keys),
                Err(TryRecvError::Lagged(_)) => {
                    self.lost = true;
                    break;
                }
                Err(TryRecvError::Empty | TryRecvError::Closed) => break,
            }
        }
        Some((self.show)(&self.replica, keys))
    }
}

impl<F> Rows<F> {
    fn gather(&self, changes: &[Change], keys: &mut BTreeSet<RowKey>) {
        let ours =
            changes.iter().map(|change| &change.key).filter(|key| key.bytes().starts_with(&self.prefix));
        keys.extend(ours.cloned());
    }
}
