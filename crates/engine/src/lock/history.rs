//! What happened to a lock, kept in one record a lock and written behind the answers.
//!
//! A grant enters the history when it has ended; while it lasts, the grant itself says all there is to say. Events of a
//! lock are collected and appended together, so a busy lock costs a commit every half second, not one an event. A crash may lose the last of them; a forced release is never lost, it is in the commit itself.
//!
//! Layout, version 1: for each event, oldest first: kind, fencing token, at, renewals + 1 or 0, owner.

use super::calls::{Failure, HistoryEvent, HistoryKind, LockError};
use super::commit::Witnessed;
use super::desks::Told;
use crate::engine::{Engine, Node};
use crate::metrics::Metrics;
use baton_core::codec::{Decoder, Encoder, Unreadable};
use baton_core::lock::audit;
use baton_core::lock::command::End;
use baton_core::lock::grant::Grant;
use baton_core::lock::name::Kind;
use baton_core::lock::{Effect, FencingToken, LockName};
use baton_core::{Bytes, Check, Commit, Outcome, Ttl, WallTime, Write};
use baton_store::Range;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::task::JoinSet;

/// Events kept of one lock: older ones make room.
const EVENTS_MAX: usize = 64;
/// Locks whose events wait to be written; beyond it events are dropped, and counted.
const PENDING_MAX: usize = 16 * 1024;
/// Histories written at once.
const WRITTEN_TOGETHER: usize = 64;
/// Forced releases shown of one lock.
const FORCED_MAX: usize = 64;
const VERSION: u8 = 1;

/// An event of a lock's history.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Event {
    kind: HistoryKind,
    fencing: u64,
    at: WallTime,
    renewals: Option<u64>,
    owner: Arc<str>,
}

/// Events that wait to be written.
#[derive(Default)]
pub(crate) struct History {
    pending: Mutex<BTreeMap<LockName, VecDeque<Event>>>,
    flushing: tokio::sync::Mutex<()>,
}

impl Node {
    /// Keeps what a commit did, for histories and metrics.
    pub(super) fn record(&self, lock: &LockName, effect: &Effect, told: &Told, witnessed: &Witnessed) {
        let (event, fencing, owner) = match effect {
            Effect::Granted { grant, queued_since } => {
                if let Some(since) = queued_since {
                    let waited = Duration::from_millis(told.now.0.saturating_sub(since.0));
                    self.metrics.wait_seconds.observe(waited.as_secs_f64());
                }
                ("granted", grant.fencing, &grant.owner)
            }
            Effect::Ended { id, how, owner, fencing, granted_at } => {
                let event = match how {
                    End::Released => "released",
                    End::Undelivered => "undelivered",
                    End::Expired => "expired",
                    End::Forced => "forced",
                };
                Metrics::count(&self.metrics.ended, event);
                let grant = witnessed.get(&lock.grant(*id).name);
                let seen = grant.and_then(|record| Grant::decode(&record.value).ok());
                let granted_at = seen.map_or(*granted_at, |grant| grant.granted_at);
                let held = Duration::from_millis(told.now.0.saturating_sub(granted_at.0));
                self.metrics.hold_seconds.observe(held.as_secs_f64());
                let fencing_token = fencing.resolve(told.revision).0;
                let renewals = grant.map(|record| record.touches);
                self.keep_history(lock, *how, (owner, fencing_token), (granted_at, told.now), renewals);
                (event, *fencing, owner)
            }
        };
        tracing::debug!(
            namespace = lock.namespace(),
            key = lock.key(),
            owner = &**owner,
            fencing_token = fencing.resolve(told.revision).0,
            "lock {event}"
        );
    }

    /// A grant enters the history when it has ended: until then the grant itself says all there is to say.
    fn keep_history(
        &self,
        lock: &LockName,
        how: End,
        (owner, fencing): (&Arc<str>, u64),
        (granted_at, ended_at): (WallTime, WallTime),
        renewals: Option<u64>,
    ) {
        let event = |kind, at, renewals| Event { kind, fencing, at, renewals, owner: owner.clone() };
        let granted = event(HistoryKind::Granted, granted_at, None);
        let ended = match how {
            End::Released | End::Undelivered => Some(event(HistoryKind::Released, ended_at, renewals)),
            End::Expired => Some(event(HistoryKind::Expired, ended_at, renewals)),
            // That is in the audit, with its reason.
            End::Forced => None,
        };
        if self.store.usage().is_tight() || !self.history.push(lock, [granted].into_iter().chain(ended)) {
            self.metrics.history_dropped.inc();
        }
    }
}

impl History {
    fn push(&self, lock: &LockName, events: impl IntoIterator<Item = Event>) -> bool {
        let mut pending = self.pending.lock().expect("no panic while held");
        if pending.len() >= PENDING_MAX && !pending.contains_key(lock) {
            return false;
        }
        let queue = pending.entry(lock.clone()).or_default();
        queue.extend(events);
        while queue.len() > EVENTS_MAX {
            queue.pop_front();
        }
        true
    }
}

/// Writes histories until the node drains.
pub(crate) async fn keep(node: Arc<Node>) {
    loop {
        tokio::select! {
            biased;
            () = node.draining.wait() => return,
            () = tokio::time::sleep(node.config.history_every) => flush(&node).await,
        }
    }
}

