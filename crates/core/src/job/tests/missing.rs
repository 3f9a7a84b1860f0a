//! Times that passed while nobody looked (J5, J14, J16).

use super::world::{MINUTE, World, every_minute};
use crate::job::{Definition, Missed, Overlap};
use alloc::vec::Vec;

fn with(missed: Missed) -> World {
    World::with(Definition { missed, ..every_minute() })
}

/// Everybody is away for an hour and a half; the last time was a minute and a half ago when somebody looks.
fn away(world: &mut World) {
    world.edit(|job| job.schedule = Some("*/10 * * * *".into()));
    world.store.now += 91 * MINUTE + MINUTE / 2;
}

#[test]
fn skip_leaves_all_of_them_out_in_one_record() {
    let mut world = with(Missed::Skip);
    away(&mut world);
    assert!(world.look().is_empty());
    let runs = world.runs();
    assert_eq!(world.told(), ["missed"]);
    assert_eq!(runs[0].1.stands_for.map(|(_, count)| count), Some(9));
    assert_eq!(world.state().counts.skipped, 9);
}

#[test]
fn latest_runs_the_most_recent_one_and_leaves_the_others_out() {
    let mut world = with(Missed::Latest);
    away(&mut world);
    let begun = world.pass(100);
    assert_eq!(begun.len(), 1);
    assert_eq!(world.told(), ["missed", "running"]);
    assert_eq!(world.runs()[0].1.stands_for.map(|(_, count)| count), Some(8));
}

#[test]
fn one_that_is_late_by_less_than_a_minute_runs_whatever_the_policy() {
    for missed in Missed::ALL {
        let mut world = with(*missed);
        world.store.now += MINUTE + MINUTE * 3 / 4;
        assert_eq!(world.look().len(), 1, "{missed:?}");
        assert_eq!(world.told(), ["running"]);
    }
}

#[test]
fn all_run_one_after_the_other_and_in_order() {
    let mut world = with(Missed::All);
    away(&mut world);
    let mut order = Vec::new();
    for _ in 0..9 {
        let begun = world.pass(100);
        assert_eq!(begun.len(), 1, "one at a time");
        order.push(begun[0].0.run.place.nominal);
        world.succeed(&begun[0]);
    }
    assert!(order.is_sorted());
    assert!(world.pass(100).is_empty());
    assert_eq!(world.told(), ["succeeded"; 9]);
}

#[test]
fn what_is_made_up_for_is_exempt_from_skip_and_the_present_goes_first() {
    let mut world = with(Missed::All);
    world.edit(|job| job.timeout_ms = 60 * MINUTE);
    away(&mut world);
    let first = world.pass(100);
    // The present time comes while one that is made up for still runs: that one is left out, the others go on.
    world.pass(10 * MINUTE);
    assert!(world.told().contains(&"overlap"));
    world.succeed(&first[0]);
    assert_eq!(world.pass(100).len(), 1);
}

/// Nothing is made up for while a run whose node died has its lease, and each failover leaves another range (J5).
#[test]
fn what_many_failovers_missed_while_one_run_does_not_end_is_all_made_up_for() {
    let mut world = with(Missed::All);
    world.edit(|job| (job.overlap, job.timeout_ms) = (Overlap::Allow, 10 * 60 * MINUTE));
    let stuck = world.pass(MINUTE);
    for _ in 0..20 {
        world.store.now += 3 * MINUTE;
        for begun in world.look() {
            world.succeed(&begun);
        }
    }
    world.succeed(&stuck[0]);
    while let Some(begun) = world.pass(100).first() {
        world.succeed(begun);
    }
    assert_eq!(world.told(), ["succeeded"; 61]);
}

#[test]
fn all_is_bounded_by_its_window_and_its_maximum() {
    let mut world = with(Missed::All);
    world.edit(|job| {
        job.missed_window_ms = 50 * MINUTE;
        job.missed_max = 3;
    });
    away(&mut world);
    let mut count = 0;
    while let Some(begun) = world.pass(100).first() {
        world.succeed(begun);
        count += 1;
    }
    assert_eq!(count, 3);
    assert_eq!(world.told(), ["missed", "succeeded", "succeeded", "succeeded"]);
    assert_eq!(world.runs()[0].1.stands_for.map(|(_, count)| count), Some(6));
}

#[test]
fn a_clock_that_steps_back_fires_nothing_again_and_one_that_steps_forward_is_a_time_nobody_looked() {
    let mut world = with(Missed::Latest);
    let begun = world.pass(5 * MINUTE);
    for begun in &begun {
        world.succeed(begun);
    }
    let before = world.runs().len();
    world.store.now -= 4 * MINUTE;
    assert!(world.pass(4 * MINUTE).is_empty());
    assert_eq!(world.runs().len(), before);
    assert_eq!(world.pass(MINUTE).len(), 1, "and goes on where it was");
    world.store.now += 1_000 * MINUTE;
    assert_eq!(world.pass(100).len(), 1);
    assert_eq!(world.runs().len(), before + 3, "one for all that were skipped");
}

#[test]
fn very_many_are_one_record_too() {
    let mut world = with(Missed::Skip);
    world.store.now += 366 * 24 * 60 * MINUTE;
    world.look();
    assert_eq!(world.runs()[0].1.stands_for.map(|(_, count)| count), Some(1_000), "at least");
    let mut world = with(Missed::All);
    world.edit(|job| {
        job.missed_window_ms = 365 * 24 * 60 * MINUTE;
        job.missed_max = 5;
    });
    world.store.now += 366 * 24 * 60 * MINUTE + MINUTE / 2;
    let mut count = 0;
    while let Some(begun) = world.pass(100).first() {
        let late = world.now().0 - begun.0.run.place.nominal.0;
        assert!(late < 7 * MINUTE, "the most recent ones");
        world.succeed(begun);
        count += 1;
    }
    assert_eq!(count, 6, "the present one, and five that are made up for");
}

#[test]
fn jitter_delays_a_run_and_changes_neither_its_id_nor_the_next_one() {
    let mut world = World::with(Definition { jitter_ms: 50_000, overlap: Overlap::Allow, ..every_minute() });
    let begun = world.pass(10 * MINUTE);
    let late = begun.iter().map(|(begun, _)| begun.due.0 - begun.run.place.nominal.0);
    assert!(late.clone().all(|late| late <= 50_000) && late.clone().any(|late| late > 0));
    let nominal = |place: usize| begun[place].0.run.place.nominal.0;
    assert!((0..begun.len()).all(|place| nominal(place) == nominal(0) + place as u64 * MINUTE));
}
