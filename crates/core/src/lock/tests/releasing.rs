//! Giving a lock back (L4, L9).

use super::world::*;
use crate::lock::command::End;
use crate::lock::memo::Fate;
use crate::lock::{Effect, Reply};
use crate::view::Stamp;

#[test]
fn a_release_is_repeated_with_the_same_answer_until_it_is_forgotten() {
    let mut world = World::default();
    let alice = world.take(ALICE);
    assert_eq!(world.give_back(&alice), Reply::Released);
    assert_eq!(world.give_back(&alice), Reply::Released);
    world.take(BOB);
    assert_eq!(world.give_back(&alice), Reply::Released, "whoever holds it now");
    assert_eq!(world.holder(), Some(world.id(BOB)));
    world.advance(MEMORY);
    assert_eq!(world.give_back(&alice), Reply::Expired);
}

#[test]
fn a_release_with_a_request_id_is_counted_once_and_bound_to_its_token() {
    let mut world = World::default();
    let alice = world.take(ALICE);
    let release = world.release(&alice, Some("r"));
    assert_eq!(world.run(HERE, release.clone()).reply, Reply::Released);
    let bob = world.take(BOB);
    assert_eq!(world.run(HERE, release).reply, Reply::Released);
    let other = world.release(&bob, Some("r"));
    assert_eq!(world.run(HERE, other).reply, Reply::RequestIdReused);
    assert_eq!(world.holder(), Some(bob.id));
}

#[test]
fn a_release_after_the_lease_ran_out_says_so_and_hands_over() {
    let mut world = World::default();
    let alice = world.take(ALICE);
    world.park(HERE, BOB);
    world.advance(TTL);
    assert_eq!(world.give_back(&alice), Reply::Expired);
    assert_eq!(world.holder(), Some(world.id(BOB)));
    assert_eq!(world.give_back(&alice), Reply::Expired, "again");
    assert_eq!(world.memo(alice.id).unwrap().fate, Fate::Expired);
}

#[test]
fn a_release_of_an_earlier_grant_of_the_same_request_doesnt_end_the_later_one() {
    let mut world = World::default();
    let first = world.take(ALICE);
    world.give_back(&first);
    world.advance(MEMORY);
    let second = world.take(ALICE);
    assert_eq!(second.id, first.id);
    assert_eq!(world.give_back(&first), Reply::Expired);
    assert_eq!(world.holder(), Some(second.id));
    assert_eq!(world.give_back(&second), Reply::Released);
    assert_eq!(world.give_back(&first), Reply::Expired, "the memo is the later one's");
}

#[test]
fn a_hand_over_grants_to_one_waiter_only_and_tells_both_ends() {
    let mut world = World::default();
    let alice = world.take(ALICE);
    world.park_all(&[BOB, CAROL]);
    world.effects.clear();
    world.give_back(&alice);
    let [(at, ended), (same, granted)] = &world.effects[..] else { panic!("{:?}", world.effects) };
    assert_eq!(at, same, "one commit");
    let fencing = alice.fencing;
    let id = alice.id;
    let Effect::Ended { granted_at, .. } = *ended else { panic!("{ended:?}") };
    let owner = ALICE.into();
    assert_eq!(*ended, Effect::Ended { id, how: End::Released, owner, fencing, granted_at });
    let Effect::Granted { grant, queued_since: Some(_) } = granted else { panic!("{granted:?}") };
    assert_eq!((grant.id, grant.fencing), (world.id(BOB), Stamp::ThisCommit));
    assert_eq!(world.store.look(&world.lock.grant(grant.id)).unwrap().created, *at);
}
