//! Limits on a real store (A2, A5 to A8, M1).

use super::counting::Counting;
use baton_core::Name;
use baton_core::limit::{Definition, Identity, Mechanism};
use baton_core::meter::Algorithm;
use baton_engine::limit::{Answered, Booked, CheckCall, LimitError, ReserveCall, Wanted};
use baton_engine::{Config, Engine, Random};
use baton_testkit::faulty::{Fault, Faulty};
use baton_testkit::store_url;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use tokio::time::Instant;

pub fn definition(algorithm: Algorithm, limit: u64, window_ms: u64) -> Definition {
    Definition { staggered: false, ..Definition::plain(algorithm, limit, window_ms) }
}

pub const COUNTING: [Algorithm; 4] =
    [Algorithm::TokenBucket, Algorithm::SlidingWindow, Algorithm::FixedWindow, Algorithm::SlidingLog];
pub const DAY_MS: u64 = 24 * 60 * 60 * 1000;

pub struct Ground {
    pub engines: Vec<Engine>,
    pub store: Arc<Counting>,
    pub faulty: Faulty,
    _directory: tempfile::TempDir,
}

/// Some nodes on one store.
pub async fn ground(nodes: usize) -> Ground {
    let directory = tempfile::tempdir().unwrap();
    let store = baton_store::open(&store_url(directory.path()), directory.path()).await.unwrap();
    let faulty = Faulty::new(store);
    let store = Arc::new(Counting::new(Arc::new(faulty.clone())));
    let mut engines = Vec::new();
    for _ in 0..nodes {
        engines.push(Engine::start(store.clone(), Config::default(), Random::system()).await.unwrap());
    }
    Ground { engines, store, faulty, _directory: directory }
}

pub fn name(limit: &str) -> Name {
    Name::new("default", limit)
}

pub fn call(limit: &str, key: &str, cost: u64) -> CheckCall {
    CheckCall { limit: name(limit), key: key.into(), cost, identity: Identity::default() }
}

