//! Numbers at their ends, and damage: what can't be computed with is refused when it is read, and nothing ever panics.

use super::world::key;
use crate::meter::{
    Algorithm, Charged, Claim, Edges, Meter, NUMBER_MAX, PRODUCT_MAX, Reclaim, Row, RowClaim, RowKind, Rule,
    Take, settle,
};
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use proptest::prelude::*;

/// Any number that a field can have, mostly at an end.
fn number() -> impl Strategy<Value = u64> {
    let ends = [0, 1, 2, 1_000, PRODUCT_MAX - 1, PRODUCT_MAX, PRODUCT_MAX + 1, NUMBER_MAX - 1, NUMBER_MAX];
    prop_oneof![
        3 => proptest::sample::select(ends.to_vec()),
        1 => 0..100_u64,
        1 => 0..=NUMBER_MAX,
        1 => (0..53_u32).prop_map(|bits| 1 << bits),
    ]
}

fn algorithm() -> impl Strategy<Value = Algorithm> {
    proptest::sample::select(&Algorithm::ALL[..])
}

fn kind() -> impl Strategy<Value = RowKind> {
    proptest::sample::select(&[RowKind::Lease, RowKind::Hold, RowKind::Place][..])
}

prop_compose! {
    fn stored_row()(id in "[a-d]", kind in kind(), numbers in proptest::array::uniform4(number())) -> Row {
        let [amount, spent, sequence, expires_ms] = numbers;
        Row { id, owner: "node".into(), kind, amount, spent, sequence, expires_ms }
    }
}

prop_compose! {
    /// Not necessarily one that may be: whether it is readable is for the reader to say.
    fn meter()(
        algorithm in algorithm(),
        rest in proptest::array::uniform9(number()),
        is_even in any::<bool>(),
        log in proptest::collection::vec((number(), number()), 0..4),
        rows in proptest::collection::vec(stored_row(), 0..4),
    ) -> Meter {
        let [version, limit, window_ms, offset_ms, since_ms, at_ms, start_ms, current, previous] = rest;
        // Most of what is possible would be refused, so half of them keep the bounds.
        let window_ms = if is_even { window_ms.clamp(1, PRODUCT_MAX) } else { window_ms };
        let most = algorithm.amount_max(window_ms);
        let limit = if is_even { limit.clamp(1, most) } else { limit };
        let offset_ms = if is_even { offset_ms % (window_ms + 1) } else { offset_ms };
        let counts = if is_even && algorithm == Algorithm::SlidingWindow { most } else { NUMBER_MAX };
        let (current, previous) = (current.min(counts), previous.min(counts));
        Meter {
            version, algorithm, limit, window_ms, offset_ms, since_ms, at_ms, start_ms, current, previous, log, rows,
        }
    }
}

fn take() -> impl Strategy<Value = Take> {
    (0..7_u8, number(), number()).prop_map(|(kind, amount, other)| match kind {
        0 => Take::Nothing,
        1 => Take::AllOrNone(amount),
        2 => Take::Try(amount),
        3 => Take::Share(amount),
        4 => Take::Forced(amount),
        5 => Take::Book { amount, wait_max_ms: other },
        _ => Take::Credit { amount, at_ms: other },
    })
}

fn edges() -> impl Strategy<Value = Edges> {
    prop_oneof![
        number().prop_map(|offset_ms| Edges::Every { offset_ms }),
        [number(), number(), number()].prop_map(|mut edges| {
            edges.sort_unstable();
            Edges::At(edges)
        }),
    ]
}

