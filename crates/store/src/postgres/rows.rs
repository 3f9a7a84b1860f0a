//! Commits as parameters, rows as records.

use super::hints::Hints;
use super::queue::{Answers, Waiting, Work};
use super::session::{Failure, Session};
use super::target::Target;
use crate::contract::{Reason, StoreError};
use baton_core::{Bytes, Check, Commit, Key, Outcome, Record, Revision, WallTime, Write};
use std::collections::HashMap;
use std::time::Duration;
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

/// The number of the advisory lock for what `parts` name. Every node must find the same one, so this stays as it is
/// (FNV-1a, with a separator). Two names that share a number only wait for each other.
fn latch(parts: &[&[u8]]) -> i64 {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for part in parts {
        for byte in part.iter().chain(&[0]) {
            hash = (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
    hash.cast_signed()
}

/// The lock under which everything about `key` is decided.
pub(super) fn key_latch(target: &Target, key: &Key) -> i64 {
    latch(&[b"baton", target.schema.as_bytes(), &[key.group.0], &key.name])
}

/// The lock under which the schema is changed.
pub(super) fn schema_latch(target: &Target) -> i64 {
    latch(&[b"baton", target.schema.as_bytes()])
}

/// A time to live as the server counts; what is longer than any clock is forever enough.
pub(super) fn micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX).min(i64::MAX / 4)
}

const ABSENT: i16 = 0;
const CREATED: i16 = 1;
const AT: i16 = 2;
const THERE: i16 = 3;
const TOUCH: i16 = 1;
const DELETE: i16 = 2;

/// The locks under which everything about `keys` is decided: in one order for everybody, so that nobody waits in a circle.
pub(super) fn latches<'a>(target: &Target, keys: impl Iterator<Item = &'a Key>) -> Vec<i64> {
    let mut latches: Vec<_> = keys.map(|key| key_latch(target, key)).collect();
    latches.sort_unstable();
    latches.dedup();
    latches
}

impl Work for Commit {
    type Answer = Outcome;
    const SHARES_NAMES: bool = false;
    const BESIDE_MIN: usize = 32;

    fn latches(&self, target: &Target) -> Vec<i64> {
        latches(target, self.checks.iter().map(Check::key).chain(self.writes.iter().map(Write::key)))
    }

    fn bytes(&self) -> usize {
        Commit::bytes(self)
    }

    async fn ask(batch: &[Waiting<Self>], session: &Session) -> Answers<Self> {
        let parameters = Parameters::of(batch.iter().map(|waiting| (&waiting.work, &waiting.latches[..])));
        let rows = session.query(&session.commit, &parameters.list()).await?;
        let outcomes = outcomes(batch.iter().map(|waiting| &waiting.work), &rows);
        let outcomes = outcomes.map_err(|error| Failure::Silent(super::describe(&error)))?;
        Ok(outcomes.into_iter().map(|outcome| outcome.ok_or_else(unmentioned)).collect())
    }

    fn tell(self, outcome: &Outcome, hints: &Hints) {
        hints.tell(self, outcome);
    }

    fn tell_lost(hints: &Hints) {
        hints.tell_lost();
    }
}

/// What is known of one that the server's answer doesn't have.
pub(super) fn unmentioned() -> StoreError {
    StoreError::Unknown { detail: "the server said nothing of it".into() }
}

/// What `commit_batch` takes.
#[derive(Default)]
pub(super) struct Parameters<'a> {
    latches: Vec<i64>,
    groups: Vec<i16>,
    check_turns: Vec<i32>,
    check_kinds: Vec<i16>,
    check_names: Vec<&'a [u8]>,
    check_revisions: Vec<i64>,
    put_turns: Vec<i32>,
    put_names: Vec<&'a [u8]>,
    put_values: Vec<&'a [u8]>,
    put_ttls: Vec<Option<i64>>,
    change_turns: Vec<i32>,
    change_kinds: Vec<i16>,
    change_names: Vec<&'a [u8]>,
    change_ttls: Vec<Option<i64>>,
    turn: i32,
}

