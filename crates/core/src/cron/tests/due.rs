//! When schedules are due where clocks are changed: examples, one for each rule.

use super::{all, schedule, shown, time, zone};
use crate::cron::{Dst, Touched};
use crate::record::WallTime;
use alloc::vec::Vec;

/// Where, under which policy, what, and what comes of it on one day.
type Case<'a> = (&'a str, Dst, &'a str, &'a [(&'a str, Option<Touched>)]);

fn check(from: &str, until: &str, cases: &[Case]) {
    for (name, dst, text, expected) in cases {
        let zone = zone(name);
        let found = shown(&all(text, &zone, *dst, from, until), &zone);
        let found: Vec<_> = found.iter().map(|(local, touched)| (local.as_str(), *touched)).collect();
        assert_eq!(found, *expected, "{text} in {name}, {dst:?}");
    }
}

const MOVED: Option<Touched> = Some(Touched::MovedFromGap);
const REPEATED: Option<Touched> = Some(Touched::Repeated);
const SKIPPED: Option<Touched> = Some(Touched::RepeatSkipped);

#[test]
fn in_the_spring_gap_a_fixed_time_comes_once_right_after_it() {
    use Dst::{Literal, Vixie};
    // From 02:00 to 03:00 on 2026-03-29 in Berlin.
    check(
        "2026-03-28T12:00:00Z",
        "2026-03-29T12:00:00Z",
        &[
            ("Europe/Berlin", Vixie, "30 2 * * *", &[("2026-03-29 03:00+02:00", MOVED)]),
            ("Europe/Berlin", Literal, "30 2 * * *", &[]),
            ("Europe/Berlin", Vixie, "*/20 2 * * *", &[]),
            ("Europe/Berlin", Vixie, "0-59 2 * * *", &[("2026-03-29 03:00+02:00", MOVED)]),
            ("Europe/Berlin", Vixie, "* 30 2 * * *", &[("2026-03-29 03:00+02:00", MOVED)]),
            ("Europe/Berlin", Vixie, "0 2,3 * * *", &[("2026-03-29 03:00+02:00", MOVED)]),
            ("Europe/Berlin", Literal, "0 2,3 * * *", &[("2026-03-29 03:00+02:00", None)]),
            (
                "Europe/Berlin",
                Vixie,
                "30 1-3 * * *",
                &[
                    ("2026-03-29 01:30+01:00", None),
                    ("2026-03-29 03:00+02:00", MOVED),
                    ("2026-03-29 03:30+02:00", None),
                ],
            ),
            ("Europe/Berlin", Vixie, "30 2 29 3 *", &[("2026-03-29 03:00+02:00", MOVED)]),
            ("Europe/Berlin", Vixie, "30 2 * * MON", &[]),
            ("UTC", Vixie, "30 2 * * *", &[("2026-03-29 02:30+00:00", None)]),
        ],
    );
}

#[test]
fn in_the_repeated_autumn_hour_a_fixed_time_comes_once_and_others_follow_the_clock() {
    use Dst::{Literal, Vixie};
    // From 03:00 back to 02:00 on 2026-10-25 in Berlin.
    check(
        "2026-10-24T23:30:00Z",
        "2026-10-25T02:00:00Z",
        &[
            ("Europe/Berlin", Vixie, "30 2 * * *", &[("2026-10-25 02:30+02:00", SKIPPED)]),
            (
                "Europe/Berlin",
                Literal,
                "30 2 * * *",
                &[("2026-10-25 02:30+02:00", None), ("2026-10-25 02:30+01:00", REPEATED)],
            ),
            (
                "Europe/Berlin",
                Vixie,
                "30 * * * *",
                &[("2026-10-25 02:30+02:00", None), ("2026-10-25 02:30+01:00", REPEATED)],
            ),
            (
                "Europe/Berlin",
                Vixie,
                "0 2,3 * * *",
                &[("2026-10-25 02:00+02:00", SKIPPED), ("2026-10-25 03:00+01:00", None)],
            ),
        ],
    );
}

#[test]
fn changes_of_half_an_hour_and_of_a_day_follow_the_same_rules() {
    use Dst::{Literal, Vixie};
    // From 02:00 back to 01:30.
    check(
        "2026-04-04T14:00:00Z",
        "2026-04-04T16:00:00Z",
        &[
            (
                "Australia/Lord_Howe",
                Vixie,
                "15,45 1 * * *",
                &[("2026-04-05 01:15+11:00", None), ("2026-04-05 01:45+11:00", SKIPPED)],
            ),
            (
                "Australia/Lord_Howe",
                Literal,
                "15,45 1 * * *",
                &[
                    ("2026-04-05 01:15+11:00", None),
                    ("2026-04-05 01:45+11:00", None),
                    ("2026-04-05 01:45+10:30", REPEATED),
                ],
            ),
        ],
    );
    // 30 December 2011 was left out.
    check(
        "2011-12-29T12:00:00Z",
        "2011-12-31T09:59:59Z",
        &[
            (
                "Pacific/Apia",
                Vixie,
                "30 2,14 * * *",
                &[
                    ("2011-12-29 02:30-10:00", None),
                    ("2011-12-29 14:30-10:00", None),
                    ("2011-12-31 00:00+14:00", MOVED),
                    ("2011-12-31 02:30+14:00", None),
                    ("2011-12-31 14:30+14:00", None),
                ],
            ),
            ("Pacific/Apia", Literal, "30 2 30 12 *", &[]),
        ],
    );
}

#[test]
fn the_latest_and_the_next_agree() {
    for (text, dst) in [
        ("30 2 * * *", Dst::Vixie),
        ("30 2 * * *", Dst::Literal),
        ("*/20 * * * *", Dst::Vixie),
        ("@every 7m", Dst::Vixie),
    ] {
        let (zone, schedule) = (zone("Europe/Berlin"), schedule(text));
        for (from, until) in [
            ("2026-03-28T00:00:00Z", "2026-03-31T00:00:00Z"),
            ("2026-10-24T00:00:00Z", "2026-10-27T00:00:00Z"),
        ] {
            let found = schedule.between(time(from), time(until), 1_000, &zone, dst);
            assert!(found.len() >= 2);
            let epoch = WallTime(0);
            for two in found.windows(2) {
                let latest = |at: u64| schedule.latest_at_or_before(WallTime(at), epoch, &zone, dst);
                assert_eq!(latest(two[1].at.0), Some(two[1]));
                assert_eq!(latest(two[1].at.0 + 999), Some(two[1]));
                assert_eq!(latest(two[1].at.0 - 1), Some(two[0]));
                assert_eq!(schedule.latest_at_or_before(two[1].at, two[0].at, &zone, dst), Some(two[1]));
                let before = WallTime(two[1].at.0 - 1);
                assert_eq!(
                    schedule.latest_at_or_before(before, two[0].at, &zone, dst),
                    None,
                    "after is excluded"
                );
                assert_eq!(schedule.next_after(before, &zone, dst), Some(two[1]));
                assert_eq!(schedule.next_after(two[0].at, &zone, dst), Some(two[1]));
            }
        }
    }
}

#[test]
fn a_range_has_its_end_and_not_its_beginning_and_no_more_than_asked_for() {
    let (utc, hourly) = (zone("UTC"), schedule("@hourly"));
    let between = |from, until, max| hourly.between(time(from), time(until), max, &utc, Dst::Vixie).len();
    assert_eq!(between("2026-01-01T00:00:00Z", "2026-01-01T03:00:00Z", 99), 3);
    assert_eq!(between("2026-01-01T00:00:00Z", "2026-01-01T02:59:59.999Z", 99), 2);
    assert_eq!(between("2025-12-31T23:59:59.999Z", "2026-01-01T03:00:00Z", 99), 4);
    assert_eq!(between("2026-01-01T00:00:00Z", "2026-01-01T03:00:00Z", 2), 2);
    assert_eq!(between("2026-01-01T03:00:00Z", "2026-01-01T00:00:00Z", 99), 0);
}

#[test]
fn a_period_is_counted_from_1970_whatever_clocks_do() {
    let berlin = zone("Europe/Berlin");
    let every = schedule("@every 90s");
    let next = |at| every.next_after(WallTime(at), &berlin, Dst::Vixie).unwrap().at.0;
    assert_eq!((next(0), next(89_999), next(90_000)), (90_000, 90_000, 180_000));
    let day = all("@every 1h30m", &berlin, Dst::Vixie, "2026-03-28T23:00:00Z", "2026-03-29T22:00:00Z");
    assert!(day.windows(2).all(|two| two[1].at.0 - two[0].at.0 == 5_400_000));
    assert_eq!(day.len(), 15, "the day has 23 hours");
}

#[test]
fn what_never_comes_is_known_and_what_comes_seldom_is_found() {
    let (utc, berlin) = (zone("UTC"), zone("Europe/Berlin"));
    let now = time("2026-01-01T00:00:00Z");
    assert_eq!(schedule("0 0 30 2 *").next_after(now, &utc, Dst::Vixie), None);
    assert_eq!(schedule("0 0 30 2 *").latest_at_or_before(now, WallTime(0), &utc, Dst::Vixie), None);
    // The leap day as a Thursday: none between 2080 and 2120, since 2100 is no leap year.
    let seldom = schedule("0 0 */28 2 4#5");
    let next = seldom.next_after(time("2080-03-01T00:00:00Z"), &berlin, Dst::Vixie).unwrap();
    assert_eq!(berlin.local(next.at).unwrap(), "2120-02-29T00:00:00+01:00");
    // Clocks go forward on the last Sunday of March, over this very time: a literal schedule never has it.
    let gap = schedule("30 2 25-31 3 *");
    assert!(gap.next_after(now, &berlin, Dst::Literal).is_some());
    let gap = schedule("30 2 * 3 0L");
    assert!(!gap.never_fires(), "the calendar has such days");
    assert_eq!(gap.next_after(now, &berlin, Dst::Literal), None);
    let moved = gap.next_after(now, &berlin, Dst::Vixie).unwrap();
    assert_eq!(berlin.local(moved.at).unwrap(), "2026-03-29T03:00:00+02:00");
    // In years before the rule there were such times.
    let latest = gap.latest_at_or_before(now, WallTime(0), &berlin, Dst::Literal).unwrap();
    assert_eq!(berlin.local(latest.at).unwrap(), "1980-03-30T02:30:00+01:00");
}

#[test]
fn the_end_of_time_is_an_end() {
    let utc = zone("UTC");
    for at in [u64::MAX, u64::MAX / 1_000, 253_402_300_799_000, 253_402_207_200_000, 1 << 62] {
        for text in ["* * * * *", "@every 1s", "0 0 29 2 *"] {
            let schedule = schedule(text);
            schedule.next_after(WallTime(at), &utc, Dst::Vixie);
            schedule.latest_at_or_before(WallTime(at), WallTime(0), &utc, Dst::Vixie);
        }
    }
    assert_eq!(schedule("0 0 1 1 *").next_after(time("9999-06-01T00:00:00Z"), &utc, Dst::Vixie), None);
}
