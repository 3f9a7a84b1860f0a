//! The state in memory: 256 tables of records, and an index of what expires when.
//!
//! A record whose time has passed is absent for every reader at once; its memory is taken back later, a few at a
//! time, and only when the moment of its expiry is durable, so that no restart can bring it back.

use super::effect::{Effect, Entry};
use super::table::{Slot, Table};
use baton_core::{Bytes, Group, Key, Record, Revision};
use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

/// What a record takes beyond its name and value: two reference-counted allocations and its place in a table.
const RECORD_OVERHEAD_BYTES: u64 = 128;
/// What its place in the expiry index takes.
const EXPIRY_OVERHEAD_BYTES: u64 = 32;
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
    groups: Vec<Table>,
    /// What expires by the beginning of a tick, by group.
    expiries: BTreeMap<(u32, u8), Vec<Slot>>,
    /// Off while recovering: the index is built at once when all records are there.
    indexing: bool,
    pub records: u64,
    pub bytes: u64,
}

impl Default for State {
    fn default() -> Self {
        let seeds = RandomState::new();
        let groups = Group::all().map(|group| Table::new(seeds.hash_one(group))).collect();
        Self { groups, expiries: BTreeMap::new(), indexing: false, records: 0, bytes: 0 }
    }
}

impl State {
    fn find(&self, key: &Key) -> Option<&(Bytes, Entry)> {
        let table = &self.groups[usize::from(key.group.0)];
        table.at(table.find(&key.name)?)
    }

    /// The live record, with the name as it is held.
    pub fn get(&self, key: &Key, view: &mut View) -> Option<(&Bytes, &Entry)> {
        self.find(key).filter(|(_, entry)| view.admits(entry)).map(|(name, entry)| (name, entry))
    }

    /// The record, live or not.
    pub fn peek(&self, key: &Key) -> Option<&Entry> {
        self.find(key).map(|(_, entry)| entry)
    }

    /// Whether anything is going to expire.
    pub fn has_leases(&self) -> bool {
        !self.expiries.is_empty()
    }

    /// Puts a record as it is.
    pub fn put(&mut self, group: u8, name: Bytes, entry: Entry) {
        self.put_after(group, name, entry, |_, _| {});
    }

    /// Puts a new value in the place of a record; if that lives, the new one is as old as it.
    pub fn replace(&mut self, group: u8, name: Bytes, entry: Entry, now_us: u64) -> &Entry {
        self.put_after(group, name, entry, |new, old| {
            if old.is_live(now_us) {
                (new.created, new.touches) = (old.created, old.touches);
            }
        })
    }

    fn put_after(
        &mut self,
        group: u8,
        name: Bytes,
        mut entry: Entry,
        inherit: impl FnOnce(&mut Entry, &Entry),
    ) -> &Entry {
        let armed = if self.indexing { tick(entry.expires_us) } else { 0 };
        entry.armed = armed;
        self.bytes += record_bytes(&name, &entry);
        let table = &mut self.groups[usize::from(group)];
        let (slot, was_armed) = match table.find(&name) {
            None => {
                self.records += 1;
                (table.insert(name, entry), 0)
            }
            Some(slot) => {
                let (name, old) = table.at_mut(slot).expect("found just now");
                self.bytes -= record_bytes(name, old);
                let was_armed = old.armed;
                inherit(&mut entry, old);
                *old = entry;
                (slot, was_armed)
            }
        };
        if was_armed != armed {
            self.disarm(was_armed, group, slot);
            self.arm(armed, group, slot);
        }
        &self.groups[usize::from(group)].at(slot).expect("put just now").1
    }

    fn arm(&mut self, tick: u32, group: u8, slot: Slot) {
        if tick != 0 {
            self.expiries.entry((tick, group)).or_default().push(slot);
        }
    }

    /// A second's leases of a group are few, and as many as that are looked through in no time.
    fn disarm(&mut self, tick: u32, group: u8, slot: Slot) {
        let Some(slots) = self.expiries.get_mut(&(tick, group)) else { return };
        // Most leases end early, in about the order in which they began.
        if let Some(place) = slots.iter().rposition(|other| *other == slot) {
            slots.swap_remove(place);
        }
        if slots.is_empty() {
            self.expiries.remove(&(tick, group));
        }
    }

