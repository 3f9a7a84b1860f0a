//! Definitions that change while counts go on, and rows that expire.

use super::world::{COUNTING, One, START_MS, row, rule};
use crate::meter::{Algorithm, Edges, Reclaim, RowKind, Rule, Take};

fn change(one: &mut One, change: impl FnOnce(&mut Rule)) {
    one.rule.version += 1;
    change(&mut one.rule);
}

#[test]
fn counts_stay_when_only_the_limit_changes() {
    for algorithm in COUNTING {
        let mut one = One::new(rule(algorithm, 100, 1_000));
        one.granted(Take::AllOrNone(80));
        for (limit, remaining) in [(200, 120), (90, 10), (50, 0)] {
            change(&mut one, |rule| (rule.limit, rule.capacity) = (limit, limit));
            one.granted(Take::Try(1_000));
            assert_eq!(
                (one.used(), one.look().remaining(&one.rule)),
                (80, remaining),
                "{algorithm:?}, {limit}"
            );
        }
    }
}

#[test]
fn a_bucket_leaks_at_the_old_rate_until_it_hears_of_the_new_one() {
    let mut one = One::new(rule(Algorithm::TokenBucket, 100, 1_000));
    one.granted(Take::AllOrNone(100));
    one.pass(500);
    change(&mut one, |rule| rule.limit = 10);
    assert_eq!(one.granted(Take::AllOrNone(1)), 1);
    assert_eq!(one.used(), 51);
    one.pass(500);
    assert_eq!(one.used(), 46);
}

#[test]
fn another_algorithm_or_window_starts_at_what_was_used_up_to_the_new_limit() {
    let every = |offset_ms| Edges::Every { offset_ms };
    for from in COUNTING {
        for (limit, used) in [(5, 5), (100, 20)] {
            let mut shapes = COUNTING.map(|to| Rule { version: 2, ..rule(to, limit, 1_000) }).to_vec();
            shapes.push(Rule { version: 2, ..rule(from, limit, 2_000) });
            shapes.push(Rule { version: 2, edges: every(400), ..rule(from, limit, 1_000) });
            let next = START_MS + 1_000;
            let edges = Edges::At([START_MS, next, next + 1_000]);
            shapes.push(Rule { version: 2, edges, ..rule(from, limit, 1_000) });
            for shape in shapes
                .into_iter()
                .filter(|to| to.algorithm != from || to.window_ms != 1_000 || to.edges != every(0))
            {
                let mut one = One::new(rule(from, 100, 1_000));
                one.granted(Take::AllOrNone(20));
                one.say(Take::Try(3), row("lease", 1, 0, 0));
                one.rule = shape.clone();
                one.granted(Take::Try(1_000));
                let meter = one.look();
                assert_eq!((meter.used(), meter.outstanding()), (used, 3), "from {from:?} to {shape:?}");
                assert_eq!((meter.version, meter.limit, meter.window_ms), (2, limit, shape.window_ms));
            }
        }
    }
}

/// A bucket's burst says how much at once, its limit how much it forgets in a window.
#[test]
fn a_bucket_takes_over_up_to_its_limit_also_if_its_burst_is_less() {
    let mut one = One::new(rule(Algorithm::FixedWindow, 100, 1_000));
    one.granted(Take::AllOrNone(80));
    one.rule = Rule { version: 2, capacity: 20, ..rule(Algorithm::TokenBucket, 50, 1_000) };
    one.granted(Take::Try(1));
    assert_eq!(one.used(), 50);
    one.pass(600);
    assert_eq!(one.look().remaining(&one.rule), 0);
    one.pass(20);
    assert_eq!(one.look().remaining(&one.rule), 1);
}

#[test]
fn an_older_version_is_refused_with_the_newer_one_and_the_same_one_is_not() {
    let mut one = One::new(Rule { version: 5, ..rule(Algorithm::FixedWindow, 10, 1_000) });
    one.granted(Take::AllOrNone(1));
    let meter = one.world.meter("one");
    for (version, expected) in [(4, Err(5)), (5, Ok(5)), (6, Ok(6))] {
        let claim = super::world::claim(
            "one",
            &Rule { version, ..one.rule.clone() },
            Take::AllOrNone(1),
            Some(row("lease", 1, 0, 0)),
        );
        let effect = crate::meter::charge(meter.clone(), &claim, START_MS);
        assert_eq!(effect.map(|effect| effect.meter.version), expected);
    }
}

