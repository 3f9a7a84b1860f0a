//! How names, numbers, records and hints are written at the server.

use crate::contract::StoreError;
use crate::watch::Change;
use ::redis::Value;
use baton_core::{Group, Key, Record, Revision, WallTime};
use std::time::Duration;

/// Digits of a number, in records and in answers.
pub(super) const DIGITS: usize = 16;
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

/// What a server has of its own and not for each group: when what no list shows ends, by the records' keys. Not on a cluster,
/// where no command can be about several groups.
pub(super) fn ends(prefix: &str) -> String {
    format!("{prefix}:ends")
}

/// The group and the name that a record's key at the server is made of.
pub(super) fn record_key(prefix: &str, key: &[u8]) -> Option<Key> {
    let rest = key.strip_prefix(prefix.as_bytes())?.strip_prefix(b":{")?;
    let (group, name) = rest.split_at_checked(3)?;
    let group = std::str::from_utf8(group).ok()?.parse().ok()?;
    Some(Key::new(Group(group), name.strip_prefix(b"}:=")?))
}

/// Whose answers a conflict must be able to stand for.
pub(super) struct Terms<'a> {
    pub floor: u64,
    pub channel: &'a str,
    pub prefix: &'a str,
    pub mark: bool,
    /// Whether all groups are at one server.
    pub is_one: bool,
}

/// As many digits as numbers have here.
pub(super) fn padded(mut number: u64) -> [u8; DIGITS] {
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
    /// The highest that a charge drew.
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

/// A record from how the server keeps it; `None` outside if it isn't one.
pub(super) fn unpack(key: &Key, packed: Option<&[u8]>, now_us: u64) -> Option<Option<Record>> {
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

pub(super) fn number(digits: &[u8]) -> Option<u64> {
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
