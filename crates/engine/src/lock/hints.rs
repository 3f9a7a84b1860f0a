//! What other nodes did to locks that somebody waits for here.
//!
//! When the first in line waits at another node, a release leaves the lock free; the store's hint wakes that node, which
//! takes it for its waiter. A hint that gets lost costs time, never more: whoever waits looks every second anyway.

use super::desk::Desk;
use crate::engine::Node;
use baton_core::lock::name::Kind;
use baton_core::lock::roster::Roster;
use baton_core::lock::{Command, Family, LockName};
use baton_core::{Bytes, Record, Revision};
use baton_store::watch::{Change, Watch};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// A lock that stays free this long, although somebody before us should take it, is taken by us.
pub(super) const PATIENCE: Duration = Duration::from_secs(2);

/// Something happened to a lock.
#[derive(Clone, Debug)]
pub(super) enum Hint {
    /// This is its roster now, or was a moment ago.
    Roster(Bytes, Revision),
    /// Something, perhaps.
    Look,
}

/// What the names of a family's records begin with that are followed.
pub(crate) fn prefix(family: Family) -> Bytes {
    Kind::Roster.everywhere(family)
}

/// Passes the store's hints to the desks they are for, until the node drains.
pub(crate) async fn keep(node: Arc<Node>, mut changes: Watch) {
    loop {
        let change = tokio::select! {
            biased;
            () = node.draining.wait() => return,
            change = changes.next() => change,
        };
        let (key, hint) = match change {
            None => return,
            Some(Change::Lost) => {
                node.rosters.forget_all();
                node.desks.nudge_all();
                continue;
            }
            Some(Change::Put { key, value, revision }) => (key, Hint::Roster(value, revision)),
            Some(Change::Deleted { key, .. } | Change::Expired { key }) => (key, Hint::Look),
        };
        if let Some((lock, _)) = LockName::of_record(Kind::Roster, &key.name) {
            match &hint {
                Hint::Roster(value, revision) => node.rosters.hear(&lock, value, *revision),
                Hint::Look => node.rosters.forget(&lock),
            }
            node.desks.nudge(&lock, hint);
        }
    }
}

impl Desk {
    /// Another node has changed the lock: if there is room now, and it is the turn of somebody here, it is taken.
    pub(super) async fn heed(&mut self, hint: Hint) {
        if self.parked.is_empty() && self.orphans.is_empty() {
            return;
        }
        let Hint::Roster(value, revision) = hint else { return self.look().await };
        let has_room = Roster::decode(&value).is_ok_and(|roster| roster.has_room());
        if !has_room || revision <= self.last {
            return;
        }
        let key = self.lock.roster();
        // Should it have changed again, the commit's check says so.
        let roster = Record { key, value, created: revision, revision, touches: 0, expires_in: None };
        let job = self.internal(Command::Settle);
        self.work(VecDeque::from([job]), Some(roster)).await;
        self.tidy().await;
    }

    /// Whether the lock was just seen free although somebody waits: for one at another node, who is expected to take it.
    pub(super) fn note_free(&mut self, is_free: bool) {
        let roster = self.view.peek(&self.lock.roster()).ok().flatten();
        self.free_since =
            roster.filter(|_| is_free && self.node.is_shared).map(|roster| match self.free_since {
                Some((revision, since)) if revision == roster.revision => (revision, since),
                _ => (roster.revision, Instant::now()),
            });
    }

    /// Whether those before us had their chance.
    pub(super) fn is_out_of_patience(&self) -> bool {
        self.free_since.is_some_and(|(_, since)| since.elapsed() >= PATIENCE)
    }
}
