//! Locks whose holders vanished while nobody waited: the store says that a grant expired, and the lock is settled.
//!
//! A lock with waiters needs none of this: its desk looks by itself when the lease should be over. Without this
//! the lock would be just as free, but its roster would stay, and nobody would hear that it expired.

use super::desks::{Job, submit};
use crate::engine::Node;
use baton_core::lock::name::Kind;
use baton_core::lock::roster::Roster;
use baton_core::lock::{Command, Family, LockName};
use baton_core::{Group, Record};
use baton_store::watch::Change;
use baton_store::{Range, StoreError};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Rosters looked at together.
const PAGE: usize = 256;
/// Leases read at once.
const READ_MAX: usize = 512;
/// The store may have recovered after this long.
const SWEEP_AGAIN: Duration = Duration::from_millis(500);

/// Follows the store's hints until the node drains.
pub(crate) async fn keep(node: Arc<Node>) {
    let [mut of_locks, mut of_elections] =
        Family::ALL.map(|family| node.store.expirations(Kind::Grant.everywhere(family)));
    // Leaders have no lock-delay.
    let mut of_delays = node.store.expirations(Kind::Delay.everywhere(Family::Lock));
    // What expired before the first hint, and waiters whose node is gone.
    sweep(&node).await;
    loop {
        let change = tokio::select! {
            biased;
            () = node.draining.wait() => return,
            () = node.members.buried.notified() => {
                // All nodes notice it at about the same time.
                tokio::time::sleep(node.random.jittered(SWEEP_AGAIN)).await;
                Some(Change::Lost)
            }
            change = of_locks.next() => change,
            change = of_elections.next() => change,
            change = of_delays.next() => change,
        };
        match change {
            None => return,
            Some(Change::Expired { key }) => {
                let lock = Kind::of_name(&key.name).and_then(|kind| LockName::of_record(kind, &key.name));
                if let Some((lock, _)) = lock {
                    settle(&node, &lock);
                }
            }
            Some(Change::Lost) => sweep(&node).await,
            Some(Change::Put { .. } | Change::Deleted { .. }) => {}
        }
    }
}

fn settle(node: &Arc<Node>, lock: &LockName) {
    let deadline = Instant::now() + node.config.store_deadline;
    submit(node, lock, Job { command: Command::Settle, answer: None, deadline, doubtful: false });
}

/// Looks at every lock once, however often it takes.
async fn sweep(node: &Arc<Node>) {
    let mut groups: Vec<_> = Group::all().collect();
    while !groups.is_empty() && !node.is_draining() {
        let mut failed = Vec::new();
        for group in groups {
            let swept = tokio::time::timeout(node.config.store_deadline * 2, sweep_group(node, group)).await;
            match swept {
                Ok(Ok(())) => {}
                Ok(Err(error)) => {
                    node.store_failed(&error);
                    failed.push(group);
                }
                Err(_) => failed.push(group),
            }
        }
        groups = failed;
        if !groups.is_empty() {
            tokio::time::sleep(SWEEP_AGAIN).await;
        }
    }
}

async fn sweep_group(node: &Arc<Node>, group: Group) -> Result<(), StoreError> {
    for family in Family::ALL {
        sweep_family(node, group, family).await?;
    }
    Ok(())
}

async fn sweep_family(node: &Arc<Node>, group: Group, family: Family) -> Result<(), StoreError> {
    let mut after = None;
    loop {
        let range = Range { group, prefix: Kind::Roster.everywhere(family), after };
        let page = node.store.scan(range, PAGE).await?;
        settle_page(node, &page.records).await?;
        after = page.records.last().map(|record| record.key.name.clone());
        if !page.more || node.is_draining() {
            return Ok(());
        }
    }
}

/// Settles those that have waiters or whose holders' grants, or closed places' delays, are gone.
async fn settle_page(node: &Arc<Node>, records: &[Record]) -> Result<(), StoreError> {
    let mut owners = Vec::new();
    let mut leases = Vec::new();
    for record in records {
        let Some((lock, _)) = LockName::of_record(Kind::Roster, &record.key.name) else { continue };
        let Ok(roster) = Roster::decode(&record.value) else { continue };
        if roster.waiting > 0 || roster.holders.is_empty() {
            settle(node, &lock);
            continue;
        }
        for holder in &roster.holders {
            leases.push(if holder.closed { lock.delay(holder.id) } else { lock.grant(holder.id) });
            owners.push(lock.clone());
        }
    }
    let mut gone = BTreeSet::new();
    for (owners, leases) in owners.chunks(READ_MAX).zip(leases.chunks(READ_MAX)) {
        let found = node.store.read(leases.to_vec()).await?.records;
        gone.extend(owners.iter().zip(&found).filter(|(_, lease)| lease.is_none()).map(|(lock, _)| lock));
    }
    gone.into_iter().for_each(|lock| settle(node, lock));
    Ok(())
}
