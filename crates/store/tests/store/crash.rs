//! Crashes at every point, of a disk that tears and reorders what wasn't synced.
//!
//! A model remembers what was acknowledged and what is uncertain. After each crash the store must show the
//! first as it was, and the second as a whole or not at all.

use crate::simulated::{Simulated, commit, key};
use baton_core::{Group, Key, Outcome, Record, Ttl, Write};
use baton_store::Store;
use baton_store::embedded::disk::Disk;
use baton_store::embedded::disk::simulated::Random;
use baton_store::embedded::{Embedded, OpenError};
use std::collections::BTreeMap;
use std::time::Duration;

const NAMES: u64 = 12;
const LEASE: &str = "lease";

/// What a key held after some commit: its value, `created` and `revision`.
type Known = Option<(Vec<u8>, u64, u64)>;

struct Model {
    random: Random,
    known: BTreeMap<Key, Known>,
    /// A commit without an answer: what each of its keys holds if it was applied, but for the revision.
    uncertain: Vec<Vec<(Key, Option<Vec<u8>>)>>,
    revision_max: u64,
    /// What was left of a long lease when the last commit was acknowledged.
    lease_left: Option<Duration>,
    counter: u64,
}

impl Model {
    fn new(seed: u64) -> Self {
        let random = Random::new(seed ^ 0xfeed);
        Self {
            random,
            known: BTreeMap::new(),
            uncertain: vec![],
            revision_max: 0,
            lease_left: None,
            counter: 0,
        }
    }

    /// One to three writes of different keys of one group.
    fn writes(&mut self, group: u64) -> Vec<Write> {
        let first = self.random.below(NAMES);
        let count = 1 + self.random.below(3);
        (first..first + count).map(|name| self.write(group, name % NAMES)).collect()
    }

    fn write(&mut self, group: u64, name: u64) -> Write {
        let key = Key::new(Group(group as u8), format!("name-{name:02}").into_bytes());
        if self.random.one_in(4) {
            return Write::Delete { key };
        }
        self.counter += 1;
        let size = if self.random.one_in(8) { 1500 } else { 40 };
        let value = format!("{:<size$}", self.counter).into_bytes().into();
        Write::Put { key, value, ttl: Ttl::Forever }
    }

    /// Three commits at once, in different groups; whether all were answered.
    async fn step(&mut self, world: &Simulated, store: &Embedded) -> bool {
        world.time.advance(Duration::from_millis(self.random.below(400)));
        let batch = [0, 1, 2].map(|group| self.writes(group));
        let [a, b, c] = batch.clone().map(|writes| store.commit(commit(writes)));
        let answers: [_; 3] = tokio::join!(a, b, c).into();
        let mut answered = true;
        for (writes, answer) in batch.into_iter().zip(answers) {
            match answer {
                Ok(Outcome::Committed { revision, .. }) => self.acknowledge(writes, revision.0),
                Ok(Outcome::Conflict { .. }) => panic!("there are no checks"),
                Err(baton_store::StoreError::Unknown { .. }) => {
                    self.uncertain.push(writes.into_iter().map(after).collect());
                    answered = false;
                }
                Err(baton_store::StoreError::NotApplied { .. }) => answered = false,
            }
        }
        if answered && let Ok(reading) = store.read(vec![key(LEASE)]).await {
            self.lease_left = reading.records[0].as_ref().and_then(|record| record.expires_in);
        }
        answered
    }

    fn acknowledge(&mut self, writes: Vec<Write>, revision: u64) {
        assert!(revision > self.revision_max, "{revision} after {}", self.revision_max);
        self.revision_max = revision;
        for (key, value) in writes.into_iter().map(after) {
            let created = self.known.get(&key).cloned().flatten().map_or(revision, |(_, created, _)| created);
            self.known.insert(key, value.map(|value| (value, created, revision)));
        }
    }

    /// Compares, and takes what was uncertain as it turned out.
    async fn verify(&mut self, store: &Embedded, context: &str) {
        for commit in std::mem::take(&mut self.uncertain) {
            let keys: Vec<_> = commit.iter().map(|(key, _)| key.clone()).collect();
            let found = known(store.read(keys).await.unwrap().records);
            let before: Vec<_> =
                commit.iter().map(|(key, _)| self.known.get(key).cloned().flatten()).collect();
            let revision = found.iter().flatten().map(|(_, _, revision)| *revision).max();
            let applied: Vec<Known> = commit
                .iter()
                .zip(&before)
                .map(|((_, value), before)| {
                    let revision = revision.unwrap_or_default();
                    let created = before.as_ref().map_or(revision, |(_, created, _)| *created);
                    value.clone().map(|value| (value, created, revision))
                })
                .collect();
            if found != before {
                assert_eq!(found, applied, "{context}: half a commit");
                self.revision_max = self.revision_max.max(revision.unwrap_or_default());
                for ((key, _), found) in commit.into_iter().zip(found) {
                    self.known.insert(key, found);
                }
            }
        }
        let keys: Vec<_> = self.known.keys().cloned().collect();
        let found = known(store.read(keys).await.unwrap().records);
        for ((key, known), found) in self.known.iter().zip(found) {
            assert_eq!(*known, found, "{context}: {key:?} is not as it was acknowledged");
        }
        let lease = store.read(vec![key(LEASE)]).await.unwrap().records.remove(0);
        if let Some(left) = self.lease_left {
            let now = lease.expect("a long lease").expires_in.unwrap();
            assert!(now <= left, "{context}: the lease clock went back, from {left:?} to {now:?}");
        }
    }
}

