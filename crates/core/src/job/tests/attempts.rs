//! What is promised of a run (J3, J8).

use super::world::{MINUTE, SECOND, START, World, every_minute, for_workers};
use crate::commit::Outcome as Committed;
use crate::job::{self, AttemptEnd, Definition, Guarantee, Heard, Phase, Progress};
use crate::record::{Revision, WallTime};
use alloc::vec::Vec;
use core::time::Duration;

fn with(guarantee: Guarantee) -> World {
    World::with(Definition { guarantee, attempts_max: 3, timeout_ms: SECOND, ..every_minute() })
}

#[test]
fn what_may_be_sent_once_is_never_sent_again_and_is_said_to_be_unknown() {
    let mut world = with(Guarantee::AtMostOnce);
    let begun = world.pass(MINUTE);
    assert!(world.pass(30 * SECOND).is_empty());
    assert_eq!(world.told(), ["at_most_once_unknown"]);
    assert_eq!(world.succeed(&begun[0]), Heard::Lost, "too late to say");
    assert_eq!(world.state().counts.unknown, 1);
    let mut world = with(Guarantee::AtMostOnce);
    let begun = world.pass(MINUTE);
    world.fail(&begun[0]);
    assert!(world.pass(30 * SECOND).is_empty());
    assert_eq!(world.told(), ["failed"]);
}

#[test]
fn what_must_be_acknowledged_is_sent_again_with_the_same_id_and_a_higher_token() {
    for guarantee in [Guarantee::AtLeastOnce, Guarantee::EffectivelyOnce] {
        let mut world = with(guarantee);
        let first = world.pass(MINUTE);
        let second = world.pass(15 * SECOND);
        assert_eq!(second.len(), 1);
        assert_eq!((second[0].0.run, second[0].0.attempt), (first[0].0.run, 2));
        assert!(second[0].1 > first[0].1);
        assert_eq!(world.succeed(&first[0]), Heard::Lost, "an old token acknowledges nothing");
        assert!(matches!(world.succeed(&second[0]), Heard::Yes { .. }));
        assert_eq!(world.told(), ["succeeded"]);
    }
}

#[test]
fn saying_the_same_again_changes_nothing_and_something_else_is_refused() {
    let mut world = with(Guarantee::AtLeastOnce);
    let begun = world.pass(MINUTE);
    let first = world.succeed(&begun[0]);
    let revision = world.store.revision;
    assert_eq!(world.succeed(&begun[0]), first);
    assert_eq!(world.store.revision, revision);
    assert_eq!(world.fail(&begun[0]), Heard::Lost);
    let mut world = with(Guarantee::AtLeastOnce);
    let begun = world.pass(MINUTE);
    let first = world.fail(&begun[0]);
    assert!(matches!(first, Heard::Yes { progress: Progress::Waiting(_) }));
    assert_eq!(world.fail(&begun[0]), first);
    assert_eq!(world.succeed(&begun[0]), Heard::Lost);
}

#[test]
fn retries_come_later_each_time_up_to_a_limit_of_attempts() {
    let mut world = World::with(Definition {
        attempts_max: 5,
        retry_first_ms: 1_000,
        retry_most_ms: 4_000,
        ..every_minute()
    });
    let mut begun = world.pass(MINUTE);
    let mut pauses = Vec::new();
    for attempt in 2..=5 {
        world.fail(&begun[0]);
        let since = world.now().0;
        let at = world.state().index_at.unwrap().0;
        pauses.push(at - since);
        begun = world.pass(at - since);
        assert_eq!(begun[0].0.attempt, attempt);
    }
    let bounds = [500..1_000, 1_000..2_000, 2_000..4_000, 2_000..4_000];
    assert!(pauses.iter().zip(bounds).all(|(pause, bound)| bound.contains(pause)), "{pauses:?}");
    world.fail(&begun[0]);
    assert_eq!(world.told(), ["failed"]);
    assert_eq!(world.runs()[0].1.message, "no");
}

#[test]
fn no_attempt_begins_after_the_deadline() {
    let mut world = World::with(Definition { attempts_max: 9, deadline_ms: Some(1_200), ..every_minute() });
    let begun = world.pass(MINUTE);
    world.fail(&begun[0]);
    let begun = world.pass(1_000);
    assert_eq!(begun.len(), 1);
    world.fail(&begun[0]);
    assert!(world.pass(10 * SECOND).is_empty());
    assert_eq!(world.told(), ["failed"]);
    // Nobody took it in time.
    let mut world = World::with(Definition { deadline_ms: Some(5_000), ..for_workers() });
    world.pass(MINUTE + 4 * SECOND);
    assert_eq!(world.told(), ["ready"]);
    world.pass(2 * SECOND);
    assert_eq!(world.told(), ["deadline"]);
    assert!(world.ready().is_empty());
}

