//! Taking from a request whatever it has, for good or until it is made again (L16).

use super::world::*;
use crate::commit::Outcome;
use crate::lock::memo::Fate;
use crate::lock::{Command, Reply};
use crate::view::View;
use alloc::vec;

fn withdraw(world: &mut World, request: &str, again: bool) {
    let command = world.withdraw(request, &terms(request), again);
    assert_eq!(world.run(HERE, command).reply, Reply::Left);
}

#[test]
fn what_is_held_is_taken_back_also_if_it_was_given_out_twice_and_goes_to_the_next() {
    for (again, fate) in [(true, Fate::Void), (false, Fate::Released)] {
        let mut world = World::default();
        let alice = world.take(ALICE);
        world.take(ALICE);
        world.park(HERE, BOB);
        withdraw(&mut world, ALICE, again);
        assert_eq!(world.holder(), Some(world.id(BOB)));
        let memo = world.memo(alice.id).unwrap();
        assert_eq!((memo.fate, crate::Stamp::At(memo.fencing)), (fate, alice.fencing));
    }
}

#[test]
fn a_place_in_the_queue_is_left() {
    for again in [true, false] {
        let mut world = World::default();
        let alice = world.take(ALICE);
        world.park_all(&[BOB, CAROL]);
        withdraw(&mut world, BOB, again);
        assert_eq!(world.queue(), vec![world.id(CAROL)]);
        world.give_back(&alice);
        assert_eq!(world.holder(), Some(world.id(CAROL)));
    }
}

#[test]
fn for_good_means_that_neither_a_late_commit_nor_a_later_try_takes_it() {
    type Before = fn(&mut World);
    let histories: [(&str, Before); 4] = [
        ("nothing was there", |_| {}),
        ("held", |world| drop(world.take(ALICE))),
        ("waiting", |world| {
            world.take(BOB);
            world.park(HERE, ALICE);
        }),
        ("taken back before", |world| {
            world.take(ALICE);
            withdraw(world, ALICE, true);
        }),
    ];
    for (name, happened) in histories {
        let mut world = World::default();
        happened(&mut world);
        let late = late_acquire(&mut world);
        withdraw(&mut world, ALICE, false);
        world.force(None);
        if let Some(late) = late {
            assert!(matches!(world.store.commit(&late), Outcome::Conflict { .. }), "{name}: a late commit");
        }
        assert_eq!(world.try_take(ALICE), Reply::AlreadyReleased, "{name}");
        let (waiting, _) = world.acquire_waiting(HERE, ALICE, &terms(ALICE));
        assert_eq!(world.run(HERE, waiting).reply, Reply::AlreadyReleased, "{name}");
        assert_eq!(world.holder(), None, "{name}");
    }
}

/// The commit that would grant the lock now, if it would be granted, and isn't sent yet.
fn late_acquire(world: &mut World) -> Option<crate::Commit> {
    let acquire = world.acquire(ALICE, &terms(ALICE));
    let mut view = View::new(world.lock.group());
    let decided = world.draft(HERE, &mut view, &[acquire]);
    matches!(decided[0].reply, Reply::Granted(_)).then(|| view.commit())
}

#[test]
fn until_made_again_means_that_a_late_commit_stays_out_and_a_new_try_takes_it() {
    let mut world = World::default();
    let first = world.take(ALICE);
    let made = world.made[0].clone();
    withdraw(&mut world, ALICE, true);
    assert!(matches!(world.store.commit(&made), Outcome::Conflict { .. }));
    let second = world.take(ALICE);
    assert!(second.is_new && second.fencing != first.fencing);
}

/// Found by the random walk.
#[test]
fn a_grant_that_is_taken_back_twice_in_one_commit_is_remembered_with_its_token() {
    let mut world = World::default();
    let alice = world.take(ALICE);
    let both = [true, false].map(|again| world.withdraw(ALICE, &terms(ALICE), again));
    world.run_all(HERE, &both);
    let memo = world.memo(alice.id).unwrap();
    assert_eq!((memo.fate, crate::Stamp::At(memo.fencing)), (Fate::Released, alice.fencing));
}

#[test]
fn what_became_of_it_before_stays_remembered() {
    let mut world = World::default();
    let alice = world.take(ALICE);
    world.force(None);
    withdraw(&mut world, ALICE, false);
    assert_eq!(world.memo(alice.id).unwrap().fate, Fate::Forced);
    let mut world = World::default();
    let alice = world.take(ALICE);
    world.advance(TTL);
    withdraw(&mut world, ALICE, true);
    assert_eq!(world.memo(alice.id).unwrap().fate, Fate::Expired);
    assert_eq!(world.roster_record(), None);
}

#[test]
fn a_withdrawal_that_arrives_with_the_acquire_takes_back_what_it_made() {
    let mut world = World::default();
    let acquire = world.acquire(ALICE, &terms(ALICE));
    let withdraw: Command = world.withdraw(ALICE, &terms(ALICE), false);
    let answers = world.run_all(HERE, &[acquire, withdraw]);
    assert!(matches!(answers[0].reply, Reply::Granted(_)));
    assert_eq!(world.roster_record(), None);
    assert_eq!(world.try_take(ALICE), Reply::AlreadyReleased);
}
