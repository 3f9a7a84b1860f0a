//! The evaluator against an oracle, around every change of clocks of every zone from 2020 to 2040 (J2).
//!
//! The oracle knows no segments. It walks through a window minute by minute (or every ten seconds), asks what the clock
//! shows, remembers what it has shown before, and decides with a predicate that was written by hand for each schedule.

use super::{time, zone};
use crate::cron::{Dst, Occurrence, Schedule, Touched, Zone};
use crate::record::WallTime;
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan};

/// What a clock shows at a moment, and what it showed before.
struct Row {
    second: i64,
    shows: DateTime,
    /// Whether it has shown that before.
    repeated: bool,
    /// Whether it will show that again.
    comes_again: bool,
    /// What it leapt over to get there.
    skipped: Vec<DateTime>,
}

/// Each moment of a window, `step_seconds` apart.
fn rows(zone: &TimeZone, from: i64, until: i64, step_seconds: i64) -> Vec<Row> {
    let mut rows: Vec<Row> = Vec::new();
    let mut shown: BTreeMap<DateTime, usize> = BTreeMap::new();
    for second in (from..until).step_by(step_seconds as usize) {
        let shows = zone.to_datetime(Timestamp::from_second(second).unwrap());
        let repeated = shown.insert(shows, rows.len());
        if let Some(first) = repeated {
            rows[first].comes_again = true;
        }
        let mut skipped = Vec::new();
        if let Some(last) = rows.last() {
            let mut expected = last.shows + step_seconds.seconds();
            while expected < shows {
                if !shown.contains_key(&expected) {
                    skipped.push(expected);
                }
                expected += step_seconds.seconds();
            }
        }
        rows.push(Row { second, shows, repeated: repeated.is_some(), comes_again: false, skipped });
    }
    rows
}

/// A schedule as text and as a predicate.
struct Pattern {
    text: String,
    is_meant: Box<dyn Fn(DateTime) -> bool>,
    /// Whether it is a fixed time of day: neither minute nor hour begins with a star.
    is_fixed: bool,
}

fn expected(rows: &[Row], meant: &[bool], pattern: &Pattern, dst: Dst) -> Vec<Occurrence> {
    let once = pattern.is_fixed && dst == Dst::Vixie;
    let mut found = Vec::new();
    for (row, meant) in rows.iter().zip(meant) {
        let touched = if once && row.skipped.iter().any(|time| (pattern.is_meant)(*time)) {
            Some(Touched::MovedFromGap)
        } else if !meant || once && row.repeated {
            continue;
        } else if once && row.comes_again {
            Some(Touched::RepeatSkipped)
        } else if row.repeated {
            Some(Touched::Repeated)
        } else {
            None
        };
        found.push(Occurrence { at: WallTime(row.second as u64 * 1_000), touched });
    }
    found
}

