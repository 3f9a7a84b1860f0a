//! What the passing of time brings (L5), and what it must not.

use super::world::*;
use crate::commit::Outcome;
use crate::lock::grant::Terms;
use crate::lock::memo::Fate;
use crate::lock::{Command, Reply};
use core::time::Duration;

#[test]
fn a_look_evicts_a_holder_whose_lease_is_over_and_hands_over_in_the_same_commit() {
    let mut world = World::default();
    let alice = world.take(ALICE);
    world.park(HERE, BOB);
    world.advance(TTL);
    let before = world.store.revision;
    let expected = Reply::Settled { look_in: Some(TTL), is_free: false };
    assert_eq!(world.settle(HERE), expected);
    assert_eq!(world.store.revision, before + 1);
    assert_eq!(world.holder(), Some(world.id(BOB)));
    assert_eq!(world.memo(alice.id).unwrap().fate, Fate::Expired);
}

#[test]
fn a_look_at_a_live_holder_changes_nothing_and_says_when_to_look_again() {
    let mut world = World::default();
    world.take(ALICE);
    world.park(HERE, BOB);
    world.advance(TTL - Duration::from_millis(1));
    let before = world.store.revision;
    let expected = Reply::Settled { look_in: Some(Duration::from_millis(1)), is_free: false };
    assert_eq!(world.settle(HERE), expected);
    assert_eq!(world.store.revision, before);
}

#[test]
fn nobody_is_evicted_by_a_decision_that_raced_with_a_new_grant() {
    for request in [Command::Settle, force(None)] {
        let mut world = World::default();
        world.take(ALICE);
        world.advance(TTL);
        world.run_racing(HERE, core::slice::from_ref(&request), |world| {
            world.settle(THERE);
            let bob = world.acquire(BOB, &terms(BOB));
            world.run(THERE, bob).granted();
        });
        let bob = world.id(BOB);
        let forced = matches!(request, Command::Force(_));
        assert_eq!(world.grant_record(bob).is_none(), forced, "an eviction ends nobody who lives");
        assert_eq!(world.holder().is_none(), forced);
    }
}

#[test]
fn a_waiter_behind_a_holder_that_just_expired_is_decided_again_and_takes_the_lock() {
    let mut world = World::default();
    world.take(ALICE);
    let (bob, _) = world.acquire_waiting(HERE, BOB, &terms(BOB));
    let answers = world.run_racing(HERE, &[bob], |world| world.advance(TTL));
    assert_eq!(answers[0].granted().id, world.id(BOB), "its guess that alice lives was checked");
}

#[test]
fn a_memo_has_the_grants_token_however_often_the_roster_was_rewritten() {
    type End = fn(&mut World);
    let ends: [(Fate, End); 2] = [
        (Fate::Expired, |world| {
            world.advance(TTL);
            world.settle(HERE);
        }),
        (Fate::Forced, |world| drop(world.force(None))),
    ];
    for (fate, end) in ends {
        let mut world = World::default();
        let alice = world.take(ALICE);
        let created = world.grant_record(alice.id).unwrap().created;
        let bob = world.park(THERE, BOB);
        world.park(HERE, CAROL);
        world.run(THERE, Command::Leave(bob));
        assert_ne!(world.roster_record().unwrap().revision, created);
        end(&mut world);
        let memo = world.memo(alice.id).unwrap();
        assert_eq!((memo.fate, memo.fencing), (fate, created));
    }
}

#[test]
fn a_lease_that_was_ended_and_handed_on_is_not_renewed_after_the_clock_stepped_back() {
    let delay = Duration::from_secs(1);
    for delay in [Duration::ZERO, delay] {
        let mut world = World::default();
        let alice = world.take_as(ALICE, &Terms { delay, ..terms(ALICE) });
        world.advance(TTL);
        world.settle(HERE);
        world.advance(delay);
        let bob = world.take(BOB);
        // Nobody has collected what is over, and by this clock it isn't over.
        world.store.now -= (TTL + delay - Duration::from_millis(1)).as_millis() as u64;
        assert!(matches!(world.renew(&alice), Outcome::Conflict { .. }), "two hold it");
        assert!(matches!(world.renew(&bob), Outcome::Committed { .. }));
    }
}
