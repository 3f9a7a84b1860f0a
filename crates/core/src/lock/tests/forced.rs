//! Forced release (L10).

use super::world::*;
use crate::lock::audit::Forced;
use crate::lock::memo::Fate;
use crate::lock::{GrantId, Reply};
use alloc::vec;

fn note(world: &World, id: GrantId) -> Option<Forced> {
    world.store.look(&world.lock.audit(id)).map(|record| Forced::decode(&record.value).unwrap())
}

#[test]
fn the_lock_is_taken_away_noted_and_handed_over_in_one_commit() {
    let mut world = World::default();
    let alice = world.take(ALICE);
    world.park(HERE, BOB);
    let before = world.store.revision;
    let expected =
        Reply::Forced { id: alice.id, owner: ALICE.into(), fencing: alice.fencing, others: vec![] };
    assert_eq!(world.force(None), expected);
    assert_eq!(world.store.revision, before + 1);
    assert_eq!(world.holder(), Some(world.id(BOB)));
    let note = note(&world, alice.id).unwrap();
    assert_eq!((&*note.owner, &*note.by, note.reason.as_str()), (ALICE, "admin", "stuck"));
    assert_eq!(crate::Stamp::At(note.fencing), alice.fencing);
    assert_eq!(world.memo(alice.id).unwrap().fate, Fate::Forced);
    assert_eq!(world.give_back(&alice), Reply::Expired, "its holder learns it");
}

#[test]
fn a_repetition_with_the_target_says_the_same_and_takes_nothing_from_the_next_holder() {
    let mut world = World::default();
    let alice = world.take(ALICE);
    world.park(HERE, BOB);
    let answer = world.force(Some(alice.id));
    assert_eq!(world.force(Some(alice.id)), answer);
    assert_eq!(world.holder(), Some(world.id(BOB)));
}

#[test]
fn a_request_that_was_forced_and_granted_anew_can_be_forced_again() {
    let mut world = World::default();
    let first = world.take(ALICE);
    world.force(Some(first.id));
    world.advance(MEMORY);
    let second = world.take(ALICE);
    assert_eq!(second.id, first.id);
    let expected =
        Reply::Forced { id: second.id, owner: ALICE.into(), fencing: second.fencing, others: vec![] };
    assert_eq!(world.force(Some(second.id)), expected);
    assert_eq!(world.holder(), None);
    assert_eq!(crate::Stamp::At(note(&world, second.id).unwrap().fencing), second.fencing);
}

#[test]
fn there_is_nothing_to_force_on_a_free_lock_or_from_someone_else() {
    let mut world = World::default();
    assert_eq!(world.force(None), Reply::NotFound);
    let alice = world.take(ALICE);
    assert_eq!(world.force(Some(world.id(BOB))), Reply::NotFound);
    assert_eq!(world.holder(), Some(alice.id));
    world.advance(TTL);
    assert_eq!(world.force(None), Reply::NotFound, "the lease ran out by itself");
    assert_eq!(world.memo(alice.id).unwrap().fate, Fate::Expired);
    assert_eq!(note(&world, alice.id), None);
}
