//! Replicas that ask each other over a network that is late, loses, repeats, and on which the asked one may begin anew (D3).

use super::world::{Random, Replica, World};
use crate::crdt::sync::{Answer, Ask, BUCKETS, Next, Repair, Reply, Request, Rows, Shown, answer, bucket_of};
use crate::crdt::{Actor, Change, Context, Dot, Kind, Object, Row, RowKey, Seen, removal, set};
use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use proptest::prelude::*;

/// A replica's rows in buckets.
struct Sorted<'a> {
    replica: &'a Replica,
    buckets: Vec<Vec<(&'a RowKey, &'a Row, u64)>>,
}

impl<'a> Sorted<'a> {
    fn of(replica: &'a Replica) -> Self {
        let mut buckets = alloc::vec![Vec::new(); BUCKETS];
        for (key, row) in &replica.rows {
            buckets[bucket_of(key)].push((key, row, row.hash(key)));
        }
        Self { replica, buckets }
    }
}

impl Rows for Sorted<'_> {
    fn context(&self) -> &Context {
        self.replica.context()
    }

    fn implied(&self) -> &Context {
        self.replica.seen.implied()
    }

    fn bucket(&self, bucket: usize) -> u64 {
        self.buckets[bucket].iter().fold(0, |sum, (.., hash)| sum.wrapping_add(*hash))
    }

    fn rows<'a>(
        &'a self,
        bucket: usize,
        after: Option<&'a RowKey>,
    ) -> impl Iterator<Item = (&'a RowKey, &'a Row, u64)> {
        let rows = self.buckets[bucket].iter().copied();
        rows.filter(move |(key, ..)| after.is_none_or(|after| *key > after))
    }
}

/// A question on its way, or the answer to it.
struct Exchange {
    by: usize,
    to: usize,
    repair: Repair,
    run: Option<Actor>,
    asking: Actor,
    question: Vec<u8>,
    answer: Option<Vec<u8>>,
}

/// What is left to the network: nothing is dropped on the way but by ending an exchange.
struct Network {
    world: World,
    exchanges: Vec<Exchange>,
    number: u64,
}

impl Network {
    fn new(replicas: usize) -> Self {
        Self { world: World::new(replicas), exchanges: Vec::new(), number: 0 }
    }

    /// With room for so few gaps that much is only implied.
    fn with_spans(replicas: usize, spans_max: usize) -> Self {
        let mut network = Self::new(replicas);
        for replica in &mut network.world.replicas {
            replica.seen = Seen::new(Context::default(), spans_max);
        }
        network
    }

    fn question(&mut self, by: usize, to: Option<Actor>, ask: Ask) -> Vec<u8> {
        self.number += 1;
        let from = self.world.replicas[by].actor;
        Request { from, number: self.number, to, ask }.encode().to_vec()
    }

    fn begin(&mut self, by: usize, to: usize) {
        let (repair, ask) = Repair::begin(&Sorted::of(&self.world.replicas[by]));
        let (question, asking) = (self.question(by, None, ask), self.world.replicas[by].actor);
        self.exchanges.push(Exchange { by, to, repair, run: None, asking, question, answer: None });
    }

    /// One exchange goes on by half a round trip. False when it is over.
    fn advance(&mut self, which: usize) -> bool {
        let mut exchange = self.exchanges.swap_remove(which);
        let asked = &self.world.replicas[exchange.to];
        let Some(bytes) = exchange.answer.take() else {
            let request = Request::decode(&exchange.question).unwrap();
            let says = match request.to {
                Some(run) if run != asked.actor => Answer::OtherRun,
                _ => answer(&request.ask, &Sorted::of(asked)).unwrap(),
            };
            exchange.answer = Some(Reply { from: asked.actor, answer: says }.encode().to_vec());
            self.exchanges.push(exchange);
            return true;
        };
        // Who began anew has forgotten that it asked.
        if self.world.replicas[exchange.by].actor != exchange.asking {
            return false;
        }
        let reply = Reply::decode(&bytes).unwrap();
        exchange.run = Some(reply.from);
        if reply.answer == Answer::OtherRun {
            return false;
        }
        let rows = &self.world.replicas[exchange.by];
        let (shown, next) = exchange.repair.take(reply.answer, &Sorted::of(rows)).unwrap();
        for shown in shown {
            let context = exchange.repair.context().unwrap().clone();
            compare(&mut self.world.replicas[exchange.by], &shown, &context);
        }
        match next {
            Next::Ask(ask) => {
                exchange.question = self.question(exchange.by, exchange.run, ask);
                self.exchanges.push(exchange);
                true
            }
            Next::Same => false,
            Next::Adopt(adoption) => {
                let replica = &mut self.world.replicas[exchange.by];
                if adoption.is_sound(&replica.seen) {
                    replica.seen.adopt(&adoption.context);
                }
                false
            }
        }
    }

    fn repair(&mut self, by: usize, to: usize) {
        self.begin(by, to);
        while self.advance(self.exchanges.len() - 1) {}
    }

    fn step(&mut self, random: &mut Random, restores: bool) {
        let replicas = self.world.replicas.len() as u64;
        let (at, other) = (random.below(replicas) as usize, random.below(replicas) as usize);
        match random.below(24) {
            0..=2 if at != other && self.exchanges.len() < 4 => self.begin(at, other),
            3..=11 if !self.exchanges.is_empty() => {
                let which = random.below(self.exchanges.len() as u64) as usize;
                self.advance(which);
            }
            12 => drop(self.exchanges.pop()),
            13..=14 => self.world.deliver(at, random),
            15 => self.world.restart(at),
            16 => self.world.copies.push(self.world.replicas[at].clone()),
            17 if restores && !self.world.copies.is_empty() => {
                let copy = random.below(self.world.copies.len() as u64) as usize;
                self.world.replicas[at] = self.world.copies[copy].clone();
                self.world.restart(at);
            }
            _ => {
                let keys = World::keys();
                self.world.write(at, &keys[random.below(keys.len() as u64) as usize], random);
            }
        }
    }

