//! What waits to be told: put together, it tells the same; and it has a bound.

use super::world::{Random, World};
use crate::crdt::sync::Outbox;
use crate::crdt::sync::coalesce::OUTBOX_BYTES_MAX;
use crate::crdt::{Delta, Kind, Object, Row, counter, set};
use alloc::vec::Vec;
use proptest::prelude::*;

proptest! {
    #[test]
    fn changes_that_are_put_together_tell_what_they_told_one_by_one(seed: u64, steps in 1..60_usize) {
        // One writer, as it is when local writes are told.
        let (mut world, mut random) = (World::new(1), Random(seed));
        let mut told = World::new(1).replicas.remove(0);
        let mut outbox = Outbox::default();
        let keys = World::keys();
        let mut heard = 0;
        for _ in 0..steps {
            world.write(0, &keys[random.below(keys.len() as u64) as usize], &mut random);
            for delta in &world.deltas[heard..] {
                delta.changes.iter().for_each(|change| assert!(outbox.add(change)));
            }
            heard = world.deltas.len();
            if random.below(5) == 0 {
                tell(&mut outbox, &mut told);
            }
        }
        tell(&mut outbox, &mut told);
        prop_assert!(outbox.is_empty());
        prop_assert_eq!(&told.rows, &world.replicas[0].rows);
        prop_assert_eq!(told.context(), world.replicas[0].context());
    }
}

fn tell(outbox: &mut Outbox, to: &mut super::world::Replica) {
    while let Some(delta) = outbox.take() {
        let delta = Delta::decode(&delta.encode()).unwrap();
        delta.changes.iter().for_each(|change| to.apply(change));
    }
}

#[test]
fn a_counter_that_is_added_to_a_thousand_times_is_told_as_one_change() {
    let key = Object::plain("n", "hits").row(Kind::Counter);
    let (mut outbox, mut row) = (Outbox::default(), Row::default());
    for number in 1..=1000 {
        let change = counter::add(&row, &key, super::dot(1, number), 1).unwrap();
        row.apply(&change, &crate::crdt::Context::default());
        assert!(outbox.add(&change));
    }
    let delta = outbox.take().unwrap();
    assert_eq!((delta.changes.len(), delta.changes[0].added.len()), (1, 1));
    assert_eq!(delta.context().len(), 1000);
}

#[test]
fn when_there_is_no_more_room_nothing_waits_and_it_begins_anew() {
    let object = Object::plain("n", "tags");
    let mut outbox = Outbox::default();
    let changes: Vec<_> = (0..20_000_u64)
        .map(|number| {
            let key = object.element(Kind::Set, &[&number.to_be_bytes()[..], &[0; 100]].concat());
            set::add(&Row::default(), &key, super::dot(1, number + 1))
        })
        .collect();
    let fitted = changes.iter().position(|change| !outbox.add(change)).unwrap();
    assert!((OUTBOX_BYTES_MAX / 200..OUTBOX_BYTES_MAX / 100).contains(&fitted), "{fitted}");
    assert!(outbox.is_empty() && outbox.take().is_none());
    assert!(outbox.add(&changes[fitted]));
    assert_eq!(outbox.len(), 1);
    // What is told at once is bounded too.
    changes[..5000].iter().for_each(|change| assert!(outbox.add(change)));
    let first = outbox.take().unwrap();
    assert!(first.changes.len() <= crate::crdt::DELTA_CHANGES_MAX && !outbox.is_empty());
}
