//! What people ask of a job, and jobs of each other (J9, J13, J17).

use super::world::{MEMORY, MINUTE, SECOND, START, World, every_minute, for_workers, timetables};
use crate::job::state::SPANS_MAX;
use crate::job::{self, Asked, Backfilled, Cancelled, Definition, Missed, Overlap, Trigger};
use crate::record::WallTime;
use alloc::vec::Vec;

impl World {
    fn pause(&mut self) {
        let (name, now) = (self.name.clone(), self.now());
        assert!(self.decide(|view| job::pause(&name, now, view)).0);
    }

    fn resume(&mut self, policy: Option<Missed>) {
        let (name, now) = (self.name.clone(), self.now());
        assert!(self.decide(|view| job::resume(&name, policy, now, &timetables, view)).0.is_some());
    }

    fn backfill(&mut self, from: u64, to: u64) -> Backfilled {
        let (name, now) = (self.name.clone(), self.now());
        let (from, to) = (WallTime(from), WallTime(to));
        self.decide(|view| job::backfill(&name, from, to, now, &timetables, view)).0
    }

    fn cancel(&mut self, run: job::RunId) -> Cancelled {
        let now = self.now();
        self.decide(|view| job::cancel(run, now, view)).0
    }
}

#[test]
fn a_request_runs_a_job_once_however_often_it_is_repeated() {
    let mut world = World::with(Definition { schedule: None, ..every_minute() });
    let first = world.run_now("r");
    world.store.now += 5 * SECOND;
    assert_eq!(world.run_now("r"), first);
    let begun = world.look();
    assert_eq!(begun.len(), 1);
    assert_eq!(Asked::Run(begun[0].0.run), first);
    world.succeed(&begun[0]);
    assert_eq!(world.run_now("r"), first, "and after it has ended");
    assert!(world.look().is_empty());
    assert_ne!(world.run_now("other"), first);
    assert_eq!(world.look().len(), 1);
    let _ = MEMORY;
}

#[test]
fn asking_has_a_bound() {
    let mut world = World::with(Definition { schedule: None, timeout_ms: 1_000_000, ..every_minute() });
    for request in 0..101 {
        assert!(matches!(world.run_now(&alloc::format!("r{request}")), Asked::Run(_)), "{request}");
        world.look();
    }
    assert_eq!(world.run_now("one more"), Asked::Full);
}

#[test]
fn a_paused_job_is_out_of_the_index_and_resumes_by_the_policy_that_is_said() {
    for (policy, told) in [
        (None, Vec::from(["paused", "running"])),
        (Some(Missed::Skip), Vec::from(["paused"])),
        (Some(Missed::All), Vec::from(["running"])),
    ] {
        let mut world = World::with(every_minute());
        world.pause();
        world.pause();
        assert_eq!(world.state().index_at, None);
        assert!(world.pass(5 * MINUTE + MINUTE / 2).is_empty());
        world.resume(policy);
        world.resume(Some(Missed::Skip));
        world.pass(100);
        assert_eq!(world.told(), told, "{policy:?}");
        assert_eq!(world.state().next.map(|next| next.nominal), Some(WallTime(START + 6 * MINUTE)));
    }
}

#[test]
fn what_runs_goes_on_while_its_job_is_paused() {
    let mut world = World::with(every_minute());
    let begun = world.pass(MINUTE);
    world.pause();
    world.succeed(&begun[0]);
    assert_eq!(world.told(), ["succeeded"]);
    assert!(matches!(world.run_now("r"), Asked::Run(_)));
    assert_eq!(world.look().len(), 1, "and it can be asked to run");
}

#[test]
fn a_backfill_runs_the_times_of_a_half_open_range_one_after_the_other_and_once() {
    let mut world = World::with(every_minute());
    let (from, to) = (START - 10 * MINUTE, START - 7 * MINUTE);
    assert_eq!(world.backfill(from, to), Backfilled::Planned(3));
    assert_eq!(world.backfill(from, to), Backfilled::Planned(3), "again, before it began");
    let mut nominal = Vec::new();
    while let Some(begun) = world.pass(100).first() {
        assert_eq!(begun.0.run.place.trigger, Trigger::Backfill);
        nominal.push(begun.0.run.place.nominal.0);
        world.succeed(begun);
    }
    assert_eq!(nominal, [from, from + MINUTE, from + 2 * MINUTE]);
    assert_eq!(world.backfill(from, to), Backfilled::Planned(3));
    assert!(world.pass(10 * SECOND).is_empty(), "they have run");
    assert_eq!(world.backfill(from, from), Backfilled::Planned(0));
    assert_eq!(world.backfill(0, from), Backfilled::TooMany);
}

