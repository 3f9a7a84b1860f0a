//! Commits as parameters, rows as records.

use super::hints::Hints;
use super::queue::{Answers, Waiting, Work};
use super::session::{Failure, Session};
use super::target::Target;
use crate::contract::{Reason, StoreError};
use baton_core::{Bytes, Check, Commit, Key, Outcome, Record, Revision, WallTime, Write};
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

/// What a name is checked for; `ANYTHING` is what only a write is about.
const ABSENT: i16 = 0;
const CREATED: i16 = 1;
const AT: i16 = 2;
const THERE: i16 = 3;
const ANYTHING: i16 = 4;

/// What is written to a name.
const NOTHING: i16 = 0;
const PUT: i16 = 1;
const TOUCH: i16 = 2;
const DELETE: i16 = 3;

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
    const BESIDE_MIN: usize = 24;

    fn latches(&self, target: &Target) -> Vec<i64> {
        latches(target, self.checks.iter().map(Check::key).chain(self.writes.iter().map(Write::key)))
    }

    fn bytes(&self) -> usize {
        Commit::bytes(self)
    }

    async fn ask(batch: &[Waiting<Self>], session: &Session) -> Answers<Self> {
        let parameters = Parameters::of(batch.iter().map(|waiting| (&waiting.work, &waiting.latches[..])));
        let rows = session.query(&session.commit, &parameters.list()).await?;
        let outcomes = parameters.outcomes(batch.iter().map(|waiting| &waiting.work), &rows);
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

/// What `commit_together` takes: a place for each check, and one for each write that is about no name that is checked.
#[derive(Default)]
pub(super) struct Parameters<'a> {
    latches: Vec<i64>,
    turns: Vec<i32>,
    groups: Vec<i16>,
    names: Vec<&'a [u8]>,
    checks: Vec<i16>,
    revisions: Vec<i64>,
    writes: Vec<i16>,
    values: Vec<Option<&'a [u8]>>,
    ttls: Vec<Option<i64>>,
    /// Of each write its place, those of all commits one after the other.
    written: Vec<usize>,
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
        let begin = self.names.len();
        for check in &commit.checks {
            match check {
                Check::Absent(key) => self.look(ABSENT, key, 0),
                Check::Created(key, revision) => self.look(CREATED, key, revision.0),
                Check::At(key, revision) => self.look(AT, key, revision.0),
            }
        }
        for write in &commit.writes {
            let (how, value, ttl) = match write {
                Write::Put { value, ttl, .. } => (PUT, Some(&value[..]), ttl.length().map(micros)),
                Write::Touch { ttl, .. } => (TOUCH, None, Some(micros(*ttl))),
                Write::Delete { .. } => (DELETE, None, None),
            };
            let place = self.place_of(begin, write);
            self.written.push(place);
            (self.writes[place], self.values[place], self.ttls[place]) = (how, value, ttl);
        }
    }

    /// Where a write goes, among the places of its commit, which begin at `begin`.
    fn place_of(&mut self, begin: usize, write: &'a Write) -> usize {
        let (key, is_touch) = (write.key(), matches!(write, Write::Touch { .. }));
        let fits = |place: &usize| {
            // What is touched has to be there.
            self.names[*place] == &key.name[..] && !(is_touch && self.checks[*place] == ABSENT)
        };
        (begin..self.names.len()).find(fits).unwrap_or_else(|| {
            self.look(if is_touch { THERE } else { ANYTHING }, key, 0);
            self.names.len() - 1
        })
    }

    fn look(&mut self, check: i16, key: &'a Key, revision: u64) {
        self.turns.push(self.turn);
        self.groups.push(key.group.0.into());
        self.names.push(&key.name);
        self.checks.push(check);
        // No record has a revision this large.
        self.revisions.push(i64::try_from(revision).unwrap_or(i64::MAX));
        self.writes.push(NOTHING);
        self.values.push(None);
        self.ttls.push(None);
    }

    pub fn list(&self) -> [&(dyn ToSql + Sync); 10] {
        [
            &self.latches,
            &self.turn,
            &self.turns,
            &self.groups,
            &self.names,
            &self.checks,
            &self.revisions,
            &self.writes,
            &self.values,
            &self.ttls,
        ]
    }

    /// What was answered to each of the commits that these are of; nothing for one that the server said nothing of.
    pub fn outcomes<'b>(
        &self,
        commits: impl Iterator<Item = &'b Commit>,
        rows: &[Row],
    ) -> Result<Vec<Option<Outcome>>, tokio_postgres::Error> {
        let answer = Answer::of(rows, self.names.len(), self.turn)?;
        let (mut places, mut written) = (0, self.written.iter());
        let mut outcomes = Vec::new();
        for (turn, commit) in commits.enumerate() {
            let found = |(key, place): (&Key, usize)| match answer.shown.get(place).copied().flatten() {
                Some(row) => recorded(key.clone(), row, 1).map(Some),
                None => Ok(None),
            };
            let begin = places;
            let writes: Vec<_> = commit.writes.iter().zip(written.by_ref().copied()).collect();
            let beyond = writes.iter().map(|(_, place)| place + 1).max().unwrap_or(0);
            places = beyond.max(begin + commit.checks.len());
            let key_and_place = |(write, place): &(&'b Write, usize)| (write.key(), *place);
            outcomes.push(if answer.refused.get(turn).copied().unwrap_or_default() {
                // In the order of the checks; that what is touched is there is one of them.
                let checked = commit.checks.iter().map(Check::key).zip(begin..);
                let touched = writes.iter().filter(|(write, _)| matches!(write, Write::Touch { .. }));
                let asked = checked.chain(touched.map(key_and_place));
                let asked = asked.map(|asked| Ok((asked.0.clone(), found(asked)?)));
                let found = asked.collect::<Result<_, tokio_postgres::Error>>()?;
                Some(Outcome::Conflict { found, now: answer.now })
            } else if let Some(revision) = answer.revision {
                let changed = writes.iter().filter(|(write, _)| !matches!(write, Write::Put { .. }));
                let witnessed = changed.map(key_and_place).map(found).collect::<Result<_, _>>()?;
                Some(Outcome::Committed { revision, now: answer.now, witnessed })
            } else {
                None
            });
        }
        Ok(outcomes)
    }
}