/// All that was promised under the old limit may still be spent: until then there is nothing for others.
#[test]
fn under_a_lowered_limit_nothing_is_granted_while_as_much_as_that_is_used_or_promised() {
    for algorithm in COUNTING {
        let lowered = || {
            let mut one = One::new(rule(algorithm, 100, 1_000));
            one.granted(Take::AllOrNone(20));
            one.say(Take::Try(40), row("lease", 1, 0, 0));
            change(&mut one, |rule| (rule.limit, rule.capacity) = (60, 60));
            one
        };
        for take in [Take::AllOrNone(1), Take::Try(1), Take::Share(1)] {
            let mut one = lowered();
            assert_eq!(one.granted(take), 0, "{algorithm:?}: {take:?}");
            assert_eq!(one.say(take, row("other", 1, 0, 0)).granted, 0, "{algorithm:?}: {take:?}");
            let charged = one.say(take, row("lease", 2, 0, 40));
            assert_eq!((charged.granted, charged.meter.outstanding()), (0, 40), "{algorithm:?}: {take:?}");
        }
        let charged = lowered().say(Take::Try(5), row("lease", 2, 10, 25));
        assert_eq!(charged.granted, 5, "{algorithm:?}: 20 + 10 are used, 25 + 5 are kept");
    }
}

#[test]
fn windows_begin_at_their_own_offset() {
    for offset_ms in [0, 1, 400, 999] {
        let edges = Edges::Every { offset_ms };
        let mut one = One::new(Rule { edges, ..rule(Algorithm::FixedWindow, 1, 1_000) });
        one.world.now_ms = START_MS + offset_ms;
        assert_eq!(one.granted(Take::AllOrNone(1)), 1);
        one.pass(999);
        assert_eq!(one.granted(Take::AllOrNone(1)), 0, "{offset_ms}: it is the same window");
        one.pass(1);
        assert_eq!(one.granted(Take::AllOrNone(1)), 1, "{offset_ms}");
        assert_eq!(one.look().start_ms, START_MS + offset_ms + 1_000);
    }
}

#[test]
fn a_lease_that_expires_is_counted_in_the_window_of_its_expiry_whenever_that_is_noticed() {
    // When the lease is given, and when it is looked for, and how much is used then.
    let table = [
        (Algorithm::FixedWindow, 850, 999, 10, "in the same window"),
        (Algorithm::FixedWindow, 850, 1_000, 0, "in the next one it is over"),
        (Algorithm::FixedWindow, 950, 1_100, 10, "it expired in the next one"),
        (Algorithm::FixedWindow, 900, 1_000, 10, "a window's first moment belongs to it"),
        (Algorithm::FixedWindow, 950, 2_000, 0, "and that is over, too"),
        (Algorithm::SlidingWindow, 850, 1_500, 5, "half of it overlaps"),
        (Algorithm::SlidingWindow, 950, 1_500, 10, "all of it"),
        (Algorithm::SlidingWindow, 950, 2_500, 5, "half of it, a window later"),
        (Algorithm::SlidingWindow, 950, 3_000, 0, "nothing any more"),
        (Algorithm::SlidingLog, 850, 1_949, 10, "a window from its expiry"),
        (Algorithm::SlidingLog, 850, 1_950, 0, "and not longer"),
        (Algorithm::TokenBucket, 0, 100, 10, "it did not leak before"),
        (Algorithm::TokenBucket, 0, 150, 5, "but it does since"),
        (Algorithm::TokenBucket, 0, 200, 0, "and is gone"),
    ];
    for (algorithm, given_ms, looked_ms, used, why) in table {
        let mut one = One::new(rule(algorithm, 100, 1_000));
        one.pass(given_ms);
        assert_eq!(one.say(Take::Try(10), row("lease", 1, 0, 0)).granted, 10);
        one.world.now_ms = START_MS + looked_ms;
        let meter = one.look();
        assert_eq!((meter.used(), meter.outstanding()), (used, 0), "{algorithm:?}: {why}");
    }
}

#[test]
fn leases_that_expire_one_after_the_other_are_counted_one_after_the_other() {
    let mut one = One::new(rule(Algorithm::SlidingLog, 100, 1_000));
    for (id, ttl_ms, amount) in [("late", 300, 1), ("early", 100, 2), ("middle", 200, 4), ("same", 200, 8)] {
        let mut said = row(id, 1, 0, 0);
        said.ttl_ms = ttl_ms;
        one.say(Take::Try(amount), said);
    }
    let meter = one.look();
    assert!(
        meter.rows.iter().map(|row| &*row.id).eq(["early", "middle", "same", "late"]),
        "as it is written"
    );
    one.pass(1_000);
    let expected = [(START_MS + 100, 2), (START_MS + 200, 12), (START_MS + 300, 1)];
    assert_eq!(one.look().log, expected);
}

