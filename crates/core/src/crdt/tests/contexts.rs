//! Contexts against plain sets of dots.

use super::dot;
use crate::crdt::context::{ACTORS_MAX, SPANS_MAX};
use crate::crdt::seen::IMPLIED_SPANS_MAX;
use crate::crdt::{Actor, Change, Context, Dot, Entry, Kind, Object, Row, Seen};
use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use proptest::prelude::*;

fn dots() -> impl Strategy<Value = BTreeSet<(u8, u64)>> {
    proptest::collection::btree_set((0..3_u8, 1..60_u64), 0..120)
}

fn context(dots: &BTreeSet<(u8, u64)>) -> Context {
    dots.iter().rev().map(|(by, number)| dot(*by, *number)).collect()
}

proptest! {
    #[test]
    fn a_context_is_a_set_of_dots(a in dots(), b in dots(), by in 0..3_u8, number in 1..60_u64) {
        let (left, right) = (context(&a), context(&b));
        prop_assert_eq!(left.contains(dot(by, number)), a.contains(&(by, number)));
        prop_assert_eq!(left.covers(&right), b.is_subset(&a));
        prop_assert_eq!(left.len(), a.len() as u64);
        prop_assert_eq!(left.is_empty(), a.is_empty());
        prop_assert_eq!(left.lacks(&right), b.difference(&a).count() as u64);
        let mut both = left.clone();
        both.join(&right);
        prop_assert_eq!(&both, &context(&a.union(&b).copied().collect()));
        let highest = a.iter().filter(|(of, _)| *of == by).map(|(_, number)| *number).max();
        prop_assert_eq!(left.highest(super::actor(by)), highest.unwrap_or(0));
        let only = left.only(|actor| actor == super::actor(by));
        prop_assert_eq!(only, context(&a.iter().copied().filter(|(of, _)| *of == by).collect()));
    }

    #[test]
    fn all_dots_together_fray_if_too_many_spans_are_left_of_one(a in dots(), b in dots(), most in 1..20_usize) {
        let (known, told) = (context(&a), context(&b));
        let mut both = known.clone();
        both.join(&told);
        let frays = told.actors().any(|actor| both.span_count(actor) > most.max(known.span_count(actor)));
        prop_assert_eq!(known.would_fray_with(&told, most), frays);
    }

    #[test]
    fn what_two_have_seen_covers_what_is_in_either(a in dots(), b in dots(), c in dots()) {
        let both: BTreeSet<_> = a.union(&b).copied().collect();
        prop_assert_eq!(context(&a).covers_with(&context(&b), &context(&c)), c.is_subset(&both));
    }

    #[test]
    fn a_context_is_read_as_it_was_written(a in dots()) {
        let context = context(&a);
        prop_assert_eq!(Context::decode(&context.encode()), Ok(context));
    }

    #[test]
    fn damaged_bytes_are_unreadable_and_never_a_panic(mut value: Vec<u8>) {
        drop(Context::decode(&value));
        value.insert(0, 1);
        if let Ok(context) = Context::decode(&value) {
            prop_assert_eq!(Context::decode(&context.encode()), Ok(context));
        }
    }
}

#[test]
fn a_context_without_gaps_is_small_however_much_was_seen() {
    let context: Context = (1..=1_000_000).map(|number| dot(1, number)).collect();
    assert!(context.encode().len() < 32, "{}", context.encode().len());
}

#[test]
fn more_gaps_or_actors_than_are_remembered_are_told_before() {
    let mut context: Context = (1..=SPANS_MAX as u64).map(|number| dot(1, 2 * number)).collect();
    let end = 2 * SPANS_MAX as u64;
    assert!(context.would_fray(dot(1, end + 2), SPANS_MAX));
    assert!(!context.would_fray(dot(1, end), SPANS_MAX) && !context.would_fray(dot(1, end + 1), SPANS_MAX));
    for number in 0..ACTORS_MAX as u128 {
        context.insert(Dot { actor: Actor(number.to_be_bytes()), number: 1 });
    }
    assert!(context.would_fray(dot(9, 1), SPANS_MAX));
}

#[test]
fn a_replica_reads_its_own_gaps_however_many_and_another_s_up_to_a_bound() {
    let context: Context = (1..=5 * SPANS_MAX as u64).map(|number| dot(1, 2 * number)).collect();
    assert!(Context::decode(&context.encode()).is_err());
    assert_eq!(Context::decode_own(&context.encode()), Ok(context));
}

/// Rows with many entries each, as counters of many slots are.
#[test]
fn what_rows_say_is_gathered_again_only_when_there_may_be_twice_as_much() {
    let (mut seen, mut rows, mut gathered) = (Seen::new(Context::default(), 1), Vec::new(), 0);
    let key = Object::plain("n", "hits").row(Kind::Counter);
    let slot = super::actor(7);
    for first in (0..4 * IMPLIED_SPANS_MAX as u64).step_by(1000) {
        let dots = (first..first + 1000).map(|number| dot(1, 2 * number + 2));
        let added = dots.map(|dot| (dot, Entry::Tally { slot, added: 1, taken: 0 })).collect();
        let change = Change { key: key.clone(), added, removed: Vec::new() };
        rows.push(Row::default().after(&change, &seen));
        seen.imply(&change.dots().collect(), || {
            gathered += 1;
            rows.iter()
        });
    }
    assert_eq!((gathered, seen.covers(&Context::span(dot(1, 1).actor, 2, 2))), (2, true));
}

#[test]
fn a_newer_version_is_refused() {
    assert!(Context::decode(&[2, 0]).is_err());
    assert!(Context::decode(&[1, 0]).is_ok());
}
