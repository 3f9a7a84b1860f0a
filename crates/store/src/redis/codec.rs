//! Commits as a script's arguments, and a script's answers as outcomes.

use crate::contract::StoreError;
use crate::watch::Change;
use ::redis::{Cmd, Value};
use baton_core::{Check, Commit, Group, Key, Outcome, Record, Revision, WallTime, Write};
use std::time::Duration;

/// Digits of a number, in records and in answers.
const DIGITS: usize = 16;
const HEADER: usize = 4 * DIGITS;
/// What is added to the present stays exact in a script's numbers.
const TTL_MAX_US: u64 = (1 << 53) - 1;

/// The names of a group's keys at the server. All have the group as their hash tag.
pub(super) struct Names(String);

impl Names {
    pub fn new(prefix: &str, group: Group) -> Self {
        Self(format!("{prefix}:{{{:03}}}:", group.0))
    }
    pub fn counter(&self) -> String {
        format!("{}revision", self.0)
    }
    pub fn index(&self) -> String {
        format!("{}names", self.0)
    }
    pub fn expiry(&self) -> String {
        format!("{}expiry", self.0)
    }
    pub fn record(&self, name: &[u8]) -> Vec<u8> {
        [self.0.as_bytes(), b"=", name].concat()
    }
    /// How many bytes come before a record's name.
    pub fn length(&self) -> usize {
        self.0.len() + 1
    }
}

/// Whose answers a conflict must be able to stand for.
pub(super) struct Terms<'a> {
    pub floor: u64,
    pub channel: &'a str,
    pub prefix: &'a str,
    pub mark: bool,
}

/// Adds what comes after the script's hash.
pub(super) fn encode(command: &mut Cmd, commit: &Commit, group: Group, terms: &Terms<'_>) {
    let names = Names::new(terms.prefix, group);
    let mut keys: Vec<&Key> = Vec::with_capacity(commit.checks.len() + commit.writes.len());
    for key in commit.checks.iter().map(Check::key).chain(commit.writes.iter().map(Write::key)) {
        if !keys.contains(&key) {
            keys.push(key);
        }
    }
    // The script counts from one, and there are three others before.
    let place = |key: &Key| keys.iter().position(|known| *known == key).unwrap_or_default() + 4;
    command.arg(keys.len() + 3).arg(names.counter()).arg(names.index()).arg(names.expiry());
    for key in &keys {
        command.arg(names.record(&key.name));
    }
    let touched = || commit.writes.iter().filter(|write| matches!(write, Write::Touch { .. }));
    let puts = commit.writes.iter().any(|write| matches!(write, Write::Put { .. }));
    command.arg(terms.floor).arg(terms.channel).arg(&padded(group.0.into())[..]).arg(told(commit));
    command.arg(names.length() + 1).arg(u8::from(terms.mark)).arg(u8::from(puts));
    command.arg(commit.checks.len() + touched().count());
    for check in &commit.checks {
        let (kind, revision) = match check {
            Check::Absent(_) => ("A", Revision(0)),
            Check::Created(_, revision) => ("C", *revision),
            Check::At(_, revision) => ("R", *revision),
        };
        command.arg(kind).arg(place(check.key())).arg(&padded(revision.0)[..]);
    }
    for write in touched() {
        command.arg("T").arg(place(write.key())).arg("");
    }
    for write in &commit.writes {
        let key = place(write.key());
        match write {
            Write::Put { value, ttl, .. } => {
                command.arg("P").arg(key);
                match ttl.length() {
                    Some(length) => command.arg(micros(length)),
                    None => command.arg(""),
                };
                command.arg(&value[..]);
            }
            Write::Touch { ttl, .. } => drop(command.arg("T").arg(key).arg(micros(*ttl))),
            Write::Delete { .. } => drop(command.arg("D").arg(key)),
        }
    }
}

/// What a commit's hint says after its revision: what is put and what is deleted, whether or not it was there.
fn told(commit: &Commit) -> Vec<u8> {
    let mut hint = Vec::new();
    let mut text = |kind: Option<u8>, text: &[u8]| {
        hint.extend(kind);
        hint.extend(padded(text.len() as u64));
        hint.extend(text);
    };
    for write in &commit.writes {
        match write {
            Write::Put { key, value, .. } => {
                text(Some(b'P'), &key.name);
                text(None, value);
            }
            Write::Delete { key } => text(Some(b'D'), &key.name),
            Write::Touch { .. } => {}
        }
    }
    hint
}

/// As many digits as numbers have here.
fn padded(mut number: u64) -> [u8; DIGITS] {
    let mut digits = [b'0'; DIGITS];
    for digit in digits.iter_mut().rev() {
        *digit += (number % 10) as u8;
        number /= 10;
    }
    digits
}

