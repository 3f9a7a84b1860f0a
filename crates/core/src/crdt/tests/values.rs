//! What counters, sets and registers say.

use super::{actor, dot};
use crate::crdt::counter::{self, Refused, TOTAL_MAX};
use crate::crdt::{
    Act, CONCURRENT_VALUES_MAX, Change, Clock, Context, Edit, EditRefused, Entry, Hlc, Kind, Object,
    ROW_SLOTS_MAX, Row, RowKey, opaque, register, removal, renewal, set, slot_of,
};
use crate::record::Bytes;
use alloc::vec;
use alloc::vec::Vec;

fn key(kind: Kind) -> RowKey {
    Object::plain("n", "o").row(kind)
}

fn take(row: &mut Row, context: &mut Context, change: &Change) {
    row.apply(change, context);
    change.dots().for_each(|dot| context.insert(dot));
}

#[test]
fn a_counter_is_the_sum_of_all_slots_and_has_one_entry_for_each() {
    let (key, mut row, mut context) = (key(Kind::Counter), Row::default(), Context::default());
    for (by, number, amount) in [(1, 1, 5), (2, 1, 10), (1, 2, -8), (2, 2, 1)] {
        let change = counter::add(&row, &key, dot(by, number), amount).unwrap();
        take(&mut row, &mut context, &change);
    }
    assert_eq!((counter::value(&row), row.entries().len()), (8, 2));
}

#[test]
fn a_counter_refuses_what_it_can_not_count() {
    let (grows, key) = (key(Kind::GrowCounter), key(Kind::Counter));
    let mut row = Row::default();
    assert_eq!(counter::add(&row, &grows, dot(1, 1), -1), Err(Refused::GrowsOnly));
    assert_eq!(counter::report(&row, &grows, dot(1, 1), actor(7), (1, 1)), Err(Refused::GrowsOnly));
    assert_eq!(counter::report(&row, &key, dot(1, 1), actor(7), (u64::MAX, 0)), Err(Refused::Overflow));
    row.apply(&counter::add(&row, &key, dot(1, 1), i64::MAX).unwrap(), &Context::default());
    assert_eq!(counter::add(&row, &key, dot(1, 2), 1), Err(Refused::Overflow));
    assert_eq!(counter::add(&row, &key, dot(2, 1), i64::MIN), Err(Refused::Overflow));
    let slots = (0..ROW_SLOTS_MAX as u64).map(|number| {
        let slot = crate::crdt::Actor(u128::from(number).to_be_bytes());
        (dot(1, number + 1), Entry::Tally { slot, added: 1, taken: 0 })
    });
    let full = Change { key: key.clone(), added: slots.collect(), removed: vec![] };
    let mut row = Row::default();
    row.apply(&full, &Context::default());
    assert_eq!(counter::add(&row, &key, dot(9, 1), 1), Err(Refused::TooManySlots));
}

#[test]
fn totals_that_a_writer_reports_count_once_wherever_they_are_sent() {
    let (key, mut row, mut context) = (key(Kind::Counter), Row::default(), Context::default());
    let none = Row::default();
    // Two replicas, neither of which has heard of the other, and reports that are late: one of each is the higher.
    for (number, low, high) in [(1, (5, 0), (7, 1)), (2, (8, 1), (6, 1))] {
        let first = counter::report(&none, &key, dot(1, number), actor(7), low).unwrap().unwrap();
        let second = counter::report(&none, &key, dot(2, number), actor(7), high).unwrap().unwrap();
        take(&mut row, &mut context, &second);
        take(&mut row, &mut context, &first);
    }
    assert_eq!((counter::value(&row), row.entries().len()), (7, 4));
    assert_eq!(counter::report(&row, &key, dot(1, 3), actor(7), (8, 1)), Ok(None));
    assert_eq!(counter::report(&row, &key, dot(1, 3), actor(7), (6, 0)), Ok(None));
    let third = counter::report(&row, &key, dot(1, 3), actor(7), (9, 1)).unwrap().unwrap();
    take(&mut row, &mut context, &third);
    assert_eq!((counter::value(&row), row.entries().len()), (8, 1));
    assert_eq!(
        counter::report(&row, &key, dot(1, 4), actor(8), (TOTAL_MAX, 0)).unwrap().unwrap().added.len(),
        1
    );
}

#[test]
fn a_removed_counter_begins_at_zero_and_a_concurrent_add_brings_its_slot_back() {
    let (key, mut row, mut context) = (key(Kind::Counter), Row::default(), Context::default());
    for (by, number, amount) in [(1, 1, 5), (2, 1, 10)] {
        let change = counter::add(&row, &key, dot(by, number), amount).unwrap();
        take(&mut row, &mut context, &change);
    }
    let concurrent = counter::add(&row, &key, dot(1, 2), 1).unwrap();
    let removal = removal::remove(&row, &key, dot(2, 2), &context).unwrap();
    take(&mut row, &mut context, &removal);
    assert!(row.is_empty());
    let afterwards = counter::add(&row, &key, dot(2, 3), 3).unwrap();
    take(&mut row, &mut context, &afterwards);
    assert_eq!(counter::value(&row), 3);
    take(&mut row, &mut context, &concurrent);
    assert_eq!(
        counter::value(&row),
        9,
        "the whole slot of the concurrent add, and what came after the removal"
    );
}

#[test]
fn an_element_that_is_added_over_and_over_stays_one_entry() {
    let (key, mut row, mut context) = (key(Kind::Set), Row::default(), Context::default());
    for number in 1..10 {
        let change = set::add(&row, &key, dot(1 + number as u8 % 3, number));
        take(&mut row, &mut context, &change);
    }
    assert_eq!(row.dots().collect::<Vec<_>>(), [dot(1, 9)]);
}

