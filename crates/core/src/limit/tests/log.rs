//! The log of a limit: what is written is read, once, in order, and there is an end to it.

use crate::commit::Outcome;
use crate::limit::log::{Appending, Event, LINES_MAX, Line, Log, Segment, append};
use crate::lock::tests::store::Store;
use crate::name::Name;
use crate::record::{Record, WallTime};
use crate::trial::{decide, decide_with};
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use core::time::Duration;
use proptest::prelude::*;

const KEPT: Duration = Duration::from_secs(1_000);

fn name() -> Name {
    Name::new("n", "limit")
}

fn line(node: u64, number: u64) -> Line {
    Line {
        event: Event::Allowed,
        at: WallTime(7),
        node,
        number,
        key: "k".into(),
        by: String::new(),
        reference: String::new(),
        source: "central".into(),
        amount: 1,
        remaining: 2,
        spent: 0,
        ttl_ms: 0,
    }
}

fn appending(node: u64, numbers: impl IntoIterator<Item = u64>) -> Appending {
    Appending { lines: numbers.into_iter().map(|number| line(node, number)).collect(), tried: None }
}

fn write(store: &mut Store, appending: &mut Appending, guess: Option<&Record>) {
    let group = name().group();
    decide(store, group, |view| append(Log::Leases, &name(), appending, guess, KEPT, view));
}

/// Everything that is in the log, and how many records that takes.
fn written(store: &mut Store, newest: u64) -> (Vec<(u64, u64)>, usize) {
    let segments = (1..=newest).map(|number| Log::Leases.segment(&name(), number));
    let keys: Vec<_> = segments.chain([Log::Leases.head(&name())]).collect();
    let records: Vec<_> = keys.iter().filter_map(|key| store.read(key)).collect();
    let segments = records.iter().map(|record| Segment::decode(&record.value).unwrap());
    let lines: Vec<_> = segments.flat_map(|segment| segment.lines).collect();
    (lines.iter().map(|line| (line.node, line.number)).collect(), records.len())
}

proptest! {
    #[test]
    fn a_segment_is_read_as_it_was_written(
        numbers: [u64; 8],
        texts: [String; 4],
        event in prop::sample::select(Event::ALL.to_vec()),
    ) {
        let [number, at, node, of_node, amount, remaining, spent, ttl_ms] = numbers;
        let [key, by, reference, source] = texts;
        let (at, number_of) = (WallTime(at), of_node);
        let one = Line { event, at, node, number: number_of, key, by, reference, source, amount, remaining, spent, ttl_ms };
        let segment = Segment { number, lines: vec![one.clone(), line(1, 1), one] };
        prop_assert_eq!(Segment::decode(&segment.encode()), Ok(segment));
    }

    #[test]
    fn no_bytes_make_a_reader_panic(value: Vec<u8>) {
        drop(Segment::decode(&value));
    }
}

#[test]
fn lines_of_several_writers_are_all_there_in_one_order_whatever_each_believes() {
    let mut store = Store::default();
    for number in 0..100 {
        // Each believes that nothing was written yet.
        write(&mut store, &mut appending(1, [2 * number, 2 * number + 1]), None);
        write(&mut store, &mut appending(2, [number]), None);
    }
    let (lines, _) = written(&mut store, 10);
    assert_eq!(lines.len(), 300);
    for node in [1, 2] {
        let numbers: Vec<_> = lines.iter().filter(|line| line.0 == node).collect();
        assert!(numbers.is_sorted(), "{numbers:?}");
    }
}

#[test]
fn at_the_most_segments_the_oldest_goes() {
    let mut store = Store::default();
    let most = Log::Leases.segments_max() as usize;
    let all = (most + 5) * LINES_MAX;
    for number in 0..all as u64 {
        write(&mut store, &mut appending(1, [number]), None);
    }
    let (lines, records) = written(&mut store, all as u64);
    assert_eq!(records, most + 1, "and the head");
    assert_eq!(lines.len(), (most + 1) * LINES_MAX);
    assert_eq!(lines.last(), Some(&(1, all as u64 - 1)));
    assert!(lines.is_sorted());
}

#[test]
fn an_append_whose_answer_got_lost_is_found_again_also_in_a_segment_that_is_full_by_now() {
    for others in [0, 1, LINES_MAX as u64 * 2] {
        let mut store = Store::default();
        write(&mut store, &mut appending(2, [1_000]), None);
        let mut mine = appending(1, [1, 2, 3]);
        let mut is_lost = true;
        let group = name().group();
        let rule = |view: &mut _| append(Log::Leases, &name(), &mut mine, None, KEPT, view);
        decide_with(&mut store, group, rule, |store, commit| {
            let outcome = store.commit(commit);
            if matches!(outcome, Outcome::Committed { .. }) && core::mem::take(&mut is_lost) {
                for number in 0..others {
                    write(store, &mut appending(2, [number]), None);
                }
                // Sent again unchanged, as whoever doesn't know does.
                return store.commit(commit);
            }
            outcome
        });
        let (lines, _) = written(&mut store, 10);
        let mine = lines.iter().filter(|line| line.0 == 1).count();
        assert_eq!((mine, is_lost), (3, false), "once, with {others} by others behind it");
    }
}

#[test]
fn whoever_knows_the_head_needs_no_look() {
    let mut store = Store::default();
    write(&mut store, &mut appending(1, [1]), None);
    let head = store.read(&Log::Leases.head(&name()));
    let mut commits = 0;
    let mut next = appending(1, [2]);
    let rule = |view: &mut _| append(Log::Leases, &name(), &mut next, head.as_ref(), KEPT, view);
    decide_with(&mut store, name().group(), rule, |store, commit| {
        commits += 1;
        store.commit(commit)
    });
    assert_eq!((commits, written(&mut store, 1).0.len()), (1, 2));
}