pub(super) fn micros(ttl: Duration) -> u64 {
    u64::try_from(ttl.as_micros()).unwrap_or(u64::MAX).min(TTL_MAX_US)
}

/// What a script said.
pub(super) struct Answer {
    pub kind: u8,
    /// The server's clock.
    pub now_us: u64,
    /// The commit's own, or the highest a charge drew.
    pub revision: Revision,
    pub records: Vec<Option<Vec<u8>>>,
}

/// Takes an answer apart.
pub(super) fn answer(value: Value) -> Option<Answer> {
    let Value::Array(parts) = value else { return None };
    let mut parts = parts.into_iter();
    let kind = *bytes(parts.next()?)?.first()?;
    let now_us = number(&bytes(parts.next()?)?)?;
    let revision = Revision(number(&bytes(parts.next()?)?)?);
    let record = |part| match part {
        Value::Nil | Value::Boolean(false) => Some(None),
        part => bytes(part).map(Some),
    };
    let records = parts.map(record).collect::<Option<Vec<_>>>()?;
    Some(Answer { kind, now_us, revision, records })
}

/// What became of a commit; `None` if the answer doesn't fit it.
pub(super) fn outcome(commit: &Commit, answer: Answer) -> Option<Outcome> {
    let Answer { kind, now_us, revision, records } = answer;
    let touched = commit.writes.iter().filter(|write| matches!(write, Write::Touch { .. }));
    let keys: Vec<&Key> = match kind {
        b'C' => {
            commit.writes.iter().filter(|write| !matches!(write, Write::Put { .. })).map(Write::key).collect()
        }
        b'X' => commit.checks.iter().map(Check::key).chain(touched.map(Write::key)).collect(),
        _ => return None,
    };
    if keys.len() != records.len() {
        return None;
    }
    let pairs = keys.into_iter().zip(records);
    let now = wall_time(now_us);
    Some(if kind == b'C' {
        let witnessed = pairs.map(|(key, packed)| unpack(key, packed, now_us)).collect::<Option<_>>()?;
        Outcome::Committed { revision, now, witnessed }
    } else {
        let found = pairs.map(|(key, packed)| Some((key.clone(), unpack(key, packed, now_us)?)));
        Outcome::Conflict { found: found.collect::<Option<_>>()?, now }
    })
}

/// A record from how the server keeps it; `None` outside if it isn't one.
pub(super) fn unpack(key: &Key, packed: Option<Vec<u8>>, now_us: u64) -> Option<Option<Record>> {
    let Some(packed) = packed else { return Some(None) };
    let (header, value) = packed.split_at_checked(HEADER)?;
    let mut fields = header.chunks(DIGITS).map(number);
    let mut field = || fields.next().flatten();
    let (created, revision, touches, expires_us) = (field()?, field()?, field()?, field()?);
    let left = Duration::from_micros(expires_us.saturating_sub(now_us));
    let expires_in = (expires_us != 0).then_some(left);
    let (created, revision) = (Revision(created), Revision(revision));
    Some(Some(Record { key: key.clone(), value: value.into(), created, revision, touches, expires_in }))
}

pub(super) fn wall_time(now_us: u64) -> WallTime {
    WallTime(now_us / 1_000)
}

/// The hints of one commit; `None` if the message isn't one of ours.
pub(super) fn hints(message: &[u8]) -> Option<(Revision, Vec<Change>)> {
    let mut rest = message;
    let group = Group(u8::try_from(take_number(&mut rest)?).ok()?);
    let revision = Revision(take_number(&mut rest)?);
    let mut changes = Vec::new();
    while let Some(kind) = rest.split_off_first() {
        let key = Key::new(group, take_text(&mut rest)?);
        changes.push(match kind {
            b'P' => Change::Put { key, value: take_text(&mut rest)?.into(), revision },
            b'D' => Change::Deleted { key, revision },
            _ => return None,
        });
    }
    (revision <= Revision::MAX).then_some((revision, changes))
}

fn take_number(rest: &mut &[u8]) -> Option<u64> {
    number(rest.split_off(..DIGITS)?)
}

fn take_text<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let length = usize::try_from(take_number(rest)?).ok()?;
    rest.split_off(..length)
}

fn number(digits: &[u8]) -> Option<u64> {
    std::str::from_utf8(digits).ok()?.parse().ok()
}

pub(super) fn bytes(value: Value) -> Option<Vec<u8>> {
    match value {
        Value::BulkString(bytes) => Some(bytes),
        Value::SimpleString(text) => Some(text.into_bytes()),
        _ => None,
    }
}

/// An answer that no version of ours gives: what happened is anybody's guess.
pub(super) fn strange() -> StoreError {
    StoreError::Unknown { detail: "Redis gave an answer that no script of ours gives".into() }
}