/// The rows of `commit_together`.
struct Answer<'a> {
    now: WallTime,
    /// Of all that happened.
    revision: Option<Revision>,
    /// By commit.
    refused: Vec<bool>,
    /// By place.
    shown: Vec<Option<&'a Row>>,
}

impl<'a> Answer<'a> {
    fn of(rows: &'a [Row], places: usize, commits: i32) -> Result<Self, tokio_postgres::Error> {
        let commits = usize::try_from(commits).unwrap_or_default();
        let (refused, shown) = (vec![false; commits], vec![None; places]);
        let mut answer = Self { now: wall_time(0), revision: None, refused, shown };
        for row in rows {
            let place = row.try_get::<_, i32>(0)?;
            let index = usize::try_from(place.unsigned_abs()).unwrap_or(usize::MAX).wrapping_sub(1);
            if place == 0 {
                answer.now = wall_time(row.try_get(2)?);
                answer.revision =
                    row.try_get::<_, Option<i64>>(3)?.map(|drawn| Revision(drawn.cast_unsigned()));
            } else if place < 0 {
                answer.refused.get_mut(index).into_iter().for_each(|refused| *refused = true);
            } else {
                answer.shown.get_mut(index).into_iter().for_each(|shown| *shown = Some(row));
            }
        }
        Ok(answer)
    }
}

/// A clock in microseconds as answers carry it.
pub(super) fn wall_time(now_us: i64) -> WallTime {
    WallTime(u64::try_from(now_us / 1000).unwrap_or_default())
}

/// The record whose columns (present, value, created, revision, touches, left_us) begin at `first`.
pub(super) fn record(key: Key, row: &Row, first: usize) -> Result<Option<Record>, tokio_postgres::Error> {
    if row.try_get::<_, bool>(first)? { recorded(key, row, first + 1).map(Some) } else { Ok(None) }
}

/// The same for what is there: its columns begin with the value.
fn recorded(key: Key, row: &Row, first: usize) -> Result<Record, tokio_postgres::Error> {
    let number = |index| row.try_get::<_, i64>(first + index).map(i64::cast_unsigned);
    let left_us: Option<i64> = row.try_get(first + 4)?;
    Ok(Record {
        key,
        value: Bytes::from(row.try_get::<_, &[u8]>(first)?),
        created: Revision(number(1)?),
        revision: Revision(number(2)?),
        touches: number(3)?,
        expires_in: left_us.map(|left| Duration::from_micros(left.max(0).cast_unsigned())),
    })
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
        // What is checked and deleted is looked for once.
        assert_eq!(parameters.names.len(), 40);
        assert_eq!((parameters.turns[19], parameters.turns[20]), (1, 2));
        assert_eq!((parameters.groups[19], parameters.groups[20]), (1, 2));
    }
}