prop_compose! {
    /// A valid one: what is too much is cut down to what may be.
    fn valid_claim()(
        algorithm in algorithm(),
        numbers in proptest::array::uniform4(number()),
        edges in edges(),
        is_dropped in any::<bool>(),
        take in take(),
        said in proptest::option::of(("[a-d]", kind(), proptest::array::uniform4(number()))),
        meter_like in any::<bool>(),
    ) -> (Claim, bool) {
        let [version, limit, window_ms, capacity] = numbers;
        let window_ms = window_ms.clamp(1, PRODUCT_MAX);
        let most = algorithm.amount_max(window_ms);
        let edges = match edges {
            Edges::Every { offset_ms } => Edges::Every { offset_ms: offset_ms % window_ms },
            Edges::At([first, second, third]) if first < second && second < third => edges,
            Edges::At(_) => Edges::At([0, 1, NUMBER_MAX]),
        };
        let reclaim = if is_dropped { Reclaim::Drop } else { Reclaim::Burn };
        let (limit, capacity) = (limit.clamp(1, most), capacity.clamp(1, most));
        let rule = Rule { version, algorithm, limit, window_ms, capacity, edges, reclaim };
        let take = match take {
            Take::Nothing => Take::Nothing,
            Take::AllOrNone(amount) => Take::AllOrNone(amount.min(most)),
            Take::Try(amount) => Take::Try(amount.min(most)),
            Take::Share(amount) => Take::Share(amount.min(most)),
            Take::Forced(amount) => Take::Forced(amount.min(most)),
            Take::Book { amount, .. } if algorithm != Algorithm::TokenBucket => Take::Try(amount.min(most)),
            Take::Book { amount, wait_max_ms } => Take::Book { amount: amount.min(most), wait_max_ms },
            Take::Credit { amount, at_ms } => Take::Credit { amount: amount.min(most), at_ms },
        };
        let may_say = !matches!(take, Take::Forced(_) | Take::Book { .. } | Take::Credit { .. });
        let row = said.filter(|_| may_say).map(|(id, kind, [ttl_ms, sequence, spent, kept])| RowClaim {
            id,
            owner: "node".into(),
            kind,
            ttl_ms: ttl_ms.min(PRODUCT_MAX),
            sequence: sequence.max(1),
            spent: spent.min(PRODUCT_MAX),
            kept: kept.min(PRODUCT_MAX),
        });
        (Claim { key: key("one"), rule, take, row }, meter_like)
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3000))]

    /// Readable meters stay readable: nobody locks a limit up by what it asks.
    #[test]
    fn no_valid_claim_does_harm_to_any_meter_that_can_be_read(
        meter in meter(),
        (claim, meter_like) in valid_claim(),
        now_ms in number(),
        amount in number(),
    ) {
        let Ok(meter) = Meter::decode(&meter.encode()) else { return Ok(()) };
        let mut claim = claim;
        if meter_like {
            // As one who follows the same definition: else most meters start anew.
            let Rule { capacity, reclaim, .. } = claim.rule;
            let Meter { version, algorithm, limit, window_ms, offset_ms, .. } = meter;
            let edges = if offset_ms < window_ms { Edges::Every { offset_ms } } else { Edges::At([0, 1, 2]) };
            let capacity = capacity.min(algorithm.amount_max(window_ms));
            claim.rule = Rule { version, algorithm, limit, window_ms, capacity, edges, reclaim };
            if !claim.is_valid() {
                (claim.take, claim.row) = (Take::Try(1), None);
            }
        }
        prop_assert!(claim.is_valid(), "{:?}", claim);
        let settled = settle(&[claim.clone()], &[Some(meter.encode())], now_ms).unwrap();
        for (_, _, value) in &settled.effects {
            let meter = Meter::decode(value);
            prop_assert!(meter.is_ok(), "{:?}", core::str::from_utf8(value));
            let meter = meter.unwrap();
            prop_assert_eq!(&meter.encode(), value);
            meter.remaining(&claim.rule);
            meter.reset_ms(&claim.rule);
            meter.retry_ms(&claim.rule, amount);
        }
        prop_assert!(settled.worth_ms.iter().all(|worth_ms| *worth_ms <= NUMBER_MAX));
    }

    #[test]
    fn no_bytes_make_a_reader_panic(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
        drop((Meter::decode(&bytes), Charged::decode(&bytes), Charged::decode_memo(&bytes)));
    }

    /// Nearly right ones: a field is missing, or is another one's, or one too many.
    #[test]
    fn no_damage_makes_a_reader_panic_and_what_is_read_is_written_the_same(
        meter in meter(),
        field in any::<proptest::sample::Index>(),
        other in "[0-9]{0,20}|-?[a-z ]{0,3}",
        damage in 0..4_u8,
    ) {
        let text = String::from_utf8(meter.encode().to_vec()).unwrap();
        let mut fields: Vec<_> = text.split(' ').map(ToString::to_string).collect();
        let place = field.index(fields.len());
        match damage {
            0 => drop(fields.remove(place)),
            1 => fields.insert(place, other),
            2 => fields[place] = other,
            _ => {}
        }
        let text = fields.join(" ");
        if let Ok(read) = Meter::decode(text.as_bytes()) {
            prop_assert_eq!(Meter::decode(&read.encode()), Ok(read));
        }
        let answer = format!("C 5 0 0\n1 0 {text}");
        let charged = Charged::decode(answer.as_bytes());
        prop_assert_eq!(charged.is_ok(), Meter::decode(text.as_bytes()).is_ok());
        prop_assert_eq!(Charged::decode_memo(format!("digest {answer}").as_bytes()).is_ok(), charged.is_ok());
    }
}