#[test]
fn a_worker_takes_a_run_and_nobody_else_gets_it_while_it_is_heard_of() {
    let mut world = World::with(Definition { attempts_max: 2, timeout_ms: 30 * SECOND, ..for_workers() });
    world.pass(MINUTE);
    let (due, run) = world.ready()[0];
    let first = world.claim(Duration::from_secs(5)).unwrap();
    assert_eq!(world.claim_of(due, run, Duration::from_secs(5)), None);
    for _ in 0..4 {
        assert!(world.pass(4 * SECOND).is_empty());
        let (id, token) = (first.0.run, first.1);
        assert!(world.decide(|view| job::heartbeat(id, token, Duration::from_secs(5), view)).0);
        assert_eq!(world.told(), ["running"]);
    }
    world.pass(5 * SECOND);
    assert_eq!(world.told(), ["waiting"], "it wasn't heard of for five seconds");
    world.pass(2 * SECOND);
    let second = world.claim(Duration::from_secs(5)).unwrap();
    assert_eq!((second.0.attempt, second.0.run), (2, run));
    let (id, token) = (first.0.run, first.1);
    assert!(!world.decide(|view| job::heartbeat(id, token, Duration::from_secs(5), view)).0);
    assert!(matches!(world.succeed(&second), Heard::Yes { .. }));
}

#[test]
fn an_attempt_that_takes_too_long_is_ended_however_alive_its_worker_is() {
    let mut world = World::with(Definition { timeout_ms: 10 * SECOND, ..for_workers() });
    world.pass(MINUTE);
    let claimed = world.claim(Duration::from_secs(60)).unwrap();
    world.pass(10 * SECOND);
    assert_eq!(world.told(), ["timeout"]);
    assert_eq!(world.succeed(&claimed), Heard::Lost);
}

#[test]
fn an_attempt_that_was_never_made_doesnt_count() {
    let mut world = with(Guarantee::AtMostOnce);
    let begun = world.pass(MINUTE);
    let (id, token, now) = (begun[0].0.run, begun[0].1, world.now());
    assert!(world.decide(|view| job::give_back(id, token, now, view)).0);
    assert_eq!(world.told(), ["waiting"]);
    let again = world.pass(SECOND);
    assert_eq!((again[0].0.run, again[0].0.attempt), (id, 1));
    assert!(!world.decide(|view| job::give_back(id, token, now, view)).0, "that token is no good any more");
}

#[test]
fn two_that_believe_to_own_a_job_begin_a_run_once() {
    let mut world = with(Guarantee::AtMostOnce);
    world.store.now = START + MINUTE;
    // The first one decides, and sleeps before it sends its commit; the other one comes and does it all.
    let mut late = None;
    let before = world.store.clone();
    world.look_with(true, |store, commit| {
        late.get_or_insert_with(|| commit.clone());
        store.commit(commit)
    });
    world.store = before;
    let begun = world.look();
    assert_eq!(begun.len(), 1);
    let late = late.expect("there was something to commit");
    assert!(matches!(world.store.commit(&late), Committed::Conflict { .. }));
    // And long after, when the run is over and its record is gone.
    world.succeed(&begun[0]);
    world.store.now += 30 * 24 * 60 * MINUTE;
    assert!(world.runs().is_empty());
    assert!(matches!(world.store.commit(&late), Committed::Conflict { .. }));
}

#[test]
fn a_time_that_is_due_is_one_commit_of_seven_operations() {
    let mut world = with(Guarantee::AtLeastOnce);
    world.store.now += MINUTE;
    let mut operations = Vec::new();
    world.look_with(true, |store, commit| {
        operations.push(commit.operations());
        store.commit(commit)
    });
    assert_eq!(operations, [7]);
    let phase = world.state().active[0].phase;
    assert!(
        matches!(phase, Phase::Running { look_at: WallTime(at), .. } if at == START + MINUTE + 11 * SECOND)
    );
}

#[test]
fn an_end_that_is_said_of_no_run_is_refused() {
    let mut world = with(Guarantee::AtLeastOnce);
    let begun = world.pass(MINUTE);
    let mut other = begun[0].0.run;
    other.place.nominal = WallTime(1);
    assert_eq!(world.finish(other, begun[0].1, &AttemptEnd::succeeded()), Heard::Unknown);
    let token = Revision(begun[0].1.0 + 1);
    assert_eq!(world.finish(begun[0].0.run, token, &AttemptEnd::succeeded()), Heard::Lost);
}

#[test]
fn what_an_attempt_writes_is_shown_while_it_runs_and_stays_if_it_vanishes() {
    let ttl = Duration::from_secs(30);
    let mut world = World::with(Definition { attempts_max: 2, ..for_workers() });
    world.pass(MINUTE);
    let (first, token) = world.claim(ttl).unwrap();
    let report = |world: &mut World, token, output: &[u8]| {
        world.decide(|view| job::report(first.run, token, ttl, output, view)).0
    };
    assert!(report(&mut world, token, b"half"));
    assert_eq!(&*world.runs()[0].1.output, b"half");
    let long = alloc::vec![b'x'; 5_000];
    assert!(report(&mut world, token, &long));
    assert_eq!(world.runs()[0].1.output.len(), 4_096, "the end of it");
    assert!(report(&mut world, token, b"more"));
    world.pass(40_000);
    assert_eq!(&*world.runs()[0].1.output, b"more", "nobody heard how it ended");
    assert!(!report(&mut world, token, b"late"), "it isn't its own any more");
    let (_, second) = world.claim(ttl).unwrap();
    assert_eq!(&*world.runs()[0].1.output, b"", "another attempt");
    assert!(!report(&mut world, token, b"late") && report(&mut world, second, b"new"));
    assert_eq!(&*world.runs()[0].1.output, b"new");
}
