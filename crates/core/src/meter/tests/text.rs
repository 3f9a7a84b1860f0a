//! What is written, letter by letter: others read and write it too, in languages of their own. And what is refused.

use super::world::{One, START_MS, claim, key, row, rule};
use crate::codec::Unreadable;
use crate::meter::{
    Algorithm, Charged, Claim, Edges, LOG_MAX, Memo, Meter, NUMBER_MAX, PRODUCT_MAX, ROWS_MAX, Reclaim,
    RowClaim, RowKind, Rule, Take, Verdict, encode_answer,
};
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use alloc::{format, vec};

fn text(meter: &Meter) -> String {
    String::from_utf8(meter.encode().to_vec()).unwrap()
}

#[test]
fn a_meter_is_written_as_its_layout_says() {
    let mut one = One::new(Rule { version: 3, ..rule(Algorithm::SlidingLog, 100, 1_000) });
    one.granted(Take::AllOrNone(7));
    one.pass(5);
    one.granted(Take::AllOrNone(2));
    let mut said = row("a-1", 4, 6, 0);
    (said.kind, said.owner) = (RowKind::Hold, "n.2".into());
    one.say(Take::Try(9), said);
    let expected =
        "1 3 l 100 1000 0 1000000 1000005 1000000 0 0 2 1000000 7 1000005 2 1 a-1 n.2 H 9 6 4 1000105";
    assert_eq!(text(&one.look()), expected);
    let mut one = One::new(rule(Algorithm::TokenBucket, 100, 1_000));
    one.granted(Take::AllOrNone(7));
    assert_eq!(text(&one.look()), "1 1 b 100 1000 0 1000000 1000000 1000000 7000 0 0 0");
    let edges = Edges::At([START_MS, START_MS + 900, START_MS + 1_800]);
    let mut one = One::new(Rule { edges, ..rule(Algorithm::SlidingWindow, 100, 1_000) });
    one.granted(Take::AllOrNone(7));
    one.pass(900);
    one.granted(Take::AllOrNone(1));
    assert_eq!(text(&one.look()), "1 1 s 100 1000 1000 1000000 1000900 1000900 1 7 0 0");
}

#[test]
fn a_claim_is_written_as_its_layout_says() {
    let edges = Edges::At([1, 2, 3]);
    let dropped = Rule { reclaim: Reclaim::Drop, edges, ..rule(Algorithm::FixedWindow, 10, 1_000) };
    let bucket = Rule { version: 2, capacity: 20, ..rule(Algorithm::TokenBucket, 10, 1_000) };
    let offset = Rule { edges: Edges::Every { offset_ms: 7 }, ..rule(Algorithm::SlidingWindow, 10, 1_000) };
    let mut said = row("a", 3, 4, 5);
    said.kind = RowKind::Place;
    let table = [
        (&dropped, Take::AllOrNone(1), None, "1 f 10 1000 10 1 2 3 1 a 1 0 - - - 0 0 0 0"),
        (&bucket, Take::Nothing, None, "2 b 10 1000 20 0 0 0 0 n 0 0 - - - 0 0 0 0"),
        (
            &bucket,
            Take::Book { amount: 1, wait_max_ms: 9 },
            None,
            "2 b 10 1000 20 0 0 0 0 b 1 9 - - - 0 0 0 0",
        ),
        (&bucket, Take::Credit { amount: 1, at_ms: 8 }, None, "2 b 10 1000 20 0 0 0 0 c 1 8 - - - 0 0 0 0"),
        (&offset, Take::Forced(6), None, "1 s 10 1000 10 7 0 0 0 f 6 0 - - - 0 0 0 0"),
        (&offset, Take::Try(6), None, "1 s 10 1000 10 7 0 0 0 t 6 0 - - - 0 0 0 0"),
        (&offset, Take::Share(6), Some(said), "1 s 10 1000 10 7 0 0 0 s 6 0 a node P 100 3 4 5"),
    ];
    for (rule, take, row, expected) in table {
        assert_eq!(claim("one", rule, take, row).encode(), expected);
    }
}

