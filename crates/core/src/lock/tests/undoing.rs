//! Taking back a grant that couldn't be delivered.

use super::world::*;
use crate::commit::Outcome;
use crate::lock::memo::Fate;
use crate::lock::{Command, Granted, Reply};
use crate::record::Revision;

fn undo(granted: &Granted) -> Command {
    Command::Undo { id: granted.id, fencing: granted.fencing.resolve(Revision(0)) }
}

#[test]
fn an_undelivered_grant_is_taken_back_and_goes_to_the_next() {
    let mut world = World::default();
    let alice = world.take(ALICE);
    let made = world.made[0].clone();
    world.park(HERE, BOB);
    assert_eq!(world.run(HERE, undo(&alice)).reply, Reply::Left);
    assert_eq!(world.holder(), Some(world.id(BOB)));
    assert_eq!(world.memo(alice.id).unwrap().fate, Fate::Void);
    world.force(None);
    assert!(matches!(world.store.commit(&made), Outcome::Conflict { .. }), "a late copy stays out");
    let again = world.take(ALICE);
    assert!(again.is_new && world.token(&again) != world.token(&alice));
}

#[test]
fn a_grant_that_was_given_out_again_stays() {
    let mut world = World::default();
    let alice = world.take(ALICE);
    world.take(ALICE);
    world.run(HERE, undo(&alice));
    assert_eq!(world.holder(), Some(alice.id));
}

#[test]
fn only_the_very_grant_is_taken_back() {
    let mut world = World::default();
    let first = world.take(ALICE);
    world.run(HERE, undo(&first));
    let second = world.take(ALICE);
    world.run(HERE, undo(&first));
    assert_eq!(world.holder(), Some(second.id));
}

#[test]
fn an_undelivered_grant_whose_lease_ran_out_has_expired() {
    let mut world = World::default();
    let alice = world.take(ALICE);
    world.advance(TTL);
    world.run(HERE, undo(&alice));
    assert_eq!(world.roster_record(), None);
    assert_eq!(world.memo(alice.id).unwrap().fate, Fate::Expired);
}

#[test]
fn an_undo_and_the_same_request_made_again_dont_share_a_commit() {
    let mut world = World::default();
    let first = world.take(ALICE);
    let again = world.acquire(ALICE, &terms(ALICE));
    let answers = world.run_all(HERE, &[undo(&first), again]);
    let second = answers[1].granted();
    assert_eq!(crate::Stamp::At(world.grant_record(second.id).unwrap().created), second.fencing);
    assert_ne!(second.fencing, first.fencing);
    assert_eq!(world.give_back(&second), Reply::Released);
}
