//! What happened to a lock, kept in one record a lock and written behind the answers.
//!
//! A grant enters the history when it has ended; while it lasts, the grant itself says all there is to say. Events of a
//! lock are collected and appended together, so a busy lock costs a commit every half second, not one an event. A crash may lose the last of them; a forced release is never lost, it is in the commit itself.
//!
//! Layout, version 2: for each event, oldest first: kind, fencing token, at, renewals + 1 or 0, owner, and the revision of
//! the commit that did it. Version 1 is without the last.

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
const NEWEST: u8 = 2;

/// An event of a lock's history.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Event {
    kind: HistoryKind,
    fencing: u64,
    at: WallTime,
    renewals: Option<u64>,
    owner: Arc<str>,
    /// The commit that did it; its grant's if that isn't known.
    revision: u64,
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
                let times = (granted_at, told.now, told.revision.0);
                self.keep_history(lock, *how, (owner, fencing_token), times, renewals);
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
        (granted_at, ended_at, ended_by): (WallTime, WallTime, u64),
        renewals: Option<u64>,
    ) {
        let event = |kind, at, renewals| {
            let revision = if kind == HistoryKind::Granted { fencing } else { ended_by };
            Event { kind, fencing, at, renewals, owner: owner.clone(), revision }
        };
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
        for held in self.lock_state(lock).await?.into_iter().flat_map(|state| state.holders) {
            let (kind, fencing) = (HistoryKind::Granted, held.fencing.0);
            let (at, owner) = (held.acquired_at, held.owner);
            events.push_back(Event { kind, fencing, at, renewals: None, owner, revision: fencing });
        }
        let mut shown: Vec<_> = events.into_iter().map(|event| (event.order(), event.shown(lock))).collect();
        let range = Range { group: lock.group(), prefix: lock.prefix(Kind::Audit), after: None };
        let page = self.in_time(self.node.store.scan(range, FORCED_MAX)).await?;
        for record in page.records {
            let forced = audit::Forced::decode(&record.value);
            let forced = forced.map_err(|_| LockError::Failed(Failure::Internal))?;
            let event = HistoryEvent {
                kind: HistoryKind::Forced,
                key: lock.key().into(),
                owner: forced.owner,
                fencing: FencingToken::from(forced.fencing),
                at: forced.at,
                renewals: None,
                reason: Some(forced.reason),
                by: Some(forced.by),
            };
            shown.push(((record.revision.0, Turn::Ended), event));
        }
        shown.sort_by_key(|(order, _)| std::cmp::Reverse(*order));
        Ok(shown.into_iter().map(|(_, event)| event).collect())
    }
}

/// What comes first of what one commit did, or seems to have done.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Turn {
    Ended,
    Granted,
    /// Of an event that doesn't say which commit ended its grant: right after the grant.
    EndedAfter,
}

impl Event {
    fn order(&self) -> (u64, Turn) {
        let turn = match self.kind {
            HistoryKind::Granted => Turn::Granted,
            _ if self.revision > self.fencing => Turn::Ended,
            _ => Turn::EndedAfter,
        };
        (self.revision, turn)
    }

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
    let mut to = Encoder::new(NEWEST).number(events.len() as u64);
    for event in events {
        to = to
            .byte(event.kind as u8)
            .number(event.fencing)
            .number(event.at.0)
            .number(event.renewals.map_or(0, |renewals| renewals + 1))
            .bytes(event.owner.as_bytes())
            .number(event.revision);
    }
    to.finish()
}

fn decode(value: &[u8]) -> Result<VecDeque<Event>, Unreadable> {
    let (version, mut from) = Decoder::versioned(value, NEWEST)?;
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
        let owner = from.text()?;
        let revision = if version == 1 { fencing } else { from.number()? };
        events.push_back(Event { kind, fencing, at, renewals, owner, revision });
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
            revision: (1 << 50) + 7,
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

    #[test]
    fn a_history_of_version_one_is_read_and_told_in_the_order_of_its_tokens() {
        let value =
            [1, 4, 0, 5, 9, 0, 1, b'a', 1, 5, 9, 1, 1, b'a', 0, 6, 9, 0, 1, b'b', 2, 6, 9, 3, 1, b'b'];
        let events = decode(&value).unwrap();
        assert_eq!(
            (events[3].kind, events[3].renewals, &*events[3].owner),
            (HistoryKind::Expired, Some(2), "b")
        );
        let mut sorted: Vec<_> = events.iter().collect();
        sorted.sort_by_key(|event| event.order());
        assert!(sorted.into_iter().eq(&events));
    }

    #[test]
    fn an_end_comes_before_the_grant_of_the_same_commit_and_after_those_of_earlier_ones() {
        let event = |kind, fencing, revision| {
            let (at, renewals, owner) = (WallTime(1), None, "o".into());
            Event { kind, fencing, at, renewals, owner, revision }
        };
        let in_order = [
            event(HistoryKind::Granted, 3, 3),
            event(HistoryKind::Granted, 4, 4),
            event(HistoryKind::Released, 3, 6),
            event(HistoryKind::Granted, 6, 6),
            event(HistoryKind::Expired, 4, 9),
        ];
        assert!(in_order.is_sorted_by_key(Event::order));
    }
}
