//! A job's time comes while it runs (J6).

use super::world::{MINUTE, World, every_minute};
use crate::job::{Asked, Definition, Missed, Overlap, Phase, Progress, Reason, Run};
use alloc::vec::Vec;

fn with(overlap: Overlap) -> World {
    // Its runs take far longer than it takes until the next.
    World::with(Definition { overlap, timeout_ms: 60 * MINUTE, ..every_minute() })
}

#[test]
fn a_time_begins_one_run_and_the_next_one_waits_for_its_own_time() {
    let mut world = with(Overlap::Skip);
    assert!(world.pass(MINUTE - 1).is_empty());
    let begun = world.pass(1);
    assert_eq!(begun.len(), 1);
    assert_eq!((begun[0].0.run.place.nominal, begun[0].0.attempt), (world.now(), 1));
    assert_eq!(world.lease(begun[0].0.run), Some(begun[0].1), "its lease's creation is its token");
    assert!(world.look().is_empty());
    world.succeed(&begun[0]);
    assert_eq!(world.told(), ["succeeded"]);
    let next = world.pass(MINUTE);
    assert_eq!(next.len(), 1);
    assert!(next[0].1 > begun[0].1);
}

#[test]
fn skip_leaves_the_time_out_and_says_so() {
    let mut world = with(Overlap::Skip);
    let begun = world.pass(3 * MINUTE);
    assert_eq!(begun.len(), 1);
    assert_eq!(world.told(), ["running", "overlap", "overlap"]);
    world.succeed(&begun[0]);
    assert_eq!(world.pass(MINUTE).len(), 1);
    assert_eq!(world.state().counts.skipped, 2);
}

#[test]
fn queue_one_lets_one_wait_and_leaves_the_others_out() {
    let mut world = with(Overlap::QueueOne);
    let first = world.pass(4 * MINUTE);
    assert_eq!(world.told(), ["running", "queued", "overlap", "overlap"]);
    world.succeed(&first[0]);
    let second = world.look();
    assert_eq!(world.told(), ["succeeded", "running", "overlap", "overlap"]);
    world.succeed(&second[0]);
    assert!(world.look().is_empty(), "the next has its own time");
}

#[test]
fn queue_all_lets_all_wait_in_order_up_to_a_bound() {
    let mut world = with(Overlap::QueueAll);
    world.edit(|job| job.timeout_ms = 1000 * MINUTE);
    let mut running = world.pass(104 * MINUTE);
    assert_eq!(running.len(), 1);
    let told = world.told();
    assert_eq!((told.len(), told[100], told[101]), (104, "queued", "overlap"));
    for place in 1..=100 {
        world.succeed(&running[0]);
        running = world.look();
        assert_eq!(world.told()[place], "running");
        assert_eq!(running.len(), 1);
    }
    world.succeed(&running[0]);
    assert!(world.look().is_empty());
}

#[test]
fn allow_runs_them_side_by_side_up_to_a_bound() {
    let mut world = with(Overlap::Allow);
    let begun = world.pass(18 * MINUTE);
    assert_eq!(begun.len(), 16);
    assert_eq!(world.told()[15..], ["running", "overlap", "overlap"]);
    let mut tokens: Vec<_> = begun.iter().map(|(_, token)| *token).collect();
    tokens.dedup();
    assert_eq!(tokens.len(), 16, "each has a token of its own");
    world.succeed(&begun[7]);
    assert_eq!(world.pass(MINUTE).len(), 1);
}

#[test]
fn cancel_previous_ends_what_runs_and_begins_the_new_one_in_the_same_commit() {
    let mut world = with(Overlap::CancelPrevious);
    let first = world.pass(MINUTE);
    let second = world.pass(MINUTE);
    assert_eq!(world.told(), ["cancelled", "running"]);
    assert_eq!(world.lease(first[0].0.run), None, "whoever ran it finds its lease gone");
    assert_eq!(world.succeed(&first[0]), crate::job::Heard::Lost);
    assert!(matches!(world.succeed(&second[0]), crate::job::Heard::Yes { .. }));
}

#[test]
fn cancel_previous_ends_as_many_as_run_however_many_commits_that_takes() {
    let mut world = with(Overlap::Allow);
    world.pass(16 * MINUTE);
    world.edit(|job| job.overlap = Overlap::CancelPrevious);
    assert_eq!(world.pass(MINUTE).len(), 1);
    let told = world.told();
    assert_eq!(told[..16], ["cancelled"; 16]);
    assert_eq!(told[16], "running");
}

/// As many wait as may, and so many have ended unheard that a look settles no more than them; then the next time comes.
#[test]
fn cancel_previous_keeps_the_bound_of_what_waits_however_that_was_filled() {
    let mut world = with(Overlap::QueueAll);
    world.edit(|job| job.timeout_ms = 1000 * MINUTE);
    world.pass(101 * MINUTE);
    world.edit(|job| (job.overlap, job.timeout_ms) = (Overlap::Allow, 60 * MINUTE));
    world.pass(15 * MINUTE);
    assert_eq!((world.state().active.len(), world.state().queue.len()), (16, 100));
    world.edit(|job| (job.overlap, job.missed) = (Overlap::CancelPrevious, Missed::Skip));
    world.store.now += 90 * MINUTE;
    world.look_with(true, |store, commit| store.commit(commit));
    assert_eq!(world.state().queue.len(), 100, "one makes room for the present time");
    let is_superseded = |run: &Run| run.end().is_some_and(|end| end.reason == Some(Reason::Superseded));
    assert_eq!(world.runs().iter().filter(|(_, run)| is_superseded(run)).count(), 1);
    // And then the newest of all is what runs.
    world.pass(MINUTE);
    let running: Vec<_> =
        world.runs().into_iter().filter(|(_, run)| run.progress == Progress::Running).collect();
    assert_eq!(running.len(), 1);
    assert_eq!(running[0].0.place.nominal, world.now());
}

#[test]
fn a_runner_that_vanished_holds_its_place_until_its_lease_is_over_and_no_longer() {
    let mut world = World::with(Definition { timeout_ms: 90_000, ..every_minute() });
    world.pass(2 * MINUTE);
    assert_eq!(world.told(), ["running", "overlap"]);
    // 100 seconds after it began, that is at 2:40.
    let begun = world.pass(MINUTE);
    assert_eq!(world.told(), ["lease_expired", "overlap", "running"]);
    assert_eq!(begun.len(), 1);
}

#[test]
fn a_node_without_room_leaves_a_run_in_the_store_and_takes_it_later() {
    let mut world = with(Overlap::Skip);
    world.store.now += MINUTE;
    let (looked, _) = world.look_with(false, |store, commit| store.commit(commit)).unwrap();
    assert_eq!(looked.begun, None);
    assert!(matches!(world.state().active[0].phase, Phase::Waiting(until) if until > world.now()));
    assert_eq!(world.told(), ["waiting"]);
    assert_eq!(world.pass(1_000).len(), 1);
}

#[test]
fn one_that_is_asked_for_waits_for_what_runs_whatever_the_policy() {
    let mut world = with(Overlap::Skip);
    let first = world.pass(MINUTE);
    world.store.now += 1;
    let Asked::Run(asked) = world.run_now("r") else { panic!() };
    assert_eq!(world.told(), ["running", "queued"]);
    world.succeed(&first[0]);
    let next = world.look();
    assert_eq!(next[0].0.run, asked);
}
