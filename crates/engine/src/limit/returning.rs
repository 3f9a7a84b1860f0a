//! What was leased and isn't needed goes back: what is idle all the time, and everything before the node stops.

use super::leasing::{Lapsed, Leaving, PurseKey};
use crate::engine::Node;
use baton_core::limit::purse::Message;
use baton_core::{Key, Name, Revision};
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;

/// How often purses are looked at, to give back what is idle.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// Purses given back at once while others work.
const AT_ONCE: usize = 32;
/// The same when the node stops, and nobody else wants the store much.
const AT_ONCE_WHEN_STOPPING: usize = 256;
/// How much of the time for stopping this takes at most: a store that doesn't answer must not cost all of it. What isn't given
/// back by then counts as spent when its lease ends.
const STOPPING_MAX: Duration = Duration::from_secs(2);

impl Node {
    /// Says all of it to the store, so many at a time.
    async fn tell(self: &Arc<Self>, leaving: Vec<(PurseKey, Message)>, at_once: usize) {
        let mut under_way = JoinSet::new();
        for (place, message) in leaving {
            if under_way.len() >= at_once {
                // One that panicked has given nothing back: the lease's end does.
                drop(under_way.join_next().await);
            }
            under_way.spawn(self.clone().renew(place, message));
        }
        while under_way.join_next().await.is_some() {}
    }

    /// What an older definition than this version has given goes back, without waiting for its key to come again.
    pub(super) async fn give_back_of(self: &Arc<Self>, limit: &Name, version: Revision) {
        let leaving = self.purses.outdated(limit, version, self.uptime_ms());
        self.tell(leaving, AT_ONCE).await;
    }

    fn log_lapses(&self, lapsed: &[Lapsed]) {
        for Lapsed { limit, key, id, amount } in lapsed {
            self.log_lapse(limit, key, id, *amount);
        }
    }

    /// Gives back all there is, and what is under way when it has come.
    async fn give_all_back(self: &Arc<Self>) {
        loop {
            let (leaving, lapsed) = self.purses.leaving(Leaving::All, self.uptime_ms(), |_| false);
            self.log_lapses(&lapsed);
            let is_empty = leaving.is_empty();
            self.tell(leaving, AT_ONCE_WHEN_STOPPING).await;
            match self.purses.next_answer() {
                Some(answer) => answer.await,
                None if is_empty => return,
                None => {}
            }
        }
    }
}

/// Looks after purses until the node drains.
pub(crate) async fn keep(node: Arc<Node>) {
    loop {
        tokio::select! {
            biased;
            () = node.draining.wait() => return,
            () = tokio::time::sleep(LOOK_EVERY) => {}
        }
        let now_ms = node.uptime_ms();
        // Of an owned limit that which another node owns now is that one's to spend.
        let is_anothers = |place: &Key| !node.owns(place) && !node.hot.is_told(place, now_ms);
        let (leaving, lapsed) = node.purses.leaving(Leaving::Idle, now_ms, is_anothers);
        node.log_lapses(&lapsed);
        node.tell(leaving, AT_ONCE).await;
    }
}

/// Before stopping, once the node says that it drains: nothing is asked for any more.
pub(crate) async fn return_all(node: &Arc<Node>) {
    // In time or not, there is nothing more to do about it.
    drop(tokio::time::timeout(STOPPING_MAX, node.give_all_back()).await);
}
