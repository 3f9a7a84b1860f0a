//! Taking a lock, and not getting it (L1, L2, L7, L15).

use super::world::*;
use crate::lock::Reply;
use crate::lock::command::Held;
use crate::lock::grant::Terms;
use alloc::vec;
use core::time::Duration;

#[test]
fn a_free_lock_is_taken_in_one_commit_without_a_read() {
    let mut world = World::default();
    let granted = world.take(ALICE);
    assert!(granted.is_new && granted.flags.alone);
    assert_eq!((granted.count, granted.ttl), (1, TTL));
    assert_eq!((world.store.asked.commits, world.store.asked.reads), (1, 0));
    let record = world.grant_record(granted.id).unwrap();
    assert_eq!(crate::Stamp::At(record.created), granted.fencing);
    assert_eq!(world.holder(), Some(granted.id));
}

#[test]
fn a_held_lock_is_refused_with_its_owner_and_when_its_lease_ends() {
    let mut world = World::default();
    world.take(ALICE);
    world.advance(Duration::from_secs(4));
    let left = Some(TTL - Duration::from_secs(4));
    let held = Held { owner: Some(ALICE.into()), retry_after: left, waiting: 0 };
    let before = world.store.revision;
    assert_eq!(world.try_take(BOB), Reply::Held(held));
    assert_eq!(world.store.revision, before, "a refusal isn't remembered");
    world.park(HERE, CAROL);
    let held = Held { owner: Some(ALICE.into()), retry_after: left, waiting: 1 };
    assert_eq!(world.try_take(BOB), Reply::Held(held));
}

#[test]
fn every_grant_has_a_greater_token_than_the_one_before() {
    let mut world = World::default();
    let first = world.take(ALICE);
    world.give_back(&first);
    let second = world.take(BOB);
    world.advance(TTL);
    let third = world.take(CAROL);
    world.force(None);
    let fourth = world.take("dave");
    let tokens = [first, second, third, fourth].map(|granted| world.token(&granted).fencing);
    assert!(tokens.is_sorted_by(|a, b| a < b), "{tokens:?}");
}

#[test]
fn metadata_is_the_holders_and_goes_with_it() {
    let with = |owner, metadata: &[u8]| Terms { metadata: Some(metadata.into()), ..terms(owner) };
    let metadata = |world: &World| world.roster().and_then(|roster| roster.metadata);
    let mut world = World::default();
    let alice = world.take_as(ALICE, &with(ALICE, b"{\"why\":1}"));
    let (bob, _) = world.acquire_waiting(HERE, BOB, &with(BOB, b"{\"why\":2}"));
    world.run(HERE, bob);
    let (carol, _) = world.acquire_waiting(HERE, CAROL, &terms(CAROL));
    world.run(HERE, carol);
    assert_eq!(metadata(&world).as_deref(), Some(&b"{\"why\":1}"[..]));
    world.give_back(&alice);
    assert_eq!(metadata(&world).as_deref(), Some(&b"{\"why\":2}"[..]), "of who was handed the lock");
    world.give_back(&world.handed_over());
    assert_eq!(world.holder(), Some(world.id(CAROL)));
    assert_eq!(metadata(&world), None);
}

#[test]
fn a_lock_that_nobody_has_or_wants_leaves_only_memos() {
    let mut world = World::default();
    let alice = world.take(ALICE);
    let bob = world.park(HERE, BOB);
    world.run(HERE, crate::lock::Command::Leave(bob));
    world.give_back(&alice);
    assert_eq!(world.roster_record(), None);
    assert_eq!(world.store.all(b"Lg"), vec![]);
    assert_eq!(world.store.all(b"Lq"), vec![]);
    assert_eq!(world.store.all(b"Lw"), vec![]);
    assert_eq!(world.store.all(b"Le").len(), 1);
}