impl<'a> Parameters<'a> {
    /// Of commits, with their locks, that have no name in common.
    pub fn of(commits: impl Iterator<Item = (&'a Commit, &'a [i64])>) -> Self {
        let mut all = Self::default();
        for (commit, latches) in commits {
            all.turn += 1;
            all.latches.extend(latches);
            all.add(commit);
        }
        all.latches.sort_unstable();
        all
    }

    fn add(&mut self, commit: &'a Commit) {
        let mut keys = commit.checks.iter().map(Check::key).chain(commit.writes.iter().map(Write::key));
        self.groups.push(keys.next().map_or(0, |key| key.group.0.into()));
        for check in &commit.checks {
            match check {
                Check::Absent(key) => self.check(ABSENT, key, 0),
                Check::Created(key, revision) => self.check(CREATED, key, revision.0),
                Check::At(key, revision) => self.check(AT, key, revision.0),
            }
        }
        for write in &commit.writes {
            match write {
                Write::Put { key, value, ttl } => {
                    self.put_turns.push(self.turn);
                    self.put_names.push(&key.name);
                    self.put_values.push(value);
                    self.put_ttls.push(ttl.length().map(micros));
                }
                Write::Touch { key, ttl } => {
                    self.check(THERE, key, 0);
                    self.change(TOUCH, key, Some(micros(*ttl)));
                }
                Write::Delete { key } => self.change(DELETE, key, None),
            }
        }
    }

    fn check(&mut self, kind: i16, key: &'a Key, revision: u64) {
        self.check_turns.push(self.turn);
        self.check_kinds.push(kind);
        self.check_names.push(&key.name);
        // No record has a revision this large.
        self.check_revisions.push(i64::try_from(revision).unwrap_or(i64::MAX));
    }

    fn change(&mut self, kind: i16, key: &'a Key, ttl_us: Option<i64>) {
        self.change_turns.push(self.turn);
        self.change_kinds.push(kind);
        self.change_names.push(&key.name);
        self.change_ttls.push(ttl_us);
    }

    pub fn list(&self) -> [&(dyn ToSql + Sync); 14] {
        [
            &self.latches,
            &self.groups,
            &self.check_turns,
            &self.check_kinds,
            &self.check_names,
            &self.check_revisions,
            &self.put_turns,
            &self.put_names,
            &self.put_values,
            &self.put_ttls,
            &self.change_turns,
            &self.change_kinds,
            &self.change_names,
            &self.change_ttls,
        ]
    }
}

/// What `commit_batch` answered to each commit; nothing for one that it said nothing of.
pub(super) fn outcomes<'a>(
    commits: impl Iterator<Item = &'a Commit>,
    rows: &[Row],
) -> Result<Vec<Option<Outcome>>, tokio_postgres::Error> {
    let mut by_place = HashMap::with_capacity(rows.len());
    for row in rows {
        by_place.insert((row.try_get::<_, i32>(0)?, row.try_get::<_, i64>(1)?), row);
    }
    // Places are counted over all commits: checks by themselves, and changes by themselves.
    let (mut checks, mut changes) = (1_i64.., 1_i64..);
    let mut outcomes = Vec::new();
    for (turn, commit) in (1_i32..).zip(commits) {
        let found = |(key, place): (&Key, i64)| match by_place.get(&(turn, place)) {
            Some(row) => record(key.clone(), row, 2),
            None => Ok(None),
        };
        let (asked, changed) = (asked(commit), changed(commit));
        let asked: Vec<_> = asked.zip(checks.by_ref()).collect();
        let changed: Vec<_> = changed.zip(changes.by_ref()).collect();
        let Some(first) = by_place.get(&(turn, 0)) else {
            outcomes.push(None);
            continue;
        };
        let now = wall_time(first.try_get(4)?);
        outcomes.push(Some(match first.try_get::<_, Option<i64>>(5)? {
            Some(revision) => Outcome::Committed {
                revision: Revision(revision.cast_unsigned()),
                now,
                witnessed: changed.into_iter().map(found).collect::<Result<_, _>>()?,
            },
            None => {
                let found = asked.into_iter().map(|asked| Ok((asked.0.clone(), found(asked)?)));
                Outcome::Conflict { found: found.collect::<Result<_, tokio_postgres::Error>>()?, now }
            }
        }));
    }
    Ok(outcomes)
}

