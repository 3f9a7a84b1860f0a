//! Jobs are changed while they are scheduled (J1, J15).

use super::world::{MINUTE, START, World, every_minute, for_workers, in_a_word};
use crate::job::state::SPANS_MAX;
use crate::job::{self, Definition, Missed, Overlap, Put, Target};
use crate::record::WallTime;
use alloc::vec::Vec;

#[test]
fn a_job_is_due_after_it_was_put_and_never_before() {
    let mut world = World::with(every_minute());
    assert!(world.look().is_empty());
    assert_eq!(world.state().next.map(|next| next.nominal), Some(WallTime(START + MINUTE)));
    assert_eq!(world.apply(&every_minute()), Put::Same);
}

#[test]
fn an_edit_keeps_the_uid_and_never_fires_a_time_twice() {
    let mut world = World::with(every_minute());
    let (uid, begun) = (world.definition().uid, world.pass(MINUTE));
    world.succeed(&begun[0]);
    for schedule in ["*/1 * * * *", "* * * * *", "@every 1m"] {
        assert_eq!(world.edit(|job| job.schedule = Some(schedule.into())), Put::Changed);
        assert!(world.look().is_empty(), "{schedule} fires the same minute again");
    }
    assert_eq!(world.definition().uid, uid);
    assert_eq!(world.runs().len(), 1);
}

#[test]
fn a_new_schedule_counts_from_its_edit_and_what_was_due_by_the_old_one_is_said_to_be_missed() {
    let mut world = World::with(every_minute());
    world.store.now += 3 * MINUTE + 1;
    world.edit(|job| job.schedule = Some("*/2 * * * *".into()));
    assert!(world.look().is_empty());
    assert_eq!(world.told(), ["missed"]);
    assert_eq!(world.runs()[0].1.stands_for.map(|(_, count)| count), Some(3));
    // What doesn't change when it is due changes nothing about what is due.
    world.store.now += 2 * MINUTE;
    world.edit(|job| job.timeout_ms += 1);
    assert_eq!(world.look().len(), 1);
}

/// How many times each record stands for, with its reason or outcome.
fn records(world: &World) -> Vec<(&'static str, u64)> {
    let count = |run: &job::Run| run.stands_for.map_or(1, |(_, count)| count);
    world.runs().iter().map(|(_, run)| (in_a_word(run), count(run))).collect()
}

#[test]
fn what_was_still_to_be_made_up_for_by_the_old_schedule_is_said_to_be_missed() {
    for (missed, told) in [
        (Missed::All, Vec::from([("running", 1), ("missed", 9)])),
        (Missed::Latest, Vec::from([("running", 1), ("missed", 8), ("missed", 1)])),
    ] {
        let mut world = World::with(Definition {
            missed,
            schedule: Some("*/10 * * * *".into()),
            overlap: Overlap::Allow,
            timeout_ms: 600 * MINUTE,
            ..every_minute()
        });
        // Nothing is made up for while this one runs.
        assert_eq!(world.pass(10 * MINUTE).len(), 1);
        world.store.now += 91 * MINUTE + MINUTE / 2;
        assert!(world.look().is_empty());
        assert_eq!(world.state().spans.len(), 1);
        world.edit(|job| job.schedule = Some("30 4 1 1 *".into()));
        assert_eq!(world.state().spans, []);
        assert_eq!(records(&world), told, "{missed:?}");
    }
}

/// As many ranges as there may be, of more times than are counted: one record, and as many operations as for one.
#[test]
fn very_much_that_was_to_be_made_up_for_is_one_record_too() {
    let mut world = World::with(Definition {
        missed: Missed::All,
        missed_max: 1_000,
        overlap: Overlap::Allow,
        timeout_ms: 100_000 * MINUTE,
        ..every_minute()
    });
    world.pass(MINUTE);
    while world.state().spans.len() < SPANS_MAX {
        world.store.now += 30 * MINUTE;
        world.look();
    }
    let before = world.runs().len();
    world.edit(|job| job.time_zone = "Asia/Tokyo".into());
    assert_eq!(world.state().spans, []);
    assert_eq!(world.runs().len(), before + 1);
    assert_eq!(
        records(&world).into_iter().filter(|(told, _)| *told == "missed").collect::<Vec<_>>(),
        [("missed", 1_000)]
    );
}

#[test]
fn what_passed_while_a_job_was_off_is_said_to_be_paused_also_if_its_schedule_changes_meanwhile() {
    for missed in Missed::ALL {
        // Edited while it is off, and then put on; or both at once.
        for at_once in [false, true] {
            let mut world = World::with(Definition { missed: *missed, ..every_minute() });
            world.edit(|job| job.enabled = false);
            world.store.now += 10 * MINUTE + 1;
            world.edit(|job| (job.schedule, job.enabled) = (Some("*/2 * * * *".into()), at_once));
            assert_eq!(records(&world), [("paused", 10)], "{missed:?}");
            if !at_once {
                // What it would have been due at by the new schedule is found when it is put on, as ever.
                world.store.now += 4 * MINUTE;
                world.edit(|job| job.enabled = true);
            }
            assert_eq!(world.state().mark.0, START + if at_once { 10 * MINUTE + 1 } else { 14 * MINUTE });
        }
    }
}

#[test]
fn a_job_that_is_removed_leaves_nothing_that_would_be_looked_at() {
    for definition in [every_minute(), for_workers()] {
        let mut world = World::with(definition);
        world.pass(MINUTE);
        let (name, now) = (world.name.clone(), world.now());
        assert!(world.decide(|view| job::remove(&name, now, view)).0.is_some());
        for record in world.store.all(b"") {
            assert!(record.key.name.starts_with(b"Jr"), "{:?}", record.key);
        }
        assert!(world.look().is_empty());
        assert_eq!(world.decide(|view| job::remove(&name, now, view)).0, None);
    }
}

#[test]
fn a_job_without_a_schedule_is_never_due() {
    let mut world = World::with(Definition { schedule: None, ..every_minute() });
    assert!(world.pass(1_000 * MINUTE).is_empty());
    assert_eq!(world.state().index_at, None);
}

#[test]
fn a_job_that_is_disabled_is_out_of_the_index_and_comes_back_by_its_missed_policy() {
    for (missed, told) in
        [(Missed::Skip, Vec::from(["paused"])), (Missed::Latest, Vec::from(["paused", "running"]))]
    {
        let mut world = World::with(Definition { missed, ..every_minute() });
        world.edit(|job| job.enabled = false);
        assert_eq!(world.state().index_at, None);
        assert!(world.pass(10 * MINUTE + MINUTE / 2).is_empty());
        world.edit(|job| job.enabled = true);
        world.pass(100);
        assert_eq!(world.told(), told);
    }
}

#[test]
fn a_run_that_waits_for_a_worker_moves_with_its_job_to_another_queue() {
    let mut world = World::with(for_workers());
    world.pass(MINUTE);
    assert_eq!(world.ready().len(), 1);
    let to = |queue: &str| Target::Worker { queue: queue.into(), payload: "p".into() };
    world.edit(|job| job.target = to("other"));
    assert_eq!(world.ready().len(), 0);
    world.look();
    world.edit(|job| job.target = to("q"));
    world.look();
    assert_eq!(world.ready().len(), 1);
}
