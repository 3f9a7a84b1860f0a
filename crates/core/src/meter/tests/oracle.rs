//! Every algorithm again, from its description, by brute force: all that was ever counted is kept, and what is used is computed
//! anew each time, in numbers so wide that nothing is cut off.

use super::world::{One, START_MS, any_rule};
use crate::meter::{Algorithm, Edges, Rule, Take};
use alloc::vec::Vec;
use proptest::prelude::*;

/// All that a meter was ever told.
#[derive(Clone)]
pub struct History {
    pub rule: Rule,
    events: Vec<Event>,
}

#[derive(Clone)]
struct Event {
    time: u64,
    amount: u64,
    /// The limit up to this moment.
    limit: u64,
}

impl History {
    pub fn new(rule: &Rule) -> Self {
        Self { rule: rule.clone(), events: Vec::new() }
    }

    /// It never goes back behind what it was told last.
    pub fn moment(&self, now_ms: u64) -> u64 {
        self.events.iter().fold(now_ms, |latest, event| latest.max(event.time))
    }

    pub fn count(&mut self, now_ms: u64, amount: u64) {
        let (time, limit) = (self.moment(now_ms), self.rule.limit);
        self.events.push(Event { time, amount, limit });
    }

    pub fn set_limit(&mut self, now_ms: u64, limit: u64) {
        self.count(now_ms, 0);
        self.rule.limit = limit;
    }

    /// Which window, and how far into it.
    fn window(&self, time: u64) -> (i128, i128) {
        let Edges::Every { offset_ms } = self.rule.edges else { panic!("uneven windows are in tables") };
        let (time, window_ms) = (i128::from(time) - i128::from(offset_ms), i128::from(self.rule.window_ms));
        (time.div_euclid(window_ms), time.rem_euclid(window_ms))
    }

    fn sum(&self, is_meant: impl Fn(u64) -> bool) -> i128 {
        let meant = self.events.iter().filter(|event| is_meant(event.time));
        meant.map(|event| i128::from(event.amount)).sum()
    }

    /// What is used, times the window's length: so fractions are whole numbers.
    pub fn parts(&self, now_ms: u64) -> i128 {
        let now_ms = self.moment(now_ms);
        let window_ms = i128::from(self.rule.window_ms);
        let (window, into_ms) = self.window(now_ms);
        let in_window = |window: i128| self.sum(|time| self.window(time).0 == window);
        match self.rule.algorithm {
            Algorithm::FixedWindow => in_window(window) * window_ms,
            Algorithm::SlidingWindow => {
                in_window(window) * window_ms + in_window(window - 1) * (window_ms - into_ms)
            }
            Algorithm::SlidingLog => self.sum(|time| time + self.rule.window_ms > now_ms) * window_ms,
            Algorithm::TokenBucket => {
                let (mut level, mut last) = (0, 0);
                let leaked = |level: i128, limit: u64, millis: u64| {
                    0.max(level - i128::from(limit) * i128::from(millis))
                };
                for event in &self.events {
                    level = leaked(level, event.limit, event.time - last);
                    level += i128::from(event.amount) * window_ms;
                    last = event.time;
                }
                leaked(level, self.rule.limit, now_ms - last)
            }
            Algorithm::InFlight => 0,
        }
    }

    /// In whole units, rounded up.
    pub fn used(&self, now_ms: u64) -> u64 {
        let window_ms = i128::from(self.rule.window_ms);
        u64::try_from((self.parts(now_ms) + window_ms - 1) / window_ms).expect("small numbers were counted")
    }

    fn has_room(&self, now_ms: u64, amount: u64) -> bool {
        let capacity = i128::from(self.rule.capacity) - i128::from(amount);
        self.parts(now_ms) <= capacity * i128::from(self.rule.window_ms)
    }
}

/// How the clock moves: mostly on, by less or more than a window, at times not at all or back.
pub fn clock_step() -> impl Strategy<Value = i64> {
    prop_oneof![
        3 => Just(0),
        6 => 1..40_i64,
        3 => 40..400_i64,
        1 => -200..0_i64,
        1 => 400..3_000_i64,
    ]
}

/// Mostly one of the amounts that fit, at times nothing or far too much.
pub fn amount() -> impl Strategy<Value = u64> {
    prop_oneof![6 => 0..5_u64, 3 => 0..120_u64, 1 => Just(1_000_000)]
}

#[derive(Clone, Debug)]
enum Ask {
    AllOrNone(u64),
    Try(u64),
    Forced(u64),
    Limit(u64),
}

fn ask() -> impl Strategy<Value = Ask> {
    prop_oneof![
        8 => amount().prop_map(Ask::AllOrNone),
        3 => amount().prop_map(Ask::Try),
        1 => (0..150_u64).prop_map(Ask::Forced),
        1 => (1..100_u64).prop_map(Ask::Limit),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1500))]

    #[test]
    fn a_meter_counts_and_grants_what_a_full_history_says(
        rule in any_rule(),
        steps in proptest::collection::vec((clock_step(), ask()), 1..40),
    ) {
        let (mut one, mut history) = (One::new(rule.clone()), History::new(&rule));
        for (clock_ms, ask) in steps {
            let now_ms = one.world.now_ms.saturating_add_signed(clock_ms).max(START_MS / 2);
            one.world.now_ms = now_ms;
            let (take, expected) = match ask {
                Ask::AllOrNone(amount) | Ask::Try(amount) => {
                    let expected = if history.has_room(now_ms, amount) { amount } else { 0 };
                    let is_try = matches!(ask, Ask::Try(_));
                    (if is_try { Take::Try(amount) } else { Take::AllOrNone(amount) }, expected)
                }
                Ask::Forced(amount) => (Take::Forced(amount), amount),
                Ask::Limit(limit) => {
                    // A bucket's burst is a number of its own.
                    let is_bucket = rule.algorithm == Algorithm::TokenBucket;
                    let capacity = if is_bucket { rule.capacity } else { limit };
                    one.rule = Rule { version: one.rule.version + 1, limit, capacity, ..one.rule.clone() };
                    history.set_limit(now_ms, limit);
                    history.rule.capacity = capacity;
                    // Counts nothing, but it is written.
                    (Take::Forced(1), 1)
                }
            };
            let charged = one.charge(take, None);
            prop_assert_eq!(charged.granted, expected, "{:?}", take);
            // A look is not written, so neither is its time; nor is what was refused. A try that got nothing is.
            if expected > 0 || (matches!(take, Take::Try(_)) && take.amount() > 0) {
                history.count(now_ms, expected);
            }
            prop_assert_eq!(charged.meter.used(), history.used(now_ms), "after {:?}", take);
            prop_assert_eq!(one.used(), history.used(now_ms), "as stored after {:?}", take);
            prop_assert!(charged.granted == 0 || take.amount() > 0);
        }
    }
}
