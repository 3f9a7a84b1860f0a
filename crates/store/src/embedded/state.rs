//! The state in memory: 256 ordered maps, and an index of what expires when.
//!
//! A record whose time has passed is absent for every reader at once; its memory is taken back later, a few at a
//! time, and only when the moment of its expiry is durable, so that no restart can bring it back.

use super::effect::{Effect, Entry};
use baton_core::{Bytes, Group, Key, Record, Revision};
use std::collections::BTreeSet;
use std::collections::btree_map::{self, BTreeMap};
use std::ops::Bound;
use std::time::Duration;

/// What a record takes beyond its name and value: two reference-counted allocations and its place in a map.
const RECORD_OVERHEAD_BYTES: u64 = 152;
/// What its place in the expiry index takes.
const EXPIRY_OVERHEAD_BYTES: u64 = 44;
/// The expiry index is this coarse: 2^20 microseconds.
const TICK_BITS: u32 = 20;

/// From when one looks at the state.
pub(super) struct View {
    pub now_us: u64,
    /// What the log has of the clock.
    pub durable_us: u64,
    /// Whether a record was seen as expired that a restart right now would find alive: the clock must be synced
    /// before anybody hears of it.
    pub saw_fresh_expiry: bool,
}

impl View {
    fn admits(&mut self, entry: &Entry) -> bool {
        let live = entry.is_live(self.now_us);
        self.saw_fresh_expiry |= !live && entry.expires_us > self.durable_us;
        live
    }
}

pub(super) struct State {
    groups: Vec<BTreeMap<Bytes, Entry>>,
    expiries: BTreeSet<(u32, u8, Bytes)>,
    /// Off while recovering: the index is built at once when all records are there.
    indexing: bool,
    pub records: u64,
    pub bytes: u64,
}

impl Default for State {
    fn default() -> Self {
        let (groups, expiries) = (vec![BTreeMap::new(); 256], BTreeSet::new());
        Self { groups, expiries, indexing: false, records: 0, bytes: 0 }
    }
}

impl State {
    fn group(&self, group: u8) -> &BTreeMap<Bytes, Entry> {
        &self.groups[usize::from(group)]
    }

    /// The live record, with the name as it is held.
    pub fn get(&self, key: &Key, view: &mut View) -> Option<(&Bytes, &Entry)> {
        self.group(key.group.0).get_key_value(&key.name).filter(|(_, entry)| view.admits(entry))
    }

    /// The record, live or not.
    pub fn peek(&self, key: &Key) -> Option<&Entry> {
        self.group(key.group.0).get(&key.name)
    }

    /// Whether anything is going to expire.
    pub fn has_leases(&self) -> bool {
        !self.expiries.is_empty()
    }

    pub fn put(&mut self, group: u8, name: Bytes, mut entry: Entry) {
        entry.armed = if self.indexing { tick(entry.expires_us) } else { 0 };
        self.bytes += record_bytes(&name, &entry);
        match self.groups[usize::from(group)].entry(name) {
            btree_map::Entry::Vacant(place) => {
                self.records += 1;
                if entry.armed != 0 {
                    self.expiries.insert((entry.armed, group, place.key().clone()));
                }
                place.insert(entry);
            }
            btree_map::Entry::Occupied(mut place) => {
                let old = place.get();
                self.bytes -= record_bytes(place.key(), old);
                if old.armed != entry.armed {
                    let name = place.key().clone();
                    let mut expiry = (old.armed, group, name);
                    if old.armed != 0 {
                        self.expiries.remove(&expiry);
                    }
                    expiry.0 = entry.armed;
                    if entry.armed != 0 {
                        self.expiries.insert(expiry);
                    }
                }
                place.insert(entry);
            }
        }
    }

    /// The index keeps its place and is put right when that moment comes: renewing costs no index work.
    pub fn touch(&mut self, group: u8, name: &[u8], expires_us: u64, touches: u32) -> Option<&Entry> {
        let entry = self.groups[usize::from(group)].get_mut(name)?;
        (entry.expires_us, entry.touches) = (expires_us, touches);
        Some(entry)
    }

    pub fn delete(&mut self, group: u8, name: &[u8]) -> Option<(Bytes, Entry)> {
        let (name, entry) = self.groups[usize::from(group)].remove_entry(name)?;
        self.records -= 1;
        self.bytes -= record_bytes(&name, &entry);
        if entry.armed == 0 {
            return Some((name, entry));
        }
        let expiry = (entry.armed, group, name);
        self.expiries.remove(&expiry);
        Some((expiry.2, entry))
    }

