//! Calendars: which days they have, and what they leave of a schedule (J13).

use super::{all, schedule, time, zone};
use crate::cron::{Closures, DaySet, Dst, MOVED_DAYS_MAX, Policy, Schedule, Zone};
use crate::record::WallTime;
use alloc::collections::BTreeSet;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use proptest::prelude::*;

fn days(texts: &[&str]) -> DaySet {
    let mut days = DaySet::default();
    texts.iter().for_each(|text| days.add(text).unwrap_or_else(|error| panic!("{text}: {error}")));
    days
}

fn closures(of: &[(Policy, &[&str])]) -> Arc<Closures> {
    Arc::new(Closures(of.iter().map(|(policy, texts)| (*policy, days(texts))).collect()))
}

/// Local days and times, and those that are left out.
fn shown(text: &str, zone: &Zone, closures: &Arc<Closures>, from: &str, until: &str) -> [Vec<String>; 2] {
    let schedule = schedule(text);
    [schedule.kept_by(closures), schedule.left_out_by(closures)].map(|schedule| {
        let found = schedule.between(time(from), time(until), 1_000, zone, Dst::Vixie);
        let latest = schedule.latest_at_or_before(time(until), time(from), zone, Dst::Vixie);
        assert_eq!(latest.as_ref(), found.last());
        found.iter().map(|found| zone.local(found.at).unwrap()[..16].replace('T', " ")).collect()
    })
}

#[test]
fn what_is_at_fault_in_a_text_of_days_is_named_with_its_place() {
    for (text, at, part) in [
        ("", 0..0, "names no day"),
        ("2026-13-01", 0..10, "no date"),
        ("2026-02-29", 0..10, "no date"),
        ("1969-12-31", 0..10, "no date"),
        ("02-30", 0..5, "no year"),
        ("13-01", 0..5, "no year"),
        ("00-01", 0..5, "no year"),
        ("SATURDAY", 0..8, "names no day"),
        ("2026-1-1", 0..8, "names no day"),
        ("2026-12-24..", 12..12, "names no day"),
        ("2026-12-24..x\u{e4}", 12..15, "names no day"),
        ("2026-12-24..2026-12-23", 0..22, "after the last"),
        ("SAT..12-24", 0..10, "a range is"),
        ("+026-12-24", 0..10, "names no day"),
    ] {
        let error = DaySet::default().add(text).unwrap_err();
        assert_eq!(error.at, at, "{text}");
        assert!(error.problem.contains(part), "{text}: {error}");
    }
    let long = "x".repeat(65);
    assert_eq!(DaySet::default().add(&long).unwrap_err().at, 0..65);
}

#[test]
fn times_on_closed_days_are_left_out_or_come_on_the_next_or_the_last_open_day() {
    // The 25th of December 2026 is a Friday.
    let (utc, holidays) = (zone("UTC"), ["12-25..12-26", "SAT..SUN"]);
    let [from, until] = ["2026-12-23T00:00:00Z", "2026-12-31T00:00:00Z"];
    let found = |text: &str, policy| shown(text, &utc, &closures(&[(policy, &holidays)]), from, until);
    let nothing = Vec::<String>::new();
    let daily =
        ["2026-12-23 09:00", "2026-12-24 09:00", "2026-12-28 09:00", "2026-12-29 09:00", "2026-12-30 09:00"];
    let closed = ["2026-12-25 09:00", "2026-12-26 09:00", "2026-12-27 09:00"];
    assert_eq!(
        found("0 9 * * *", Policy::Exclude),
        [Vec::from(daily.map(String::from)), closed.map(String::from).into()]
    );
    // Two that are moved to the same moment are one.
    assert_eq!(found("0 9 * * *", Policy::MoveToNext), [Vec::from(daily.map(String::from)), nothing.clone()]);
    for (policy, kept) in [
        (Policy::Exclude, Vec::new()),
        (Policy::MoveToNext, Vec::from([String::from("2026-12-28 09:00")])),
        (Policy::MoveToPrevious, Vec::from([String::from("2026-12-24 09:00")])),
    ] {
        assert_eq!(found("0 9 25 12 *", policy)[0], kept, "{policy:?}");
    }
}

