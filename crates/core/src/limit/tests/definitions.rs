//! Definitions: written and read, changed, overridden, bounded.

use crate::limit::definition::OVERRIDES_MAX;
use crate::limit::{
    Calendar, CalendarUnit, Defined, Definition, Identity, Mechanism, Mitigation, Override, Policy, Purpose,
    Put, bound, put, remove,
};
use crate::meter::{Algorithm, Edges, Reclaim};
use crate::name::Name;
use crate::record::{Revision, WallTime};
use crate::view::{Pause, View};
use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use proptest::prelude::*;

pub(crate) fn plain(limit: u64, window_ms: u64) -> Definition {
    Definition {
        staggered: false,
        keys_max: 1,
        ..Definition::plain(Algorithm::FixedWindow, limit, window_ms)
    }
}

fn some(number: u64) -> Option<u64> {
    (number > 0).then_some(number)
}

prop_compose! {
    fn definition()(
        algorithm in prop::sample::select(Algorithm::ALL.to_vec()),
        numbers: [u64; 8],
        flags: [bool; 5],
        calendar in prop::option::of(("[A-Za-z/]{0,20}", any::<bool>())),
        mechanism in prop::sample::select(Mechanism::ALL.to_vec()),
        anonymous in prop::option::of(prop::sample::select(Mechanism::ALL.to_vec())),
        on_failure in prop::sample::select(Policy::ALL.to_vec()),
        purpose in prop::option::of(prop::sample::select(Purpose::ALL.to_vec())),
        overrides in prop::collection::vec((".{0,12}", any::<u64>()), 0..5),
        slack in prop::array::uniform3(prop::option::of(0..u64::MAX)),
        hot_key in prop_oneof![
            Just(Mitigation::Delegate),
            (2..u64::MAX).prop_map(|parts| Mitigation::Split { parts }),
            Just(Mitigation::Pin),
            (1..u64::MAX).prop_map(|per_second| Mitigation::Cap { per_second }),
        ],
    ) -> Definition {
        let [limit, window_ms, burst, lease_size, lease_ttl_ms, local_cap, expected_nodes, keys_max] = numbers;
        let is_approximate = [Some(mechanism), anonymous].contains(&Some(Mechanism::Approximate));
        let has_rhythm = is_approximate || [Some(mechanism), anonymous].contains(&Some(Mechanism::Gossip));
        let unit = |is_day| if is_day { CalendarUnit::Day } else { CalendarUnit::Month };
        Definition {
            algorithm,
            limit: limit.max(1),
            window_ms: window_ms.max(1),
            burst: some(burst),
            calendar: calendar.map(|(time_zone, is_day)| Calendar { unit: unit(is_day), time_zone }),
            staggered: flags[0],
            mechanism,
            anonymous,
            on_failure,
            purpose,
            lease_size: some(lease_size),
            lease_ttl_ms: some(lease_ttl_ms),
            reclaim: if flags[1] { Reclaim::Drop } else { Reclaim::Burn },
            epsilon: slack[0].filter(|_| is_approximate),
            low_watermark: slack[1].filter(|_| is_approximate),
            sync_ms: slack[2].filter(|_| has_rhythm),
            local_cap: some(local_cap),
            expected_nodes: some(expected_nodes),
            keys_max,
            dry_run: flags[2],
            audit: flags[3],
            is_strict: flags[4],
            hot_key,
            changed_at: WallTime(limit ^ window_ms),
            overrides: overrides.into_iter().map(|(key, limit)| Override { key, limit }).collect(),
        }
    }
}

proptest! {
    #[test]
    fn a_definition_is_read_as_it_was_written(definition in definition()) {
        prop_assert_eq!(Definition::decode(&definition.encode()), Ok(definition));
    }

    #[test]
    fn damaged_bytes_are_unreadable_and_never_a_panic(value: Vec<u8>) {
        drop(Definition::decode(&value));
    }
}