#[test]
fn an_answer_comes_back_also_from_a_memo_and_says_whose_it_is() {
    let mut one = One::new(rule(Algorithm::FixedWindow, 10, 1_000));
    one.granted(Take::AllOrNone(3));
    let value = one.look().encode();
    let verdicts =
        [Verdict::Charged, Verdict::Refused { index: 1 }, Verdict::Outdated { index: 2, version: 9 }];
    for verdict in verdicts {
        let effects =
            if matches!(verdict, Verdict::Outdated { .. }) { vec![] } else { vec![(3, 4, value.clone()); 2] };
        let answer = encode_answer(verdict, 77, &effects);
        let charged = Charged::decode(&answer).unwrap();
        assert_eq!((charged.verdict, charged.now.0, charged.repeated), (verdict, 77, false));
        let meters: Vec<_> =
            charged.meters.iter().map(|it| (it.granted, it.wait_ms, it.meter.encode())).collect();
        assert_eq!(meters, effects);
        let memo = Memo { key: key("memo"), digest: "0123456789abcdef".repeat(2), ttl_ms: 1 };
        let again = Charged::decode_memo(&memo.value(&answer)).unwrap();
        assert!(again.repeated && again.is_of(&memo) && charged.is_of(&memo));
        assert!(!again.is_of(&Memo { digest: "f".repeat(32), ..memo }));
        assert_eq!(Charged { repeated: false, digest: None, ..again }, charged);
    }
}

#[test]
fn a_meter_with_a_number_that_can_t_be_computed_with_is_not_read() {
    // version, algorithm, limit, window, offset, since, at, start, current, previous
    let fields = |algorithm: &str, numbers: [u64; 9]| {
        let [version, rest @ ..] = numbers;
        let rest: Vec<_> = rest.iter().map(ToString::to_string).collect();
        format!("1 {version} {algorithm} {} 0 0", rest.join(" "))
    };
    let fine = [1, 1_024, PRODUCT_MAX / 1_024, 0, 5, 5, 5, 1_024, 1_024];
    let changed = |place: usize, number: u64| {
        let mut numbers = fine;
        numbers[place] = number;
        numbers
    };
    let table = [
        (fine, true, "as much as may be"),
        (changed(0, NUMBER_MAX), true, "the newest version"),
        (changed(0, NUMBER_MAX + 1), false, "a version that others can't compare"),
        (changed(1, 0), false, "no limit"),
        (changed(1, 1_025), false, "limit x window"),
        (changed(1, u64::MAX), false, "limit x window, far"),
        (changed(2, 0), false, "no window"),
        (changed(3, PRODUCT_MAX / 1_024), true, "windows of the calendar"),
        (changed(3, PRODUCT_MAX / 1_024 + 1), false, "an offset behind the window"),
        (changed(5, NUMBER_MAX), true, "the end of time"),
        (changed(5, NUMBER_MAX + 1), false, "after the end of time"),
        (changed(7, 1_025), false, "current x window"),
        (changed(8, 1_025), false, "previous x window"),
    ];
    for (numbers, is_fine, why) in table {
        let text = fields("s", numbers);
        assert_eq!(Meter::decode(text.as_bytes()).is_ok(), is_fine, "{why}: {text}");
    }
    // A bucket's level is a product already, and what comes in a fixed window is never multiplied.
    let table = [
        ("b", changed(7, NUMBER_MAX), true),
        ("b", changed(7, NUMBER_MAX + 1), false),
        ("b", changed(1, 1_025), false),
        ("f", changed(7, NUMBER_MAX), true),
        ("f", changed(7, NUMBER_MAX + 1), false),
        ("f", changed(1, PRODUCT_MAX), true),
        ("f", changed(1, PRODUCT_MAX + 1), false),
        ("f", changed(2, PRODUCT_MAX), true),
        ("f", changed(2, PRODUCT_MAX + 1), false),
    ];
    for (algorithm, numbers, is_fine) in table {
        let text = fields(algorithm, numbers);
        assert_eq!(Meter::decode(text.as_bytes()).is_ok(), is_fine, "{text}");
    }
    let pair = |number: u64| format!("1 1 l 1 1 0 5 5 5 0 0 1 5 {number} 0");
    let row = |number: u64| format!("1 1 f 1 1 0 5 5 5 0 0 0 1 a b L {number} 0 1 9");
    for text in [pair, row].map(|text| [text(NUMBER_MAX), text(NUMBER_MAX + 1)]) {
        assert!(Meter::decode(text[0].as_bytes()).is_ok(), "{}", text[0]);
        assert_eq!(Meter::decode(text[1].as_bytes()), Err(Unreadable), "{}", text[1]);
    }
}

