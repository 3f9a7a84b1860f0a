//! What was leased and isn't needed goes back: what is idle all the time, and everything before the node stops.

use super::purses::{Leaving, Leavings};
use crate::engine::Node;
use baton_core::Name;
use baton_core::limit::{Defined, meter_group, meter_key};
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
    async fn tell(self: &Arc<Self>, leaving: Leavings, at_once: usize) {
        for lapsed in &leaving.lapsed {
            let whose = &lapsed.whose;
            self.log_lapse(&whose.limit, &whose.key, &self.row_id(lapsed.number), lapsed.amount);
        }
        let mut under_way = JoinSet::new();
        for (whose, message) in leaving.messages {
            if under_way.len() >= at_once {
                // One that panicked has given nothing back: the lease's end does.
                drop(under_way.join_next().await);
            }
            under_way.spawn(self.clone().renew(whose, message));
        }
        while under_way.join_next().await.is_some() {}
    }

    /// What an older definition than this one has given goes back, without waiting for its key to come again.
    pub(super) async fn give_back_of(self: &Arc<Self>, limit: &Name, defined: &Defined) {
        let mut is_more = true;
        while is_more && !self.is_draining() {
            let leaving = self.purses.outdated(limit, defined, self.uptime_ms());
            is_more = leaving.is_full();
            self.tell(leaving, AT_ONCE).await;
        }
    }

    /// Gives back all there is, and what is under way when it has come.
    async fn give_all_back(self: &Arc<Self>) {
        loop {
            let leaving = self.purses.leaving(Leaving::All, self.uptime_ms(), |_, _| false);
            let (is_empty, is_more) = (leaving.messages.is_empty(), leaving.is_full());
            self.tell(leaving, AT_ONCE_WHEN_STOPPING).await;
            if is_more {
                continue;
            }
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
    let mut is_more = false;
    loop {
        tokio::select! {
            biased;
            () = node.draining.wait() => return,
            () = tokio::time::sleep(LOOK_EVERY), if !is_more => {}
            () = std::future::ready(()), if is_more => {}
        }
        let (now_ms, ring) = (node.uptime_ms(), node.members.ring());
        // Of an owned limit that which another node owns now is that one's to spend.
        let is_anothers = |limit: &Name, key: &str| {
            ring.owner(meter_group(limit, key)) != Some(node.id)
                && !node.hot.is_told(&meter_key(limit, key), now_ms)
        };
        let leaving = node.purses.leaving(Leaving::Idle, now_ms, is_anothers);
        is_more = leaving.is_full();
        node.tell(leaving, AT_ONCE).await;
    }
}

/// Before stopping, once the node says that it drains: nothing is asked for any more.
pub(crate) async fn return_all(node: &Arc<Node>) {
    // In time or not, there is nothing more to do about it.
    drop(tokio::time::timeout(STOPPING_MAX, node.give_all_back()).await);
}