/// What a conflict shows, in the order of the checks that are sent.
fn asked(commit: &Commit) -> impl Iterator<Item = &Key> {
    let touched = commit.writes.iter().filter(|write| matches!(write, Write::Touch { .. })).map(Write::key);
    commit.checks.iter().map(Check::key).chain(touched)
}

/// What a commit witnesses, in the order of the changes that are sent.
fn changed(commit: &Commit) -> impl Iterator<Item = &Key> {
    commit.writes.iter().filter(|write| !matches!(write, Write::Put { .. })).map(Write::key)
}

/// A clock in microseconds as answers carry it.
pub(super) fn wall_time(now_us: i64) -> WallTime {
    WallTime(u64::try_from(now_us / 1000).unwrap_or_default())
}

/// The record whose columns (present, value, created, revision, touches, left_us) begin at `first`.
pub(super) fn record(key: Key, row: &Row, first: usize) -> Result<Option<Record>, tokio_postgres::Error> {
    if !row.try_get::<_, bool>(first)? {
        return Ok(None);
    }
    let number = |index| row.try_get::<_, i64>(first + index).map(i64::cast_unsigned);
    let left_us: Option<i64> = row.try_get(first + 5)?;
    Ok(Some(Record {
        key,
        value: Bytes::from(row.try_get::<_, &[u8]>(first + 1)?),
        created: Revision(number(2)?),
        revision: Revision(number(3)?),
        touches: number(4)?,
        expires_in: left_us.map(|left| Duration::from_micros(left.max(0).cast_unsigned())),
    }))
}

/// An answer that isn't what the schema promises.
pub(super) fn strange(error: &tokio_postgres::Error) -> StoreError {
    StoreError::NotApplied { reason: Reason::Unavailable, detail: super::describe(error) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use baton_core::Group;

    #[test]
    fn the_latch_of_a_key_is_the_same_in_every_version() {
        let target = Target::parse("postgres://me@host/db").unwrap();
        let key = |group, name: &str| Key::new(Group(group), name.as_bytes());
        assert_eq!(key_latch(&target, &key(7, "a")), key_latch(&target, &key(7, "a")));
        assert_ne!(key_latch(&target, &key(7, "a")), key_latch(&target, &key(8, "a")));
        assert_ne!(key_latch(&target, &key(7, "a")), schema_latch(&target));
        assert_eq!(latch(&[b"baton"]), -2_205_943_146_031_359_805);
    }

    #[test]
    fn latches_come_sorted_and_once() {
        let target = Target::parse("postgres://me@host/db").unwrap();
        let commit = |group| {
            let keys: Vec<_> = (0..20_u8).map(|name| Key::new(Group(group), [name])).collect();
            let checks = keys.iter().cloned().map(Check::Absent).collect();
            let writes = keys.iter().cloned().map(|key| Write::Delete { key }).collect();
            Commit { checks, writes }
        };
        let commits = [commit(1), commit(2)].map(|commit| (commit.latches(&target), commit));
        assert_eq!(commits[0].0.len(), 20);
        let parameters = Parameters::of(commits.iter().map(|(latches, commit)| (commit, &latches[..])));
        assert_eq!(parameters.latches.len(), 40);
        assert!(parameters.latches.is_sorted());
        assert_eq!(parameters.groups, [1, 2]);
    }
}
