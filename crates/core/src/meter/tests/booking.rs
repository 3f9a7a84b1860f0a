//! Bookings: a time to wait instead of a refusal, checked against the full history.

use super::oracle::{History, amount, clock_step};
use super::world::{One, START_MS, any_rule, row, rule};
use crate::meter::{Algorithm, Rule, Take, Verdict};
use proptest::prelude::*;

fn book(amount: u64, wait_max_ms: u64) -> Take {
    Take::Book { amount, wait_max_ms }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    /// The least time after which it fits is the one that is said, beside whatever is outstanding.
    #[test]
    fn a_booking_waits_exactly_as_long_as_it_must_and_never_longer_than_a_window(
        rule in any_rule(),
        leased in 0..20_u64,
        steps in proptest::collection::vec((clock_step(), amount(), 0..400_u64, 0..4_u8), 1..30),
    ) {
        let rule = Rule { algorithm: Algorithm::TokenBucket, ..rule };
        let (mut one, mut history) = (One::new(rule.clone()), History::new(&rule));
        let mut lease = row("lease", 1, 0, 0);
        lease.ttl_ms = 1_000_000_000;
        let leased = i128::from(one.say(Take::Try(leased), lease).granted);
        history.count(START_MS, 0);
        let (limit, window_ms) = (i128::from(rule.limit), i128::from(rule.window_ms));
        let capacity = (i128::from(rule.capacity) - leased) * window_ms;
        for (clock_ms, amount, wait_max_ms, kind) in steps {
            let now_ms = one.world.now_ms.saturating_add_signed(clock_ms).max(START_MS / 2);
            one.world.now_ms = now_ms;
            if kind == 0 {
                one.granted(Take::Forced(amount % 50));
                if amount % 50 > 0 {
                    history.count(now_ms, amount % 50);
                }
                continue;
            }
            let above = history.parts(now_ms) + i128::from(amount) * window_ms - capacity;
            let expected_ms = (above.max(0) + limit - 1) / limit;
            let is_booked = expected_ms <= window_ms.min(i128::from(wait_max_ms));
            let charged = one.charge(book(amount, wait_max_ms), None);
            prop_assert_eq!(charged.granted, if is_booked { amount } else { 0 });
            if !is_booked || amount == 0 {
                continue;
            }
            history.count(now_ms, amount);
            prop_assert_eq!(i128::from(charged.wait_ms), expected_ms);
            let begins_ms = history.moment(now_ms) + charged.wait_ms;
            prop_assert!(history.parts(begins_ms) <= capacity, "there is room by then");
            prop_assert!(charged.wait_ms == 0 || history.parts(begins_ms - 1) > capacity, "and not before");
            prop_assert!(history.parts(now_ms) - capacity <= limit * window_ms, "debt is at most a window's");
        }
    }
}

#[test]
fn bookings_stand_in_line_up_to_a_window_and_nobody_else_gets_in_before() {
    let mut one = One::new(Rule { capacity: 2, ..rule(Algorithm::TokenBucket, 10, 1_000) });
    let booked = |one: &mut One, amount, wait_max_ms| {
        let charged = one.charge(book(amount, wait_max_ms), None);
        (charged.granted, charged.wait_ms)
    };
    assert_eq!(booked(&mut one, 2, 0), (2, 0), "there is room");
    assert_eq!(booked(&mut one, 1, 99), (0, 0), "too long for whoever asks");
    assert_eq!(booked(&mut one, 1, 100), (1, 100));
    assert_eq!(booked(&mut one, 9, 5_000), (9, 1_000), "as far as a window goes");
    assert_eq!(booked(&mut one, 1, 5_000), (0, 0), "and no further");
    one.pass(1_000);
    assert_eq!(one.granted(Take::Try(1)), 0, "what was booked is used now, not before");
    one.pass(100);
    assert_eq!(one.granted(Take::Try(1)), 1);
}

#[test]
fn a_refused_booking_refuses_the_whole_charge() {
    let bucket = rule(Algorithm::TokenBucket, 10, 1_000);
    let mut one = One::new(bucket.clone());
    one.granted(Take::AllOrNone(10));
    let both = [("other", Take::AllOrNone(1)), ("one", book(1, 10))];
    let claims = both.map(|(name, take)| super::world::claim(name, &bucket, take, None));
    assert_eq!(one.world.charge(&claims).verdict, Verdict::Refused { index: 1 });
    assert_eq!(one.world.meter("other"), None);
}