    /// Looks at up to `count` places of the index whose time has come, takes back the records that are expired
    /// for good (`expired` is told which), and says how many places it looked at.
    pub fn collect(&mut self, durable_us: u64, count: usize, mut expired: impl FnMut(Key)) -> usize {
        for looked_at in 0..count {
            match self.expiries.first() {
                Some((armed, _, _)) if u64::from(*armed) << TICK_BITS <= durable_us => {}
                _ => return looked_at,
            }
            let Some((_, group, name)) = self.expiries.pop_first() else { return looked_at };
            let Some(entry) = self.groups[usize::from(group)].get_mut(&name) else { continue };
            entry.armed = tick(entry.expires_us);
            if entry.is_live(durable_us) {
                self.expiries.insert((entry.armed, group, name));
            } else {
                entry.armed = 0;
                self.bytes -= EXPIRY_OVERHEAD_BYTES;
                self.delete(group, &name);
                expired(Key { group: Group(group), name });
            }
        }
        count
    }

    /// Redoes what the log says was done.
    pub fn redo(&mut self, effect: Effect<'_>) {
        match effect {
            Effect::Put { group, name, entry } => self.put(group, name.into(), entry),
            Effect::Touch { group, name, expires_us, touches } => {
                self.touch(group, name, expires_us, touches);
            }
            Effect::Delete { group, name } => {
                self.delete(group, name);
            }
        }
    }

    /// Fills an empty group from records in order.
    pub fn load(&mut self, group: u8, records: Vec<(Bytes, Entry)>) {
        self.bytes += records.iter().map(|(name, entry)| record_bytes(name, entry)).sum::<u64>();
        self.records += records.len() as u64;
        self.groups[usize::from(group)] = records.into_iter().collect();
    }

    /// Ends recovering: builds the expiry index, and keeps it from now on.
    pub fn index(&mut self) {
        let mut expiries = Vec::new();
        for (group, records) in (0..=u8::MAX).zip(&mut self.groups) {
            for (name, entry) in records.iter_mut().filter(|(_, entry)| entry.expires_us != 0) {
                entry.armed = tick(entry.expires_us);
                expiries.push((entry.armed, group, name.clone()));
            }
        }
        self.bytes += expiries.len() as u64 * EXPIRY_OVERHEAD_BYTES;
        self.expiries = expiries.into_iter().collect();
        self.indexing = true;
    }

    /// Live records in order.
    pub fn scan<'a>(
        &'a self,
        group: Group,
        prefix: &'a [u8],
        after: Option<&'a [u8]>,
        view: &'a mut View,
    ) -> impl Iterator<Item = (&'a Bytes, &'a Entry)> {
        let start = match after {
            Some(after) if after >= prefix => Bound::Excluded(after),
            _ => Bound::Included(prefix),
        };
        let range = self.group(group.0).range::<[u8], _>((start, Bound::Unbounded));
        range
            .take_while(move |(name, _)| name.starts_with(prefix))
            .filter(move |(_, entry)| view.admits(entry))
    }

    /// Records after `after`, live or not, for a snapshot: at most `count`, and few enough to be at most about
    /// `bytes`. Empty at the end.
    pub fn copy(&self, group: u8, after: Option<&Bytes>, count: usize, bytes: usize) -> Vec<(Bytes, Entry)> {
        let start = after.map_or(Bound::Unbounded, |after| Bound::Excluded(&after[..]));
        let mut left = bytes;
        self.group(group)
            .range::<[u8], _>((start, Bound::Unbounded))
            .take(count)
            .take_while(|(name, entry)| {
                let go_on = left > 0;
                left = left.saturating_sub(name.len() + entry.value.len());
                go_on
            })
            .map(|(name, entry)| (name.clone(), entry.clone()))
            .collect()
    }
}

/// The record as answers carry it.
pub(super) fn record(group: Group, name: &Bytes, entry: &Entry, now_us: u64) -> Record {
    let left = Duration::from_micros(entry.expires_us.saturating_sub(now_us));
    Record {
        key: Key { group, name: name.clone() },
        value: entry.value.clone(),
        created: Revision(entry.created),
        revision: Revision(entry.revision),
        touches: entry.touches.into(),
        expires_in: (entry.expires_us != 0).then_some(left),
    }
}

/// About how much memory a record takes.
pub(super) fn record_bytes(name: &[u8], entry: &Entry) -> u64 {
    put_bytes(name, &entry.value, entry.armed != 0)
}

/// About how much memory a record would take.
pub(super) fn put_bytes(name: &[u8], value: &[u8], expires: bool) -> u64 {
    let expiry = if expires { EXPIRY_OVERHEAD_BYTES } else { 0 };
    (name.len() + value.len()) as u64 + RECORD_OVERHEAD_BYTES + expiry
}

/// The first tick by whose beginning the moment has passed; 0 for never.
fn tick(expires_us: u64) -> u32 {
    if expires_us == 0 { 0 } else { u32::try_from((expires_us >> TICK_BITS) + 1).unwrap_or(u32::MAX) }
}
