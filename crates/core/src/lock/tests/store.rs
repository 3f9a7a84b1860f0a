//! A store in a few lines: the contract of [`crate::commit`], with a clock that only the test moves.

use crate::commit::{COMMIT_BYTES_MAX, COMMIT_OPERATIONS_MAX, Check, Commit, Outcome, Ttl, Write};
use crate::record::{Bytes, Key, Record, Revision, WallTime};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::time::Duration;

#[derive(Clone)]
struct Kept {
    record: Record,
    ends_at: Option<u64>,
}

/// Records, a clock and a revision.
#[derive(Clone, Default)]
pub struct Store {
    records: BTreeMap<Key, Kept>,
    /// Milliseconds.
    pub now: u64,
    /// Of the last commit.
    pub revision: u64,
    /// How often it was asked, for what.
    pub asked: Asked,
}

/// How often a store was asked, for what.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Asked {
    pub commits: u32,
    pub reads: u32,
}

impl Store {
    pub fn read(&mut self, key: &Key) -> Option<Record> {
        self.asked.reads += 1;
        self.look(key)
    }

    /// For the test's own eyes: not counted.
    pub fn look(&self, key: &Key) -> Option<Record> {
        let kept = self.records.get(key)?;
        let left = match kept.ends_at {
            Some(end) if end <= self.now => return None,
            end => end.map(|end| Duration::from_millis(end - self.now)),
        };
        Some(Record { expires_in: left, ..kept.record.clone() })
    }

    /// All records of the group whose names begin with `prefix`, in order.
    pub fn all(&self, prefix: &[u8]) -> Vec<Record> {
        let keys = self.records.keys().filter(|key| key.name.starts_with(prefix));
        keys.filter_map(|key| self.look(key)).collect()
    }

    /// At most `limit` records after `after`, and whether there are more.
    pub fn scan(&mut self, prefix: &[u8], after: Option<&Bytes>, limit: usize) -> (Vec<Record>, bool) {
        self.asked.reads += 1;
        let mut found = self.all(prefix);
        found.retain(|record| after.is_none_or(|after| record.key.name > *after));
        let more = found.len() > limit;
        found.truncate(limit);
        (found, more)
    }

    pub fn commit(&mut self, commit: &Commit) -> Outcome {
        assert_well_formed(commit);
        self.asked.commits += 1;
        let now = WallTime(self.now);
        let touched = commit.writes.iter().filter(|write| matches!(write, Write::Touch { .. }));
        let touched: Vec<_> = touched.map(Write::key).collect();
        let holds = commit.checks.iter().all(|check| self.holds(check))
            && touched.iter().all(|key| self.look(key).is_some());
        if !holds {
            let keys = commit.checks.iter().map(Check::key).chain(touched);
            return Outcome::Conflict { found: keys.map(|key| (key.clone(), self.look(key))).collect(), now };
        }
        self.revision += 1;
        let mut witnessed = Vec::new();
        for write in &commit.writes {
            match write {
                Write::Put { key, value, ttl } => self.put(key, value, *ttl),
                Write::Touch { key, ttl } => {
                    self.touch(key, *ttl);
                    witnessed.push(self.look(key));
                }
                Write::Delete { key } => {
                    witnessed.push(self.look(key));
                    self.records.remove(key);
                }
            }
        }
        Outcome::Committed { revision: Revision(self.revision), now, witnessed }
    }

    fn holds(&self, check: &Check) -> bool {
        let found = self.look(check.key());
        match check {
            Check::Absent(_) => found.is_none(),
            Check::Created(_, created) => found.is_some_and(|record| record.created == *created),
            Check::At(_, revision) => found.is_some_and(|record| record.revision == *revision),
        }
    }

    fn put(&mut self, key: &Key, value: &Bytes, ttl: Ttl) {
        let revision = Revision(self.revision);
        let old = self.look(key);
        let created = old.as_ref().map_or(revision, |old| old.created);
        let touches = old.map_or(0, |old| old.touches);
        let (key, value) = (key.clone(), value.clone());
        let record = Record { key: key.clone(), value, created, revision, touches, expires_in: None };
        let ends_at = ttl.length().map(|length| self.now + length.as_millis() as u64);
        self.records.insert(key, Kept { record, ends_at });
    }

    fn touch(&mut self, key: &Key, ttl: Duration) {
        if let Some(kept) = self.records.get_mut(key) {
            kept.record.touches += 1;
            kept.ends_at = kept.ends_at.map(|end| end.max(self.now + ttl.as_millis() as u64));
        }
    }
}

fn assert_well_formed(commit: &Commit) {
    assert!(commit.operations() <= COMMIT_OPERATIONS_MAX, "{} operations", commit.operations());
    assert!(commit.bytes() <= COMMIT_BYTES_MAX, "{} bytes", commit.bytes());
    let written: BTreeSet<_> = commit.writes.iter().map(Write::key).collect();
    assert_eq!(written.len(), commit.writes.len(), "a key is written twice: {commit:?}");
    let keys = commit.checks.iter().map(Check::key).chain(written);
    let groups: BTreeSet<_> = keys.map(|key| key.group).collect();
    assert!(groups.len() <= 1, "more than one group: {commit:?}");
}