    /// The index keeps its place and is put right when that moment comes: renewing costs no index work.
    pub fn touch(&mut self, group: u8, name: &[u8], expires_us: u64, touches: u32) -> Option<&Entry> {
        let table = &mut self.groups[usize::from(group)];
        let (_, entry) = table.at_mut(table.find(name)?)?;
        (entry.expires_us, entry.touches) = (expires_us, touches);
        Some(entry)
    }

    pub fn delete(&mut self, group: u8, name: &[u8]) -> Option<(Bytes, Entry)> {
        let slot = self.groups[usize::from(group)].find(name)?;
        let (name, entry) = self.remove(group, slot)?;
        self.disarm(entry.armed, group, slot);
        Some((name, entry))
    }

    fn remove(&mut self, group: u8, slot: Slot) -> Option<(Bytes, Entry)> {
        let (name, entry) = self.groups[usize::from(group)].remove(slot)?;
        self.records -= 1;
        self.bytes -= record_bytes(&name, &entry);
        Some((name, entry))
    }

    /// Looks at up to `count` places of the index whose time has come, takes back the records that are expired
    /// for good (`expired` is told which), and says how many places it looked at.
    pub fn collect(&mut self, durable_us: u64, count: usize, mut expired: impl FnMut(Key)) -> usize {
        for looked_at in 0..count {
            let Some(mut due) = self.expiries.first_entry() else { return looked_at };
            let (armed, group) = *due.key();
            if u64::from(armed) << TICK_BITS > durable_us {
                return looked_at;
            }
            let slot = due.get_mut().pop();
            if due.get().is_empty() {
                due.remove();
            }
            let table = &mut self.groups[usize::from(group)];
            let Some((slot, (_, entry))) = slot.and_then(|slot| Some((slot, table.at_mut(slot)?))) else {
                continue;
            };
            if entry.is_live(durable_us) {
                entry.armed = tick(entry.expires_us);
                let armed = entry.armed;
                self.arm(armed, group, slot);
            } else if let Some((name, _)) = self.remove(group, slot) {
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

    /// Fills an empty group.
    pub fn load(&mut self, group: u8, records: Vec<(Bytes, Entry)>) {
        self.groups[usize::from(group)].reserve(records.len());
        for (name, entry) in records {
            self.put(group, name, entry);
        }
    }

    /// Ends recovering: builds the expiry index, and keeps it from now on.
    pub fn index(&mut self) {
        for (group, records) in (0..=u8::MAX).zip(&mut self.groups) {
            for (slot, (_, entry)) in records.iter_mut().filter(|(_, (_, entry))| entry.expires_us != 0) {
                entry.armed = tick(entry.expires_us);
                self.bytes += EXPIRY_OVERHEAD_BYTES;
                self.expiries.entry((entry.armed, group)).or_default().push(slot);
            }
        }
        self.indexing = true;
    }

    /// Live records in order.
    pub fn scan<'a>(
        &'a mut self,
        group: Group,
        prefix: &'a [u8],
        after: Option<&'a [u8]>,
        view: &'a mut View,
    ) -> impl Iterator<Item = (&'a Bytes, &'a Entry)> {
        let after = after.filter(|after| *after >= prefix);
        let walk = self.groups[usize::from(group.0)].walk(after.unwrap_or(prefix));
        walk.skip_while(move |(name, _)| after.is_some_and(|after| **name == *after))
            .take_while(move |(name, _)| name.starts_with(prefix))
            .filter(move |(_, entry)| view.admits(entry))
            .map(|(name, entry)| (name, entry))
    }

    /// Records after `after`, live or not, for a snapshot: at most `count`, and few enough to be at most about
    /// `bytes`. Empty at the end.
    pub fn copy(
        &mut self,
        group: u8,
        after: Option<&Bytes>,
        count: usize,
        bytes: usize,
    ) -> Vec<(Bytes, Entry)> {
        let walk = self.groups[usize::from(group)].walk(after.map_or(&[], |after| &after[..]));
        let mut left = bytes;
        walk.skip_while(|(name, _)| after == Some(name))
            .take(count)
            .take_while(|(name, entry)| {
                let go_on = left > 0;
                left = left.saturating_sub(name.len() + entry.value.len());
                go_on
            })
            .cloned()
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
