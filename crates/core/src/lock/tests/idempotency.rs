//! One requestId, one effect (L9), and commits that arrive late (L13).

use super::world::*;
use crate::commit::Outcome;
use crate::lock::Reply;
use crate::lock::grant::Terms;
use crate::lock::memo::Fate;
use crate::view::View;
use core::time::Duration;

#[test]
fn repeating_an_acquire_gives_the_same_grant_renewed_and_marked_as_given_out_twice() {
    let mut world = World::default();
    let first = world.take(ALICE);
    world.advance(Duration::from_secs(6));
    let again = world.take(ALICE);
    assert_eq!(world.token(&again), world.token(&first));
    assert!(!again.is_new);
    assert_eq!(world.grant_record(first.id).unwrap().expires_in, Some(TTL));
    assert!(world.only_holder().replayed);
    assert_eq!(world.take(ALICE).fencing, first.fencing, "also the third time");
}

#[test]
fn after_the_end_the_same_acquire_says_how_it_ended_and_never_takes_the_lock() {
    type End = fn(&mut World, &crate::lock::Granted);
    let ends: [(&str, End, Reply); 4] = [
        ("released", |world, granted| drop(world.give_back(granted)), Reply::AlreadyReleased),
        ("expired", |world, _| world.advance(TTL), Reply::Expired),
        (
            "expired and evicted",
            |world, _| {
                world.advance(TTL);
                world.settle(HERE);
            },
            Reply::Expired,
        ),
        ("forced", |world, _| drop(world.force(None)), Reply::Expired),
    ];
    for (name, end, expected) in ends {
        let mut world = World::default();
        let granted = world.take(ALICE);
        end(&mut world, &granted);
        assert_eq!(world.try_take(ALICE), expected, "{name}");
        assert_eq!(world.try_take(ALICE), expected, "{name}, again");
        assert_eq!(world.roster_record(), None, "{name}");
        let (waiting, _) = world.acquire_waiting(HERE, ALICE, &terms(ALICE));
        assert_eq!(world.run(HERE, waiting).reply, expected, "{name}, waiting");
        world.advance(MEMORY);
        let later = world.take(ALICE);
        assert!(later.is_new && world.token(&later) != world.token(&granted), "{name}, forgotten");
    }
}

#[test]
fn a_request_id_with_other_parameters_is_refused_in_every_state() {
    type Prepare = fn(&mut World);
    let states: [(&str, Prepare); 7] = [
        ("live", |world| drop(world.take_as("r", &terms(ALICE)))),
        ("over but not evicted", |world| {
            world.take_as("r", &terms(ALICE));
            world.advance(TTL);
        }),
        ("expired", |world| {
            world.take_as("r", &terms(ALICE));
            world.advance(TTL);
            world.settle(HERE);
        }),
        ("released", |world| {
            let granted = world.take_as("r", &terms(ALICE));
            world.give_back(&granted);
        }),
        ("forced", |world| {
            world.take_as("r", &terms(ALICE));
            world.force(None);
        }),
        ("queued", |world| {
            world.take(BOB);
            let (queued, _) = world.acquire_waiting(HERE, "r", &terms(ALICE));
            world.run(HERE, queued);
        }),
        ("nested", |world| {
            world.take_as(ALICE, &reentrant(ALICE));
            world.take_as("r", &reentrant(ALICE));
        }),
    ];
    for (name, prepare) in states {
        let mut world = World::default();
        prepare(&mut world);
        let other = Terms { ttl: TTL * 2, ..terms(ALICE) };
        let command = world.acquire("r", &other);
        assert_eq!(world.run(HERE, command).reply, Reply::RequestIdReused, "{name}");
        let (waiting, _) = world.acquire_waiting(HERE, "r", &other);
        assert_eq!(world.run(HERE, waiting).reply, Reply::RequestIdReused, "{name}, waiting");
    }
}

#[test]
fn a_poisoned_request_may_be_made_again_while_its_lost_commit_stays_out() {
    let mut world = World::default();
    let command = world.acquire(ALICE, &terms(ALICE));
    let mut view = View::new(world.lock.group());
    world.draft(HERE, &mut view, core::slice::from_ref(&command));
    let lost = view.commit();
    let alice = world.id(ALICE);
    assert!(matches!(world.poison(alice), Outcome::Committed { .. }));
    assert!(matches!(world.store.commit(&lost), Outcome::Conflict { .. }));

    let granted = world.take(ALICE);
    assert!(granted.is_new);
    assert_eq!(world.memo(alice), None);
    assert!(matches!(world.store.commit(&lost), Outcome::Conflict { .. }), "held");
    world.give_back(&granted);
    assert!(matches!(world.store.commit(&lost), Outcome::Conflict { .. }), "released");
}

#[test]
fn a_poisoned_request_stays_poisoned_while_it_is_refused_or_waits_or_has_left() {
    let mut world = World::default();
    let command = world.acquire(ALICE, &terms(ALICE));
    let mut view = View::new(world.lock.group());
    world.draft(HERE, &mut view, core::slice::from_ref(&command));
    let lost = view.commit();
    let alice = world.id(ALICE);
    world.poison(alice);

    let bob = world.take(BOB);
    assert!(matches!(world.try_take(ALICE), Reply::Held(_)));
    let parked = world.park(HERE, ALICE);
    world.run(HERE, crate::lock::Command::Leave(parked));
    world.give_back(&bob);
    assert_eq!(world.roster_record(), None);
    assert!(matches!(world.store.commit(&lost), Outcome::Conflict { .. }), "nobody asks for it any more");
}

#[test]
fn a_poisoned_request_that_waits_gets_its_turn() {
    let mut world = World::default();
    let alice = world.id(ALICE);
    world.poison(alice);
    let bob = world.take(BOB);
    world.park(HERE, ALICE);
    world.give_back(&bob);
    assert_eq!(world.holder(), Some(alice));
    assert_eq!(world.memo(alice), None);
}

#[test]
fn a_poisoned_release_may_be_made_again() {
    let mut world = World::default();
    let granted = world.take(ALICE);
    world.poison(world.release_id("r"));
    let release = world.release(&granted, Some("r"));
    assert_eq!(world.run(HERE, release.clone()).reply, Reply::Released);
    assert_eq!(world.roster_record(), None, "it is really released");
    assert_eq!(world.memo(world.release_id("r")).unwrap().fate, Fate::Counted);
    assert_eq!(world.run(HERE, release).reply, Reply::Released);
}