fn known(records: Vec<Option<Record>>) -> Vec<Known> {
    let known = |record: Record| (record.value.to_vec(), record.created.0, record.revision.0);
    records.into_iter().map(|record| record.map(known)).collect()
}

fn after(write: Write) -> (Key, Option<Vec<u8>>) {
    match write {
        Write::Put { key, value, .. } => (key, Some(value.to_vec())),
        Write::Delete { key } => (key, None),
        Write::Touch { .. } => unreachable!("not used here"),
    }
}

fn small(seed: u64) -> Simulated {
    let mut world = Simulated::new(seed);
    (world.options.segment_bytes, world.options.snapshot_bytes) = (8 << 10, 12 << 10);
    world
}

async fn lease(model: &mut Model, store: &Embedded) {
    let ttl = Ttl::Exactly(Duration::from_secs(1_000_000));
    let write = Write::Put { key: key(LEASE), value: b"1"[..].into(), ttl };
    if let Ok(Outcome::Committed { revision, .. }) = store.commit(commit([write])).await {
        model.revision_max = revision.0;
    }
}

#[tokio::test]
async fn a_crash_at_every_point_loses_nothing_acknowledged() {
    let mut crashed_everywhere = false;
    let mut point = 1;
    while !crashed_everywhere {
        let (world, mut model) = (small(point), Model::new(7));
        world.disk.crash_at(Some(point));
        if let Ok(store) = world.start() {
            lease(&mut model, &store).await;
            for _ in 0..90 {
                if !model.step(&world, &store).await {
                    break;
                }
            }
        }
        crashed_everywhere = world.disk.operations() < point;
        world.disk.restart();
        let store = world.start().unwrap_or_else(|error| panic!("after a crash at {point}: {error}"));
        model.verify(&store, &format!("crash at {point}")).await;
        point += 1;
    }
    assert!(point > 200, "only {point} points: too little happens");
}

#[tokio::test]
async fn crash_after_crash_also_while_recovering_loses_nothing_acknowledged() {
    for seed in 0..40 {
        let (world, mut model) = (small(seed), Model::new(seed));
        let mut leased = false;
        for round in 0..12 {
            let context = format!("seed {seed}, round {round}");
            world.disk.crash_at(Some(world.disk.operations() + 1 + model.random.below(90)));
            if let Ok(store) = world.start() {
                if !leased {
                    lease(&mut model, &store).await;
                    leased = true;
                }
                while model.step(&world, &store).await {}
            }
            world.disk.restart();
            let store = world.start().unwrap_or_else(|error| panic!("{context}: {error}"));
            model.verify(&store, &context).await;
            if model.random.one_in(2) {
                // Killed without having done anything.
                world.disk.crash_at(Some(0));
            }
            drop(store);
            world.disk.restart();
        }
    }
}

#[tokio::test]
async fn a_flipped_bit_is_refused_or_harmless() {
    let (mut refused, mut harmless) = (0, 0);
    for seed in 0..4 {
        let (world, mut model) = (small(seed), Model::new(seed));
        let store = world.start().unwrap();
        lease(&mut model, &store).await;
        for _ in 0..40 {
            assert!(model.step(&world, &store).await);
        }
        drop(store);
        let files: Vec<_> = world
            .disk
            .list()
            .unwrap()
            .into_iter()
            .map(|name| (world.disk.bytes(&name).unwrap(), name))
            .collect();
        for _ in 0..150 {
            let (bytes, name) = &files[model.random.below(files.len() as u64) as usize];
            if bytes.is_empty() {
                continue;
            }
            let copy = small(seed);
            for (bytes, name) in &files {
                copy.disk.create(name).unwrap();
                copy.disk.set_bytes(name, bytes.clone());
            }
            let bit = model.random.below(bytes.len() as u64 * 8);
            let mut flipped = bytes.clone();
            flipped[bit as usize / 8] ^= 1 << (bit % 8);
            copy.disk.set_bytes(name, flipped);
            match copy.start() {
                Ok(store) => {
                    model.verify(&store, &format!("seed {seed}, bit {bit} of {name}")).await;
                    harmless += 1;
                }
                Err(OpenError::Damaged { .. } | OpenError::TooNew { .. }) => refused += 1,
                Err(error) => panic!("seed {seed}, bit {bit} of {name}: {error}"),
            }
        }
    }
    assert!(refused > 100, "{refused} refused, {harmless} harmless: the flips miss what matters");
}