pub async fn check(engine: &Engine, limit: &str, key: &str, cost: u64) -> Answered {
    engine.check_limits(&[call(limit, key, cost)], &Wanted::default()).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn many_nodes_admit_exactly_the_limit_whatever_the_algorithm() {
    let ground = ground(4).await;
    for (index, algorithm) in COUNTING.into_iter().enumerate() {
        let limit = format!("limit-{index}");
        ground.engines[0].put_limit(&name(&limit), definition(algorithm, 100, DAY_MS)).await.unwrap();
        let callers: Vec<_> = (0..20)
            .map(|caller| {
                let (engine, limit) = (ground.engines[caller % 4].clone(), limit.clone());
                tokio::spawn(async move {
                    let mut admitted = 0;
                    for _ in 0..6 {
                        admitted += u64::from(check(&engine, &limit, "k", 1).await.allowed);
                    }
                    admitted
                })
            })
            .collect();
        let mut admitted = 0;
        for caller in callers {
            admitted += caller.await.unwrap();
        }
        assert_eq!(admitted, 100, "{algorithm:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_by_one_of_several_limits_charges_none() {
    let ground = ground(1).await;
    let engine = &ground.engines[0];
    engine.put_limit(&name("wide"), definition(Algorithm::FixedWindow, 100, DAY_MS)).await.unwrap();
    engine.put_limit(&name("narrow"), definition(Algorithm::TokenBucket, 3, DAY_MS)).await.unwrap();
    let calls = [call("wide", "all", 1), call("narrow", "one", 1)];
    let mut allowed = 0;
    for _ in 0..10 {
        let answered = engine.check_limits(&calls, &Wanted::default()).await;
        let answered = answered.unwrap();
        allowed += u64::from(answered.allowed);
        if let Some((index, denial)) = answered.refused {
            assert_eq!((index, denial.reason), (1, "budget_exhausted"));
            let settles_at_once = engine.store().guarantees().charge_spans_groups;
            assert!(
                !settles_at_once || answered.checks[0].remaining == 97,
                "shown as if nothing had been asked"
            );
        }
    }
    assert_eq!(allowed, 3);
    // Where it takes several steps, they are settled behind the answers.
    let deadline = Instant::now() + Duration::from_secs(10);
    loop {
        let usage = engine.usage(&name("wide"), "all").await.unwrap();
        if usage.outstanding == 0 {
            assert_eq!(usage.used, 3);
            return;
        }
        assert!(Instant::now() < deadline, "{usage:?}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repeated_request_counts_once_and_with_other_parameters_it_is_refused() {
    let ground = ground(1).await;
    let engine = &ground.engines[0];
    engine.put_limit(&name("l"), definition(Algorithm::FixedWindow, 10, DAY_MS)).await.unwrap();
    let wanted = Wanted { request_id: Some("r".into()), ..Wanted::default() };
    for _ in 0..3 {
        let answered = engine.check_limits(&[call("l", "k", 2)], &wanted).await.unwrap();
        assert!(answered.allowed);
        assert_eq!(answered.checks[0].remaining, 8);
    }
    let other = engine.check_limits(&[call("l", "k", 3)], &wanted).await;
    assert_eq!(other.unwrap_err(), LimitError::RequestIdReused);
    assert_eq!(engine.usage(&name("l"), "k").await.unwrap().used, 2);
    // An answer that got lost is asked for again, and counts once.
    ground.faulty.set(Fault::AnswerLost);
    let lost = {
        let (engine, wanted) = (engine.clone(), Wanted { request_id: Some("s".into()), ..Wanted::default() });
        tokio::spawn(async move { engine.check_limits(&[call("l", "k", 1)], &wanted).await })
    };
    ground.faulty.called(ground.faulty.calls() + 2).await;
    ground.faulty.set(Fault::None);
    assert!(lost.await.unwrap().unwrap().allowed);
    assert_eq!(engine.usage(&name("l"), "k").await.unwrap().used, 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_counted_is_given_back_once_and_only_with_its_receipt() {
    let ground = ground(1).await;
    let engine = &ground.engines[0];
    for (index, algorithm) in COUNTING.into_iter().enumerate() {
        let limit = name(&format!("limit-{index}"));
        engine.put_limit(&limit, definition(algorithm, 10, DAY_MS)).await.unwrap();
        let wanted = Wanted { receipt: true, ..Wanted::default() };
        let calls =
            [CheckCall { limit: limit.clone(), key: "k".into(), cost: 4, identity: Identity::default() }];
        let receipt = engine.check_limits(&calls, &wanted).await.unwrap().checks.remove(0).receipt.unwrap();
        check(engine, limit.key(), "k", 3).await;
        let wrong = engine.refund(&limit, "other", &receipt, "").await.unwrap_err();
        assert_eq!(wrong, LimitError::BadReceipt);
        let first = engine.refund(&limit, "k", &receipt, "").await.unwrap();
        // A bucket has leaked a little meanwhile.
        assert!(first == 4 || (algorithm == Algorithm::TokenBucket && first == 3), "{algorithm:?}: {first}");
        for _ in 0..2 {
            assert_eq!(engine.refund(&limit, "k", &receipt, "").await.unwrap(), first, "the same answer");
        }
        let used = engine.usage(&limit, "k").await.unwrap().used;
        assert!((3..=4).contains(&used), "given back once: {used} of {algorithm:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reservation_says_when_and_can_be_cancelled() {
    let ground = ground(1).await;
    let engine = &ground.engines[0];
    engine.put_limit(&name("l"), definition(Algorithm::TokenBucket, 10, 100_000)).await.unwrap();
    assert!(check(engine, "l", "k", 10).await.allowed);
    let wanted = |cost, wait_max_ms| ReserveCall { key: "k".into(), cost, wait_max_ms, request_id: None };
    let Booked::At { wait_ms, reservation_id } =
        engine.reserve(&name("l"), &wanted(5, 100_000), "").await.unwrap()
    else {
        panic!("there is room within the window");
    };
    assert!((40_000..=50_000).contains(&wait_ms), "five of ten in a hundred seconds: {wait_ms}");
    let too_far = engine.reserve(&name("l"), &wanted(1, 100), "").await.unwrap();
    assert!(matches!(too_far, Booked::No(denial) if denial.retry_after_ms.is_some()), "{too_far:?}");
    let debt = engine.reserve(&name("l"), &wanted(10, DAY_MS), "").await.unwrap();
    assert!(matches!(debt, Booked::No(_)), "no more debt than a window: {debt:?}");
    assert!(engine.refund(&name("l"), "k", &reservation_id, "").await.unwrap() >= 4);
    let Booked::At { wait_ms, .. } = engine.reserve(&name("l"), &wanted(1, 100_000), "").await.unwrap()
    else {
        panic!("there is room again");
    };
    assert!(wait_ms <= 20_000, "as if the first had not been: {wait_ms}");
    let too_much = engine.reserve(&name("l"), &wanted(11, 100_000), "").await.unwrap_err();
    assert_eq!(too_much, LimitError::CostTooHigh { capacity: 10 });
}

/// Changes a limit while nine callers at three nodes use it, each time when so many more were admitted. What was admitted in all, and the
/// last limit.
async fn changed_under_load(ground: &Ground, changes: Vec<Definition>, between: u64) -> (u64, u64) {
    let last = changes.last().map(|definition| definition.limit).unwrap();
    let (admitted, is_over) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
    let mut changes = changes.into_iter();
    ground.engines[0].put_limit(&name("l"), changes.next().unwrap()).await.unwrap();
    let callers: Vec<_> = (0..9)
        .map(|caller| {
            let (engine, admitted, is_over) =
                (ground.engines[caller % 3].clone(), admitted.clone(), is_over.clone());
            tokio::spawn(async move {
                while !is_over.load(Ordering::SeqCst) {
                    let allowed = check(&engine, "l", "k", 1).await.allowed;
                    admitted.fetch_add(u64::from(allowed), Ordering::SeqCst);
                    tokio::task::yield_now().await;
                }
            })
        })
        .collect();
    let more = async |count: u64| {
        let before = admitted.load(Ordering::SeqCst);
        let until = Instant::now() + Duration::from_secs(30);
        while admitted.load(Ordering::SeqCst) < before + count {
            assert!(Instant::now() < until, "{before} admitted, and no more");
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    more(between).await;
    for definition in changes {
        ground.engines[1].put_limit(&name("l"), definition).await.unwrap();
        more(between).await;
    }
    is_over.store(true, Ordering::SeqCst);
    for caller in callers {
        caller.await.unwrap();
    }
    (admitted.load(Ordering::SeqCst), last)
}

/// Nothing that was admitted is forgotten, up to the limit that counts now.
async fn is_all_counted(ground: &Ground, admitted: u64, limit: u64) {
    let usage = ground.engines[1].usage(&name("l"), "k").await.unwrap();
    let counted = usage.used + usage.outstanding;
    assert!(counted >= admitted.min(limit), "{admitted} admitted of {limit}, and {usage:?}");
    for engine in &ground.engines {
        engine.drain().await;
    }
    // What nodes had leased is given back, and what they had spent is told.
    let usage = ground.engines[1].usage(&name("l"), "k").await.unwrap();
    assert!(usage.outstanding == 0 && usage.used >= admitted.min(limit), "{admitted} admitted, {usage:?}");
    assert!(usage.used <= admitted, "{admitted} admitted, {usage:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_definition_that_changes_under_load_loses_no_count() {
    let ground = ground(3).await;
    let changes = vec![
        definition(Algorithm::FixedWindow, 100, DAY_MS),
        definition(Algorithm::FixedWindow, 200, DAY_MS),
        definition(Algorithm::SlidingLog, 300, DAY_MS),
        definition(Algorithm::TokenBucket, 400, DAY_MS),
        definition(Algorithm::SlidingWindow, 500, DAY_MS),
    ];
    let (admitted, limit) = changed_under_load(&ground, changes, 40).await;
    assert!((200..=limit).contains(&admitted), "{admitted}");
    is_all_counted(&ground, admitted, limit).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lowered_limit_admits_nothing_while_more_than_that_was_used_and_loses_no_count() {
    let ground = ground(3).await;
    let changes = vec![
        definition(Algorithm::FixedWindow, 1_000, DAY_MS),
        definition(Algorithm::TokenBucket, 900, DAY_MS),
        definition(Algorithm::SlidingWindow, 800, DAY_MS),
    ];
    let (admitted, _) = changed_under_load(&ground, changes, 50).await;
    ground.engines[1].put_limit(&name("l"), definition(Algorithm::FixedWindow, 120, DAY_MS)).await.unwrap();
    assert!(admitted >= 150 && !check(&ground.engines[1], "l", "k", 1).await.allowed);
    let usage = ground.engines[1].usage(&name("l"), "k").await.unwrap();
    assert_eq!(usage.used, 120, "what was admitted is still counted: {usage:?}");
    // The others hear of it within moments, or read it again after a while.
    let until = Instant::now() + Duration::from_secs(20);
    while ground.engines[2].usage(&name("l"), "k").await.unwrap().capacity != usage.capacity {
        assert!(Instant::now() < until, "another node never hears of a change");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leased_definition_that_changes_under_load_loses_no_count() {
    let ground = ground(3).await;
    let leased = |algorithm, limit| Definition {
        mechanism: Mechanism::Leased,
        ..definition(algorithm, limit, DAY_MS)
    };
    let changes = vec![
        leased(Algorithm::FixedWindow, 20_000),
        leased(Algorithm::FixedWindow, 15_000),
        leased(Algorithm::TokenBucket, 30_000),
        definition(Algorithm::TokenBucket, 30_000, DAY_MS),
        leased(Algorithm::SlidingWindow, 25_000),
    ];
    let (admitted, limit) = changed_under_load(&ground, changes, 500).await;
    is_all_counted(&ground, admitted, limit).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_window_that_changes_under_load_loses_no_count() {
    let ground = ground(3).await;
    let changes = vec![
        definition(Algorithm::FixedWindow, 2_000, DAY_MS),
        definition(Algorithm::FixedWindow, 2_000, 2 * DAY_MS),
        definition(Algorithm::SlidingWindow, 2_000, 3 * DAY_MS),
        definition(Algorithm::SlidingWindow, 2_000, 7 * DAY_MS),
    ];
    let (admitted, limit) = changed_under_load(&ground, changes, 100).await;
    is_all_counted(&ground, admitted, limit).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_place_in_flight_comes_back_when_it_is_given_back_or_forgotten() {
    let ground = ground(1).await;
    let engine = &ground.engines[0];
    let definition = Definition { lease_ttl_ms: Some(3_000), ..definition(Algorithm::InFlight, 2, 1) };
    engine.put_limit(&name("l"), definition).await.unwrap();
    let first = check(engine, "l", "k", 1).await.checks.remove(0).place.unwrap();
    assert!(check(engine, "l", "k", 1).await.allowed);
    let full = check(engine, "l", "k", 1).await;
    assert!(!full.allowed && full.refused.unwrap().1.retry_after_ms.is_some_and(|millis| millis <= 3_000));
    assert_eq!(engine.leases(&name("l"), 10).await.unwrap().0.len(), 2);
    for _ in 0..2 {
        engine.leave(&name("l"), "k", &first.lease_id, "").await.unwrap();
    }
    assert!(check(engine, "l", "k", 1).await.allowed);
    // The two that nobody gives back end by themselves.
    let deadline = Instant::now() + Duration::from_secs(30);
    while !check(engine, "l", "k", 2).await.allowed {
        assert!(Instant::now() < deadline, "places of the forgotten stay taken");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn beyond_the_most_keys_all_others_share_one_count() {
    let ground = ground(1).await;
    let engine = &ground.engines[0];
    let definition = Definition { keys_max: 3, ..definition(Algorithm::FixedWindow, 2, DAY_MS) };
    engine.put_limit(&name("l"), definition).await.unwrap();
    for key in ["a", "b", "c"] {
        assert!(check(engine, "l", key, 2).await.allowed, "{key} has a count of its own");
    }
    assert!(check(engine, "l", "d", 1).await.allowed);
    assert!(check(engine, "l", "e", 1).await.allowed);
    assert!(!check(engine, "l", "f", 1).await.allowed, "d and e have used up what all others share");
    assert!(!check(engine, "l", "a", 1).await.allowed);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_limit_that_only_counts_refuses_nobody_and_says_what_it_would_have_done() {
    let ground = ground(1).await;
    let engine = &ground.engines[0];
    let definition = Definition { dry_run: true, ..definition(Algorithm::FixedWindow, 2, DAY_MS) };
    engine.put_limit(&name("l"), definition).await.unwrap();
    let mut would_refuse = Vec::new();
    for _ in 0..4 {
        let answered = check(engine, "l", "k", 1).await;
        assert!(answered.allowed);
        would_refuse.push(answered.checks[0].would_refuse);
    }
    assert_eq!(would_refuse, [false, false, true, true]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cost_beyond_all_counting_is_a_plain_no_and_a_look_beside_what_counts_denies_nothing() {
    let ground = ground(1).await;
    let engine = &ground.engines[0];
    engine.put_limit(&name("l"), definition(Algorithm::TokenBucket, 1, 30 * DAY_MS)).await.unwrap();
    let refused = check(engine, "l", "k", 1_000_000_000).await;
    assert_eq!(refused.refused.map(|(_, denial)| denial.retry_after_ms), Some(None));
    assert!(check(engine, "l", "k", 1).await.allowed);
    let leased =
        Definition { mechanism: Mechanism::Leased, ..definition(Algorithm::FixedWindow, 1_000, DAY_MS) };
    engine.put_limit(&name("leased"), leased).await.unwrap();
    for _ in 0..4 {
        let calls = [call("leased", "k", 1), call("l", "k", 0)];
        let answered = engine.check_limits(&calls, &Wanted::default()).await.unwrap();
        assert!(answered.allowed, "{answered:?}");
        assert_eq!(answered.checks[1].remaining, 0);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repeated_request_over_several_limits_counts_once_also_when_nothing_is_left() {
    let ground = ground(2).await;
    let [engine, other] = &ground.engines[..] else { panic!("two nodes") };
    for (limit, most) in [("a", 1), ("b", 2), ("c", 3)] {
        engine.put_limit(&name(limit), definition(Algorithm::FixedWindow, most, DAY_MS)).await.unwrap();
    }
    let calls = [call("a", "k", 1), call("b", "k", 1), call("c", "k", 1)];
    let wanted = Wanted { request_id: Some("r".into()), ..Wanted::default() };
    for engine in [engine, other, engine] {
        assert!(engine.check_limits(&calls, &wanted).await.unwrap().allowed);
    }
    let anew = Wanted { request_id: Some("s".into()), ..Wanted::default() };
    assert!(!other.check_limits(&calls, &anew).await.unwrap().allowed);
    let deadline = Instant::now() + Duration::from_secs(10);
    for limit in ["a", "b", "c"] {
        let mut usage = engine.usage(&name(limit), "k").await.unwrap();
        while usage.outstanding > 0 {
            assert!(Instant::now() < deadline, "{limit}: {usage:?}");
            tokio::time::sleep(Duration::from_millis(5)).await;
            usage = engine.usage(&name(limit), "k").await.unwrap();
        }
        assert_eq!(usage.used, 1, "{limit}");
    }
}
