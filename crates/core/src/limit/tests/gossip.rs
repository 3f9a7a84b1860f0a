//! Counts that spread: one node is exact, and whoever has heard the same decides the same, in whatever order it was told (M5).

use crate::crdt::{Act, Actor, Change, Clock, Context, Dot, Edit, Row};
use crate::limit::gossip::{EVERY_MS, Known, Part, Spread, Tally, Window, bound, spreads, window};
use crate::limit::tests::definitions::plain;
use crate::limit::{Definition, Mechanism};
use crate::meter::{Algorithm, Claim, Edges, Meter, Reclaim, Rule, Take, charge};
use crate::name::Name;
use crate::record::{Group, Key};
use alloc::vec;
use alloc::vec::Vec;
use proptest::prelude::*;

const WINDOW_MS: u64 = 1_000;
const ME: Actor = Actor([1; 16]);

fn rule(algorithm: Algorithm, limit: u64) -> Rule {
    Rule {
        version: 1,
        algorithm,
        limit,
        window_ms: WINDOW_MS,
        capacity: limit,
        edges: Edges::Every { offset_ms: 300 },
        reclaim: Reclaim::Burn,
    }
}

fn windows() -> impl Strategy<Value = Algorithm> {
    prop::sample::select(vec![Algorithm::FixedWindow, Algorithm::SlidingWindow])
}

/// A row, and all that was seen of it.
#[derive(Clone, Default)]
struct Copy {
    row: Row,
    seen: Context,
}

impl Copy {
    fn take(&mut self, change: &Change) {
        self.row.apply(change, &self.seen);
        change.dots().for_each(|dot| self.seen.insert(dot));
    }

    /// What a slot has counted, reported at this copy by a run of its own.
    fn report(&mut self, slot: u8, run: u8, number: u64, tally: Tally) -> Option<Change> {
        let key = Window { start_ms: 0, end_ms: WINDOW_MS }.row(&Name::new("n", "l"), "k");
        let act = Act::Report { writer: Actor([slot; 16]), added: tally.added, taken: tally.taken };
        let dot = Dot { actor: Actor([100 + run; 16]), number };
        let edit = Edit { key, act };
        let change = edit.change(&self.row, dot, &self.seen, &mut Clock::default(), 0).unwrap()?;
        self.take(&change);
        Some(change)
    }
}

proptest! {
    /// The same as a meter at a store, which nobody else uses either.
    #[test]
    fn a_node_alone_is_exact(
        algorithm in windows(),
        limit in 1_u64..50,
        steps in prop::collection::vec((0_u64..700, 0_u64..20), 1..80),
    ) {
        let (rule, mut now_ms) = (rule(algorithm, limit), 1_000_000);
        let (mut known, mut meter): (_, Option<Meter>) = (Known::new(&rule, now_ms), None);
        for (later_ms, amount) in steps {
            now_ms += later_ms;
            let key = Key::new(Group(0), b"k".as_slice());
            let claim = Claim { key, rule: rule.clone(), take: Take::Try(amount), row: None };
            let effect = charge(meter, &claim, now_ms).unwrap();
            known.advance(&rule, now_ms);
            prop_assert_eq!(known.admit(&rule, amount), effect.granted == amount);
            let shown = known.meter(&rule);
            prop_assert_eq!(
                (shown.used(), shown.remaining(&rule), shown.reset_ms(&rule), shown.retry_ms(&rule, 1)),
                (
                    effect.meter.used(),
                    effect.meter.remaining(&rule),
                    effect.meter.reset_ms(&rule),
                    effect.meter.retry_ms(&rule, 1)
                )
            );
            prop_assert!(known.current.count() <= limit, "no window of a node alone has more than the limit");
            prop_assert_eq!(known.overshoot(&rule), 0);
            meter = Some(effect.meter);
        }
    }

    /// Told in any order, some of it twice, through whichever copy it was reported at.
    #[test]
    fn who_has_heard_the_same_decides_the_same(
        reports in prop::collection::vec((2_u8..6, 0_u64..20, 0_u64..3, 0_u8..3), 1..30),
        orders in prop::collection::vec(prop::collection::vec(any::<prop::sample::Index>(), 0..60), 3),
    ) {
        let (mut copies, mut changes) = (vec![Copy::default(); 3], Vec::new());
        let mut totals = [Tally::default(); 6];
        for (number, (slot, added, taken, at)) in reports.into_iter().enumerate() {
            let tally = &mut totals[usize::from(slot)];
            *tally = Tally { added: tally.added + added, taken: tally.taken + taken.min(added) };
            changes.extend(copies[usize::from(at)].report(slot, at, number as u64 + 1, *tally));
        }
        let sum = totals.iter().map(|tally| tally.added - tally.taken).sum::<u64>();
        for (copy, order) in copies.iter_mut().zip(orders) {
            if !changes.is_empty() {
                order.iter().for_each(|index| copy.take(index.get(&changes)));
            }
            // A repair brings what was missed.
            changes.iter().rev().for_each(|change| copy.take(change));
            let mut part = Part::default();
            part.learn(Some(&copy.row), ME);
            prop_assert_eq!(part.count(), sum);
            // One of them has just started again: what it had reported is still its own, and not counted twice.
            let mut own = Part::default();
            own.learn(Some(&copy.row), Actor([2; 16]));
            prop_assert_eq!((own.count(), own.own, own.report()), (sum, totals[2], None));
        }
    }
}