    /// All ask all, one after the other, and nothing goes wrong.
    fn round(&mut self) {
        for (by, to) in [(0, 1), (0, 2), (1, 0), (1, 2), (2, 0), (2, 1)] {
            self.repair(by, to);
        }
    }
}

fn compare(replica: &mut Replica, shown: &Shown, theirs: &Context) {
    let is_in = |key: &RowKey| {
        bucket_of(key) == shown.bucket
            && shown.after.as_ref().is_none_or(|after| key > after)
            && shown.to.as_ref().is_none_or(|to| key <= to)
    };
    let mut keys: BTreeSet<_> =
        replica.rows.keys().filter(|key| is_in(key) && !shown.same.contains(*key)).cloned().collect();
    keys.extend(shown.rows.iter().map(|(key, _)| key.clone()));
    let none = Row::default();
    for key in keys {
        let row = replica.rows.get(&key).unwrap_or(&none);
        let other = shown.rows.iter().find(|(of, _)| *of == key).map_or(&none, |(_, row)| row);
        let change = row.difference(&replica.seen, &key, other, theirs);
        replica.take_compared(&change);
    }
}

/// All that was ever written, as one replica that heard of everything has it.
fn everything(world: &World) -> Replica {
    let mut all = World::new(1).replicas.remove(0);
    world.deltas.iter().flat_map(|delta| &delta.changes).for_each(|change| all.apply(change));
    all
}

#[test]
fn what_comes_from_elsewhere_while_rows_are_compared_is_not_taken_for_compared() {
    comes_late(Replica::apply);
}

#[test]
fn nor_is_what_comes_by_another_comparison_and_is_only_implied() {
    comes_late(Replica::take_compared);
}

fn comes_late(take: fn(&mut Replica, &Change)) {
    let mut network = Network::with_spans(2, 0);
    let (old, new) = (Object::plain("n", "old").row(Kind::Set), Object::plain("n", "new").row(Kind::Set));
    let dot = |number| Dot { actor: Actor([9; 16]), number };
    let added = set::add(&Row::default(), &old, dot(1));
    let told = &mut network.world.replicas[1];
    told.apply(&added);
    let removed = removal::remove(&told.rows[&old], &old, dot(2), &told.context().clone()).unwrap();
    told.apply(&removed);
    told.apply(&set::add(&Row::default(), &new, dot(3)));
    network.begin(0, 1);
    // Asked, and the hashes of the answer compared: only one row differs. Then the other one comes, late.
    assert!(network.advance(0) && network.advance(0));
    take(&mut network.world.replicas[0], &added);
    while network.advance(0) {}
    let replica = &network.world.replicas[0];
    assert!(replica.rows.contains_key(&old) && replica.rows.contains_key(&new));
    assert!(!replica.context().contains(dot(2)), "it doesn't know of the removal");
    network.repair(0, 1);
    let replica = &network.world.replicas[0];
    assert!(!replica.rows.contains_key(&old) && replica.context().contains(dot(2)));
}

proptest! {
    // Each has a long history of its own.
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn after_two_rounds_all_have_all_that_was_ever_written(seed: u64, steps in 1..300_usize, spans_max in 0..5_usize) {
        let (mut network, mut random) = (Network::with_spans(3, spans_max), Random(seed));
        (0..steps).for_each(|_| network.step(&mut random, false));
        network.exchanges.clear();
        network.round();
        network.round();
        let all = everything(&network.world);
        for replica in &network.world.replicas {
            prop_assert_eq!(&replica.rows, &all.rows);
            prop_assert_eq!(replica.context(), all.context());
        }
    }

    #[test]
    fn old_copies_bring_nothing_back_and_make_nobody_lose_anything(seed: u64, steps in 1..300_usize, spans_max in 0..5_usize) {
        let (mut network, mut random) = (Network::with_spans(3, spans_max), Random(seed));
        (0..steps).for_each(|_| network.step(&mut random, true));
        network.exchanges.clear();
        // What is live is what somebody has and nobody knows to be over. Who was put back may have been the only one who knew.
        let mut live = BTreeSet::new();
        for replica in &network.world.replicas {
            live.extend(replica.rows.iter().flat_map(|(key, row)| row.dots().map(move |dot| (key.clone(), dot))));
        }
        live.retain(|(key, dot)| {
            let has = |replica: &Replica| replica.rows.get(key).is_some_and(|row| row.dots().any(|of| of == *dot));
            network.world.replicas.iter().all(|replica| has(replica) || !replica.context().contains(*dot))
        });
        network.round();
        network.round();
        for replica in &network.world.replicas {
            prop_assert_eq!(replica.context(), network.world.replicas[0].context());
            let dots = replica.rows.iter().flat_map(|(key, row)| row.dots().map(move |dot| (key.clone(), dot)));
            prop_assert_eq!(&dots.collect::<BTreeSet<_>>(), &live);
        }
    }

    #[test]
    fn messages_that_are_damaged_are_unreadable_and_never_a_panic(value: Vec<u8>, tail: Vec<u8>) {
        drop((Request::decode(&value), Reply::decode(&value)));
        let known = [[1].as_slice(), &[7; 17], &[0, 4], &tail].concat();
        drop((Request::decode(&known), Reply::decode(&known)));
    }
}