#[test]
fn an_add_wins_over_a_removal_that_has_not_seen_it() {
    let (key, mut row, mut context) = (key(Kind::Set), Row::default(), Context::default());
    let added = set::add(&row, &key, dot(1, 1));
    take(&mut row, &mut context, &added);
    let seen = context.clone();
    let again = set::add(&Row::default(), &key, dot(2, 1));
    take(&mut row, &mut context, &again);
    let removed = removal::remove(&row, &key, dot(1, 2), &seen).unwrap();
    take(&mut row, &mut context, &removed);
    assert_eq!(row.dots().collect::<Vec<_>>(), [dot(2, 1)]);
    assert_eq!(removal::remove(&row, &key, dot(1, 3), &seen), None, "nothing of what is there was seen");
    // The removal can be seen in a context, although it left nothing behind.
    assert!(context.contains(dot(1, 2)));
}

#[test]
fn an_element_that_comes_and_goes_a_million_times_leaves_nothing_behind() {
    let (key, mut row, mut context) = (key(Kind::Set), Row::default(), Context::default());
    for cycle in 0..1_000_000_u64 {
        let change = set::add(&row, &key, dot(1, 2 * cycle + 1));
        take(&mut row, &mut context, &change);
        let change = removal::remove(&row, &key, dot(1, 2 * cycle + 2), &context).unwrap();
        take(&mut row, &mut context, &change);
    }
    assert!(row.is_empty() && context.encode().len() < 32);
}

#[test]
fn the_last_write_wins_by_time_and_then_by_actor_and_a_multi_value_shows_all() {
    let put = |by, number, ms, row: &Row| {
        let value: Bytes = [by, number as u8].as_slice().into();
        register::put(row, &key(Kind::Register), dot(by, number), Hlc { ms, count: 0 }, value)
    };
    let none = Row::default();
    let (mut row, mut context) = (Row::default(), Context::default());
    for change in [put(3, 1, 10, &none), put(1, 1, 20, &none), put(2, 1, 20, &none)] {
        take(&mut row, &mut context, &change);
    }
    let read = |row: &Row| register::latest(row).map(|(at, value)| (at.ms, value.to_vec()));
    assert_eq!(read(&row), Some((20, vec![2, 1])));
    let all: Vec<_> = register::values(&row).into_iter().map(|(_, value)| value[0]).collect();
    assert_eq!(all, [2, 1, 3]);
    let after = put(1, 2, 21, &row);
    take(&mut row, &mut context, &after);
    assert_eq!((read(&row), row.entries().len()), (Some((21, vec![1, 2])), 1));
    // Written again by a replica and its clone, it is still one value.
    let key = key(Kind::Register);
    let again = [4, 5].map(|by| renewal::renew(&row, &key, |of| of == actor(1), || dot(by, 1)).unwrap());
    again.iter().for_each(|change| take(&mut row, &mut context, change));
    assert_eq!((row.entries().len(), register::values(&row).len()), (2, 1));
    assert_eq!(read(&none), None);
}

#[test]
fn a_write_that_says_what_it_has_seen_replaces_just_that_and_leaves_few() {
    let key = key(Kind::MultiValue);
    let (mut row, mut context, mut clock) = (Row::default(), Context::default(), Clock::default());
    let mut write = |number: u64, seen: &Context, row: &mut Row, context: &mut Context| {
        let value: Bytes = number.to_be_bytes().into();
        let edit = Edit { key: key.clone(), act: Act::Replace { value, seen: seen.clone() } };
        let change =
            edit.change(row, dot(1, number), context, &mut clock, 1)?.expect("a write changes something");
        take(row, context, &change);
        Ok(())
    };
    let nothing = Context::default();
    for number in 1..=CONCURRENT_VALUES_MAX as u64 {
        assert_eq!(write(number, &nothing, &mut row, &mut context), Ok(()));
    }
    assert_eq!(register::values(&row).len(), CONCURRENT_VALUES_MAX);
    assert_eq!(write(1000, &nothing, &mut row, &mut context), Err(EditRefused::TooManyValues));
    // Of two that were seen one is in the new one's place, and the rest stays.
    let seen = [dot(1, 1), dot(1, 2)].into_iter().collect();
    assert_eq!(write(1000, &seen, &mut row, &mut context), Ok(()));
    assert_eq!(register::values(&row).len(), CONCURRENT_VALUES_MAX - 1);
    let seen = context.clone();
    assert_eq!(write(1001, &seen, &mut row, &mut context), Ok(()));
    assert_eq!(register::values(&row).len(), 1);
    let wrong = Edit {
        key: Object::plain("n", "o").row(Kind::Register),
        act: Act::Replace { value: [][..].into(), seen },
    };
    assert_eq!(
        wrong.change(&row, dot(1, 2000), &context, &mut Clock::default(), 1),
        Err(EditRefused::WrongKind)
    );
}

#[test]
fn what_callers_hand_back_unread_is_read_as_it_was_given() {
    let context: Context = [dot(1, 1), dot(1, 5), dot(2, 7)].into_iter().collect();
    assert_eq!(Context::of_text(&context.to_text()), Ok(context));
    for text in ["", "AAAA", "?", "a b"] {
        assert!(Context::of_text(text).is_err(), "{text:?}");
    }
    assert_eq!(opaque::bytes(&opaque::text(b"\0a\xff")).as_deref(), Ok(&b"\0a\xff"[..]));
    assert_ne!(slot_of("a"), slot_of("b"));
}
