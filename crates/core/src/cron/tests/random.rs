//! Texts of all kinds: an error lies within its text, nothing panics, and no answer takes long. Work is counted, not timed.

use super::{schedule, zone};
use crate::cron::{Dst, EXPRESSION_BYTES_MAX, SEARCH_YEARS, Schedule};
use crate::record::WallTime;
use alloc::string::String;
use proptest::prelude::*;

/// Segments and months that one question may look at: two changes of clocks in each year that is searched, twelve months
/// in each of these, and as many again where a year is cut in two.
const STEPS_MAX: u64 = SEARCH_YEARS as u64 * (4 + 24);

/// Checks whatever can be said of any text.
fn check(text: &str, from: u64) -> Result<(), TestCaseError> {
    let schedule = match Schedule::parse(text, "default/job") {
        Ok(schedule) => schedule,
        Err(error) => {
            prop_assert!(text.get(error.at.clone()).is_some(), "{text:?}: {error:?}");
            prop_assert!(!error.problem.is_empty() && error.problem.len() < 4 * EXPRESSION_BYTES_MAX);
            return Ok(());
        }
    };
    prop_assert_eq!(schedule.text(), text);
    for (name, dst) in [
        ("UTC", Dst::Vixie),
        ("Europe/Berlin", Dst::Vixie),
        ("Europe/Berlin", Dst::Literal),
        ("Australia/Lord_Howe", Dst::Vixie),
        ("Africa/Casablanca", Dst::Literal),
    ] {
        let (zone, mut steps) = (zone(name), 0);
        let next = schedule.next_counted(WallTime(from), &zone, dst, &mut steps);
        prop_assert!(steps <= STEPS_MAX, "{text} in {name}: {steps}");
        if schedule.never_fires() {
            prop_assert_eq!(next, None);
        } else if dst == Dst::Vixie {
            prop_assert!(next.is_some_and(|next| next.at > WallTime(from)), "{text} in {name}");
        }
        steps = 0;
        let latest = schedule.latest_counted(WallTime(from), WallTime(0), &zone, dst, &mut steps);
        prop_assert!(steps <= STEPS_MAX, "{text} in {name}, back: {steps}");
        // Going forward from the latest, there is nothing before the next.
        if let Some(latest) = latest {
            prop_assert!(latest.at <= WallTime(from));
            prop_assert_eq!(schedule.next_after(latest.at, &zone, dst), next, "{} in {}", text, name);
        }
    }
    Ok(())
}

/// What fields are made of, mostly right.
fn item() -> impl Strategy<Value = String> {
    let words: [&'static str; 18] = [
        "*", "?", "L", "LW", "H", "15W", "5L", "5#3", "JAN", "fri", "L-3", "H(1-5)", "*/7", "1-5/2", "H/3",
        "", "-", "@",
    ];
    let word = proptest::sample::select(words.to_vec());
    prop_oneof![3 => word.prop_map(String::from), 3 => "[0-9]{1,2}", 1 => "[0-9]{1,2}-[0-9]{1,2}", 1 => "[*0-9/#HLW,-]{1,6}"]
}

fn near_valid() -> impl Strategy<Value = String> {
    let field = proptest::collection::vec(item(), 1..4).prop_map(|items| items.join(","));
    proptest::collection::vec(prop_oneof![2 => Just(String::from("*")), 3 => field], 4..8)
        .prop_map(|fields| fields.join(" "))
}

/// Always right.
fn valid() -> impl Strategy<Value = String> {
    let of = |numbers: core::ops::RangeInclusive<u8>, others: &'static [&'static str]| {
        let numbers = proptest::collection::vec(numbers, 1..4).prop_map(|numbers| {
            let texts: alloc::vec::Vec<_> = numbers.iter().map(|number| alloc::format!("{number}")).collect();
            texts.join(",")
        });
        prop_oneof![2 => Just(String::from("*")), 3 => numbers, 2 => proptest::sample::select(others).prop_map(String::from)]
    };
    (
        of(0..=59, &["*/7", "H", "5-40/3", "H/20"]),
        of(0..=23, &["*/5", "H(0-7)", "2-3"]),
        of(1..=31, &["L", "L-30", "LW", "31W", "1W,L", "*/30", "?"]),
        of(1..=12, &["FEB", "*/5", "2,4"]),
        of(0..=7, &["5L", "1#5", "sun", "*/3", "MON-FRI", "0L"]),
    )
        .prop_map(|(minute, hour, day, month, weekday)| {
            alloc::format!("{minute} {hour} {day} {month} {weekday}")
        })
}

proptest! {
    // More with PROPTEST_CASES.
    #![proptest_config(ProptestConfig::with_cases(ProptestConfig::default().cases.max(500)))]

    #[test]
    fn any_text_is_read_or_refused_with_a_place_in_it(text in ".{0,40}", from in 0..1_u64 << 43) {
        check(&text, from)?;
    }

    #[test]
    fn a_text_that_is_almost_right_is_read_or_refused_and_answers_in_bounded_work(
        text in near_valid(),
        from in 0..1_u64 << 43,
    ) {
        check(&text, from)?;
    }

    #[test]
    fn a_right_text_is_read_and_answers_in_bounded_work(text in valid(), from in 0..1_u64 << 42) {
        prop_assert!(Schedule::parse(&text, "").is_ok(), "{}", text);
        check(&text, from)?;
    }
}

#[test]
fn what_is_due_each_second_is_asked_about_years_at_the_same_price() {
    let (berlin, every_second) = (zone("Europe/Berlin"), schedule("* * * * * *"));
    let (from, years_later) = (WallTime(1_700_000_000_000), WallTime(4_000_000_000_000));
    let mut steps = 0;
    let latest = every_second.latest_counted(years_later, from, &berlin, Dst::Vixie, &mut steps);
    assert_eq!((latest.unwrap().at, steps), (years_later, 2));
    steps = 0;
    every_second.next_counted(from, &berlin, Dst::Vixie, &mut steps);
    assert_eq!(steps, 2);
}

#[test]
fn what_never_comes_costs_no_more_than_the_search_is_long() {
    let berlin = zone("Europe/Berlin");
    let mut steps = 0;
    let never = schedule("30 2 * 3 0L");
    assert_eq!(never.next_counted(WallTime(1_700_000_000_000), &berlin, Dst::Literal, &mut steps), None);
    assert!((1_000..STEPS_MAX).contains(&steps), "{steps}");
}
