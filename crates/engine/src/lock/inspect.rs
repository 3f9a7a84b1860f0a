//! Looking at locks without changing anything (L11).

use super::calls::{Failure, HolderState, ListPage, LockError, LockState, QueueEntry, Refusal, Summary};
use crate::engine::Engine;
use baton_core::lock::grant::Grant;
use baton_core::lock::name::Kind;
use baton_core::lock::roster::{Holder, Roster};
use baton_core::lock::waiting::Waiting;
use baton_core::lock::{Family, FencingToken, GrantId, LockName, NodeId};
use baton_core::{Bytes, Group, Key, Record, WallTime};
use baton_store::{Page, Range, Reading, StoreError};
use std::time::Duration;

/// Waiters shown of a queue.
const QUEUE_SHOWN_MAX: usize = 10_000;
/// Records read from the store at once.
const PAGE: usize = 256;
/// Grants read at once.
const GRANTS_READ_MAX: usize = 512;
/// How often a status is read again because the lock changed in between.
const READS_MAX: usize = 8;

impl Engine {
    /// Who holds a lock.
    pub async fn lock_state(&self, lock: &LockName) -> Result<Option<LockState>, LockError> {
        let mut roster_record = self.read_one(lock.roster()).await?;
        for _ in 0..READS_MAX {
            let Some(record) = roster_record else { return Ok(None) };
            let expected = held_by(&Roster::decode(&record.value).map_err(unreadable)?);
            if expected.is_empty() {
                return Ok(None);
            }
            // Together, so that grants and roster are of one moment.
            let grants = expected.iter().map(|id| lock.grant(*id));
            let mut reading = self.read(std::iter::once(lock.roster()).chain(grants).collect()).await?;
            let grants = reading.records.split_off(1);
            let Some(again) = reading.records.pop().flatten() else { return Ok(None) };
            let roster = Roster::decode(&again.value).map_err(unreadable)?;
            if held_by(&roster) == expected {
                return state(&roster, &grants, reading.now);
            }
            roster_record = Some(again);
        }
        Err(LockError::Failed(Failure::Overloaded))
    }

    /// Held locks of a family and a namespace whose keys begin with `prefix`, in an order that is stable from page to page.
    pub async fn list_locks(
        &self,
        family: Family,
        namespace: &str,
        prefix: &str,
        limit: usize,
        cursor: Option<&str>,
    ) -> Result<ListPage, LockError> {
        let mut place = match cursor {
            None => Some((Group(0), None)),
            Some(cursor) => Some(Cursor::parse(cursor, family, namespace, prefix)?),
        };
        let names: Bytes = Kind::Roster.prefix(family, namespace, prefix).into();
        let mut locks = Vec::new();
        while let Some((group, after)) = place.clone() {
            if locks.len() >= limit {
                break;
            }
            let range = Range { group, prefix: names.clone(), after };
            let page = self.in_time(self.node.store.scan(range, PAGE.min(limit - locks.len()))).await?;
            let last = page.records.last().map(|record| record.key.name.clone());
            self.summarise(page.records, &mut locks).await?;
            let next_group = group.0.checked_add(1).map(|group| (Group(group), None));
            place = if page.more { last.map(|last| (group, Some(last))) } else { next_group };
        }
        let next_cursor = place.map(|(group, after)| Cursor::text(group, after.as_ref()));
        Ok(ListPage { locks, next_cursor })
    }

    async fn summarise(&self, rosters: Vec<Record>, locks: &mut Vec<Summary>) -> Result<(), LockError> {
        let mut held = Vec::new();
        for record in rosters {
            let Some((lock, _)) = LockName::of_record(Kind::Roster, &record.key.name) else { continue };
            let roster = Roster::decode(&record.value).map_err(unreadable)?;
            held.extend(roster.holders.iter().filter(|holder| !holder.closed).map(|holder| {
                let key = lock.key().to_owned();
                let (owner, hold) = (holder.owner.clone(), holder.hold);
                let (permits, waiting) = (roster.permits, roster.waiting);
                let (expires_at, fencing) = (WallTime(0), FencingToken(0));
                let summary = Summary { key, owner, expires_at, fencing, hold, holders: 1, permits, waiting };
                (lock.grant(holder.id), summary)
            }));
        }
        for held in held.chunks(GRANTS_READ_MAX) {
            let reading = self.read(held.iter().map(|(key, _)| key.clone()).collect()).await?;
            for ((_, summary), grant) in held.iter().zip(reading.records) {
                let Some(grant) = grant else { continue };
                match locks.last_mut() {
                    Some(last) if last.key == summary.key => last.holders += 1,
                    _ => locks.push(Summary {
                        expires_at: reading.now.after(grant.expires_in.unwrap_or_default()),
                        fencing: FencingToken::from(grant.created),
                        ..summary.clone()
                    }),
                }
            }
        }
        Ok(())
    }

