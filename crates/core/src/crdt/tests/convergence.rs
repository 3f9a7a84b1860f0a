//! Replicas over random histories: duplicates, reordering, partitions, restarts, old copies.

use super::world::{Random, World};
use crate::crdt::Kind;
use alloc::vec::Vec;
use proptest::prelude::*;

proptest! {
    // Each has a long history of its own.
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn replicas_have_what_the_history_says_at_every_step_and_end_up_equal(seed: u64, steps in 1..150_usize) {
        let (mut world, mut random) = (World::new(3), Random(seed));
        for _ in 0..steps {
            world.step(&mut random, &World::keys());
        }
        // Every delta reaches everybody in the end, in another order than it was made, and again.
        for at in [0, 1, 2, 0] {
            world.deliver_all(at);
            world.verify(at);
        }
        for at in [1, 2] {
            prop_assert_eq!(&world.replicas[at].rows, &world.replicas[0].rows);
            prop_assert_eq!(world.replicas[at].context(), world.replicas[0].context());
        }
    }

    #[test]
    fn two_rounds_of_repair_make_all_equal_whatever_was_lost(seed: u64, steps in 1..150_usize) {
        let (mut world, mut random) = (World::new(4), Random(seed));
        for _ in 0..steps {
            world.step(&mut random, &World::keys());
        }
        for _ in 0..2 {
            for at in 0..4 {
                world.repair((at + 1) % 4, at);
                world.verify((at + 1) % 4);
            }
        }
        for at in 1..4 {
            prop_assert_eq!(&world.replicas[at].rows, &world.replicas[0].rows);
            prop_assert_eq!(world.replicas[at].context(), world.replicas[0].context());
        }
    }

    #[test]
    fn a_single_kind_that_is_written_a_lot_ends_up_equal(seed: u64, kind in 0..5_usize, steps in 1..200_usize) {
        let (mut world, mut random) = (World::new(3), Random(seed));
        let keys: Vec<_> = World::keys().into_iter().filter(|key| key.kind() == Kind::ALL[kind]).collect();
        for _ in 0..steps {
            world.step(&mut random, &keys);
        }
        for at in 0..3 {
            world.deliver_all(at);
            world.verify(at);
            prop_assert_eq!(&world.replicas[at].rows, &world.replicas[0].rows);
        }
    }
}
