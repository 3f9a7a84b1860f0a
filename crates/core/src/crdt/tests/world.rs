//! Replicas that write at random, tell each other or not, start anew and are restored; and an oracle that knows only who saw what.
//!
//! The oracle has no contexts and no rows. An event lists what its writer had before it, and an entry is live for whoever saw
//! the event that made it and none that replaced or removed it.

use crate::crdt::{
    Actor, Change, Clock, Context, Delta, Dot, Entry, Kind, Object, Row, RowKey, Seen, counter, register,
    removal, renewal, set,
};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

/// Numbers that follow from a seed.
pub struct Random(pub u64);

impl Random {
    pub fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

#[derive(Clone)]
pub struct Replica {
    pub rows: BTreeMap<RowKey, Row>,
    pub seen: Seen,
    clock: Clock,
    pub actor: Actor,
    number: u64,
    /// For the oracle: the events it heard of, by the dot of each.
    pub heard: BTreeSet<Dot>,
}

/// What happened, as the oracle remembers it.
pub struct Event {
    pub key: RowKey,
    pub entries: Vec<(Dot, Entry)>,
    pub ended: Vec<Dot>,
}

#[derive(Default)]
pub struct World {
    pub replicas: Vec<Replica>,
    pub events: BTreeMap<Dot, Event>,
    pub deltas: Vec<Delta>,
    pub copies: Vec<Replica>,
    actors: u64,
    now_ms: u64,
}

impl World {
    pub fn new(replicas: usize) -> Self {
        let mut world = Self::default();
        for _ in 0..replicas {
            let actor = world.fresh_actor();
            world.replicas.push(Replica {
                rows: BTreeMap::new(),
                seen: Seen::default(),
                clock: Clock::default(),
                actor,
                number: 0,
                heard: BTreeSet::new(),
            });
        }
        world
    }

    fn fresh_actor(&mut self) -> Actor {
        self.actors += 1;
        // Not in the order of their making, so that nothing rests on it.
        let mixed = self.actors.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        Actor((u128::from(mixed) << 64 | u128::from(self.actors)).to_be_bytes())
    }

    pub fn keys() -> Vec<RowKey> {
        let mut keys = Vec::new();
        for object in [Object::plain("n", "o"), Object::field("n", "m", "f")] {
            keys.extend(Kind::ALL.map(|kind| object.row(kind)));
            keys.push(object.element(Kind::Set, b"other"));
        }
        keys
    }

    /// Something happens; `keys` are the rows that are written to.
    pub fn step(&mut self, random: &mut Random, keys: &[RowKey]) {
        let at = random.below(self.replicas.len() as u64) as usize;
        match random.below(16) {
            0..=6 => {
                let key = &keys[random.below(keys.len() as u64) as usize];
                self.write(at, key, random);
            }
            7..=11 => self.deliver(at, random),
            12 => {
                let from = random.below(self.replicas.len() as u64) as usize;
                self.repair(at, from);
            }
            13 => self.restart(at),
            14 => self.copies.push(self.replicas[at].clone()),
            _ if self.copies.is_empty() => {}
            _ => {
                let copy = random.below(self.copies.len() as u64) as usize;
                self.replicas[at] = self.copies[copy].clone();
                self.restart(at);
            }
        }
        self.verify(at);
    }

    pub fn write(&mut self, at: usize, key: &RowKey, random: &mut Random) {
        self.now_ms += random.below(3);
        let seen = match random.below(3) {
            // What somebody else has read, who may have seen less or more than this replica.
            0 => Some(self.replicas[random.below(self.replicas.len() as u64) as usize].context().clone()),
            _ => None,
        };
        let mut next = self.replicas[at].number;
        let replica = &mut self.replicas[at];
        let row = replica.rows.get(key).cloned().unwrap_or_default();
        let mut mint = || {
            next += 1;
            Dot { actor: replica.actor, number: next }
        };
        let change = match random.below(8) {
            0..=1 => match seen {
                Some(seen) => removal::remove(&row, key, mint(), &seen),
                None => removal::remove(&row, key, mint(), &replica.seen),
            },
            2 => renewal::renew(&row, key, |actor| actor != replica.actor, mint),
            _ => {
                let dot = mint();
                let amount = random.below(9) as i64 - if key.kind() == Kind::Counter { 4 } else { 0 };
                match key.kind() {
                    Kind::Counter | Kind::GrowCounter if random.below(4) == 0 => {
                        let writer = Actor([random.below(2) as u8; 16]);
                        counter::report(&row, key, dot, writer, (random.below(50), 0)).unwrap()
                    }
                    Kind::Counter | Kind::GrowCounter => Some(counter::add(&row, key, dot, amount).unwrap()),
                    Kind::Set => Some(set::add(&row, key, dot)),
                    Kind::Register | Kind::MultiValue => {
                        let at = replica.clock.tick(self.now_ms).unwrap();
                        Some(register::put(&row, key, dot, at, [random.below(5) as u8].as_slice().into()))
                    }
                }
            }
        };
        let Some(change) = change else { return };
        if !replica.seen.can_tell([&change].into_iter()) {
            return;
        }
        let name =
            change.dots().find(|dot| dot.actor == replica.actor && dot.number > replica.number).unwrap();
        self.events.insert(
            name,
            Event { key: key.clone(), entries: change.added.clone(), ended: change.removed.clone() },
        );
        replica.number = next;
        let delta = Delta { changes: alloc::vec![change] };
        self.deltas.push(delta.clone());
        self.take(at, &delta);
    }

