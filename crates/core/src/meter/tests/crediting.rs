//! Giving back: at most what makes it as if it had never been taken.

use super::oracle::{History, clock_step};
use super::world::{COUNTING, One, START_MS, any_rule, row, rule};
use crate::meter::{Algorithm, LOG_MAX, Rule, Take};
use alloc::vec::Vec;
use proptest::prelude::*;
use proptest::sample::Index;

fn credit(amount: u64, at_ms: u64) -> Take {
    Take::Credit { amount, at_ms }
}

#[derive(Clone, Debug)]
enum Step {
    Take { amount: u64, is_forced: bool },
    GiveBack { which: Index, part: u64 },
    Limit(u64),
    Look,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (1..30_u64, proptest::bool::weighted(0.3))
            .prop_map(|(amount, is_forced)| Step::Take { amount, is_forced }),
        4 => (any::<Index>(), 1..30_u64).prop_map(|(which, part)| Step::GiveBack { which, part }),
        1 => (1..100_u64).prop_map(Step::Limit),
        2 => Just(Step::Look),
    ]
}

/// What was taken: when by the clock, when by the meter, how much, and how much of it was not given back.
#[derive(Clone, Copy)]
struct Taken {
    now_ms: u64,
    amount: u64,
    stays: u64,
    limit: u64,
}

/// What would be used if all that was given back had never been taken.
fn otherwise(rule: &Rule, first_limit: u64, taken: &[Taken], now_ms: u64) -> u64 {
    let mut history = History::new(&Rule { limit: first_limit, ..rule.clone() });
    for one in taken {
        if one.limit != history.rule.limit {
            history.set_limit(one.now_ms, one.limit);
        }
        history.count(one.now_ms, one.stays);
    }
    history.used(now_ms)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1500))]

    #[test]
    fn a_credit_never_leaves_less_used_than_if_it_had_never_been_taken(
        rule in any_rule(),
        steps in proptest::collection::vec((clock_step(), step()), 2..30),
    ) {
        let mut one = One::new(rule.clone());
        let mut taken: Vec<Taken> = Vec::new();
        for (clock_ms, step) in steps {
            let now_ms = one.world.now_ms.saturating_add_signed(clock_ms).max(START_MS / 2);
            one.world.now_ms = now_ms;
            let limit = one.rule.limit;
            match step {
                Step::Take { amount, is_forced } => {
                    let take = if is_forced { Take::Forced(amount) } else { Take::Try(amount) };
                    let amount = one.granted(take);
                    taken.push(Taken { now_ms, amount, stays: amount, limit });
                }
                Step::GiveBack { which, part } => {
                    let unreturned = taken.iter_mut().filter(|one| one.stays == one.amount && one.amount > 0);
                    let mut unreturned: Vec<_> = unreturned.collect();
                    if unreturned.is_empty() {
                        continue;
                    }
                    let which = which.index(unreturned.len());
                    let part = part.min(unreturned[which].amount);
                    unreturned[which].stays -= part;
                    let granted = one.granted(credit(part, unreturned[which].now_ms));
                    prop_assert!(granted <= part, "never more than was asked for");
                    taken.push(Taken { now_ms, amount: 0, stays: 0, limit });
                }
                Step::Limit(limit) => {
                    one.rule = Rule { version: one.rule.version + 1, limit, ..one.rule.clone() };
                    one.granted(Take::Forced(1));
                    taken.push(Taken { now_ms, amount: 1, stays: 1, limit });
                }
                Step::Look => {}
            }
            for later_ms in [0, 1, rule.window_ms / 2, rule.window_ms] {
                let least = otherwise(&one.rule, rule.limit, &taken, now_ms + later_ms);
                one.world.now_ms = now_ms + later_ms;
                let used = one.used();
                one.world.now_ms = now_ms;
                prop_assert!(used >= least, "{} after {} ms, and {} without it", used, later_ms, least);
            }
        }
    }

    /// As long as its window lasts; a bucket's credit is what has not leaked.
    #[test]
    fn what_still_counts_comes_back_whole(
        rule in any_rule(),
        before in 0..50_u64,
        amount in 1..50_u64,
        after in 0..50_u64,
        later_ms in 0..400_u64,
    ) {
        let mut one = One::new(rule.clone());
        one.granted(Take::Forced(before));
        one.pass(later_ms / 3);
        let at_ms = one.world.now_ms;
        one.granted(Take::Forced(amount));
        one.granted(Take::Forced(after));
        one.pass(later_ms);
        let (taken, meter) = (one.used(), one.look());
        let is_in_window = match rule.algorithm {
            Algorithm::SlidingLog => later_ms < rule.window_ms,
            Algorithm::TokenBucket => later_ms == 0,
            _ => rule.start_of(at_ms) == rule.start_of(one.world.now_ms),
        };
        let granted = one.granted(credit(amount, at_ms));
        if is_in_window {
            prop_assert_eq!((granted, one.used()), (amount, taken - amount));
        } else if rule.algorithm == Algorithm::TokenBucket {
            let leaked = u128::from(later_ms) * u128::from(rule.limit);
            let left = (u128::from(amount) * u128::from(rule.window_ms)).saturating_sub(leaked);
            let left = left.min(u128::from(meter.current));
            // Shown in whole units, rounded up: a moment after it was taken it is not said that nothing came back.
            prop_assert_eq!(u128::from(granted), left.div_ceil(u128::from(rule.window_ms)));
        } else {
            prop_assert_eq!((granted, one.used()), (0, taken), "a past window credits nothing");
        }
    }
}

