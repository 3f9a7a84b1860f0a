//! Looking at locks without changing anything (L11).

use super::calls::{Failure, ListPage, LockError, LockState, QueueEntry, Refusal, Summary};
use crate::engine::Engine;
use baton_core::lock::grant::Grant;
use baton_core::lock::name::Kind;
use baton_core::lock::roster::{Holder, Roster};
use baton_core::lock::waiting::Waiting;
use baton_core::lock::{FencingToken, LockName, NodeId};
use baton_core::{Bytes, Group, Key, Record, WallTime};
use baton_store::{Page, Range, Reading, StoreError};
use std::time::Duration;

/// Waiters shown of a queue.
const QUEUE_SHOWN_MAX: usize = 10_000;
/// Records read from the store at once.
const PAGE: usize = 256;
/// How often a status is read again because the lock changed in between.
const READS_MAX: usize = 8;

impl Engine {
    /// Who holds a lock.
    pub async fn lock_state(&self, lock: &LockName) -> Result<Option<LockState>, LockError> {
        let mut roster_record = self.read_one(lock.roster()).await?;
        for _ in 0..READS_MAX {
            let Some(record) = roster_record else { return Ok(None) };
            let roster = Roster::decode(&record.value).map_err(unreadable)?;
            let Some(holder) = &roster.holder else { return Ok(None) };
            // Together, so that grant and roster are of one moment.
            let mut reading = self.read(vec![lock.roster(), lock.grant(holder.id)]).await?;
            let (grant, again) = (reading.records.pop().flatten(), reading.records.pop().flatten());
            let Some(again) = again else { return Ok(None) };
            let roster = Roster::decode(&again.value).map_err(unreadable)?;
            if roster.holder.as_ref().is_some_and(|now| now.id == holder.id) {
                return match grant {
                    None => Ok(None),
                    Some(grant) => state(&roster, holder, &grant, reading.now).map(Some),
                };
            }
            roster_record = Some(again);
        }
        Err(LockError::Failed(Failure::Overloaded))
    }

    /// Held locks of a namespace whose keys begin with `prefix`, in an order that is stable from page to page.
    pub async fn list_locks(
        &self,
        namespace: &str,
        prefix: &str,
        limit: usize,
        cursor: Option<&str>,
    ) -> Result<ListPage, LockError> {
        let mut place = match cursor {
            None => Some((Group(0), None)),
            Some(cursor) => Some(Cursor::parse(cursor, namespace, prefix)?),
        };
        let names: Bytes = Kind::Roster.prefix(namespace, prefix).into();
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
            if let Some(holder) = roster.holder {
                held.push((lock, holder, roster.waiting));
            }
        }
        let grants = held.iter().map(|(lock, holder, _)| lock.grant(holder.id)).collect();
        let reading = self.read(grants).await?;
        for ((lock, holder, waiting), grant) in held.into_iter().zip(reading.records) {
            let Some(grant) = grant else { continue };
            locks.push(Summary {
                key: lock.key().into(),
                owner: holder.owner,
                expires_at: reading.now.after(grant.expires_in.unwrap_or_default()),
                fencing: FencingToken::from(grant.created),
                waiting,
            });
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
                let entry_shown =
                    QueueEntry { owner: entry.terms.owner, since: entry.since, waited, connected };
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

    pub(super) async fn read_one(&self, key: Key) -> Result<Option<Record>, LockError> {
        Ok(self.read(vec![key]).await?.records.pop().flatten())
    }

    async fn read(&self, keys: Vec<Key>) -> Result<Reading, LockError> {
        let reading = self.in_time(self.node.store.read(keys)).await?;
        self.node.note_time(reading.now);
        Ok(reading)
    }

    /// A call that changes nothing, within the store's deadline.
    pub(super) async fn in_time<T>(
        &self,
        call: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, LockError> {
        let unavailable = LockError::Failed(Failure::Unavailable { unknown: false });
        match self.node.in_time(call).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(error)) => {
                self.node.store_failed(&error);
                Err(unavailable)
            }
            Err(_) => Err(unavailable),
        }
    }
}

fn state(roster: &Roster, holder: &Holder, record: &Record, now: WallTime) -> Result<LockState, LockError> {
    let grant = Grant::decode(&record.value).map_err(unreadable)?;
    let expires_at = now.after(record.expires_in.unwrap_or_default());
    // The store keeps when a lease ends, not when it was renewed; a lease that was renewed for longer than it was
    // granted for would otherwise seem to have been renewed in the future.
    let updated_at = WallTime(expires_at.0.saturating_sub(grant.ttl.as_millis() as u64));
    Ok(LockState {
        owner: holder.owner.clone(),
        expires_at,
        fencing: FencingToken::from(record.created),
        acquired_at: grant.granted_at,
        updated_at: updated_at.clamp(grant.granted_at.min(now), now),
        ttl: grant.ttl,
        count: holder.count,
        waiting: roster.waiting,
        renewals: record.touches,
        metadata: roster.metadata.clone(),
    })
}

fn unreadable(_: baton_core::codec::Unreadable) -> LockError {
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

    fn parse(text: &str, namespace: &str, prefix: &str) -> Result<(Group, Option<Bytes>), LockError> {
        let bad = || LockError::Refused(Refusal::BadCursor);
        let group = text.get(..2).and_then(|group| u8::from_str_radix(group, 16).ok()).ok_or_else(bad)?;
        match &text[2..] {
            "" => Ok((Group(group), None)),
            key if !key.starts_with(prefix) => Err(bad()),
            key => {
                let lock = LockName::new(namespace, key);
                if lock.group() == Group(group) {
                    Ok((Group(group), Some(lock.roster().name)))
                } else {
                    Err(bad())
                }
            }
        }
    }
}