    /// Takes any delta in, old or new, once more or for the first time.
    pub fn deliver(&mut self, at: usize, random: &mut Random) {
        if !self.deltas.is_empty() {
            let which = random.below(self.deltas.len() as u64) as usize;
            let delta = self.deltas[which].clone();
            self.take(at, &delta);
        }
    }

    fn take(&mut self, at: usize, delta: &Delta) {
        for change in &delta.changes {
            let name = change.dots().find(|dot| {
                self.events.contains_key(dot)
                    && self.events[dot].key == change.key
                    && self.events[dot].ended == change.removed
                    && self.events[dot].entries == change.added
            });
            self.replicas[at].heard.extend(name);
            self.replicas[at].apply(change);
        }
    }

    pub fn deliver_all(&mut self, at: usize) {
        for delta in core::mem::take(&mut self.deltas).into_iter().rev().collect::<Vec<_>>() {
            self.take(at, &delta);
            self.deltas.push(delta);
        }
    }

    /// All rows and the whole context of another replica.
    pub fn repair(&mut self, at: usize, from: usize) {
        let theirs = self.replicas[from].clone();
        self.replicas[at].repair(&theirs);
    }

    pub fn restart(&mut self, at: usize) {
        let actor = self.fresh_actor();
        let replica = &mut self.replicas[at];
        (replica.actor, replica.number) = (actor, 0);
        replica.seen.found(replica.rows.values());
    }

    /// The replica has just what the oracle says of what it has heard.
    pub fn verify(&self, at: usize) {
        let replica = &self.replicas[at];
        let mut expected: BTreeMap<RowKey, BTreeMap<Dot, Entry>> = BTreeMap::new();
        let ended: BTreeSet<Dot> =
            replica.heard.iter().flat_map(|dot| self.events[dot].ended.iter().copied()).collect();
        for event in replica.heard.iter().map(|dot| &self.events[dot]) {
            let live = event.entries.iter().filter(|(dot, _)| !ended.contains(dot)).cloned();
            expected.entry(event.key.clone()).or_default().extend(live);
        }
        expected.retain(|_, entries| !entries.is_empty());
        let found: BTreeMap<_, BTreeMap<_, _>> = replica
            .rows
            .iter()
            .map(|(key, row)| (key.clone(), row.entries().iter().cloned().collect()))
            .collect();
        assert_eq!(found, expected);
    }
}

impl Replica {
    pub fn apply(&mut self, change: &Change) {
        let row = self.rows.entry(change.key.clone()).or_default();
        row.apply(change, &self.seen);
        change.dots().for_each(|dot| self.seen.insert(dot));
        self.observe(change);
    }

    /// What a comparison showed: a dot that would make a gap too many is only implied.
    pub fn take_compared(&mut self, change: &Change) {
        let row = self.rows.entry(change.key.clone()).or_default();
        row.apply(change, &self.seen);
        for dot in change.dots() {
            if self.seen.would_fray(dot) {
                self.seen.imply(&Context::span(dot.actor, dot.number, dot.number), || self.rows.values());
            } else {
                self.seen.insert(dot);
            }
        }
        self.observe(change);
    }

    /// What may be told.
    pub fn context(&self) -> &Context {
        self.seen.context()
    }

    fn observe(&mut self, change: &Change) {
        for (_, entry) in &change.added {
            if let Entry::Value { at, .. } = entry {
                self.clock.observe(*at);
            }
        }
        self.rows.retain(|_, row| !row.is_empty());
    }

    pub fn repair(&mut self, theirs: &Self) {
        let keys: BTreeSet<_> = self.rows.keys().chain(theirs.rows.keys()).cloned().collect();
        let none = Row::default();
        for key in keys {
            let (mine, other) =
                (self.rows.get(&key).unwrap_or(&none), theirs.rows.get(&key).unwrap_or(&none));
            let change = mine.difference(&self.seen, &key, other, theirs.context());
            self.apply(&change);
        }
        self.seen.adopt(theirs.context());
        self.heard.extend(&theirs.heard);
    }
}
