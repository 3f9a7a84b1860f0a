//! The records of one group: found by name in one step, and walked in order by whoever asks for order.
//!
//! Commits find, put and delete; nearly none of what they make is ever walked over, and most of it is soon gone. So order
//! comes later: a new record is noted as fresh, and sorted in with others when there are many, or when somebody walks.
//! Searching an ordered map each time, name by name through memory, was half of what a commit cost.
//!
//! A record stays in its slot as long as it lives. Slots of deleted records are used again, and given back only with the
//! table: it is as large as it ever was.

use super::effect::Entry;
use baton_core::Bytes;
use hashbrown::HashTable;
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// Slots are added this many at a time, or an eighth of those there are: doubling would leave a quarter unused.
const SLOTS_ADDED_MIN: usize = 16;

/// Fresh records are sorted in when there are this many: so nobody ever waits for more than that.
const FRESH_MAX: usize = if cfg!(test) { 24 } else { 1024 };
/// Sorted records that are kept together: putting one between others moves at most as many.
const CHUNK_MAX: usize = if cfg!(test) { 8 } else { 2048 };

/// Where a record is, for as long as it lives.
pub(super) type Slot = u32;

/// Records under their names.
pub(super) struct Table {
    slots: Vec<Option<(Bytes, Entry)>>,
    /// For each slot, where the order has it.
    places: Vec<Place>,
    free: Vec<Slot>,
    index: HashTable<Slot>,
    /// Live records in the order of their names, in chunks of which none is empty.
    sorted: Vec<Vec<Slot>>,
    /// Slots to be sorted in: of records made since, some of them gone again.
    fresh: Vec<Slot>,
    /// Names are chosen by callers; where they meet must not be.
    seed: u64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Nowhere,
    Fresh,
    Sorted,
}

impl Table {
    /// An empty one. The seed is nobody else's business.
    pub fn new(seed: u64) -> Self {
        Self {
            slots: Vec::new(),
            places: Vec::new(),
            free: Vec::new(),
            index: HashTable::new(),
            sorted: Vec::new(),
            fresh: Vec::new(),
            seed,
        }
    }

    /// Which slot has this name.
    pub fn find(&self, name: &[u8]) -> Option<Slot> {
        let hash = xxh3_64_with_seed(name, self.seed);
        self.index.find(hash, |slot| self.name(*slot) == name).copied()
    }

    /// The record in a slot.
    pub fn at(&self, slot: Slot) -> Option<&(Bytes, Entry)> {
        self.slots.get(slot as usize)?.as_ref()
    }

    /// The record in a slot, to be changed.
    pub fn at_mut(&mut self, slot: Slot) -> Option<&mut (Bytes, Entry)> {
        self.slots.get_mut(slot as usize)?.as_mut()
    }

    /// Puts a record of which there is none yet.
    pub fn insert(&mut self, name: Bytes, entry: Entry) -> Slot {
        let hash = xxh3_64_with_seed(&name, self.seed);
        let slot = self.free.pop().unwrap_or_else(|| self.add_slot());
        self.slots[slot as usize] = Some((name, entry));
        let (slots, seed) = (&self.slots, self.seed);
        self.index.insert_unique(hash, slot, |slot| xxh3_64_with_seed(name_in(slots, *slot), seed));
        if self.places[slot as usize] == Place::Nowhere {
            self.places[slot as usize] = Place::Fresh;
            self.fresh.push(slot);
            if self.fresh.len() >= FRESH_MAX {
                self.sort();
            }
        }
        slot
    }

    /// Takes a record out.
    pub fn remove(&mut self, slot: Slot) -> Option<(Bytes, Entry)> {
        let hash = xxh3_64_with_seed(self.name(slot), self.seed);
        self.index.find_entry(hash, |other| *other == slot).ok()?.remove();
        if self.places[slot as usize] == Place::Sorted {
            let (chunk, place) = self.sorted_place(self.name(slot));
            self.sorted[chunk].remove(place);
            if self.sorted[chunk].is_empty() {
                self.sorted.remove(chunk);
            }
            self.places[slot as usize] = Place::Nowhere;
        }
        self.free.push(slot);
        self.slots[slot as usize].take()
    }

    /// Records in the order of their names, from the first that is not before `start`.
    pub fn walk(&mut self, start: &[u8]) -> impl Iterator<Item = &(Bytes, Entry)> {
        self.sort();
        let (chunk, place) = self.sorted_place(start);
        let chunks = self.sorted.iter().skip(chunk);
        chunks.flatten().skip(place).filter_map(|slot| self.at(*slot))
    }