/// Writes what is pending. Failures are dropped: history follows, it doesn't lead.
pub(crate) async fn flush(node: &Arc<Node>) {
    let _one_at_a_time = node.history.flushing.lock().await;
    let mut pending = std::mem::take(&mut *node.history.pending.lock().expect("no panic while held"));
    while !pending.is_empty() {
        // Side by side, so that the store can sync them together.
        let mut writing = JoinSet::new();
        while writing.len() < WRITTEN_TOGETHER
            && let Some((lock, events)) = pending.pop_first()
        {
            let node = node.clone();
            writing.spawn(async move {
                if append(&node, &lock, events).await.is_err() {
                    node.metrics.history_dropped.inc();
                }
            });
        }
        writing.join_all().await;
    }
}

async fn append(node: &Node, lock: &LockName, events: VecDeque<Event>) -> Result<(), Failure> {
    let key = lock.history();
    let mut check = Check::Absent(key.clone());
    let mut known = VecDeque::new();
    for _ in 0..8 {
        let mut all = known.clone();
        all.extend(events.iter().cloned());
        while all.len() > EVENTS_MAX {
            all.pop_front();
        }
        let ttl = Ttl::AtLeast(node.config.history_kept);
        let put = Write::Put { key: key.clone(), value: encode(&all), ttl };
        let commit = node.store.commit(Commit { checks: vec![check.clone()], writes: vec![put] });
        let outcome = tokio::time::timeout(node.config.store_deadline, commit).await;
        match outcome.ok().and_then(Result::ok).ok_or(Failure::Unavailable { unknown: true })? {
            Outcome::Committed { .. } => return Ok(()),
            Outcome::Conflict { found, .. } => {
                match found.into_iter().next().and_then(|(_, record)| record) {
                    None => check = Check::Absent(key.clone()),
                    Some(record) => {
                        known = decode(&record.value).map_err(|_| Failure::Internal)?;
                        check = Check::At(key.clone(), record.revision);
                    }
                }
            }
        }
    }
    Err(Failure::Overloaded)
}

impl Engine {
    /// What happened to a lock, newest first (L11).
    pub async fn lock_history(&self, lock: &LockName) -> Result<Vec<HistoryEvent>, LockError> {
        let record = self.read_one(lock.history()).await?;
        let mut events = match record {
            Some(record) => decode(&record.value).map_err(|_| LockError::Failed(Failure::Internal))?,
            None => VecDeque::new(),
        };
        if let Some(pending) = self.node.history.pending.lock().expect("no panic while held").get(lock) {
            events.extend(pending.iter().cloned());
        }
        let mut shown: Vec<_> = events.into_iter().map(|event| event.shown(lock)).collect();
        if let Some(held) = self.lock_state(lock).await? {
            let (kind, fencing) = (HistoryKind::Granted, held.fencing.0);
            let now = Event { kind, fencing, at: held.acquired_at, renewals: None, owner: held.owner };
            shown.push(now.shown(lock));
        }
        let range = Range { group: lock.group(), prefix: lock.prefix(Kind::Audit), after: None };
        let page = self.in_time(self.node.store.scan(range, FORCED_MAX)).await?;
        for record in page.records {
            let forced = audit::Forced::decode(&record.value);
            let forced = forced.map_err(|_| LockError::Failed(Failure::Internal))?;
            shown.push(HistoryEvent {
                kind: HistoryKind::Forced,
                key: lock.key().into(),
                owner: forced.owner,
                fencing: FencingToken::from(forced.fencing),
                at: forced.at,
                renewals: None,
                reason: Some(forced.reason),
                by: Some(forced.by),
            });
        }
        // Newest first. One grant is over before the next begins, so their tokens are the order.
        shown.sort_by_key(|event| std::cmp::Reverse((event.fencing, event.kind != HistoryKind::Granted)));
        Ok(shown)
    }
}

impl Event {
    fn shown(self, lock: &LockName) -> HistoryEvent {
        HistoryEvent {
            kind: self.kind,
            key: lock.key().into(),
            owner: self.owner,
            fencing: FencingToken(self.fencing),
            at: self.at,
            renewals: self.renewals,
            reason: None,
            by: None,
        }
    }
}

fn encode(events: &VecDeque<Event>) -> Bytes {
    let mut to = Encoder::new(VERSION).number(events.len() as u64);
    for event in events {
        to = to
            .byte(event.kind as u8)
            .number(event.fencing)
            .number(event.at.0)
            .number(event.renewals.map_or(0, |renewals| renewals + 1))
            .bytes(event.owner.as_bytes());
    }
    to.finish()
}

fn decode(value: &[u8]) -> Result<VecDeque<Event>, Unreadable> {
    let mut from = Decoder::new(value, VERSION)?;
    let count = from.number()?;
    let mut events = VecDeque::new();
    for _ in 0..count {
        let kind = match from.byte()? {
            0 => HistoryKind::Granted,
            1 => HistoryKind::Released,
            2 => HistoryKind::Expired,
            3 => HistoryKind::Forced,
            _ => return Err(Unreadable),
        };
        let (fencing, at, renewals) = (from.number()?, from.time()?, from.number()?.checked_sub(1));
        events.push_back(Event { kind, fencing, at, renewals, owner: from.text()? });
    }
    from.finish()?;
    Ok(events)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_history_is_read_as_it_was_written() {
        let event = |kind, renewals| Event {
            kind,
            fencing: 1 << 50,
            at: WallTime(1_700_000_000_000),
            renewals,
            owner: "owner é".into(),
        };
        let events: VecDeque<_> = [
            event(HistoryKind::Granted, None),
            event(HistoryKind::Released, Some(0)),
            event(HistoryKind::Expired, Some(7)),
            event(HistoryKind::Forced, None),
        ]
        .into();
        assert_eq!(decode(&encode(&events)), Ok(events));
        assert!(decode(&[1, 9, 9]).is_err());
    }
}
