//! The release that guesses the roster instead of reading it: one commit, and harmless when wrong.

use super::world::*;
use crate::commit::Outcome;
use crate::lock::{Granted, NodeId, Reply};
use crate::view::View;
use alloc::vec;

/// The commit that a release makes of nothing but its token.
fn blind_release(world: &mut World, granted: &Granted) -> crate::Commit {
    let release = world.release(granted, None);
    let mut view = View::new(world.lock.group());
    world.draft(HERE, &mut view, &[release]);
    view.commit()
}

#[test]
fn an_uncontended_release_is_one_commit_without_a_read() {
    let mut world = World::default();
    let alice = world.take(ALICE);
    world.store.asked = super::store::Asked::default();
    assert_eq!(world.give_back(&alice), Reply::Released);
    assert_eq!((world.store.asked.commits, world.store.asked.reads), (1, 0));
    assert_eq!(world.roster_record(), None);
    assert_eq!(world.memo(alice.id).unwrap().digest, terms(ALICE).digest());
}

#[test]
fn a_guess_is_refused_once_the_roster_says_anything_else() {
    type Happens = fn(&mut World, &Granted);
    let changes: [(&str, Happens); 6] = [
        ("someone queued", |world, _| world.park_all(&[BOB])),
        ("given out again", |world, _| drop(world.take(ALICE))),
        ("nested", |world, _| drop(world.take_as("nested", &reentrant(ALICE)))),
        ("forced", |world, _| drop(world.force(None))),
        ("released", |world, granted| drop(world.give_back(granted))),
        ("expired", |world, _| world.advance(TTL)),
    ];
    for (name, happens) in changes {
        let mut world = World::default();
        let granted = match name {
            "nested" => world.take_as(ALICE, &reentrant(ALICE)),
            _ => world.take(ALICE),
        };
        let guess = blind_release(&mut world, &granted);
        happens(&mut world, &granted);
        assert!(matches!(world.store.commit(&guess), Outcome::Conflict { .. }), "{name}");
    }
}

#[test]
fn a_grant_that_was_handed_over_isnt_alone_and_its_release_looks() {
    let mut world = World::default();
    let alice = world.take(ALICE);
    world.park_all(&[BOB, CAROL]);
    world.give_back(&alice);
    let bob = world.handed_over();
    assert!(!bob.flags.alone);
    assert_eq!(world.give_back(&bob), Reply::Released);
    let carol = world.handed_over();
    assert_eq!(carol.id, world.id(CAROL));
    assert!(!carol.flags.alone, "others may have queued in the commit that handed the lock over");
    assert_eq!(world.give_back(&carol), Reply::Released);
    assert_eq!(world.roster_record(), None);
}

#[test]
fn a_waiter_that_arrives_with_the_grant_is_not_lost_to_the_guess_of_its_release() {
    let mut world = World::default();
    let alice = world.acquire(ALICE, &terms(ALICE));
    let (bob, _) = world.acquire_waiting(HERE, BOB, &terms(BOB));
    let answers = world.run_all(HERE, &[alice, bob]);
    assert_eq!(answers[1].reply, Reply::Parked);
    assert_eq!(world.give_back(&answers[0].granted()), Reply::Released);
    assert_eq!(world.holder(), Some(world.id(BOB)));
    assert_eq!(world.queue(), vec![]);
}

#[test]
fn a_nested_acquire_that_arrives_with_the_grant_is_not_lost_to_the_guess_of_its_release() {
    let mut world = World::default();
    let commands = ["r1", "r2"].map(|request| world.acquire(request, &reentrant(ALICE)));
    let answers = world.run_all(HERE, &commands);
    assert_eq!(answers[1].granted().count, 2);
    let release = world.release(&answers[0].granted(), Some("x1"));
    world.run(HERE, release);
    assert_eq!(world.only_holder().count, 1);
}

#[test]
fn a_wrong_guess_is_put_right_by_what_the_store_says() {
    let mut world = World::default();
    let alice = world.take(ALICE);
    let release = world.release(&alice, None);
    let answers = world.run_racing(HERE, &[release], |world| {
        let (bob, _) = world.acquire_waiting(NodeId(3), BOB, &terms(BOB));
        world.run(NodeId(3), bob);
    });
    assert_eq!(answers[0].reply, Reply::Released);
    assert_eq!(world.holder(), None);
    assert_eq!(world.queue(), vec![world.id(BOB)]);
}
