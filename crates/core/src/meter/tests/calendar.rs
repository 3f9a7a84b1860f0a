//! Windows that follow the calendar: whoever asks says where they begin, the store's clock says which one it is.

use super::oracle::clock_step;
use super::world::{One, START_MS, any_rule, row, rule};
use crate::meter::{Algorithm, Edges, Rule, Take};
use proptest::prelude::*;

/// Where days begin: one of them has 23 hours, one 25. An hour is 10 ms here.
const DAYS: [u64; 7] = [
    START_MS,
    START_MS + 240,
    START_MS + 470,
    START_MS + 710,
    START_MS + 960,
    START_MS + 1_200,
    START_MS + 1_440,
];

/// As somebody asks who thinks that it is this day.
fn on_day(algorithm: Algorithm, limit: u64, day: usize) -> Rule {
    let edges = Edges::At([DAYS[day], DAYS[day + 1], DAYS[day + 2]]);
    Rule { edges, ..rule(algorithm, limit, 250) }
}

#[test]
fn a_quota_lasts_from_one_edge_to_the_next_however_far_apart_they_are() {
    let mut one = One::new(on_day(Algorithm::FixedWindow, 1, 0));
    for day in 0..5 {
        one.rule = on_day(Algorithm::FixedWindow, 1, day);
        one.world.now_ms = DAYS[day];
        assert_eq!(one.granted(Take::AllOrNone(1)), 1, "day {day}");
        let (end, reset_ms) = (DAYS[day + 1], one.look().reset_ms(&one.rule));
        assert_eq!(reset_ms, end - DAYS[day]);
        one.world.now_ms = end - 1;
        assert_eq!(one.granted(Take::AllOrNone(1)), 0, "day {day} is not over");
    }
}

#[test]
fn edges_of_days_ago_do_as_long_as_they_reach() {
    let mut one = One::new(on_day(Algorithm::FixedWindow, 1, 0));
    for (now_ms, granted) in [(0, 1), (239, 0), (240, 1), (469, 0), (470, 1), (709, 0), (710, 0), (5_000, 0)]
    {
        one.world.now_ms = START_MS + now_ms;
        // The third window stays open: where it ends is not known.
        assert_eq!(one.granted(Take::AllOrNone(1)), granted, "at {now_ms}");
    }
    one.rule = on_day(Algorithm::FixedWindow, 1, 2);
    assert_eq!(one.granted(Take::AllOrNone(1)), 1, "who knows better is right");
}

/// It has 23 hours, and windows are as long as the longest day.
#[test]
fn who_is_refused_on_a_short_day_is_told_to_come_back_when_it_ends() {
    let mut one = One::new(on_day(Algorithm::SlidingWindow, 10, 0));
    one.granted(Take::AllOrNone(10));
    one.world.now_ms = DAYS[1];
    one.rule = on_day(Algorithm::SlidingWindow, 10, 1);
    let meter = one.look();
    assert_eq!(meter.retry_ms(&one.rule, 5), Some(125));
    assert_eq!(meter.retry_ms(&one.rule, 10), Some(230));
    one.pass(229);
    assert_eq!(one.granted(Take::Try(10)), 0);
    one.pass(1);
    assert_eq!(one.granted(Take::Try(10)), 10);
}

/// A node whose clock is ahead: its first edge is still to come.
#[test]
fn a_day_does_not_end_because_somebody_s_clock_is_ahead() {
    for algorithm in [Algorithm::FixedWindow, Algorithm::SlidingWindow] {
        let mut one = One::new(on_day(algorithm, 10, 0));
        one.world.now_ms = DAYS[1] - 2;
        one.granted(Take::AllOrNone(10));
        one.rule = on_day(algorithm, 10, 1);
        one.pass(1);
        assert_eq!(one.granted(Take::AllOrNone(1)), 0, "{algorithm:?}: it is still the day before");
        one.rule = on_day(algorithm, 10, 0);
        assert_eq!(one.granted(Take::AllOrNone(1)), 0, "{algorithm:?}: for everybody");
    }
    let mut one = One::new(on_day(Algorithm::FixedWindow, 10, 1));
    one.world.now_ms = DAYS[1] - 1;
    assert_eq!(one.granted(Take::AllOrNone(4)), 4, "the first of all begins the day that it knows");
    one.pass(1);
    assert_eq!(one.used(), 4);
}

