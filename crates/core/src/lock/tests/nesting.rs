//! Reentrancy (L8).

use super::world::*;
use crate::commit::Outcome;
use crate::lock::grant::Terms;
use crate::lock::{Command, Granted, Reply};
use core::time::Duration;

/// Alice has the lock twice.
fn nested() -> (World, Granted, Granted) {
    let mut world = World::default();
    let outer = world.take_as("r1", &reentrant(ALICE));
    let inner = world.take_as("r2", &reentrant(ALICE));
    (world, outer, inner)
}

fn count(world: &World) -> Option<u32> {
    Some(world.roster()?.holders.first()?.count)
}

#[test]
fn the_same_owner_takes_it_again_with_the_same_token_and_a_count() {
    let (world, outer, inner) = nested();
    assert_eq!((outer.count, inner.count), (1, 2));
    assert_eq!(world.token(&outer), world.token(&inner));
}

#[test]
fn it_takes_as_many_releases_and_each_counts_once() {
    let (mut world, outer, inner) = nested();
    let [first, second] = ["x1", "x2"].map(|request| world.release(&inner, Some(request)));
    for _ in 0..2 {
        assert_eq!(world.run(HERE, first.clone()).reply, Reply::Released);
        assert_eq!(count(&world), Some(1));
    }
    assert_eq!(world.run(HERE, second.clone()).reply, Reply::Released);
    assert_eq!(world.roster_record(), None);
    for release in [first, second] {
        assert_eq!(world.run(HERE, release).reply, Reply::Released, "again");
    }
    let acquire = world.acquire("r1", &reentrant(ALICE));
    assert_eq!(world.run(HERE, acquire).reply, Reply::AlreadyReleased);
    assert_eq!(outer.id, inner.id);
}

#[test]
fn a_nested_acquire_is_repeated_with_its_own_count_and_renews() {
    let (mut world, outer, inner) = nested();
    world.take_as("r3", &reentrant(ALICE));
    world.advance(Duration::from_secs(5));
    let again = world.take_as("r2", &reentrant(ALICE));
    assert_eq!((again.count, again.fencing), (2, inner.fencing));
    assert_eq!(count(&world), Some(3), "not a fourth time");
    assert_eq!(world.grant_record(outer.id).unwrap().expires_in, Some(TTL));
}

#[test]
fn a_nested_acquire_ends_as_its_grant_ends() {
    let (mut world, outer, _) = nested();
    let retry = world.acquire("r2", &reentrant(ALICE));
    for request in ["x1", "x2"] {
        let release = world.release(&outer, Some(request));
        world.run(HERE, release);
    }
    assert_eq!(world.run(HERE, retry.clone()).reply, Reply::AlreadyReleased);

    let (mut world, ..) = nested();
    world.advance(TTL);
    assert_eq!(world.run(HERE, retry.clone()).reply, Reply::Expired);
    world.take(BOB);
    assert_eq!(world.run(HERE, retry.clone()).reply, Reply::Expired);

    let (mut world, ..) = nested();
    world.force(None);
    assert_eq!(world.run(HERE, retry).reply, Reply::Expired);
}

#[test]
fn nobody_else_and_no_plain_acquire_nests() {
    let mut world = World::default();
    world.take_as("r1", &reentrant(ALICE));
    let strangers = [reentrant(BOB), terms(ALICE), Terms { principal: "someone".into(), ..reentrant(ALICE) }];
    for stranger in strangers {
        let acquire = world.acquire("r2", &stranger);
        assert!(matches!(world.run(HERE, acquire).reply, Reply::Held(_)), "{stranger:?}");
    }
    let mut world = World::default();
    world.take_as("r1", &terms(ALICE));
    let acquire = world.acquire("r2", &reentrant(ALICE));
    assert!(matches!(world.run(HERE, acquire).reply, Reply::Held(_)), "the first one didn't ask for it");
}

#[test]
fn a_nested_acquire_that_comes_late_for_a_lease_takes_the_lock_anew() {
    let mut world = World::default();
    let outer = world.take_as("r1", &reentrant(ALICE));
    world.advance(TTL);
    let anew = world.take_as("r2", &reentrant(ALICE));
    assert!(anew.is_new && anew.id != outer.id);
    assert_eq!(anew.count, 1);
}

#[test]
fn a_late_copy_of_a_nested_acquire_or_a_counted_release_does_nothing() {
    let (mut world, outer, _) = nested();
    let nest = world.made.last().unwrap().clone();
    let release = world.release(&outer, Some("x1"));
    world.run(HERE, release);
    let counted = world.made.last().unwrap().clone();
    for late in [nest, counted] {
        assert!(matches!(world.store.commit(&late), Outcome::Conflict { .. }));
    }
    assert_eq!(count(&world), Some(1));
}

#[test]
fn a_nested_answer_gives_the_token_out_so_that_the_first_can_not_be_undone() {
    let (mut world, outer, inner) = nested();
    let release = world.release(&inner, Some("x1"));
    world.run(HERE, release);
    let fencing = outer.fencing.resolve(crate::Revision(0));
    world.run(HERE, Command::Undo { id: outer.id, fencing });
    assert_eq!(count(&world), Some(1));
}

#[test]
fn a_nested_memo_of_an_earlier_grant_says_nothing_about_a_later_one_of_the_same_request() {
    let (mut world, outer, _) = nested();
    world.force(None);
    // The memory is shorter while it is over its budget, so that the grant's memo may go first.
    let key = world.lock.memo(outer.id);
    world
        .store
        .commit(&crate::Commit { checks: alloc::vec![], writes: alloc::vec![crate::Write::Delete { key }] });
    let anew = world.take_as("r1", &reentrant(ALICE));
    assert_eq!(anew.id, outer.id);
    let retry = world.acquire("r2", &reentrant(ALICE));
    assert_eq!(world.run(HERE, retry).reply, Reply::Expired);
    assert_eq!(count(&world), Some(1));
}