#[test]
fn a_definition_without_end_or_of_another_version_is_unreadable() {
    let mut value = plain(1, 1).encode().to_vec();
    value[0] = 2;
    assert!(Definition::decode(&value).is_err());
    let mut value = plain(1, 1).encode().to_vec();
    value.extend([1, 1]);
    assert!(Definition::decode(&value).is_err(), "one part is no split");
    let mut value = plain(1, 1).encode().to_vec();
    value.extend([0, 0, 9]);
    assert!(Definition::decode(&value).is_err(), "there is no such mechanism");
    let gossip = Definition { mechanism: Mechanism::Gossip, ..plain(1, 1) };
    let (plain, mut value) = (plain(1, 1).encode().to_vec(), gossip.encode().to_vec());
    let places: Vec<_> = (1..plain.len()).filter(|place| plain[*place] != value[*place]).collect();
    assert_eq!(places.len(), 1, "nothing else differs in what both have");
    value[places[0]] = 6;
    assert!(Definition::decode(&value).is_err(), "a mechanism that this version doesn't know");
    let many = Override { key: "k".into(), limit: 1 };
    let definition = Definition { overrides: vec![many; OVERRIDES_MAX + 1], ..gossip };
    assert!(Definition::decode(&definition.encode()).is_err());
}

#[test]
fn a_key_of_its_own_has_its_own_limit_and_bursts_in_proportion() {
    let own = |key: &str, limit| Override { key: key.into(), limit };
    let overrides = vec![own("acme", 50), own("zoo", 1)];
    let bucket =
        Definition { algorithm: Algorithm::TokenBucket, burst: Some(20), overrides, ..plain(100, 1_000) };
    for (key, limit, capacity) in [("other", 100, 20), ("acme", 50, 10), ("zoo", 1, 1), ("", 100, 20)] {
        assert_eq!((bucket.limit_of(key), bucket.capacity_of(key)), (limit, capacity), "{key}");
    }
    let fixed = Definition { algorithm: Algorithm::FixedWindow, ..bucket };
    assert_eq!(fixed.capacity_of("acme"), 50, "a burst is a bucket's");
}

#[test]
fn who_is_not_known_follows_a_mechanism_of_their_own_if_there_is_one_and_nothing_else_differs() {
    let definition = Definition { mechanism: Mechanism::Owned, ..plain(1_000, 60_000) };
    assert_eq!(definition.own_of(Identity::Anonymous), None);
    let two = Definition { anonymous: Some(Mechanism::Approximate), ..definition };
    assert_eq!(two.own_of(Identity::Authenticated), None);
    let own = Definition { mechanism: Mechanism::Approximate, ..two.clone() };
    assert_eq!(two.own_of(Identity::Anonymous), Some(own));
    assert!(two.is_ever(Mechanism::Owned) && two.is_ever(Mechanism::Approximate));
    assert!(!two.is_ever(Mechanism::Leased));
    // Each by its own rule of the one meter: what is exact stays so.
    let defined = Defined { definition: two, version: Revision(1) };
    let own = defined.own_of(Identity::Anonymous).unwrap();
    assert_eq!((defined.rule("k", None).capacity, own.rule("k", None).capacity), (1_000, 1_005));
    assert_eq!(defined.rule("k", None).version, own.rule("k", None).version);
}

#[test]
fn windows_are_staggered_by_key_alone_and_the_same_everywhere() {
    let defined = |staggered| Defined {
        definition: Definition { staggered, ..plain(1, 60_000) },
        version: Revision(7),
    };
    let offset = |staggered, key: &str| match defined(staggered).rule(key, None).edges {
        Edges::Every { offset_ms } => offset_ms,
        Edges::At(_) => panic!("no calendar"),
    };
    assert_eq!(offset(false, "a"), 0);
    // What nodes must agree on stays as it is.
    assert_eq!((offset(true, "a"), offset(true, "b")), (38_719, 59_615));
    let offsets: alloc::collections::BTreeSet<_> =
        (0..1_000).map(|key| offset(true, &alloc::format!("key-{key}")) / 600).collect();
    assert!(offsets.len() > 95, "a thousand keys are spread over the window: {}", offsets.len());
    assert_eq!(defined(true).rule("a", Some([1, 2, 3])).edges, Edges::At([1, 2, 3]));
    assert_eq!(defined(true).rule("a", None).version, 7);
}