#[test]
fn a_report_counts_when_it_is_made_and_only_what_is_new_of_it() {
    let mut one = One::new(rule(Algorithm::SlidingLog, 100, 1_000));
    one.say(Take::Try(20), row("lease", 1, 0, 0));
    one.pass(30);
    one.say(Take::Nothing, row("lease", 2, 5, 15));
    one.pass(30);
    let charged = one.say(Take::Nothing, row("lease", 3, 9, 8));
    assert_eq!(charged.meter.log, [(START_MS + 30, 5), (START_MS + 60, 4)]);
    assert_eq!(charged.meter.outstanding(), 8, "3 of the 11 that were left went back");
    one.pass(99);
    assert_eq!(one.look().outstanding(), 8, "each message makes it live as long again");
    one.pass(1);
    assert_eq!((one.look().outstanding(), one.used()), (0, 17));
}

#[test]
fn a_holder_keeps_no_more_than_it_was_given_and_what_it_spent_beyond_counts() {
    let mut one = One::new(rule(Algorithm::FixedWindow, 100, 1_000));
    one.say(Take::Try(10), row("lease", 1, 0, 0));
    let charged = one.say(Take::Nothing, row("lease", 2, 4, 50));
    assert_eq!((charged.meter.used(), charged.meter.outstanding()), (4, 6));
    let charged = one.say(Take::Nothing, row("lease", 3, 24, 50));
    assert_eq!((charged.meter.used(), charged.meter.outstanding()), (24, 0));
    let charged = one.say(Take::Nothing, row("unknown", 1, 9, 9));
    assert_eq!((charged.meter.used(), charged.meter.outstanding()), (24, 0), "nobody was given that");
}

#[test]
fn a_dropped_lease_is_there_again_and_nothing_counts_for_it() {
    for algorithm in COUNTING {
        let mut one = One::new(Rule { reclaim: Reclaim::Drop, ..rule(algorithm, 10, 1_000) });
        one.say(Take::Try(10), row("lease", 1, 0, 0));
        one.pass(99);
        assert_eq!(one.granted(Take::AllOrNone(1)), 0, "{algorithm:?}: not before it has expired");
        one.pass(1);
        assert_eq!(one.granted(Take::AllOrNone(10)), 10, "{algorithm:?}");
        let charged = one.say(Take::Nothing, row("lease", 2, 10, 0));
        assert_eq!(charged.meter.used(), 10, "{algorithm:?}: a late report changes nothing");
    }
}

#[test]
fn places_in_flight_are_there_again_when_they_are_left_or_expire() {
    let mut one = One::new(rule(Algorithm::InFlight, 2, 1_000));
    let place = |id, sequence, kept| {
        let mut said = row(id, sequence, 0, kept);
        said.kind = RowKind::Place;
        said
    };
    for id in ["a", "b"] {
        assert_eq!(one.say(Take::AllOrNone(1), place(id, 1, 0)).granted, 1);
    }
    assert_eq!(one.say(Take::AllOrNone(1), place("c", 1, 0)).granted, 0);
    one.say(Take::Nothing, place("a", 2, 0));
    assert_eq!(one.say(Take::AllOrNone(1), place("c", 2, 0)).granted, 1, "a left");
    one.pass(60);
    one.say(Take::Nothing, place("c", 3, 1));
    one.pass(40);
    let meter = one.look();
    assert_eq!((meter.used(), meter.outstanding()), (0, 1), "b has gone, c was renewed");
    // Where something counts, a place counts for nothing once it has expired.
    for algorithm in COUNTING {
        let mut one = One::new(rule(algorithm, 2, 1_000));
        one.say(Take::AllOrNone(2), place("a", 1, 0));
        one.pass(100);
        assert_eq!((one.used(), one.look().outstanding()), (0, 0), "{algorithm:?}");
    }
}

#[test]
fn a_clock_that_steps_back_reopens_nothing_and_makes_no_lease_shorter() {
    for algorithm in COUNTING {
        let mut one = One::new(rule(algorithm, 10, 1_000));
        one.pass(1_000);
        one.granted(Take::AllOrNone(10));
        one.world.now_ms = START_MS + 999;
        assert_eq!(one.granted(Take::AllOrNone(1)), 0, "{algorithm:?}");
        assert_eq!(one.look().at_ms, START_MS + 1_000);
    }
    let mut one = One::new(rule(Algorithm::FixedWindow, 10, 1_000));
    one.granted(Take::AllOrNone(1));
    one.world.now_ms -= 500;
    let charged = one.say(Take::Try(5), row("lease", 1, 0, 0));
    assert_eq!(charged.meter.rows[0].expires_ms, START_MS + 100);
}