#[test]
fn nothing_comes_back_for_what_the_meter_never_knew_or_is_yet_to_come() {
    for algorithm in COUNTING {
        let mut one = One::new(rule(algorithm, 10, 100));
        assert_eq!(one.granted(credit(1, START_MS)), 0, "{algorithm:?}: nothing was taken");
        one.granted(Take::AllOrNone(5));
        for at_ms in [0, START_MS - 1, START_MS + 1] {
            assert_eq!(one.granted(credit(1, at_ms)), 0, "{algorithm:?} at {at_ms}");
        }
        assert_eq!(one.granted(credit(9, START_MS)), 5, "{algorithm:?}: no more than there was");
        assert_eq!(
            (one.used(), one.look().reset_ms(&one.rule)),
            (0, 0),
            "{algorithm:?}: as if it were fresh"
        );
        assert_eq!(one.look().log, []);
    }
    let mut one = One::new(rule(Algorithm::InFlight, 10, 100));
    one.say(Take::AllOrNone(5), row("a", 1, 0, 0));
    assert_eq!(one.granted(credit(1, START_MS)), 0, "places are given back by who holds them");
}

/// Before the limit fell, it leaked faster: part of what was taken then is long gone, though the new rate says otherwise.
#[test]
fn a_bucket_that_leaked_faster_gives_nothing_back_for_that_time() {
    let mut one = One::new(Rule { capacity: 200, ..rule(Algorithm::TokenBucket, 100, 1_000) });
    one.granted(Take::AllOrNone(30));
    one.granted(Take::AllOrNone(100));
    one.pass(500);
    one.granted(Take::AllOrNone(50));
    assert_eq!(one.used(), 130, "50 without the 100");
    one.rule = Rule { version: 2, limit: 1, ..one.rule.clone() };
    one.granted(credit(100, START_MS));
    assert!(one.used() >= 50, "{}", one.used());
}

/// What was counted one way is cut to the limit of the other: a part of it may be gone already.
#[test]
fn what_was_taken_before_it_counted_another_way_does_not_come_back_also_in_the_same_millisecond() {
    for (from, to) in COUNTING.into_iter().flat_map(|from| COUNTING.map(|to| (from, to))) {
        if from == to {
            continue;
        }
        let mut one = One::new(rule(from, 10, 100));
        one.granted(Take::AllOrNone(6));
        one.granted(Take::AllOrNone(4));
        one.rule = Rule { version: 2, ..rule(to, 5, 100) };
        one.granted(Take::Try(1));
        assert_eq!(one.granted(credit(4, START_MS)), 0, "from {from:?} to {to:?}");
        assert_eq!(one.used(), 5, "without the 4 it were min(6, 5)");
        one.pass(200);
        let at_ms = one.world.now_ms;
        assert_eq!(one.granted(Take::AllOrNone(2)), 2);
        assert_eq!(one.granted(credit(2, at_ms)), 2, "what was taken since then does");
    }
}

#[test]
fn a_full_log_gives_back_no_more_than_its_newest_pair_was_told() {
    let mut one = One::new(rule(Algorithm::SlidingLog, 2_000, 100_000));
    for _ in 0..LOG_MAX {
        one.granted(Take::AllOrNone(1));
        one.pass(1);
    }
    let at_ms = one.world.now_ms;
    one.granted(Take::AllOrNone(1));
    assert_eq!(one.look().log.len(), LOG_MAX);
    assert_eq!(one.granted(credit(1, at_ms - 1)), 0, "the pair of that time has moved on");
    assert_eq!(one.granted(credit(1, at_ms)), 1);
    assert_eq!(one.used(), LOG_MAX as u64);
}
