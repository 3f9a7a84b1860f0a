//! Jobs are changed while they are scheduled (J1, J15).

use super::world::{MINUTE, START, World, every_minute, for_workers};
use crate::job::{self, Definition, Missed, Put, Target};
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