#[test]
fn yesterday_credits_nothing_also_to_who_only_knows_today() {
    for algorithm in [Algorithm::FixedWindow, Algorithm::SlidingWindow] {
        let mut one = One::new(on_day(algorithm, 10, 0));
        one.world.now_ms = DAYS[1] - 1;
        let at_ms = one.world.now_ms;
        one.granted(Take::AllOrNone(5));
        one.pass(1);
        one.rule = on_day(algorithm, 10, 1);
        one.granted(Take::AllOrNone(3));
        let before = one.used();
        assert_eq!(one.granted(Take::Credit { amount: 5, at_ms }), 0, "{algorithm:?}");
        assert_eq!(one.used(), before);
        assert_eq!(one.granted(Take::Credit { amount: 3, at_ms: at_ms + 1 }), 3, "{algorithm:?}: today does");
    }
}

#[test]
fn a_lease_that_expired_yesterday_is_counted_yesterday_also_by_who_only_knows_today() {
    for (algorithm, used) in [(Algorithm::FixedWindow, 0), (Algorithm::SlidingWindow, 6)] {
        let mut one = One::new(on_day(algorithm, 10, 0));
        one.world.now_ms = DAYS[1] - 101;
        one.say(Take::Try(6), row("lease", 1, 0, 0));
        one.world.now_ms = DAYS[1];
        one.rule = on_day(algorithm, 10, 1);
        assert_eq!(one.used(), used, "{algorithm:?}");
        one.pass(125);
        assert_eq!(one.used(), used / 2, "{algorithm:?}: half a day later");
    }
}

/// Only those who know the calendar know when its windows end.
#[test]
fn who_no_longer_follows_the_calendar_takes_over_what_it_counted_last() {
    let mut one = One::new(on_day(Algorithm::FixedWindow, 10, 0));
    one.granted(Take::AllOrNone(8));
    one.world.now_ms = DAYS[3];
    one.rule = Rule { version: 2, ..rule(Algorithm::FixedWindow, 10, 250) };
    assert_eq!(one.granted(Take::AllOrNone(3)), 0, "nothing is forgotten too early");
    assert_eq!(one.granted(Take::AllOrNone(2)), 2);
}

#[derive(Clone, Debug)]
enum Step {
    Take(u64),
    Lease { id: u8, amount: u64, spent: u64, ttl_ms: u64 },
    Credit { amount: u64, ago_ms: u64 },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => (0..12_u64).prop_map(Step::Take),
        1 => (0..3_u8, 0..12_u64, 0..5_u64, 0..400_u64)
            .prop_map(|(id, amount, spent, ttl_ms)| Step::Lease { id, amount, spent, ttl_ms }),
        1 => (1..12_u64, 0..400_u64).prop_map(|(amount, ago_ms)| Step::Credit { amount, ago_ms }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    /// Whether a node is up to date or two windows behind.
    #[test]
    fn a_calendar_of_even_windows_is_windows_of_one_length(
        rule in any_rule(),
        steps in proptest::collection::vec((clock_step(), step(), 1..3_u64), 1..30),
    ) {
        let (mut even, mut dated) = (One::new(rule.clone()), One::new(rule.clone()));
        let mut sequence = 0;
        for (clock_ms, step, behind) in steps {
            let now_ms = even.world.now_ms.saturating_add_signed(clock_ms).max(START_MS / 2);
            (even.world.now_ms, dated.world.now_ms) = (now_ms, now_ms);
            let first = rule.start_of(now_ms) - behind * rule.window_ms;
            dated.rule.edges = Edges::At([first, first + rule.window_ms, first + 2 * rule.window_ms]);
            sequence += 1;
            let (take, said) = match step {
                Step::Take(amount) => (Take::Try(amount), None),
                Step::Lease { id, amount, spent, ttl_ms } => {
                    let mut said = row(&alloc::format!("lease-{id}"), sequence, spent, amount);
                    said.ttl_ms = ttl_ms;
                    (Take::Share(amount), Some(said))
                }
                Step::Credit { amount, ago_ms } => (Take::Credit { amount, at_ms: now_ms - ago_ms }, None),
            };
            let (one, other) = (even.charge(take, said.clone()), dated.charge(take, said));
            prop_assert_eq!(one.granted, other.granted);
            prop_assert_eq!(one.meter.used(), other.meter.used());
            prop_assert_eq!(&one.meter.rows, &other.meter.rows);
            if matches!(rule.algorithm, Algorithm::FixedWindow | Algorithm::SlidingWindow) {
                prop_assert_eq!(one.meter.start_ms, other.meter.start_ms);
            }
        }
    }
}