#[test]
fn what_others_counted_is_counted_and_what_is_not_reported_yet_is_counted_once() {
    let rule = rule(Algorithm::FixedWindow, 10);
    let (mut known, mut copy) = (Known::new(&rule, 5_000), Copy::default());
    assert!(known.admit(&rule, 4));
    assert_eq!(known.current.report(), Some(Tally { added: 4, taken: 0 }));
    copy.report(9, 0, 1, Tally { added: 5, taken: 0 });
    known.current.learn(Some(&copy.row), ME);
    assert_eq!((known.current.count(), known.meter(&rule).remaining(&rule)), (9, 1));
    assert!(!known.admit(&rule, 2) && known.admit(&rule, 1));
    // Its own report comes back to it, of before the last.
    copy.report(1, 1, 1, Tally { added: 4, taken: 0 });
    known.current.learn(Some(&copy.row), ME);
    assert_eq!((known.current.count(), known.current.reported.added), (10, 4));
    assert_eq!(known.current.report(), Some(Tally { added: 5, taken: 0 }));
    // The others admitted more than was left: that is the overshoot, exactly.
    copy.report(9, 0, 2, Tally { added: 8, taken: 0 });
    known.current.learn(Some(&copy.row), ME);
    assert_eq!(known.overshoot(&rule), 3);
}

#[test]
fn what_came_to_nothing_is_taken_back_also_after_it_was_told() {
    let rule = rule(Algorithm::FixedWindow, 10);
    let mut known = Known::new(&rule, 5_000);
    let window = known.window;
    assert!(known.admit(&rule, 6));
    known.current.reported = known.current.own;
    known.take_back(window, 6);
    assert_eq!((known.current.count(), known.current.report()), (0, Some(Tally { added: 6, taken: 6 })));
    known.advance(&rule, 5_000 + WINDOW_MS);
    known.take_back(window, 0);
    known.advance(&rule, 5_000 + 3 * WINDOW_MS);
    known.take_back(window, 5);
    assert_eq!(known.current.own, Tally::default(), "that window is long over");
}

#[test]
fn a_clock_that_steps_back_opens_no_window_again() {
    let rule = rule(Algorithm::FixedWindow, 3);
    let mut known = Known::new(&rule, 5_000);
    assert!(known.admit(&rule, 3));
    known.advance(&rule, 3_000);
    assert!(!known.admit(&rule, 1));
    assert!(known.advance(&rule, 5_000 + WINDOW_MS) && known.admit(&rule, 1));
}

