//! A job is edited to promise something else while a run of it is under way (J3): what was sent under either promise keeps the stricter.

use super::world::{MINUTE, SECOND, World, every_minute, for_workers};
use crate::job::{AttemptEnd, Definition, Guarantee};
use alloc::vec::Vec;
use core::time::Duration;

fn with(guarantee: Guarantee) -> World {
    World::with(Definition { guarantee, attempts_max: 3, timeout_ms: SECOND, ..every_minute() })
}

#[test]
fn what_waits_for_another_attempt_isnt_sent_again_once_the_job_says_once() {
    for (is_heard, told) in [(true, "failed"), (false, "at_most_once_unknown")] {
        let mut world = with(Guarantee::AtLeastOnce);
        let begun = world.pass(MINUTE);
        if is_heard {
            world.fail(&begun[0]);
        } else {
            world.store.now = world.state().index_at.unwrap().0;
            assert!(world.look().is_empty());
        }
        assert_eq!(world.told(), ["waiting"]);
        world.edit(|job| job.guarantee = Guarantee::AtMostOnce);
        assert!(world.pass(30 * SECOND).is_empty(), "it was sent again");
        assert_eq!(world.told(), [told]);
    }
}

#[test]
fn a_worker_doesnt_get_again_what_may_be_done_once_now() {
    let mut world = World::with(Definition { attempts_max: 3, ..for_workers() });
    world.pass(MINUTE);
    let first = world.claim(Duration::from_secs(5)).unwrap();
    world.fail(&first);
    world.pass(2 * SECOND);
    assert_eq!(world.told(), ["ready"]);
    world.edit(|job| job.guarantee = Guarantee::AtMostOnce);
    assert_eq!(world.claim(Duration::from_secs(5)), None);
    assert_eq!((world.told(), world.ready()), (Vec::from(["failed"]), Vec::new()));
}

#[test]
fn what_was_sent_once_isnt_sent_again_though_the_job_repeats_now() {
    let mut world = with(Guarantee::AtMostOnce);
    world.pass(MINUTE);
    for guarantee in [Guarantee::AtLeastOnce, Guarantee::EffectivelyOnce] {
        world.edit(|job| job.guarantee = guarantee);
    }
    assert!(world.pass(30 * SECOND).is_empty(), "it was sent again");
    assert_eq!(world.told(), ["at_most_once_unknown"]);
    // So it is if it says that it failed.
    let begun = world.pass(30 * SECOND);
    world.edit(|job| job.guarantee = Guarantee::AtMostOnce);
    world.edit(|job| job.guarantee = Guarantee::AtLeastOnce);
    world.finish(begun[0].0.run, begun[0].1, &AttemptEnd::failed("no"));
    assert!(world.pass(20 * SECOND).is_empty());
    assert_eq!(world.told(), ["at_most_once_unknown", "failed"]);
    // The next one is repeated.
    let begun = world.pass(40 * SECOND);
    world.fail(&begun[0]);
    assert_eq!(world.pass(2 * SECOND).len(), 1);
}

#[test]
fn what_was_never_made_begins_by_what_the_job_says_now() {
    let mut world = with(Guarantee::AtMostOnce);
    let begun = world.pass(MINUTE);
    world.edit(|job| job.guarantee = Guarantee::AtLeastOnce);
    let (id, token, now) = (begun[0].0.run, begun[0].1, world.now());
    assert!(world.decide(|view| crate::job::give_back(id, token, now, view)).0);
    let begun = world.pass(SECOND);
    assert_eq!(begun[0].0.attempt, 1);
    world.fail(&begun[0]);
    assert_eq!(world.pass(2 * SECOND)[0].0.attempt, 2);
}
