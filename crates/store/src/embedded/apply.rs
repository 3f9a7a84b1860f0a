//! One commit against the state: does it hold, is there room, and then what it does.

use super::effect::{self, EFFECT_OVERHEAD_BYTES, Entry};
use super::state::{self, State, View};
use super::time::micros;
use crate::charge::Charge;
use crate::watch::Change;
use baton_core::{Check, Commit, Group, Key, Record, Revision, Ttl, Write};
use std::time::Duration;

/// By how much a claim makes a meter's value longer, at most: a new one, with a row of the longest names.
const CLAIM_GROWTH_BYTES: usize = 512;

/// At most how many bytes its effects take in the log.
pub(super) fn log_bytes_max(commit: &Commit) -> usize {
    commit.bytes() + commit.writes.len() * EFFECT_OVERHEAD_BYTES
}

/// At most how many bytes a charge takes in the log, by the meters as they are now. The memo has all of them again.
pub(super) fn charge_bytes_max(state: &State, charge: &Charge) -> usize {
    let meters = charge.claims.iter().map(|claim| {
        let value = state.peek(&claim.key).map_or(0, |entry| entry.value.len());
        claim.key.name.len() + 2 * (value + CLAIM_GROWTH_BYTES) + EFFECT_OVERHEAD_BYTES
    });
    meters.sum::<usize>() + charge.memo.as_ref().map_or(0, |memo| memo.key.name.len() + EFFECT_OVERHEAD_BYTES)
}

/// Whether all checks hold and everything touched is there; else every record checked or touched.
pub(super) fn check(
    state: &State,
    commit: &Commit,
    view: &mut View,
) -> Result<(), Vec<(Key, Option<Record>)>> {
    let checks = commit.checks.iter().all(|check| {
        let found = state.get(check.key(), view).map(|(_, entry)| entry);
        match check {
            Check::Absent(_) => found.is_none(),
            Check::Created(_, revision) => found.is_some_and(|entry| entry.created == revision.0),
            Check::At(_, revision) => found.is_some_and(|entry| entry.revision == revision.0),
        }
    });
    if checks && touched(commit).all(|key| state.get(key, view).is_some()) {
        return Ok(());
    }
    let keys = commit.checks.iter().map(Check::key).chain(touched(commit));
    Err(keys.map(|key| (key.clone(), read(state, key, view))).collect())
}

fn touched(commit: &Commit) -> impl Iterator<Item = &Key> {
    commit.writes.iter().filter_map(|write| match write {
        Write::Touch { key, .. } => Some(key),
        Write::Put { .. } | Write::Delete { .. } => None,
    })
}

/// A record as answers carry it.
pub(super) fn read(state: &State, key: &Key, view: &mut View) -> Option<Record> {
    let now_us = view.now_us;
    state.get(key, view).map(|(name, entry)| state::record(key.group, name, entry, now_us))
}

/// By how many bytes of memory the state would grow if nothing of it was there yet.
pub(super) fn growth_max(commit: &Commit) -> u64 {
    let growths = commit.writes.iter().map(|write| match write {
        Write::Put { key, value, ttl } => state::put_bytes(&key.name, value, *ttl != Ttl::Forever),
        Write::Touch { .. } | Write::Delete { .. } => 0,
    });
    growths.sum()
}

/// By how many bytes of memory the state would grow.
pub(super) fn growth(state: &State, commit: &Commit) -> i64 {
    let signed = |bytes: u64| i64::try_from(bytes).unwrap_or(i64::MAX);
    let held = |key: &Key| state.peek(key).map_or(0, |entry| signed(state::record_bytes(&key.name, entry)));
    let growths = commit.writes.iter().map(|write| match write {
        Write::Put { key, value, ttl } => {
            signed(state::put_bytes(&key.name, value, *ttl != Ttl::Forever)) - held(key)
        }
        Write::Touch { .. } => 0,
        Write::Delete { key } => -held(key),
    });
    growths.sum()
}

/// A commit that holds, on its way into the state and the log.
pub(super) struct Application<'a> {
    pub state: &'a mut State,
    pub log: &'a mut Vec<u8>,
    /// Hints for whoever watches, if anybody does.
    pub hints: Option<&'a mut Vec<Change>>,
    pub revision: Revision,
    pub now_us: u64,
}

impl Application<'_> {
    /// Does all writes; gives what they witnessed.
    pub fn apply(&mut self, writes: Vec<Write>) -> Vec<Option<Record>> {
        let mut witnessed = Vec::new();
        for write in writes {
            match write {
                Write::Put { key, value, ttl } => self.put(key, value, ttl),
                Write::Touch { key, ttl } => witnessed.push(self.touch(&key, ttl)),
                Write::Delete { key } => witnessed.push(self.delete(key)),
            }
        }
        witnessed
    }

    fn hint(&mut self, change: impl FnOnce(Revision) -> Change) {
        if let Some(hints) = &mut self.hints {
            hints.push(change(self.revision));
        }
    }

    fn expires_us(&self, ttl: Duration) -> u64 {
        self.now_us.saturating_add(micros(ttl)).max(1)
    }

    fn put(&mut self, key: Key, value: baton_core::Bytes, ttl: Ttl) {
        let (group, revision) = (key.group.0, self.revision.0);
        let expires_us = match ttl {
            Ttl::Forever => 0,
            Ttl::Exactly(ttl) | Ttl::AtLeast(ttl) => self.expires_us(ttl),
        };
        let entry =
            Entry { value: value.clone(), created: revision, revision, expires_us, touches: 0, armed: 0 };
        let entry = self.state.replace(group, key.name.clone(), entry, self.now_us);
        effect::encode_put(self.log, group, &key.name, entry);
        self.hint(|revision| Change::Put { key, value, revision });
    }

    fn touch(&mut self, key: &Key, ttl: Duration) -> Option<Record> {
        let (group, asked_us) = (key.group.0, self.expires_us(ttl));
        let present = self.state.peek(key)?;
        let expires_us = if present.expires_us == 0 { 0 } else { present.expires_us.max(asked_us) };
        let touches = present.touches.saturating_add(1);
        let entry = self.state.touch(group, &key.name, expires_us, touches)?;
        effect::encode_touch(self.log, group, &key.name, entry);
        Some(state::record(key.group, &key.name, entry, self.now_us))
    }

    fn delete(&mut self, key: Key) -> Option<Record> {
        let (name, entry) = self.state.delete(key.group.0, &key.name)?;
        effect::encode_delete(self.log, key.group.0, &name);
        if !entry.is_live(self.now_us) {
            return None;
        }
        let record = state::record(Group(key.group.0), &name, &entry, self.now_us);
        self.hint(|revision| Change::Deleted { key, revision });
        Some(record)
    }
}