#[test]
fn putting_what_is_there_changes_nothing_and_removing_tells_whether_it_was() {
    let name = Name::new("default", "l");
    let decide = |value: Option<Definition>, definition: &Definition| {
        let mut view = View::new(name.group());
        let key = crate::limit::definition_key(&name);
        let record = value.map(|value| crate::record::Record {
            key: key.clone(),
            value: value.encode(),
            created: Revision(1),
            revision: Revision(1),
            touches: 0,
            expires_in: None,
        });
        assert_eq!(put(&name, definition, &mut view), Err(Pause::Read(key.clone())), "it looks first");
        view.learn(&key, record);
        (put(&name, definition, &mut view).unwrap(), view.is_dirty())
    };
    let later = Definition { changed_at: WallTime(9), ..plain(1, 1) };
    assert_eq!(decide(None, &plain(1, 1)), (Put::Made, true));
    assert_eq!(decide(Some(plain(2, 1)), &plain(1, 1)), (Put::Changed, true));
    assert_eq!(decide(Some(plain(1, 1)), &later), (Put::Same(Box::new(plain(1, 1))), false));
    let mut view = View::new(name.group());
    view.learn(&crate::limit::definition_key(&name), None);
    assert_eq!(remove(&name, &mut view), Ok(false));
}

#[test]
fn a_bound_adds_up_and_has_no_number_where_there_is_none() {
    let worst = |definition: &Definition| bound(definition, "k", 3, "nothing").worst();
    for (algorithm, expected) in [
        (Algorithm::TokenBucket, 130),
        (Algorithm::SlidingWindow, 200),
        (Algorithm::FixedWindow, 200),
        (Algorithm::SlidingLog, 100),
    ] {
        let burst = (algorithm == Algorithm::TokenBucket).then_some(30);
        let definition = Definition { algorithm, burst, ..plain(100, 1_000) };
        assert_eq!(worst(&definition), Some(expected), "{algorithm:?}");
        let leased = Definition { mechanism: Mechanism::Leased, ..definition };
        assert_eq!(worst(&leased), Some(expected), "leases add nothing");
        assert_eq!(
            worst(&Definition { reclaim: Reclaim::Drop, ..leased }),
            None,
            "unless they are taken back early"
        );
    }
    let outage = |definition: &Definition| {
        let items = bound(definition, "k", 3, "nothing").items;
        items.into_iter().find(|item| item.source == "outage").unwrap().amount
    };
    let open = Definition { on_failure: Policy::Open, local_cap: Some(7), ..plain(100, 1_000) };
    assert_eq!(outage(&open), Some(42), "three nodes, and a fixed window's two");
    let log = Definition { algorithm: Algorithm::SlidingLog, ..open.clone() };
    assert_eq!(outage(&log), Some(21));
    assert_eq!(outage(&Definition { on_failure: Policy::Local, ..log }), Some(100));
    assert_eq!(outage(&Definition { expected_nodes: Some(10), ..open }), Some(140));
    assert_eq!(outage(&plain(100, 1_000)), Some(0));
    for policy in Policy::ALL {
        let reasons = bound(&Definition { on_failure: *policy, ..plain(1, 1) }, "k", 1, "nothing").items;
        assert!(reasons.iter().all(|item| !item.because.is_empty()), "{policy:?}");
    }
}

#[test]
fn a_purpose_chooses_all_three() {
    for purpose in Purpose::ALL {
        let (algorithm, mechanism, policy) = purpose.preset();
        assert_ne!(algorithm, Algorithm::InFlight);
        let is_exact = mechanism == Mechanism::Central;
        let must_be = matches!(purpose, Purpose::Security | Purpose::Billing);
        assert!(is_exact || !must_be, "{purpose:?}: {mechanism:?}, {policy:?}");
    }
    let names: Vec<_> = Purpose::ALL.iter().map(|purpose| String::from(purpose.as_str())).collect();
    assert_eq!(names, ["security", "abuse", "authenticated", "billing"]);
}
