//! Locks whose holders vanished while nobody waited: the store says that a grant expired, and the lock is settled.
//!
//! A lock with waiters needs none of this: its desk looks by itself when the lease should be over. Without this
//! the lock would be just as free, but its roster would stay, and nobody would hear that it expired.

use super::desks::{Job, submit};
use crate::engine::Node;
use baton_core::lock::name::Kind;
use baton_core::lock::roster::Roster;
use baton_core::lock::{Command, LockName};
use baton_core::{Group, Record};
use baton_store::watch::Change;
use baton_store::{Range, StoreError};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Rosters looked at together.
const PAGE: usize = 256;
/// The store may have recovered after this long.
const SWEEP_AGAIN: Duration = Duration::from_millis(500);

/// Follows the store's hints until the node drains.
pub(crate) async fn keep(node: Arc<Node>) {
    let mut expired = node.store.expirations(Kind::Grant.everywhere());
    // What expired before the first hint, and waiters whose node is gone.
    sweep(&node).await;
    loop {
        let change = tokio::select! {
            biased;
            () = node.draining.wait() => return,
            change = expired.next() => change,
        };
        match change {
            None => return,
            Some(Change::Expired { key }) => {
                if let Some((lock, _)) = LockName::of_record(Kind::Grant, &key.name) {
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
    let mut after = None;
    loop {
        let range = Range { group, prefix: Kind::Roster.everywhere(), after };
        let page = node.store.scan(range, PAGE).await?;
        settle_page(node, &page.records).await?;
        after = page.records.last().map(|record| record.key.name.clone());
        if !page.more || node.is_draining() {
            return Ok(());
        }
    }
}

/// Settles those that have waiters or whose holder's grant is gone.
async fn settle_page(node: &Arc<Node>, records: &[Record]) -> Result<(), StoreError> {
    let mut locks = Vec::new();
    let mut grants = Vec::new();
    for record in records {
        let Some((lock, _)) = LockName::of_record(Kind::Roster, &record.key.name) else { continue };
        let Ok(roster) = Roster::decode(&record.value) else { continue };
        match &roster.holder {
            Some(holder) if roster.waiting == 0 => {
                grants.push(lock.grant(holder.id));
                locks.push(lock);
            }
            _ => settle(node, &lock),
        }
    }
    if grants.is_empty() {
        return Ok(());
    }
    let found = node.store.read(grants).await?.records;
    for (lock, _) in locks.iter().zip(&found).filter(|(_, grant)| grant.is_none()) {
        settle(node, lock);
    }
    Ok(())
}