#[test]
fn the_first_calendar_that_has_a_day_says_what_becomes_of_it() {
    let (utc, from, until) = (zone("UTC"), "2026-12-20T00:00:00Z", "2026-12-31T00:00:00Z");
    let both = |first: (Policy, &[&str]), second: (Policy, &[&str])| {
        shown("0 9 25 12 *", &utc, &closures(&[first, second]), from, until)[0].clone()
    };
    let (exclude, next) = ((Policy::Exclude, &["12-25"][..]), (Policy::MoveToNext, &["12-25..12-26"][..]));
    assert!(both(exclude, next).is_empty());
    assert_eq!(both(next, exclude), ["2026-12-27 09:00"]);
    // What is moved goes to a day that is in none of them.
    let weekend = (Policy::Exclude, &["SAT..SUN"][..]);
    assert_eq!(both((Policy::MoveToNext, &["12-25"]), weekend), ["2026-12-28 09:00"]);
}

#[test]
fn a_day_that_finds_no_open_day_within_a_month_is_left_out() {
    let (utc, from, until) = (zone("UTC"), "2026-06-01T00:00:00Z", "2026-12-31T00:00:00Z");
    let found = |last: &str| {
        let text = alloc::format!("2026-07-01..{last}");
        shown("0 9 1 7 *", &utc, &closures(&[(Policy::MoveToNext, &[&text])]), from, until)
    };
    assert_eq!(found("2026-07-31"), [Vec::from([String::from("2026-08-01 09:00")]), Vec::new()]);
    assert_eq!(found("2026-08-01"), [Vec::new(), Vec::from([String::from("2026-07-01 09:00")])]);
}

#[test]
fn a_moved_time_keeps_its_local_time_and_takes_changes_of_clocks_like_any_other() {
    // Clocks in Berlin go forward on Sunday, 29 March 2026.
    let (berlin, closed) = (zone("Europe/Berlin"), closures(&[(Policy::MoveToNext, &["2026-03-28"])]));
    let found =
        |text: &str| shown(text, &berlin, &closed, "2026-03-27T12:00:00Z", "2026-03-30T12:00:00Z")[0].clone();
    assert_eq!(found("0 9 28 3 *"), ["2026-03-29 09:00"]);
    assert_eq!(found("30 2 28 3 *"), ["2026-03-29 03:00"], "it never is 02:30 that day");
}

#[test]
fn a_period_counts_on_open_days_only() {
    let (berlin, closed) = (zone("Europe/Berlin"), closures(&[(Policy::Exclude, &["SAT..SUN"])]));
    let [kept, left_out] =
        shown("@every 8h", &berlin, &closed, "2026-03-27T12:00:00Z", "2026-03-30T12:00:00Z");
    assert_eq!(kept, ["2026-03-27 17:00", "2026-03-30 02:00", "2026-03-30 10:00"]);
    assert_eq!(left_out.len(), 6);
}

#[test]
fn what_calendars_leave_nothing_of_never_fires() {
    let closed = closures(&[(Policy::Exclude, &["MON..SUN"])]);
    for text in ["0 9 * * *", "@every 1h"] {
        assert!(schedule(text).kept_by(&closed).never_fires(), "{text}");
        assert!(!schedule(text).left_out_by(&closed).never_fires(), "{text}");
    }
    let open = closures(&[(Policy::Exclude, &["SAT"])]);
    assert!(schedule("0 9 * * SUN").left_out_by(&open).never_fires());
}