/// The schedules that a change of clocks is looked at with: below, within and above what it skips or repeats.
fn patterns(low: DateTime, within: DateTime, high: DateTime) -> (Vec<Pattern>, Vec<Pattern>, Vec<Pattern>) {
    let at = |time: DateTime| move |shows: DateTime| shows.time() == time.time();
    let (m, h, day, month) = (within.minute(), within.hour(), within.day(), within.month());
    let weekday = within.weekday();
    let dow = weekday.to_sunday_zero_offset();
    let nth = (day - 1) / 7 + 1;
    let other_day = if day > 14 { day - 1 } else { day + 1 };
    let fixed =
        |text: String, is_meant: Box<dyn Fn(DateTime) -> bool>| Pattern { text, is_meant, is_fixed: true };
    let clock =
        |text: String, is_meant: Box<dyn Fn(DateTime) -> bool>| Pattern { text, is_meant, is_fixed: false };
    let daily =
        |time: DateTime| fixed(format!("{} {} * * *", time.minute(), time.hour()), Box::new(at(time)));
    let on = |day_fields: String, is_day: fn(DateTime, DateTime) -> bool| {
        let is_meant = move |shows: DateTime| at(within)(shows) && is_day(shows, within);
        fixed(format!("{m} {h} {day_fields}"), Box::new(is_meant))
    };
    let seldom = vec![
        daily(low),
        daily(within),
        daily(high),
        daily(high - 1.minute()),
        fixed(
            format!("{} {},{} * * *", low.minute(), low.hour(), high.hour()),
            Box::new(move |shows| {
                shows.minute() == low.minute() && (shows.hour() == low.hour() || shows.hour() == high.hour())
            }),
        ),
        fixed("0,15,30,45 0-23 * * *".to_string(), Box::new(|shows| shows.minute() % 15 == 0)),
        fixed("0 0 * * *".to_string(), Box::new(|shows| shows.hour() == 0 && shows.minute() == 0)),
        on(format!("{day} * *"), |shows, within| shows.day() == within.day()),
        on(format!("* {month} *"), |shows, within| shows.month() == within.month()),
        on(format!("* * {dow}"), |shows, within| shows.weekday() == within.weekday()),
        fixed(
            format!("{m} {h} {other_day} {month} {dow}"),
            Box::new(move |shows| {
                let is_day = shows.day() == other_day || shows.weekday() == weekday;
                at(within)(shows) && shows.month() == month && is_day
            }),
        ),
        on(format!("*/2 * {dow}"), |shows, within| {
            shows.day() % 2 == 1 && shows.weekday() == within.weekday()
        }),
        on("L * *".to_string(), |shows, _| shows.date() == shows.date().last_of_month()),
        on("L-3 * *".to_string(), |shows, _| shows.date() + 3.days() == shows.date().last_of_month()),
        on(format!("{day}W * *"), |shows, within| shows.day() == nearest_working(shows, within.day())),
        on(format!("? * {dow}L"), |shows, within| {
            shows.weekday() == within.weekday() && (shows.date() + 7.days()).month() != shows.month()
        }),
        fixed(
            format!("{m} {h} ? * {dow}#{nth}"),
            Box::new(move |shows| {
                let place = (1..=shows.day()).filter(|day| (shows.day() - day) % 7 == 0).count();
                at(within)(shows) && shows.weekday() == weekday && place == nth as usize
            }),
        ),
        clock(format!("{m} * * * *"), Box::new(move |shows| shows.minute() == m)),
        clock(format!("{m} */3 {day} * *"), {
            Box::new(move |shows| shows.minute() == m && shows.hour() % 3 == 0 && shows.day() == day)
        }),
        clock("0 */2 * * *".to_string(), Box::new(|shows| shows.minute() == 0 && shows.hour() % 2 == 0)),
        clock(format!("*/20 {h} * * *"), {
            Box::new(move |shows| shows.minute() % 20 == 0 && shows.hour() == h)
        }),
    ];
    let often = vec![
        clock("* * * * *".to_string(), Box::new(|_| true)),
        clock("*/7 * * * *".to_string(), Box::new(|shows| shows.minute() % 7 == 0)),
        fixed("0-59 0-23 * * *".to_string(), Box::new(|_| true)),
    ];
    let with_seconds = vec![
        clock("*/30 * * * * *".to_string(), Box::new(|shows| shows.second() % 30 == 0)),
        clock("10 5-40 * * * *".to_string(), {
            Box::new(|shows| shows.second() == 10 && (5..=40).contains(&shows.minute()))
        }),
        fixed(format!("*/20 {m} {h} * * *"), {
            Box::new(move |shows| shows.second() % 20 == 0 && shows.minute() == m && shows.hour() == h)
        }),
    ];
    (seldom, often, with_seconds)
}

/// The day from Monday to Friday that is nearest to a day of a month; none if there is no such day.
fn nearest_working(shows: DateTime, day: i8) -> i8 {
    let first = shows.date().first_of_month();
    let days = first.series(1.day()).take(first.days_in_month() as usize);
    let working = days.filter(|day| day.weekday().to_monday_zero_offset() < 5);
    if day > first.days_in_month() {
        return 0;
    }
    working.map(|date| date.day()).min_by_key(|working| (working - day).abs()).unwrap()
}

fn first_difference(found: &[Occurrence], expected: &[Occurrence]) -> Option<usize> {
    (0..found.len().max(expected.len())).find(|place| found.get(*place) != expected.get(*place))
}

