//! Writes counts down, from where they spread, and removes those that are over.
//!
//! What is written is all that this run ever counted in a window, so writing it again counts nothing twice: whatever fails is tried again.

use super::Gossip;
use super::table::Place;
use crate::engine::Node;
use crate::metrics::Metrics;
use crate::replica::{EDITS_MAX, Failure, Replica};
use baton_core::crdt::{Act, Actor, Edit, RowKey};
use baton_core::limit::gossip::{Tally, Window, window};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

/// Writes under way at once.
const WRITES_MAX: usize = 64;
/// How long one may take; after that it is tried again.
const WRITE_WITHIN: Duration = Duration::from_secs(5);
/// Before what couldn't be written is tried again.
const AGAIN_MS: u64 = 1_000;
/// How often counts that are over are looked for, about: nodes do it at different times, so that mostly one does.
const SWEEP_EVERY: Duration = Duration::from_secs(5);
/// Maps looked at together.
const MAPS_AT_ONCE: usize = 256;
/// Before stopping: how long writing the last of it may take.
const SETTLE_WITHIN: Duration = Duration::from_secs(2);

/// One thing to be written.
pub(super) struct Report {
    pub place: Place,
    pub window: Window,
    pub tally: Tally,
}

impl Report {
    /// As this run of a node writes it.
    pub fn edit(&self, writer: Actor) -> Edit {
        let Tally { added, taken } = self.tally;
        let act = Act::Report { writer, added, taken };
        Edit { key: self.window.row(&self.place.limit, &self.place.key), act }
    }
}

/// Writes down what is due, until the node drains.
pub(crate) async fn keep(node: Arc<Node>) {
    let (mut sweep_at, mut open_at) = (Instant::now(), Instant::now());
    loop {
        let now = Instant::now();
        let due_ms = node.gossip.table.due_ms().map(|due_ms| due_ms.saturating_sub(node.uptime_ms()));
        let wait =
            due_ms.map_or(SWEEP_EVERY, Duration::from_millis).min(sweep_at.saturating_duration_since(now));
        tokio::select! {
            biased;
            () = node.draining.wait() => return,
            () = node.gossip.wake.notified() => {}
            () = tokio::time::sleep(wait) => {}
        }
        if node.gossip.replica.get().is_none() && Instant::now() >= open_at {
            node.gossip.opened().await;
            // Not for each of many that need it, if it can't be.
            open_at = Instant::now() + Duration::from_millis(AGAIN_MS);
        }
        let replica = node.gossip.replica.get();
        report(&node, replica, node.uptime_ms()).await;
        if Instant::now() >= sweep_at {
            sweep_at = Instant::now() + node.random.jittered(SWEEP_EVERY);
            node.gossip.table.shards().for_each(|mut shard| shard.forget_over(node.gossip.now_ms()));
            if let Some(replica) = replica {
                sweep(&node, replica).await;
            }
        }
    }
}

/// Before stopping: all that was counted is written down.
pub(crate) async fn settle(node: &Arc<Node>) {
    let replica = node.gossip.replica.get();
    // What isn't by then is known to this node alone, and goes with it.
    drop(timeout(SETTLE_WITHIN, report(node, replica, u64::MAX)).await);
}

impl Gossip {
    /// The replica, opened if somebody needs it.
    pub(super) async fn opened(&self) -> Option<&Arc<Replica>> {
        if self.replica.get().is_none()
            && self.table.is_wanted()
            && let Some(source) = self.source.get()
        {
            match source.open().await {
                Ok(replica) => drop(self.replica.set(replica)),
                Err(error) => {
                    // What is in line is tried again, and with it this.
                    tracing::error!(%error, "the replica can't be opened: counts of gossip limits stay with this node");
                }
            }
        }
        self.replica.get()
    }
}