fn any_days() -> impl Strategy<Value = String> {
    let number = |most: u8| 1..=most;
    prop_oneof![
        (number(12), number(28), 0..20_i64).prop_map(|(month, day, more)| {
            let from = jiff::civil::date(2026, month as i8, day as i8);
            let to = from.checked_add(jiff::Span::new().days(more)).unwrap();
            alloc::format!("{from}..{to}")
        }),
        (number(12), number(28), number(12), number(28))
            .prop_map(|(a, b, c, d)| alloc::format!("{a:02}-{b:02}..{c:02}-{d:02}"))
            .prop_filter("not most of the year", |text| text.len() == 12 && text[..2] == text[7..9]),
        proptest::sample::select(Vec::from(["SAT", "SUN", "SAT..SUN", "FRI..MON", "wed"]))
            .prop_map(String::from),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Day by day and by looking at dates only, as a person would.
    #[test]
    fn what_is_left_is_what_a_search_day_by_day_finds(
        texts in proptest::collection::vec((0..3_usize, proptest::collection::vec(any_days(), 1..3)), 1..4),
        plan in proptest::sample::select(Vec::from(["0 9 * * *", "0 9 * * MON", "0 9 1,15 * *", "0 9 L * *", "0 9 25 12 *"])),
    ) {
        let sets: Vec<_> = texts.iter().map(|(policy, texts)| {
            let texts: Vec<_> = texts.iter().map(String::as_str).collect();
            (Policy::ALL[*policy], days(&texts))
        }).collect();
        let closed = Arc::new(Closures(sets.clone()));
        let utc = zone("UTC");
        // Which days a set has is asked of a schedule of all days that it alone is the calendar of.
        let alone = |set: &DaySet| Arc::new(Closures(Vec::from([(Policy::Exclude, set.clone())])));
        let alone: Vec<_> = sets.iter().map(|(policy, set)| (*policy, schedule("0 0 * * *").left_out_by(&alone(set)))).collect();
        let policy_of = |day: u64| {
            let at = WallTime(day * 86_400_000);
            let has = |set: &Schedule| set.latest_at_or_before(at, WallTime(at.0 - 1_000), &utc, Dst::Vixie).is_some();
            alone.iter().find(|(_, set)| has(set)).map(|(policy, _)| *policy)
        };
        let (mut kept, mut left_out) = (BTreeSet::new(), BTreeSet::new());
        let [from, until] = ["2025-12-01T00:00:00Z", "2027-02-01T00:00:00Z"];
        let first_day = time(from).0 / 86_400_000;
        let policies: Vec<_> = (0..500).map(|day| policy_of(first_day - 40 + day)).collect();
        let policy_of = |day: u64| policies[(day + 40 - first_day) as usize];
        for planned in all(plan, &utc, Dst::Vixie, from, until) {
            let day = planned.at.0 / 86_400_000;
            let moves = |step: i64| (1..=MOVED_DAYS_MAX).map(|by| day.wrapping_add_signed(by * step)).find(|day| policy_of(*day).is_none());
            let target = match policy_of(day) {
                None => Some(day),
                Some(Policy::Exclude) => None,
                Some(Policy::MoveToNext) => moves(1),
                Some(Policy::MoveToPrevious) => moves(-1),
            };
            match target {
                Some(target) => drop(kept.insert(target * 86_400_000 + planned.at.0 % 86_400_000)),
                None => drop(left_out.insert(planned.at.0)),
            }
        }
        // Away from the borders, over which something may be moved.
        let inner = [time("2026-01-05T00:00:00Z").0, time("2026-12-20T00:00:00Z").0];
        let within = |times: &BTreeSet<u64>| times.range(inner[0]..inner[1]).copied().collect::<Vec<_>>();
        let found = |schedule: Schedule| {
            let found = schedule.between(WallTime(inner[0] - 1), WallTime(inner[1] - 1), 1_000, &utc, Dst::Vixie);
            found.iter().map(|found| found.at.0).collect::<Vec<_>>()
        };
        prop_assert_eq!(found(schedule(plan).kept_by(&closed)), within(&kept));
        prop_assert_eq!(found(schedule(plan).left_out_by(&closed)), within(&left_out));
    }

    #[test]
    fn any_text_of_days_is_read_or_refused_with_a_place_in_it(text in "[0-9SATUNsun.\\- \u{e4}-\u{e8}]{0,24}|\\PC{0,70}") {
        if let Err(error) = DaySet::default().add(&text) {
            prop_assert!(text.get(error.at.clone()).is_some(), "{:?}: {:?}", text, error);
            prop_assert!(!error.problem.is_empty());
        }
    }

    #[test]
    fn questions_about_what_calendars_leave_take_bounded_work(
        texts in proptest::collection::vec((0..3_usize, any_days()), 1..4),
        plan in proptest::sample::select(Vec::from(["* * * * * *", "30 2 29 2 *", "@every 7h", "0 9 * * 1#5"])),
        from in 0..1_u64 << 42,
    ) {
        let sets = texts.iter().map(|(policy, text)| (Policy::ALL[*policy], days(&[text]))).collect();
        let closed = Arc::new(Closures(sets));
        for kept in [schedule(plan).kept_by(&closed), schedule(plan).left_out_by(&closed)] {
            for name in ["UTC", "Europe/Berlin", "Australia/Lord_Howe", "Pacific/Apia"] {
                let (zone, mut steps) = (zone(name), 0);
                let next = kept.next_counted(WallTime(from), &zone, Dst::Vixie, &mut steps);
                prop_assert!(steps <= 20_000, "{}: {}", plan, steps);
                let Some(next) = next else { continue };
                prop_assert!(next.at > WallTime(from));
                prop_assert_eq!(kept.latest_at_or_before(next.at, WallTime(from), &zone, Dst::Vixie).map(|latest| latest.at), Some(next.at));
            }
        }
    }
}