#[test]
fn backfills_have_a_bound() {
    let mut world = World::with(every_minute());
    for place in 1..=SPANS_MAX as u64 {
        let from = START - 100 * MINUTE * place;
        assert_eq!(world.backfill(from, from + MINUTE), Backfilled::Planned(1));
    }
    assert_eq!(world.backfill(START - 50 * MINUTE, START), Backfilled::Full);
}

#[test]
fn a_run_is_called_off_wherever_it_is() {
    let mut world = World::with(Definition { overlap: Overlap::QueueOne, ..for_workers() });
    world.pass(2 * MINUTE);
    assert_eq!(world.told(), ["ready", "queued"]);
    let runs: Vec<_> = world.runs().iter().map(|(id, _)| *id).collect();
    assert_eq!(world.cancel(runs[1]), Cancelled::Yes);
    assert_eq!(world.cancel(runs[1]), Cancelled::Yes, "again");
    assert_eq!(world.cancel(runs[0]), Cancelled::Yes);
    assert_eq!(world.told(), ["cancelled", "cancelled"]);
    assert!(world.ready().is_empty());
    let mut world = World::with(every_minute());
    let begun = world.pass(MINUTE);
    assert_eq!(world.cancel(begun[0].0.run), Cancelled::Yes);
    assert_eq!(world.lease(begun[0].0.run), None);
    assert_eq!(world.succeed(&begun[0]), job::Heard::Lost);
    let begun = world.pass(MINUTE);
    world.succeed(&begun[0]);
    assert!(matches!(world.cancel(begun[0].0.run), Cancelled::Ended(_)));
    let mut other = begun[0].0.run;
    other.place.nominal = WallTime(1);
    assert_eq!(world.cancel(other), Cancelled::NoRun);
}

#[test]
fn a_success_tells_those_that_follow_until_they_were_told() {
    let mut world = World::with(Definition { then: ["next".into()].into(), ..every_minute() });
    let begun = world.pass(MINUTE);
    world.succeed(&begun[0]);
    let (looked, _) = world.look_with(true, |store, commit| store.commit(commit)).unwrap();
    assert_eq!(looked.deliveries.len(), 1);
    let (again, _) = world.look_with(true, |store, commit| store.commit(commit)).unwrap();
    assert_eq!(again.deliveries, looked.deliveries, "nobody has said that it was told");
    let (name, now) = (world.name.clone(), world.now());
    world.decide(|view| job::told(&name, &looked.deliveries, now, view));
    assert!(world.state().outbox.is_empty());
    let begun = world.pass(MINUTE);
    world.fail(&begun[0]);
    assert!(world.state().outbox.is_empty(), "a failure tells nobody");
}

#[test]
fn one_that_follows_runs_once_for_each_run_before_it() {
    let mut world = World::with(Definition { schedule: None, ..every_minute() });
    let other = World::with(every_minute()).pass(MINUTE)[0].0.run;
    let (name, now) = (world.name.clone(), world.now());
    assert!(world.decide(|view| job::chain(&name, other, now, view)).0.is_some());
    let begun = world.look();
    assert_eq!(begun[0].0.run.place.trigger, Trigger::Chain);
    world.succeed(&begun[0]);
    assert!(world.decide(|view| job::chain(&name, other, now, view)).0.is_some(), "told again");
    assert!(world.look().is_empty());
    let absent = crate::Name::new("n", "absent");
    let now = world.now();
    assert!(
        crate::trial::decide(&mut world.store, absent.group(), |view| job::chain(&absent, other, now, view))
            .0
            .is_none()
    );
}

#[test]
fn a_job_that_doesnt_succeed_for_too_long_is_overdue_until_it_does() {
    let mut world = World::with(Definition {
        success_within_ms: Some(150 * SECOND),
        timeout_ms: SECOND,
        ..every_minute()
    });
    for _ in 0..2 {
        let begun = world.pass(MINUTE);
        world.fail(&begun[0]);
    }
    assert!(!world.state().is_overdue);
    world.pass(30 * SECOND);
    assert!(world.state().is_overdue);
    let begun = world.pass(30 * SECOND);
    world.succeed(&begun[0]);
    assert!(!world.state().is_overdue);
    assert_eq!(world.state().last_success_at, Some(WallTime(START + 3 * MINUTE)));
}
