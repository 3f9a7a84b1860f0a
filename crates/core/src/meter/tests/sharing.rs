//! How much of what is left a holder is given, and where that ends.

use super::world::{One, START_MS, row, rule};
use crate::meter::{Algorithm, LOG_MAX, ROWS_MAX, RowKind, Rule, Take};
use alloc::format;

#[test]
fn a_share_is_what_is_wanted_a_twentieth_of_the_limit_or_half_of_what_each_could_have() {
    // limit, capacity, used, others with a lease, wanted: given
    let table = [
        (1_000, 1_000, 0, 0, 30, 30, "all that is wanted"),
        (1_000, 1_000, 0, 0, 80, 50, "a twentieth of the limit"),
        (1_000, 1_000, 920, 0, 80, 40, "half of the room"),
        (1_000, 1_000, 900, 4, 80, 9, "half of an equal part of the room, which is 96 beside the others' 4"),
        (1_000, 1_000, 988, 4, 80, 1, "at least one"),
        (1_000, 1_000, 999, 0, 80, 1, "also the last one"),
        (1_000, 1_000, 1_000, 0, 80, 0, "nothing of nothing"),
        (10, 10, 0, 0, 10, 1, "a twentieth is at least one"),
        (1_000, 10, 0, 0, 80, 5, "half of a small burst's room"),
        (1_000, 1_000, 0, 0, 0, 0, "nothing is wanted"),
    ];
    for (limit, capacity, used, others, wanted, given, why) in table {
        let mut one = One::new(Rule { capacity, ..rule(Algorithm::TokenBucket, limit, 1_000) });
        one.granted(Take::Forced(used));
        for other in 0..others {
            one.say(Take::Try(1), row(&format!("other-{other}"), 1, 0, 0));
        }
        assert_eq!(one.say(Take::Share(wanted), row("mine", 1, 0, 0)).granted, given, "{why}");
    }
}

#[test]
fn what_a_holder_keeps_is_not_there_for_its_next_share_and_it_counts_as_one_holder() {
    let mut one = One::new(rule(Algorithm::FixedWindow, 100, 1_000));
    one.say(Take::Try(80), row("mine", 1, 0, 0));
    let charged = one.say(Take::Share(100), row("mine", 2, 10, 70));
    assert_eq!((charged.granted, charged.meter.outstanding(), charged.meter.used()), (5, 75, 10));
    let charged = one.say(Take::Share(100), row("mine", 3, 20, 65));
    assert_eq!((charged.granted, charged.meter.outstanding()), (5, 70), "15 are left, half of that is 7");
    let charged = one.say(Take::Share(100), row("mine", 4, 20, 70));
    assert_eq!((charged.granted, charged.meter.outstanding()), (5, 75));
    let charged = one.say(Take::Share(100), row("mine", 5, 20, 75));
    assert_eq!((charged.granted, charged.meter.outstanding()), (2, 77), "of 5");
}

#[test]
fn only_other_leases_make_shares_smaller() {
    let mut one = One::new(rule(Algorithm::FixedWindow, 1_000, 1_000));
    one.granted(Take::AllOrNone(898));
    for (id, kind) in [("hold", RowKind::Hold), ("place", RowKind::Place)] {
        let mut said = row(id, 1, 0, 0);
        said.kind = kind;
        one.say(Take::Try(1), said);
    }
    assert_eq!(one.say(Take::Share(60), row("mine", 1, 0, 0)).granted, 50);
}

/// They ask again and again and keep what they have: those who come late still find something.
#[test]
fn sixty_holders_that_ask_in_turn_all_get_something() {
    for algorithm in super::world::COUNTING {
        let mut one = One::new(rule(algorithm, 100, 1_000));
        for holder in 0..60 {
            let charged = one.say(Take::Share(100), row(&format!("holder-{holder}"), 1, 0, 0));
            assert!(charged.granted > 0, "{algorithm:?}: holder {holder} got nothing");
        }
    }
}

/// Each spends what it is given and asks again, the most eager ones ten times as often.
#[test]
fn sixty_holders_that_ask_again_and_again_all_get_something_in_each_of_ten_windows() {
    let mut one = One::new(rule(Algorithm::FixedWindow, 1_000, 1_000));
    let (mut sequences, mut spent) = ([0_u64; 60], [0_u64; 60]);
    for window in 0..10 {
        let before = spent;
        for round in 0..10 {
            for holder in 0..60 {
                if holder % 10 != 0 && round != 0 {
                    continue;
                }
                sequences[holder] += 1;
                let said = row(&format!("holder-{holder}"), sequences[holder], spent[holder], 0);
                spent[holder] += one.say(Take::Share(50), said).granted;
            }
            one.pass(50);
        }
        one.pass(500);
        assert!((0..60).all(|holder| spent[holder] > before[holder]), "window {window}: {spent:?}");
    }
}

#[test]
fn at_a_thousand_rows_nothing_more_is_promised_and_whoever_has_one_goes_on() {
    let mut one = One::new(rule(Algorithm::FixedWindow, 100_000, 1_000));
    for number in 0..ROWS_MAX {
        assert_eq!(one.say(Take::Try(2), row(&format!("row-{number}"), 1, 0, 0)).granted, 2);
    }
    assert_eq!(one.say(Take::Share(1), row("more", 1, 0, 0)).granted, 0);
    assert_eq!(one.say(Take::AllOrNone(1), row("more", 1, 0, 0)).granted, 0);
    assert_eq!(one.look().rows.len(), ROWS_MAX);
    assert_eq!(one.granted(Take::AllOrNone(1)), 1, "without a row there is room");
    let charged = one.say(Take::Try(5), row("row-7", 2, 1, 1));
    assert_eq!((charged.granted, charged.meter.row("row-7").map(|row| row.amount)), (5, Some(6)));
    one.say(Take::Nothing, row("row-7", 3, 1, 0));
    assert_eq!(one.say(Take::Try(1), row("more", 2, 0, 0)).granted, 1, "a place was given back");
}

/// The newest pair takes what comes: it is forgotten late and never early.
#[test]
fn a_log_of_a_thousand_pairs_grows_no_more_and_forgets_nothing_early() {
    let mut one = One::new(rule(Algorithm::SlidingLog, 10_000, 5_000));
    for number in 0..1_500 {
        let meter = one.charge(Take::AllOrNone(1), None).meter;
        assert_eq!((meter.used(), meter.log.len()), (number + 1, LOG_MAX.min(number as usize + 1)));
        one.pass(1);
    }
    one.world.now_ms = START_MS + 5_000 + 998;
    assert_eq!(one.used(), 501, "all but the last pair, which stands for 501");
    one.world.now_ms = START_MS + 5_000 + 1_498;
    assert_eq!(one.used(), 501);
    one.pass(1);
    assert_eq!(one.used(), 0);
}
