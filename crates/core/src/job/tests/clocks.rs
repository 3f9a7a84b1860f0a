//! Civil time steps, is another node's, or goes on while the store is down: what runs is judged by the clock of leases (J6, J16).

use super::world::{MINUTE, SECOND, World, every_minute, for_workers};
use crate::commit::COMMIT_OPERATIONS_MAX;
use crate::job::place::limit_key;
use crate::job::{self, Begun, Definition, Guarantee, Heard, Overlap};
use crate::record::Revision;
use alloc::vec::Vec;
use core::time::Duration;

const HOUR: u64 = 60 * MINUTE;

fn with(guarantee: Guarantee) -> World {
    World::with(Definition { guarantee, attempts_max: 3, timeout_ms: 20 * SECOND, ..every_minute() })
}

fn heartbeat(world: &mut World, begun: &(Begun, Revision)) -> bool {
    let (id, token) = (begun.0.run, begun.1);
    world.decide(|view| job::heartbeat(id, token, Duration::from_secs(30), view)).0
}

fn taken(world: &mut World, begun: &(Begun, Revision), left: u64) {
    let (id, token) = (begun.0.run, begun.1);
    world.decide(|view| job::taken(id, token, Duration::from_millis(left), view));
}

/// Lets time pass while somebody is heard of every five seconds; whether to the end.
fn is_heard_of(world: &mut World, begun: &(Begun, Revision), ms: u64) -> bool {
    (0..ms / (5 * SECOND)).all(|_| {
        assert!(world.pass(5 * SECOND).is_empty());
        heartbeat(world, begun)
    })
}

#[test]
fn a_step_forward_ends_nothing_that_is_under_way() {
    for &guarantee in Guarantee::ALL {
        let mut world = with(guarantee);
        let begun = world.pass(MINUTE);
        // Or a node with another clock has taken over.
        world.ahead = HOUR;
        assert!(world.pass(SECOND).is_empty(), "{guarantee:?}: another attempt beside it");
        assert!(world.pass(15 * SECOND).is_empty(), "{guarantee:?}");
        assert_eq!(world.told(), ["running", "missed", "overlap"], "{guarantee:?}");
        assert!(matches!(world.succeed(&begun[0]), Heard::Yes { .. }), "{guarantee:?}");
        assert_eq!(world.state().active, []);
    }
}

#[test]
fn what_a_dead_node_began_is_over_when_its_lease_is_whatever_time_it_is() {
    for (guarantee, told, again) in
        [(Guarantee::AtMostOnce, "at_most_once_unknown", 0), (Guarantee::AtLeastOnce, "waiting", 1)]
    {
        let mut world = with(guarantee);
        world.pass(MINUTE + 10 * SECOND);
        // The store was down with the node, and its leases stood still.
        world.ahead = HOUR;
        assert!(world.pass(19 * SECOND).is_empty());
        assert_eq!(world.told()[0], "running", "twenty seconds of its lease are left");
        world.pass(SECOND);
        assert_eq!(world.told()[0], told);
        assert_eq!(world.pass(2 * SECOND).len(), again);
    }
}

#[test]
fn a_worker_has_its_time_by_the_clock_of_its_lease() {
    let mut world = World::with(Definition { timeout_ms: 20 * SECOND, ..for_workers() });
    world.pass(MINUTE);
    let claimed = world.claim(Duration::from_secs(30)).unwrap();
    world.ahead = HOUR;
    assert!(is_heard_of(&mut world, &claimed, 15 * SECOND));
    assert_eq!(world.told()[0], "running");
    assert!(!is_heard_of(&mut world, &claimed, 10 * SECOND));
    assert_eq!(world.told()[0], "timeout");
    assert_eq!(world.succeed(&claimed), Heard::Lost);
}

#[test]
fn what_a_target_has_taken_and_is_heard_of_has_its_time_too_and_then_took_too_long() {
    for &guarantee in Guarantee::ALL {
        let mut world = with(guarantee);
        world.edit(|job| job.attempts_max = 1);
        let begun = world.pass(MINUTE);
        world.pass(5 * SECOND);
        taken(&mut world, &begun[0], 25 * SECOND);
        world.ahead = HOUR;
        assert!(is_heard_of(&mut world, &begun[0], 20 * SECOND), "{guarantee:?}");
        assert_eq!(world.told()[0], "running", "{guarantee:?}");
        assert!(!is_heard_of(&mut world, &begun[0], 10 * SECOND), "{guarantee:?}: timeout and ten seconds");
        assert_eq!(world.told()[0], "timeout", "{guarantee:?}: it was heard of to the end");
    }
}

