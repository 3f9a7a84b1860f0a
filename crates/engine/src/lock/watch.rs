//! What happens to locks, as it happens (L12): read off the grants and memos that commits leave.

use super::calls::{HistoryEvent, HistoryKind};
use crate::engine::Engine;
use baton_core::lock::grant::Grant;
use baton_core::lock::memo::{Fate, Memo};
use baton_core::lock::name::Kind;
use baton_core::lock::{Family, FencingToken, LockName};
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
    /// Heard, but not told yet.
    next_grant: Option<Change>,
    next_memo: Option<Change>,
}

impl Engine {
    /// Watches locks of a namespace from now on.
    pub fn watch_locks(&self, namespace: &str, key: &WatchKey) -> LockWatch {
        let prefix = |kind: Kind| -> Bytes {
            match key {
                WatchKey::Exactly(key) => LockName::new(namespace, key).prefix(kind),
                WatchKey::Prefix(prefix) => kind.prefix(Family::Lock, namespace, prefix).into(),
            }
        };
        let store = &self.node.store;
        let (grants, memos) = (store.watch(prefix(Kind::Grant)), store.watch(prefix(Kind::Memo)));
        LockWatch { grants, memos, next_grant: None, next_memo: None }
    }
}

impl LockWatch {
    /// The next event; `None` when the store has gone.
    pub async fn next(&mut self) -> Option<Watched> {
        loop {
            let change = self.next_change().await?;
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

impl LockWatch {
    /// The next of both streams, in the order of commits, and an end before the grant of the same commit. Hints are
    /// given in this order too: when one is here, whatever comes before it on the other stream is here as well.
    async fn next_change(&mut self) -> Option<Change> {
        if self.next_grant.is_none() && self.next_memo.is_none() {
            tokio::select! {
                biased;
                change = self.memos.next() => self.next_memo = Some(change?),
                change = self.grants.next() => self.next_grant = Some(change?),
            }
        }
        if self.next_grant.is_none() {
            self.next_grant = self.grants.try_next();
        }
        // After the grants: one that came just now has its memo here.
        if self.next_memo.is_none() {
            self.next_memo = self.memos.try_next();
        }
        let grant_is_next = match (&self.next_grant, &self.next_memo) {
            (Some(grant), Some(memo)) => revision(grant) < revision(memo),
            (grant, _) => grant.is_some(),
        };
        if grant_is_next { self.next_grant.take() } else { self.next_memo.take() }
    }
}

/// By which commit; what has none goes first.
fn revision(change: &Change) -> Revision {
    match change {
        Change::Put { revision, .. } | Change::Deleted { revision, .. } => *revision,
        Change::Expired { .. } | Change::Lost => Revision::default(),
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