#[test]
fn with_other_windows_a_key_starts_at_what_it_had_used_up_to_the_new_limit() {
    let old = rule(Algorithm::FixedWindow, 10);
    let mut known = Known::new(&old, 5_400);
    assert!(known.admit(&old, 7));
    for (limit, used) in [(100, 7), (5, 5)] {
        let new = Rule { window_ms: 4_000, limit, capacity: limit, ..old.clone() };
        let mut changed = known;
        assert!(changed.advance(&new, 5_500));
        assert_eq!(changed.meter(&new).used(), used);
        assert_eq!(changed.current.report(), None, "each node carries it by itself");
    }
    // The same windows counted another way are the same counts.
    let sliding = Rule { algorithm: Algorithm::SlidingWindow, ..old };
    assert!(!known.advance(&sliding, 5_500));
    assert_eq!(known.meter(&sliding).used(), 7);
}

#[test]
fn a_count_s_place_says_which_window_it_is_of_and_what_is_over_comes_first() {
    let name = Name::new("space", "api");
    let windows = [(1_000, 2_000), (1_500, 2_500), (2_000, 3_000), (0, 60_000)];
    let mut rows = Vec::new();
    for (start_ms, end_ms) in windows {
        let window = Window { start_ms, end_ms };
        let row = window.row(&name, "a:key");
        let parts = row.parts();
        assert_eq!((parts.namespace, parts.name), (window::NAMESPACE, "limit\u{1}space\u{1}api"));
        assert_eq!(Window::of_field(parts.field.unwrap()), Some((window, "a:key")));
        // What is given back is beside it, and goes with it.
        let refunds = window.refunds(&name, "a:key");
        assert_eq!(refunds.parts().field, parts.field);
        assert!(refunds.parts().name != parts.name && refunds.parts().name.starts_with(window::MAPS));
        rows.push(row);
    }
    assert!(rows.is_sorted());
    for field in ["", ":k", "00:k", "zz", "00000000000002g0000000000001:k"] {
        assert_eq!(Window::of_field(field), None, "{field}");
    }
    let window = Window { start_ms: 1_000, end_ms: 2_000 };
    assert!(!window.is_forgettable(3_000 + window::MARGIN_MS - 1));
    assert!(window.is_forgettable(3_000 + window::MARGIN_MS));
    assert_eq!(window.before(), Window { start_ms: 0, end_ms: 1_000 });
    assert_ne!(window.digest(), window.before().digest());
}

#[test]
fn only_sums_over_windows_can_be_joined() {
    let joined = Algorithm::ALL.into_iter().filter(|algorithm| spreads(*algorithm));
    assert!(joined.eq([Algorithm::SlidingWindow, Algorithm::FixedWindow]));
}

#[test]
fn the_bound_is_the_rate_for_as_long_as_counts_take_to_spread_and_the_limit_for_each_who_is_not_heard() {
    let definition = Definition { mechanism: Mechanism::Gossip, ..plain(1_000, 60_000) };
    let spread = Spread { nodes: 3, every_ms: 100, written_ms: 20, lag_ms: 30, rate: Some(2_000) };
    let items = |spread: &Spread| {
        let bound = bound(&definition, "k", spread);
        let amount =
            |source| bound.items.iter().find(|item| item.source == source).and_then(|item| item.amount);
        (amount("mechanism"), amount("algorithm"), amount("partition"), amount("clocks"), bound.worst())
    };
    assert_eq!(items(&spread), (Some(300), Some(1_000), Some(2_000), None, Some(2_300)));
    let fast = Spread { rate: Some(1_000_000), ..spread };
    assert_eq!(items(&fast).0, Some(2_000), "nobody admits more than the limit by itself");
    let alone = Spread { nodes: 1, ..spread };
    assert_eq!((items(&alone).0, items(&alone).2), (Some(0), Some(0)));
    // Without having measured anything, all that is known is how many there are.
    assert_eq!(crate::limit::bound(&definition, "k", 4, "").worst(), Some(5_000));
    assert_eq!(Spread::unmeasured(&definition, 4).time_ms(), EVERY_MS);
}
