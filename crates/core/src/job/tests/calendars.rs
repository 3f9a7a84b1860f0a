//! Calendars leave times out or move them, and are changed while jobs use them (J13, J14, J15).

use super::world::{MINUTE, World, every_minute, timetables};
use crate::cron::{DaySet, Policy, time_of};
use crate::job::calendar::{self, CalendarUse, Entry};
use crate::job::{self, Definition, Missed, Overlap};
use crate::name::Name;
use crate::record::{Revision, WallTime};
use alloc::string::String;
use alloc::vec::Vec;

const HOUR: u64 = 60 * MINUTE;
const DAY: u64 = 24 * HOUR;

fn days(texts: &[&str]) -> DaySet {
    let mut days = DaySet::default();
    texts.iter().for_each(|text| days.add(text).unwrap());
    days
}

fn used(policy: Policy, texts: &[&str]) -> CalendarUse {
    CalendarUse { name: "c".into(), policy, revision: Revision(1), days: days(texts) }
}

/// A job at 09:00, put on Thursday, 24 December 2026, at noon.
fn job(schedule: &str, missed: Missed, calendar: CalendarUse) -> World {
    let mut world = World::empty();
    world.store.now = time_of("2026-12-24T12:00:00Z").unwrap().0;
    let calendars = Vec::from([calendar]);
    world.apply(&Definition { schedule: Some(schedule.into()), missed, calendars, ..patient() });
    world
}

/// What it begins may take as long as a test lets pass at once.
fn patient() -> Definition {
    let (timeout_ms, missed_window_ms, overlap) = (2 * HOUR, 9 * DAY, Overlap::Allow);
    Definition { timeout_ms, missed_window_ms, overlap, ..every_minute() }
}

impl World {
    /// Lets days pass; every run succeeds. The local times of those that ran.
    fn days(&mut self, count: u64) -> Vec<String> {
        let mut ran = Vec::new();
        for _ in 0..count * 24 {
            for begun in self.pass(HOUR) {
                ran.push(shown(begun.0.run.place.nominal));
                self.succeed(&begun);
            }
        }
        ran
    }

    fn refresh(&mut self, revision: u64, texts: &[&str]) -> bool {
        let (name, now, days) = (self.name.clone(), self.now(), days(texts));
        self.decide(|view| calendar::refresh(&name, "c", Revision(revision), &days, now, &timetables, view))
            .0
            .is_some()
    }
}

fn shown(time: WallTime) -> String {
    crate::cron::Zone::parse("UTC").unwrap().local(time).unwrap()[5..13].into()
}

#[test]
fn a_day_that_is_left_out_has_one_record_that_says_so_as_soon_as_it_is_over() {
    let mut world = job("0,30 9-16 * * *", Missed::Latest, used(Policy::Exclude, &["12-25..12-26"]));
    world.days(1);
    assert_eq!(world.days(2).len(), 7, "from 09:00 to 12:00 on the 27th");
    let records: Vec<_> =
        world.runs().into_iter().filter(|(_, run)| super::world::in_a_word(run) == "calendar").collect();
    let told: Vec<_> = records
        .iter()
        .map(|(id, run)| {
            (shown(id.place.nominal), run.stands_for.map(|(first, count)| (shown(first), count)))
        })
        .collect();
    let day = |day: &str| (alloc::format!("{day}T16"), Some((alloc::format!("{day}T09"), 16)));
    assert_eq!(told, [day("12-25"), day("12-26")]);
    assert_eq!(world.state().counts.skipped, 32);
}

#[test]
fn what_is_moved_runs_once_where_it_is_moved_to_and_says_nothing_of_its_own_day() {
    for (policy, ran) in [(Policy::MoveToNext, ["12-27T09"]), (Policy::MoveToPrevious, ["12-24T09"])] {
        let mut world = fresh("0 9 25,26 12 *", used(policy, &["12-25..12-26"]), "2026-12-23T12:00:00Z");
        assert_eq!(world.days(6), ran, "{policy:?}");
        assert_eq!(world.runs().len(), 1);
    }
}

fn fresh(schedule: &str, calendar: CalendarUse, now: &str) -> World {
    let mut world = World::empty();
    world.store.now = time_of(now).unwrap().0;
    let calendars = Vec::from([calendar]);
    world.apply(&Definition { schedule: Some(schedule.into()), calendars, ..patient() });
    world
}

#[test]
fn everybody_is_away_and_what_was_left_out_meanwhile_was_not_missed() {
    let mut world = job("0 9 * * *", Missed::All, used(Policy::Exclude, &["12-25..12-27"]));
    world.store.now += 5 * DAY;
    assert_eq!(world.days(1), ["12-28T09", "12-29T09", "12-30T09"]);
    let counts: Vec<_> = world
        .runs()
        .iter()
        .map(|(_, run)| (super::world::in_a_word(run), run.stands_for.map(|(_, count)| count)))
        .collect();
    assert_eq!(counts[0], ("calendar", Some(3)));
    assert_eq!(counts.len(), 4);
}