/// What was compared.
#[derive(Default, Debug)]
struct Compared {
    changes: usize,
    schedules: usize,
    moments: usize,
    occurrences: usize,
}

impl Compared {
    fn compare(&mut self, zone: &Zone, rows: &[Row], patterns: &[Pattern]) {
        let from = WallTime(rows[0].second as u64 * 1_000 - 1);
        let until = WallTime(rows[rows.len() - 1].second as u64 * 1_000);
        for pattern in patterns {
            let schedule = Schedule::parse(&pattern.text, "").unwrap();
            let meant: Vec<bool> = rows.iter().map(|row| (pattern.is_meant)(row.shows)).collect();
            for dst in [Dst::Vixie, Dst::Literal] {
                let expected = expected(rows, &meant, pattern, dst);
                let found = schedule.between(from, until, rows.len() + 1, zone, dst);
                if let Some(place) = first_difference(&found, &expected) {
                    let (found, expected) = (found.get(place), expected.get(place));
                    panic!("{} in {}, {dst:?}: {found:?}, not {expected:?}", pattern.text, zone.name());
                }
                // Backwards: all of the few, some of the many.
                for two in expected.windows(2).step_by(expected.len() / 20 + 1) {
                    let latest = |at| schedule.latest_at_or_before(at, from, zone, dst);
                    assert_eq!(latest(two[1].at), Some(two[1]), "{} in {}", pattern.text, zone.name());
                    let before = WallTime(two[1].at.0 - 1);
                    assert_eq!(latest(before), Some(two[0]), "{} in {}", pattern.text, zone.name());
                }
                self.schedules += 1;
                self.moments += rows.len();
                self.occurrences += expected.len();
            }
        }
    }
}

#[test]
fn every_zone_and_every_change_agree_with_a_clock_that_is_read_minute_by_minute() {
    let second = |text: &str| time(text).0 as i64 / 1_000;
    let (from, until) = (second("2020-01-01T00:00:00Z"), second("2041-01-01T00:00:00Z"));
    let mut compared = Compared::default();
    let mut seen = BTreeSet::new();
    for name in jiff::tz::db().available() {
        let clock = TimeZone::get(name.as_str()).unwrap();
        let offset = |second: i64| clock.to_offset(Timestamp::from_second(second).unwrap()).seconds();
        let following = clock.following(Timestamp::from_second(from).unwrap());
        let changes = following.map(|change| change.timestamp().as_second());
        let mut changes: Vec<i64> = changes.take_while(|change| *change < until).collect();
        // Nothing may happen between the windows either; and a zone without changes is looked at once.
        if changes.is_empty() {
            changes.push(second("2026-03-29T01:00:00Z"));
        }
        let mut before = from;
        for change in &changes {
            assert_eq!(offset(before), offset(change - 1), "{name:?}: a change was not found");
            before = *change;
        }
        let offsets: Vec<i32> = changes.iter().map(|change| offset(*change)).collect();
        if !seen.insert((offset(from), changes.clone(), offsets)) {
            continue;
        }
        let zone = zone(name.as_str());
        for change in changes {
            let shows = |second: i64| clock.to_datetime(Timestamp::from_second(second).unwrap());
            // What is skipped or repeated is between these.
            let (reached, goes_on) = (shows(change - 1) + 1.second(), shows(change));
            let (low, high) = (reached.min(goes_on), reached.max(goes_on));
            let half = high.duration_since(low).as_secs() / 120;
            let (seldom, often, with_seconds) = patterns(low, low + half.minutes(), high);
            let around = |seconds: i64, step| rows(&clock, change - seconds, change + seconds, step);
            // More than a day, so that each time of day is in it.
            compared.compare(&zone, &around(13 * 3_600, 60), &seldom);
            // Whatever is repeated has to be in the window both times.
            let near = high.duration_since(low).as_secs() + 1_800;
            compared.compare(&zone, &around(near, 60), &often);
            compared.compare(&zone, &around(near, 10), &with_seconds);
            compared.changes += 1;
        }
    }
    // So that it can't turn into comparing nothing.
    assert!(compared.changes > 1_000 && compared.moments > 100_000_000, "{compared:?}");
}