#[test]
fn where_nobody_said_that_it_was_taken_civil_time_ends_what_is_heard_of() {
    let mut world = with(Guarantee::AtMostOnce);
    let begun = world.pass(MINUTE);
    assert!(is_heard_of(&mut world, &begun[0], 25 * SECOND));
    assert!(!is_heard_of(&mut world, &begun[0], 10 * SECOND));
    assert_eq!(world.told()[0], "timeout");
}

type End = fn(&mut World, &(Begun, Revision));

#[test]
fn a_limit_goes_with_its_attempt() {
    let ends: [End; 5] = [
        |world, claimed| {
            let (id, token, now) = (claimed.0.run, claimed.1, world.now());
            let end = job::AttemptEnd::succeeded();
            world.decide(|view| job::finish_elsewhere(id, token, &end, now, view));
        },
        |world, _| drop(world.pass(40 * SECOND)),
        |world, claimed| {
            let (id, now) = (claimed.0.run, world.now());
            world.decide(|view| job::cancel(id, now, view));
        },
        |world, claimed| {
            let (id, token, now) = (claimed.0.run, claimed.1, world.now());
            world.decide(|view| job::give_back(id, token, now, view));
        },
        |world, _| {
            let (name, now) = (world.name.clone(), world.now());
            world.decide(|view| job::remove(&name, now, view));
        },
    ];
    for end in ends {
        let mut world = World::with(Definition { timeout_ms: HOUR, ..for_workers() });
        world.pass(MINUTE);
        let claimed = world.claim(Duration::from_secs(30)).unwrap();
        let limit = limit_key(claimed.0.run);
        assert!(world.store.look(&limit).is_some());
        end(&mut world, &claimed);
        assert_eq!(world.lease(claimed.0.run), None);
        assert!(world.store.look(&limit).is_none());
    }
}

/// An attempt may be ended and the next one begun by looks that follow each other at once. One commit for both would put the new lease over the
/// old one, which would stay the old attempt's.
#[test]
fn the_next_attempt_has_a_lease_of_its_own_however_short_the_pause_before_it() {
    let job = Definition { timeout_ms: 20 * SECOND, attempts_max: 2, retry_first_ms: 1, ..every_minute() };
    let mut world = World::with(job);
    let begun = world.pass(MINUTE);
    taken(&mut world, &begun[0], 20 * SECOND);
    let mut again = Vec::new();
    while again.is_empty() && world.told() == ["running"] {
        heartbeat(&mut world, &begun[0]);
        again = world.pass(5 * SECOND);
    }
    again.extend(world.pass(SECOND));
    assert_eq!(again.len(), 1, "{:?}", world.told());
    assert_eq!(world.succeed(&begun[0]), Heard::Lost);
    assert!(matches!(world.succeed(&again[0]), Heard::Yes { .. }));
}

#[test]
fn whatever_has_lapsed_or_is_superseded_a_look_fits_into_a_commit() {
    let job =
        Definition { timeout_ms: 60 * MINUTE, attempts_max: 3, overlap: Overlap::Allow, ..for_workers() };
    let mut world = World::with(job);
    world.pass(16 * MINUTE);
    let ready = world.ready();
    assert_eq!(ready.len(), 16);
    let long = Duration::from_secs(24 * 3600);
    let (alive, lapsing) = ready.split_at(10);
    for (due, run) in lapsing {
        world.claim_of(*due, *run, long).unwrap();
    }
    world.pass(50 * MINUTE);
    for (due, run) in alive {
        world.claim_of(*due, *run, long).unwrap();
    }
    world.edit(|job| job.overlap = Overlap::CancelPrevious);
    // All seem to be over by civil time; the limits of six are.
    world.store.now += 15 * MINUTE;
    world.ahead = 2 * HOUR;
    let (mut most, mut looks) = (0, 0);
    while looks < 300
        && let Some((looked, _)) = world.look_with(true, |store, commit| {
            most = most.max(commit.checks.len() + commit.writes.len());
            store.commit(commit)
        })
    {
        looks += 1;
        drop(looked);
    }
    assert!(looks < 300 && most <= COMMIT_OPERATIONS_MAX, "{most} operations, {looks} looks");
}