#[test]
fn a_calendar_that_is_changed_counts_for_what_is_to_come_and_what_is_planned() {
    let mut world = job("0 9 * * *", Missed::Latest, used(Policy::Exclude, &[]));
    let next = |world: &World| shown(world.state().next.unwrap().nominal);
    assert_eq!(next(&world), "12-25T09");
    assert!(world.refresh(2, &["12-25..12-26"]));
    assert_eq!(next(&world), "12-27T09");
    // An older one that comes late changes nothing.
    assert!(world.refresh(1, &[]));
    assert_eq!(next(&world), "12-27T09");
    assert!(world.refresh(3, &["12-25"]));
    assert_eq!(next(&world), "12-26T09");
    assert_eq!(world.days(3), ["12-26T09", "12-27T09"]);
    let definition = Definition { calendars: Vec::new(), ..world.definition() };
    world.apply(&definition);
    assert!(!world.refresh(4, &["12-25"]), "it doesn't use it any more");
}

#[test]
fn an_edit_never_brings_back_older_days_of_a_calendar() {
    let mut world = job("0 9 * * *", Missed::Latest, used(Policy::Exclude, &[]));
    world.refresh(5, &["12-25"]);
    world.edit(|job| (job.calendars, job.timeout_ms) = (Vec::from([used(Policy::Exclude, &[])]), 7_000));
    assert_eq!(world.definition().calendars[0].revision, Revision(5));
    assert_eq!(shown(world.state().next.unwrap().nominal), "12-26T09");
}

#[test]
fn a_time_that_is_moved_back_over_the_mark_was_missed_and_the_job_says_what_happens_to_it() {
    // Weekly, on Mondays; on Thursday at noon Monday the 28th is closed, and Thursday at nine is over.
    let closed = ["12-25..12-28"];
    for (missed, ran, told) in [
        (Missed::Skip, Vec::new(), Vec::from(["missed"])),
        (Missed::Latest, Vec::from(["12-24T09"]), Vec::from(["succeeded"])),
        (Missed::All, Vec::from(["12-24T09"]), Vec::from(["succeeded"])),
    ] {
        let mut world = job("0 9 * * MON", missed, used(Policy::MoveToPrevious, &[]));
        world.refresh(2, &closed);
        assert_eq!(world.days(6), ran, "{missed:?}");
        assert_eq!(world.told(), told, "{missed:?}");
        // Said again, it changes nothing.
        world.refresh(3, &closed);
        assert!(world.days(1).is_empty());
    }
}

#[test]
fn what_ran_before_its_day_does_not_run_again_when_its_day_is_opened() {
    let closed = ["12-25..12-28"];
    let mut world = fresh("0 9 * * MON", used(Policy::MoveToPrevious, &closed), "2026-12-23T12:00:00Z");
    assert_eq!(world.days(2), ["12-24T09"]);
    world.refresh(2, &[]);
    // Also if it is closed and opened again, and the job edited.
    world.edit(|job| job.timeout_ms += 1);
    world.refresh(3, &["12-31"]);
    assert_eq!(world.days(14), ["01-04T09"], "the week after it runs");
}

#[test]
fn what_ran_on_its_day_does_not_run_again_when_its_day_is_closed() {
    let mut world = fresh("0 9 * * MON", used(Policy::MoveToNext, &[]), "2026-12-23T12:00:00Z");
    assert_eq!(world.days(6), ["12-28T09"]);
    world.refresh(2, &["12-28..12-29"]);
    assert_eq!(world.days(10), ["01-04T09"]);
    // A time of that day that is to come anyway does.
    let mut world = fresh("0 9 * * *", used(Policy::MoveToNext, &[]), "2026-12-23T12:00:00Z");
    assert_eq!(world.days(2), ["12-24T09", "12-25T09"]);
    world.refresh(2, &["12-25"]);
    assert_eq!(world.days(1), ["12-26T09"]);
}

#[test]
fn a_pause_over_closed_days_says_which_were_paused_and_which_closed() {
    let mut world = job("0 9 * * *", Missed::Skip, used(Policy::Exclude, &["12-26"]));
    let name = world.name.clone();
    let now = world.now();
    world.decide(|view| job::pause(&name, now, view));
    world.days(4);
    let now = world.now();
    world.decide(|view| job::resume(&name, None, now, &timetables, view));
    let mut told = world.told();
    told.sort_unstable();
    assert_eq!(told, ["calendar", "paused"]);
    assert_eq!(shown(world.state().next.unwrap().nominal), "12-29T09");
}

#[test]
fn calendars_are_put_changed_and_removed() {
    let mut world = World::empty();
    let (name, now) = (Name::new("n", "holidays"), world.now());
    let entry = |days: &str| Entry { days: days.into(), note: "x".into() };
    let put = |world: &mut World, days: &str| {
        crate::trial::decide(&mut world.store, name.group(), |view| {
            calendar::put(&name, &[entry(days)], now, view)
        })
        .0
        .0
    };
    assert_eq!(put(&mut world, "SAT"), job::Put::Made);
    assert_eq!(put(&mut world, "SAT"), job::Put::Same);
    assert_eq!(put(&mut world, "SUN"), job::Put::Changed);
    let mut remove =
        || crate::trial::decide(&mut world.store, name.group(), |view| calendar::remove(&name, view)).0;
    assert!(remove());
    assert!(!remove());
}