    /// Who waits for a lock, next first.
    pub async fn lock_queue(&self, lock: &LockName) -> Result<Vec<QueueEntry>, LockError> {
        let mut waiting: Vec<(u64, QueueEntry)> = Vec::new();
        let mut after = None;
        loop {
            let range = Range { group: lock.group(), prefix: lock.prefix(Kind::Waiting), after };
            let page: Page = self.in_time(self.node.store.scan(range, PAGE)).await?;
            for record in &page.records {
                let entry = Waiting::decode(&record.value).map_err(unreadable)?;
                let connected =
                    entry.node == self.node.id || (self.node.is_shared && entry.node != NodeId::NONE);
                let waited = Duration::from_millis(page.now.0.saturating_sub(entry.since.0));
                let (owner, mode) = (entry.terms.owner, entry.terms.mode);
                let entry_shown = QueueEntry { owner, mode, since: entry.since, waited, connected };
                waiting.push((entry.place, entry_shown));
            }
            after = page.records.last().map(|record| record.key.name.clone());
            if !page.more || waiting.len() >= QUEUE_SHOWN_MAX {
                break;
            }
        }
        waiting.sort_by_key(|(place, _)| *place);
        Ok(waiting.into_iter().map(|(_, entry)| entry).collect())
    }

    pub(crate) async fn read_one(&self, key: Key) -> Result<Option<Record>, LockError> {
        Ok(self.read(vec![key]).await?.records.pop().flatten())
    }

    pub(crate) async fn read(&self, keys: Vec<Key>) -> Result<Reading, LockError> {
        self.node.read(keys, self.node.deadline()).await.map_err(LockError::Failed)
    }

    /// A call that changes nothing, within the store's deadline.
    pub(crate) async fn in_time<T>(
        &self,
        call: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, LockError> {
        self.node.asked(call, self.node.deadline()).await.map_err(LockError::Failed)
    }
}

/// Whose grants a roster speaks of.
fn held_by(roster: &Roster) -> Vec<GrantId> {
    roster.holders.iter().filter(|holder| !holder.closed).map(|holder| holder.id).collect()
}

fn state(roster: &Roster, grants: &[Option<Record>], now: WallTime) -> Result<Option<LockState>, LockError> {
    let open = roster.holders.iter().filter(|holder| !holder.closed);
    let mut holders = Vec::new();
    for (holder, grant) in open.zip(grants) {
        if let Some(grant) = grant {
            holders.push(holder_state(roster, holder, grant, now)?);
        }
    }
    let (permits, waiting) = (roster.permits, roster.waiting);
    Ok((!holders.is_empty()).then_some(LockState { holders, permits, waiting }))
}

fn holder_state(
    roster: &Roster,
    holder: &Holder,
    record: &Record,
    now: WallTime,
) -> Result<HolderState, LockError> {
    let grant = Grant::decode(&record.value).map_err(unreadable)?;
    let expires_at = now.after(record.expires_in.unwrap_or_default());
    // The store keeps when a lease ends, not when it was renewed; a lease that was renewed for longer than it was
    // granted for would otherwise seem to have been renewed in the future.
    let updated_at = WallTime(expires_at.0.saturating_sub(grant.ttl.as_millis() as u64));
    Ok(HolderState {
        owner: holder.owner.clone(),
        expires_at,
        fencing: FencingToken::from(record.created),
        acquired_at: grant.granted_at,
        updated_at: updated_at.clamp(grant.granted_at.min(now), now),
        ttl: grant.ttl,
        count: holder.count,
        hold: holder.hold,
        renewals: record.touches,
        metadata: grant.metadata.or_else(|| roster.metadata.clone()),
    })
}

pub(crate) fn unreadable(_: baton_core::codec::Unreadable) -> LockError {
    tracing::error!("a record can't be read by this version");
    LockError::Failed(Failure::Internal)
}

/// Where a list goes on: a group in hex, and the key after which.
struct Cursor;

impl Cursor {
    fn text(group: Group, after: Option<&Bytes>) -> String {
        let lock = after.and_then(|name| LockName::of_record(Kind::Roster, name));
        format!("{:02x}{}", group.0, lock.map(|(lock, _)| lock.key().to_owned()).unwrap_or_default())
    }

    fn parse(
        text: &str,
        family: Family,
        namespace: &str,
        prefix: &str,
    ) -> Result<(Group, Option<Bytes>), LockError> {
        let bad = || LockError::Refused(Refusal::BadCursor);
        let group = text.get(..2).and_then(|group| u8::from_str_radix(group, 16).ok()).ok_or_else(bad)?;
        match &text[2..] {
            "" => Ok((Group(group), None)),
            key if !key.starts_with(prefix) => Err(bad()),
            key => {
                let lock = LockName::of(family, namespace, key);
                if lock.group() == Group(group) {
                    Ok((Group(group), Some(lock.roster().name)))
                } else {
                    Err(bad())
                }
            }
        }
    }
}
