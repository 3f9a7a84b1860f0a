//! The records, and one commit against them.

use baton_core::{Bytes, COMMIT_BYTES_MAX, COMMIT_OPERATIONS_MAX};
use baton_core::{Check, Commit, Key, Outcome, Record, Revision, WallTime, Write};
use baton_store::watch::Change;
use baton_store::{Page, Range, Reading, Reason, StoreError};
use std::collections::BTreeMap;
use std::time::Duration;

#[derive(Clone)]
struct Entry {
    value: Bytes,
    created: Revision,
    revision: Revision,
    touches: u64,
    /// By the store's clock.
    expires: Option<Duration>,
}

impl Entry {
    fn is_live(&self, now: Duration) -> bool {
        self.expires.is_none_or(|expires| now < expires)
    }

    fn record(&self, key: &Key, now: Duration) -> Record {
        Record {
            key: key.clone(),
            value: self.value.clone(),
            created: self.created,
            revision: self.revision,
            touches: self.touches,
            expires_in: self.expires.map(|expires| expires.saturating_sub(now)),
        }
    }
}

/// Everything a store knows.
#[derive(Default)]
pub(super) struct State {
    pub revision: Revision,
    records: BTreeMap<Key, Entry>,
}

impl State {
    fn get(&self, key: &Key, now: Duration) -> Option<&Entry> {
        self.records.get(key).filter(|entry| entry.is_live(now))
    }

    fn record(&self, key: &Key, now: Duration) -> Option<Record> {
        self.get(key, now).map(|entry| entry.record(key, now))
    }

    fn holds(&self, check: &Check, now: Duration) -> bool {
        let found = self.get(check.key(), now);
        match check {
            Check::Absent(_) => found.is_none(),
            Check::Created(_, revision) => found.is_some_and(|entry| entry.created == *revision),
            Check::At(_, revision) => found.is_some_and(|entry| entry.revision == *revision),
        }
    }

    /// All writes if all checks hold, else none.
    pub fn apply(&mut self, commit: &Commit, now: Duration, wall: WallTime) -> Outcome {
        let touched = || {
            commit.writes.iter().filter_map(|write| match write {
                Write::Touch { key, .. } => Some(key),
                Write::Put { .. } | Write::Delete { .. } => None,
            })
        };
        let holds = commit.checks.iter().all(|check| self.holds(check, now))
            && touched().all(|key| self.get(key, now).is_some());
        if !holds {
            let keys = commit.checks.iter().map(Check::key).chain(touched());
            let found = keys.map(|key| (key.clone(), self.record(key, now))).collect();
            return Outcome::Conflict { found, now: wall };
        }
        self.revision.0 += 1;
        let witnessed = commit.writes.iter().filter_map(|write| self.write(write, now)).collect();
        Outcome::Committed { revision: self.revision, now: wall, witnessed }
    }

    /// Does one write; gives what it witnessed, if it is one that does.
    fn write(&mut self, write: &Write, now: Duration) -> Option<Option<Record>> {
        match write {
            Write::Put { key, value, ttl } => {
                let old = self.get(key, now).map(|entry| (entry.created, entry.touches));
                let (created, touches) = old.unwrap_or((self.revision, 0));
                let expires = ttl.length().map(|length| now + length);
                let (value, revision) = (value.clone(), self.revision);
                let entry = Entry { value, created, revision, touches, expires };
                self.records.insert(key.clone(), entry);
                None
            }
            Write::Touch { key, ttl } => {
                let entry = self.records.get_mut(key)?;
                entry.touches += 1;
                entry.expires = entry.expires.map(|expires| expires.max(now + *ttl));
                Some(Some(entry.record(key, now)))
            }
            Write::Delete { key } => {
                let old = self.record(key, now);
                self.records.remove(key);
                Some(old)
            }
        }
    }

    pub fn read(&self, keys: &[Key], now: Duration, wall: WallTime) -> Reading {
        Reading { records: keys.iter().map(|key| self.record(key, now)).collect(), now: wall }
    }

    pub fn scan(&self, range: &Range, limit: usize, now: Duration, wall: WallTime) -> Page {
        let after = range.after.clone().filter(|after| **after >= *range.prefix);
        let start = Key { group: range.group, name: after.clone().unwrap_or_else(|| range.prefix.clone()) };
        let mut records: Vec<_> = self
            .records
            .range(start..)
            .take_while(|(key, _)| key.group == range.group && key.name.starts_with(&range.prefix))
            .filter(|(key, entry)| Some(&key.name) != after.as_ref() && entry.is_live(now))
            .take(limit + 1)
            .map(|(key, entry)| entry.record(key, now))
            .collect();
        let more = records.len() > limit;
        records.truncate(limit);
        Page { records, more, now: wall }
    }

    pub fn live(&self, now: Duration) -> Vec<Record> {
        let live = self.records.iter().filter(|(_, entry)| entry.is_live(now));
        live.map(|(key, entry)| entry.record(key, now)).collect()
    }

    pub fn count(&self) -> u64 {
        self.records.len() as u64
    }

    /// Takes back what is expired; says what it was.
    pub fn collect(&mut self, now: Duration) -> Vec<Key> {
        let expired = self.records.iter().filter(|(_, entry)| !entry.is_live(now));
        let expired: Vec<_> = expired.map(|(key, _)| key.clone()).collect();
        for key in &expired {
            self.records.remove(key);
        }
        expired
    }
}

/// What a commit that holds is hinted at with.
pub(super) fn changes(commit: &Commit, revision: Revision) -> Vec<Change> {
    let changes = commit.writes.iter().filter_map(|write| match write {
        Write::Put { key, value, .. } => {
            Some(Change::Put { key: key.clone(), value: value.clone(), revision })
        }
        Write::Delete { key } => Some(Change::Deleted { key: key.clone(), revision }),
        Write::Touch { .. } => None,
    });
    changes.collect()
}

/// Refuses what breaks the contract.
pub(super) fn validate(commit: &Commit) -> Result<(), StoreError> {
    let keys = || commit.checks.iter().map(Check::key).chain(commit.writes.iter().map(Write::key));
    let groups_differ = keys().any(|key| keys().any(|other| other.group != key.group));
    let writes = || commit.writes.iter().enumerate();
    let written_twice = writes()
        .any(|(index, write)| commit.writes[..index].iter().any(|earlier| earlier.key() == write.key()));
    let is_large = commit.operations() > COMMIT_OPERATIONS_MAX || commit.bytes() > COMMIT_BYTES_MAX;
    if groups_differ || written_twice || is_large {
        let detail = "too large, several groups, or two writes for a key".into();
        return Err(StoreError::NotApplied { reason: Reason::Invalid, detail });
    }
    Ok(())
}
