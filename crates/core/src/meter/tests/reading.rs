//! What a meter shows: it holds if nobody takes anything meanwhile.

use super::world::{One, any_rule, claim, row, rule};
use crate::meter::{Algorithm, RowKind, Rule, Take, settle};
use proptest::prelude::*;

#[derive(Clone, Debug)]
enum Step {
    Take(u64),
    Force(u64),
    Row { id: u8, kind: RowKind, amount: u64, ttl_ms: u64 },
}

fn kind() -> impl Strategy<Value = RowKind> {
    proptest::sample::select(&[RowKind::Lease, RowKind::Hold, RowKind::Place][..])
}

fn step() -> impl Strategy<Value = (u64, Step)> {
    let step = prop_oneof![
        4 => prop_oneof![1..5_u64, 1..100_u64].prop_map(Step::Take),
        2 => prop_oneof![1..5_u64, 1..300_u64].prop_map(Step::Force),
        1 => (0..3_u8, kind(), 1..40_u64, 0..500_u64)
            .prop_map(|(id, kind, amount, ttl_ms)| Step::Row { id, kind, amount, ttl_ms }),
    ];
    (prop_oneof![0..20_u64, 0..300_u64], step)
}

/// A meter that this happened to, some time later.
fn worn(rule: Rule, steps: &[(u64, Step)], later_ms: u64) -> One {
    let mut one = One::new(rule);
    for (sequence, (clock_ms, step)) in (1..).zip(steps) {
        one.pass(*clock_ms);
        match step {
            Step::Take(amount) => drop(one.granted(Take::AllOrNone(*amount))),
            Step::Force(amount) => drop(one.granted(Take::Forced(*amount))),
            Step::Row { id, kind, amount, ttl_ms } => {
                let mut said = row(&alloc::format!("row-{id}"), sequence, 0, *amount);
                (said.kind, said.ttl_ms) = (*kind, *ttl_ms);
                one.say(Take::Try(*amount), said);
            }
        }
    }
    one.pass(later_ms);
    one
}

/// Whether it would fit after so long.
fn fits_after(one: &mut One, amount: u64, wait_ms: u64) -> bool {
    let (meters, now_ms) = (one.world.meters.clone(), one.world.now_ms);
    one.pass(wait_ms);
    let granted = one.granted(Take::Try(amount));
    (one.world.meters, one.world.now_ms) = (meters, now_ms);
    granted == amount
}

fn any_worn() -> impl Strategy<Value = (Rule, alloc::vec::Vec<(u64, Step)>, u64)> {
    (any_rule(), proptest::collection::vec(step(), 0..8), prop_oneof![Just(0), 0..200_u64])
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    #[test]
    fn what_remains_fits_and_one_more_does_not((rule, steps, later_ms) in any_worn()) {
        let mut one = worn(rule, &steps, later_ms);
        let remaining = one.look().remaining(&one.rule);
        prop_assert!(fits_after(&mut one, remaining, 0));
        prop_assert!(!fits_after(&mut one, remaining + 1, 0));
    }

    #[test]
    fn who_comes_back_when_told_finds_room_and_a_millisecond_earlier_there_is_none(
        (rule, steps, later_ms) in any_worn(),
        amount in prop_oneof![1..5_u64, 1..160_u64],
    ) {
        let mut one = worn(rule, &steps, later_ms);
        let Some(retry_ms) = one.look().retry_ms(&one.rule, amount) else {
            prop_assert!(amount > one.rule.capacity, "only what is too much for ever");
            return Ok(());
        };
        prop_assert!(fits_after(&mut one, amount, retry_ms), "after {}", retry_ms);
        prop_assert!(retry_ms == 0 || !fits_after(&mut one, amount, retry_ms - 1), "before {}", retry_ms);
        prop_assert!(amount <= one.rule.capacity);
    }

    #[test]
    fn nothing_is_used_from_its_reset_on_and_something_until_then((rule, steps, later_ms) in any_worn()) {
        let steps: alloc::vec::Vec<_> =
            steps.into_iter().filter(|(_, step)| !matches!(step, Step::Row { .. })).collect();
        let mut one = worn(rule, &steps, later_ms);
        let reset_ms = one.look().reset_ms(&one.rule);
        prop_assert_eq!(reset_ms == 0, one.used() == 0);
        one.pass(reset_ms);
        prop_assert_eq!(one.used(), 0);
        if reset_ms > 0 {
            one.world.now_ms -= 1;
            prop_assert!(one.used() > 0);
        }
    }

    /// Whatever is kept of it for no longer than that can't be missed.
    #[test]
    fn after_as_long_as_it_is_worth_keeping_it_is_as_if_it_had_never_been(
        (rule, steps, later_ms) in any_worn(),
    ) {
        let mut one = worn(rule, &steps, later_ms);
        let look = claim("one", &one.rule, Take::Nothing, None);
        let found = one.world.meters.get(&look.key).cloned();
        let settled = settle(&[look], &[found], one.world.now_ms).unwrap();
        one.pass(settled.worth_ms[0]);
        let meter = one.look();
        prop_assert_eq!((meter.used(), meter.rows.len()), (0, 0));
        prop_assert_eq!((meter.current, meter.previous, meter.log.len()), (0, 0, 0));
    }
}

#[test]
fn a_bucket_says_when_the_next_token_drops() {
    let mut one = One::new(rule(Algorithm::TokenBucket, 3, 1_000));
    one.granted(Take::AllOrNone(3));
    let meter = one.look();
    assert_eq!((meter.remaining(&one.rule), meter.reset_ms(&one.rule)), (0, 1_000));
    for (amount, retry_ms) in [(0, Some(0)), (1, Some(334)), (2, Some(667)), (3, Some(1_000)), (4, None)] {
        assert_eq!(meter.retry_ms(&one.rule, amount), retry_ms, "{amount}");
    }
}

#[test]
fn what_is_leased_is_waited_for_until_it_expires_and_then_until_it_is_forgotten() {
    let mut one = One::new(rule(Algorithm::FixedWindow, 10, 1_000));
    one.say(Take::Try(4), row("lease", 1, 0, 0));
    let meter = one.look();
    assert_eq!(meter.retry_ms(&one.rule, 6), Some(0));
    assert_eq!(meter.retry_ms(&one.rule, 7), Some(1_000), "it is burned within this window");
    one.pass(950);
    one.say(Take::Try(4), row("later", 1, 0, 0));
    assert_eq!(one.look().retry_ms(&one.rule, 7), Some(1_050), "this one in the next");
}

#[test]
fn a_place_in_flight_is_waited_for_until_it_expires() {
    let mut one = One::new(rule(Algorithm::InFlight, 2, 1_000));
    for (id, ttl_ms) in [("a", 300), ("b", 70)] {
        let mut said = row(id, 1, 0, 0);
        (said.kind, said.ttl_ms) = (RowKind::Place, ttl_ms);
        one.say(Take::AllOrNone(1), said);
    }
    let meter = one.look();
    assert_eq!((meter.remaining(&one.rule), meter.reset_ms(&one.rule)), (0, 0));
    for (amount, retry_ms) in [(0, Some(0)), (1, Some(70)), (2, Some(300)), (3, None)] {
        assert_eq!(meter.retry_ms(&one.rule, amount), retry_ms, "{amount}");
    }
}