/// Writes down all that is due by then.
async fn report(node: &Arc<Node>, replica: Option<&Arc<Replica>>, by_ms: u64) {
    let table = &node.gossip.table;
    let places = table.take_due(by_ms);
    if places.is_empty() {
        return;
    }
    let began = Instant::now();
    let reports = places.into_iter().flat_map(|place| {
        let all = table.reports(&place);
        all.into_iter().map(move |(window, tally)| Report { place: place.clone(), window, tally })
    });
    let mut reports = reports.peekable();
    let mut writing = JoinSet::new();
    while reports.peek().is_some() {
        let some: Vec<_> = reports.by_ref().take(EDITS_MAX).collect();
        if writing.len() >= WRITES_MAX {
            writing.join_next().await;
        }
        writing.spawn(write(node.clone(), replica.cloned(), some));
    }
    while writing.join_next().await.is_some() {}
    node.gossip.written_ms.store(began.elapsed().as_millis() as u64, Ordering::Relaxed);
    node.metrics.gossip_waiting.set(table.waiting() as i64);
}

async fn write(node: Arc<Node>, replica: Option<Arc<Replica>>, reports: Vec<Report>) {
    let outcome = written(&node, replica.as_deref(), &reports).await;
    let table = &node.gossip.table;
    match outcome {
        Ok(()) => {
            Metrics::count(&node.metrics.gossip_writes, "written");
            node.gossip.is_told.store(false, Ordering::Relaxed);
            reports.iter().for_each(|report| table.reported(&report.place, report.window, report.tally));
        }
        // One of them can't be written: the others can.
        Err(Failure::Refused(_)) if reports.len() > 1 => {
            for report in reports {
                Box::pin(write(node.clone(), replica.clone(), vec![report])).await;
            }
        }
        Err(failure) => {
            Metrics::count(&node.metrics.gossip_writes, "failed");
            if !node.gossip.is_told.swap(true, Ordering::Relaxed) {
                tracing::warn!(%failure, "counts of gossip limits can't be written: they stay with this node");
            }
            reports.iter().for_each(|report| table.tell_again(&report.place, node.uptime_ms(), AGAIN_MS));
        }
    }
}

async fn written(node: &Node, replica: Option<&Replica>, reports: &[Report]) -> Result<(), Failure> {
    let replica = replica.ok_or(Failure::Broken)?;
    let edits: Vec<_> = reports.iter().map(|report| report.edit(node.gossip.writer)).collect();
    let written = timeout(WRITE_WITHIN, replica.write(&edits, None)).await;
    written.unwrap_or(Err(Failure::Unknown)).map(drop)
}

/// Removes counts of windows that are over. A late one brings its row back, and the next look removes it again.
async fn sweep(node: &Arc<Node>, replica: &Replica) {
    let mut from: Option<Vec<u8>> = None;
    loop {
        let maps = replica.maps(window::NAMESPACE, window::MAPS, from.as_deref(), MAPS_AT_ONCE);
        for (map, _) in &maps.items {
            while !node.is_draining() {
                let over = over(replica, map, node.gossip.now_ms());
                let is_last = over.len() < EDITS_MAX;
                let edits: Vec<_> =
                    over.into_iter().map(|key| Edit { key, act: Act::Remove(None) }).collect();
                // What can't be removed now is found again.
                if !edits.is_empty() && replica.write(&edits, None).await.is_err() {
                    return;
                }
                if is_last {
                    break;
                }
            }
        }
        from = maps.next;
        if from.is_none() {
            return;
        }
    }
}

/// The first of a limit's counts that can go: what is over comes first.
fn over(replica: &Replica, map: &str, now_ms: u64) -> Vec<RowKey> {
    let rows = replica.map(window::NAMESPACE, map, None, EDITS_MAX).value.items;
    let is_over = |key: &RowKey| {
        let window = key.parts().field.and_then(Window::of_field);
        // What this version can't read is for the one that wrote it.
        window.is_some_and(|(window, _)| window.is_forgettable(now_ms))
    };
    rows.into_iter().map(|(key, _)| key).take_while(is_over).collect()
}
