//! Joining rows of two replicas: in any order, grouped in any way, again and again, it comes to the same.

use super::world::{Random, Replica, World};
use crate::crdt::Kind;
use alloc::vec::Vec;
use proptest::prelude::*;

/// Three replicas that have gone different ways, with rows of one kind.
fn apart(kind: Kind, seed: u64) -> [Replica; 3] {
    let (mut world, mut random) = (World::new(3), Random(seed));
    let keys: Vec<_> = World::keys().into_iter().filter(|key| key.kind() == kind).collect();
    for _ in 0..60 {
        world.step(&mut random, &keys);
    }
    world.replicas.try_into().unwrap_or_else(|_| unreachable!("there are three"))
}

fn joined(one: &Replica, other: &Replica) -> Replica {
    let mut both = one.clone();
    both.repair(other);
    both
}

fn same(one: &Replica, other: &Replica) -> bool {
    one.rows == other.rows && one.context() == other.context()
}

proptest! {
    // Each has a long history of its own.
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn joining_is_commutative_associative_and_idempotent_for_every_kind(seed: u64) {
        for kind in Kind::ALL {
            let [a, b, c] = apart(kind, seed);
            prop_assert!(same(&joined(&a, &b), &joined(&b, &a)), "{:?} one way and the other", kind);
            prop_assert!(same(&joined(&joined(&a, &b), &c), &joined(&a, &joined(&b, &c))), "{:?} grouped", kind);
            prop_assert!(same(&joined(&a, &a), &a), "{:?} with itself", kind);
            for (key, row) in &a.rows {
                prop_assert!(row.difference(a.context(), key, row, a.context()).is_empty(), "{:?} tells itself", kind);
            }
            let both = joined(&a, &b);
            prop_assert!(same(&joined(&both, &b), &both), "{:?} again", kind);
        }
    }
}