    /// All records with their slots, in no order.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (Slot, &mut (Bytes, Entry))> {
        let slots = self.slots.iter_mut().zip(0..);
        slots.filter_map(|(record, slot)| record.as_mut().map(|record| (slot, record)))
    }

    /// Makes room for this many more.
    pub fn reserve(&mut self, count: usize) {
        self.slots.reserve_exact(count);
        self.places.reserve_exact(count);
        let (slots, seed) = (&self.slots, self.seed);
        self.index.reserve(count, |slot| xxh3_64_with_seed(name_in(slots, *slot), seed));
    }

    fn name(&self, slot: Slot) -> &[u8] {
        name_in(&self.slots, slot)
    }

    fn add_slot(&mut self) -> Slot {
        if self.slots.len() == self.slots.capacity() {
            let more = (self.slots.len() / 8).max(SLOTS_ADDED_MIN);
            self.slots.reserve_exact(more);
            self.places.reserve_exact(more);
        }
        let slot = Slot::try_from(self.slots.len()).expect("memory ends long before");
        self.slots.push(None);
        self.places.push(Place::Nowhere);
        slot
    }

    /// In which chunk, and where in it, the first record is that isn't before this name; or would be, in the chunk where
    /// it belongs.
    fn sorted_place(&self, name: &[u8]) -> (usize, usize) {
        let after = self.sorted.partition_point(|chunk| self.name(chunk[0]) <= name);
        let chunk = after.saturating_sub(1);
        let slots = self.sorted.get(chunk).map_or(&[][..], |slots| slots);
        (chunk, slots.partition_point(|slot| self.name(*slot) < name))
    }

    fn sort(&mut self) {
        let mut added = std::mem::take(&mut self.fresh);
        added.retain(|slot| {
            let is_live = self.slots[*slot as usize].is_some();
            self.places[*slot as usize] = if is_live { Place::Sorted } else { Place::Nowhere };
            is_live
        });
        // In order, so that one after the other goes to about the same place.
        added.sort_unstable_by(|a, b| self.name(*a).cmp(self.name(*b)));
        for slot in added {
            let (chunk, place) = self.sorted_place(self.name(slot));
            let Some(slots) = self.sorted.get_mut(chunk) else {
                self.sorted.push(vec![slot]);
                continue;
            };
            slots.insert(place, slot);
            if slots.len() > CHUNK_MAX {
                let rest = slots.split_off(CHUNK_MAX / 2);
                self.sorted.insert(chunk + 1, rest);
            }
        }
    }
}

fn name_in(slots: &[Option<(Bytes, Entry)>], slot: Slot) -> &[u8] {
    slots.get(slot as usize).and_then(Option::as_ref).map_or(&[], |(name, _)| name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn entry(number: u64) -> Entry {
        Entry {
            value: number.to_le_bytes()[..].into(),
            created: number,
            revision: number,
            expires_us: 0,
            touches: 0,
            armed: 0,
        }
    }

    #[derive(Clone, Debug)]
    enum Step {
        Put(u8, u64),
        Remove(u8),
        Walk(u8),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            4 => (any::<u8>(), any::<u64>()).prop_map(|(name, number)| Step::Put(name, number)),
            3 => any::<u8>().prop_map(Step::Remove),
            1 => any::<u8>().prop_map(Step::Walk),
        ]
    }

    proptest! {
        #[test]
        fn it_holds_and_walks_what_an_ordered_map_does(steps in prop::collection::vec(step(), 0..400), seed: u64) {
            let mut table = Table::new(seed);
            let mut model = BTreeMap::new();
            // A few letters: names that begin alike, and one that begins another.
            let name_of = |name: u8| Bytes::from(&b"abcabcab"[..usize::from(name % 9)]).iter().copied()
                .chain([name]).collect::<Vec<u8>>();
            for step in steps {
                match step {
                    Step::Put(name, number) => {
                        let name = name_of(name);
                        match table.find(&name) {
                            Some(slot) => table.at_mut(slot).unwrap().1 = entry(number),
                            None => {
                                let slot = table.insert(name.as_slice().into(), entry(number));
                                prop_assert_eq!(&table.at(slot).unwrap().1, &entry(number));
                            }
                        }
                        model.insert(name, number);
                    }
                    Step::Remove(name) => {
                        let name = name_of(name);
                        let removed = table.find(&name).and_then(|slot| table.remove(slot));
                        prop_assert_eq!(removed.map(|(_, entry)| entry.revision), model.remove(&name));
                    }
                    Step::Walk(from) => {
                        let from = name_of(from);
                        let walked: Vec<_> =
                            table.walk(&from).map(|(name, entry)| (name.to_vec(), entry.revision)).collect();
                        let expected: Vec<_> =
                            model.range(from..).map(|(name, number)| (name.clone(), *number)).collect();
                        prop_assert_eq!(walked, expected);
                    }
                }
            }
            prop_assert_eq!(table.iter_mut().count(), model.len());
        }
    }
}
