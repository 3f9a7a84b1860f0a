//! What happens to locks, as it happens (L12): read off the grants and memos that commits leave.

use super::calls::{HistoryEvent, HistoryKind};
use crate::engine::Engine;
use baton_core::lock::grant::Grant;
use baton_core::lock::memo::{Fate, Memo};
use baton_core::lock::name::Kind;
use baton_core::lock::{FencingToken, LockName};
use baton_core::{Bytes, Key, Revision};
use baton_store::watch::{Change, Watch};

/// Which locks to watch.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum WatchKey {
    /// This one.
    Exactly(String),
    /// Those whose keys begin so.
    Prefix(String),
}

/// What a watcher hears.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Watched {
    /// Something happened.
    Event(HistoryEvent),
    /// Some events are missing: look for yourself.
    Lost,
}

/// A stream of events.
pub struct LockWatch {
    grants: Watch,
    memos: Watch,
    /// A grant that waits for the end, of the same commit, of the one before.
    held_back: Option<Change>,
}

impl Engine {
    /// Watches locks of a namespace from now on.
    pub fn watch_locks(&self, namespace: &str, key: &WatchKey) -> LockWatch {
        let prefix = |kind: Kind| -> Bytes {
            match key {
                WatchKey::Exactly(key) => LockName::new(namespace, key).prefix(kind),
                WatchKey::Prefix(prefix) => kind.prefix(namespace, prefix).into(),
            }
        };
        let store = &self.node.store;
        let (grants, memos) = (store.watch(prefix(Kind::Grant)), store.watch(prefix(Kind::Memo)));
        LockWatch { grants, memos, held_back: None }
    }
}

impl LockWatch {
    /// The next event; `None` when the store has gone.
    pub async fn next(&mut self) -> Option<Watched> {
        loop {
            let change = match self.memos.try_next().or_else(|| self.held_back.take()) {
                Some(change) => change,
                None => tokio::select! {
                    biased;
                    change = self.memos.next() => change?,
                    change = self.grants.next() => {
                        // An end is hinted at before the grant of the same commit: it is here by now, and goes first.
                        self.held_back = Some(change?);
                        continue;
                    }
                },
            };
            match change {
                Change::Lost => return Some(Watched::Lost),
                Change::Put { key, value, revision } => {
                    if let Some(event) = event(&key, &value, revision) {
                        return Some(Watched::Event(event));
                    }
                }
                Change::Deleted { .. } | Change::Expired { .. } => {}
            }
        }
    }
}

fn event(key: &Key, value: &[u8], revision: Revision) -> Option<HistoryEvent> {
    let kind = Kind::of_name(&key.name)?;
    let (lock, _) = LockName::of_record(kind, &key.name)?;
    let (kind, owner, fencing, at) = match kind {
        Kind::Grant => {
            let grant = Grant::decode(value).ok()?;
            (HistoryKind::Granted, grant.owner, revision, grant.granted_at)
        }
        Kind::Memo => {
            let memo = Memo::decode(value).ok()?;
            let kind = match memo.fate {
                Fate::Released => HistoryKind::Released,
                // Taken back before its owner knew of it: whoever heard of the grant hears of its end.
                Fate::Void if memo.fencing.0 != 0 => HistoryKind::Released,
                Fate::Expired => HistoryKind::Expired,
                Fate::Forced => HistoryKind::Forced,
                Fate::Void | Fate::Counted | Fate::Nested { .. } => return None,
            };
            (kind, memo.owner, memo.fencing, memo.at)
        }
        _ => return None,
    };
    let (key, fencing) = (lock.key().into(), FencingToken::from(fencing));
    Some(HistoryEvent { kind, key, owner, fencing, at, renewals: None, reason: None, by: None })
}