#[test]
fn a_meter_that_is_too_long_or_of_another_time_is_not_read() {
    let pairs = |count: usize| format!("1 1 l 1 1 0 5 5 5 0 0 {count}{} 0", " 5 1".repeat(count));
    let rows = |count: usize| format!("1 1 f 1 1 0 5 5 5 0 0 0 {count}{}", " a b L 1 0 1 9".repeat(count));
    for (text, most) in [(&pairs as &dyn Fn(usize) -> String, LOG_MAX), (&rows, ROWS_MAX)] {
        assert!(Meter::decode(text(most).as_bytes()).is_ok());
        assert_eq!(Meter::decode(text(most + 1).as_bytes()), Err(Unreadable));
    }
    let (none, one_too_many) = (rows(0), format!("{} 0", rows(0)));
    let (newer, unknown) = (none.replacen('1', "2", 1), none.replacen('f', "q", 1));
    assert!(Meter::decode(none.as_bytes()).is_ok());
    for text in [newer, unknown, one_too_many, rows(1).replace('L', "Q"), String::new()] {
        assert_eq!(Meter::decode(text.as_bytes()), Err(Unreadable), "{text}");
    }
}

#[test]
fn a_claim_keeps_its_bounds() {
    type Change = fn(&mut Claim);
    // Which change, and whether it is fine: of a bucket with a limit of 1,024 in the longest window for that.
    let table: &[(bool, Change, &str)] = &[
        (true, |_| {}, "as much as may be"),
        (false, |it| it.rule.limit = 0, "no limit"),
        (false, |it| it.rule.limit += 1, "limit x window"),
        (false, |it| it.rule.limit = u64::MAX, "limit x window, far"),
        (false, |it| it.rule.window_ms = 0, "no window"),
        (false, |it| it.rule.capacity = 0, "no capacity"),
        (false, |it| it.rule.capacity += 1, "capacity x window"),
        (true, |it| it.rule.version = NUMBER_MAX, "the last version"),
        (false, |it| it.rule.version = NUMBER_MAX + 1, "a version too far"),
        (true, |it| it.rule.edges = Edges::Every { offset_ms: it.rule.window_ms - 1 }, "the last offset"),
        (
            false,
            |it| it.rule.edges = Edges::Every { offset_ms: it.rule.window_ms },
            "that stands for the calendar",
        ),
        (true, |it| it.rule.edges = Edges::At([0, 1, NUMBER_MAX]), "edges"),
        (false, |it| it.rule.edges = Edges::At([0, 1, NUMBER_MAX + 1]), "an edge after the end of time"),
        (false, |it| it.rule.edges = Edges::At([0, 0, 1]), "a window without length"),
        (false, |it| it.rule.edges = Edges::At([0, 1, 1]), "another one"),
        (true, |it| it.take = Take::Forced(1_024), "an amount"),
        (false, |it| it.take = Take::Forced(1_025), "amount x window"),
        (true, |it| it.take = Take::Credit { amount: 1, at_ms: NUMBER_MAX }, "a time"),
        (false, |it| it.take = Take::Credit { amount: 1, at_ms: NUMBER_MAX + 1 }, "after the end of time"),
        (true, |it| it.row = Some(row("a", 1, PRODUCT_MAX, PRODUCT_MAX)), "a row"),
        (true, |it| it.row = Some(row("a", NUMBER_MAX, 0, 0)), "a row's last message"),
        (false, |it| it.row = Some(row("a", 0, 0, 0)), "sequences begin with 1"),
        (false, |it| it.row = Some(row("a", NUMBER_MAX + 1, 0, 0)), "a sequence too far"),
        (false, |it| it.row = Some(row("a", 1, PRODUCT_MAX + 1, 0)), "too much was spent"),
        (false, |it| it.row = Some(row("a", 1, 0, PRODUCT_MAX + 1)), "too much is kept"),
        (true, |it| it.row = Some(row("Az09-_.:", 1, 0, 0)), "all letters"),
        (true, |it| it.row = Some(row(&"a".repeat(64), 1, 0, 0)), "a long name"),
        (false, |it| it.row = Some(row(&"a".repeat(65), 1, 0, 0)), "a name too long"),
        (false, |it| it.row = Some(row("", 1, 0, 0)), "no name"),
        (false, |it| it.row = Some(RowClaim { owner: "a b".into(), ..row("a", 1, 0, 0) }), "no owner's name"),
        (false, |it| it.row = Some(row("-", 1, 0, 0)), "that stands for no row"),
        (false, |it| it.row = Some(row("a b", 1, 0, 0)), "two fields"),
        (false, |it| it.row = Some(row("a\n", 1, 0, 0)), "two lines"),
        (false, |it| it.row = Some(row("é", 1, 0, 0)), "letters that others count otherwise"),
    ];
    for (is_fine, change, why) in table {
        let rule = rule(Algorithm::TokenBucket, 1_024, PRODUCT_MAX / 1_024);
        let mut claim = claim("one", &rule, Take::AllOrNone(1_024), None);
        change(&mut claim);
        assert_eq!(claim.is_valid(), *is_fine, "{why}: {claim:?}");
    }
    // A fixed window multiplies nothing, but it begins and ends somewhere.
    let table = [
        (PRODUCT_MAX, PRODUCT_MAX, true),
        (PRODUCT_MAX + 1, 1, false),
        (1, PRODUCT_MAX + 1, false),
        (1, u64::MAX, false),
    ];
    for (limit, window_ms, is_fine) in table {
        let rule = rule(Algorithm::FixedWindow, limit, window_ms);
        assert_eq!(claim("one", &rule, Take::Nothing, None).is_valid(), is_fine, "{limit} in {window_ms}");
    }
    for (ttl_ms, is_fine) in [(0, true), (PRODUCT_MAX, true), (PRODUCT_MAX + 1, false)] {
        let mut said = row("a", 1, 0, 0);
        said.ttl_ms = ttl_ms;
        let rule = rule(Algorithm::FixedWindow, 1, 1);
        assert_eq!(claim("one", &rule, Take::Nothing, Some(said)).is_valid(), is_fine);
    }
}

/// Only what finds room goes to a row, and only a bucket knows when there will be some.
#[test]
fn forced_booked_and_credited_amounts_go_to_no_row_and_only_buckets_are_booked() {
    let taken = [
        (Take::Nothing, true),
        (Take::AllOrNone(1), true),
        (Take::Try(1), true),
        (Take::Share(1), true),
        (Take::Forced(1), false),
        (Take::Book { amount: 1, wait_max_ms: 1 }, false),
        (Take::Credit { amount: 1, at_ms: 1 }, false),
    ];
    for (take, is_fine) in taken {
        for algorithm in Algorithm::ALL {
            let rule = rule(algorithm, 10, 10);
            let said = Some(row("a", 1, 0, 0));
            assert_eq!(claim("one", &rule, take, said).is_valid(), is_fine, "{algorithm:?}: {take:?}");
            let is_fine = !matches!(take, Take::Book { .. }) || algorithm == Algorithm::TokenBucket;
            assert_eq!(claim("one", &rule, take, None).is_valid(), is_fine, "{algorithm:?}: {take:?}");
        }
    }
}
