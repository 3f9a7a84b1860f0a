//! Limits while the store can't be asked: each policy does what it says, within its bound, and what was admitted is counted
//! afterwards.

use super::limits::definition;
use baton_core::Name;
use baton_core::limit::{Definition, Mechanism, Policy};
use baton_core::meter::Algorithm;
use baton_engine::limit::{Answered, CheckCall, LimitError, Overshoot, Source, Wanted};
use baton_engine::{Config, Engine, Failure, Random};
use baton_testkit::faulty::{Fault, Faulty};
use prometheus_client::registry::Registry;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

const DAY_MS: u64 = 24 * 60 * 60 * 1000;

struct Ground {
    engine: Engine,
    store: Faulty,
    _directory: tempfile::TempDir,
}

async fn ground(definition: Definition) -> Ground {
    let directory = tempfile::tempdir().unwrap();
    let store = baton_store::open("embedded:", directory.path()).await.unwrap();
    let store = Faulty::new(store);
    let engine = Engine::start(Arc::new(store.clone()), Config::default(), Random::system()).await.unwrap();
    engine.put_limit(&name(), definition).await.unwrap();
    Ground { engine, store, _directory: directory }
}

fn name() -> Name {
    Name::new("default", "l")
}

/// A hundred a day, for four nodes of which this is the first.
fn limited(on_failure: Policy) -> Definition {
    Definition { on_failure, expected_nodes: Some(4), ..definition(Algorithm::FixedWindow, 100, DAY_MS) }
}

impl Ground {
    async fn check(&self) -> Answered {
        let calls = [CheckCall { limit: name(), key: "k".into(), cost: 1 }];
        self.engine.check_limits(&calls, &Wanted::default()).await.unwrap()
    }

    /// How many of so many are admitted, and the last answer.
    async fn admitted(&self, of: usize) -> (usize, Answered) {
        let mut admitted = 0;
        let mut last = self.check().await;
        for _ in 1..of {
            admitted += usize::from(last.allowed);
            last = self.check().await;
        }
        (admitted + usize::from(last.allowed), last)
    }

    /// Waits until the store has counted this much.
    async fn counted(&self, used: u64) {
        let deadline = Instant::now() + Duration::from_secs(30);
        loop {
            let found = self.engine.usage(&name(), "k").await.unwrap().used;
            if found == used {
                return;
            }
            assert!(found < used && Instant::now() < deadline, "{found} counted, not {used}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn closed_admits_nothing_and_says_why() {
    let ground = ground(limited(Policy::Closed)).await;
    assert!(ground.check().await.allowed);
    for fault in [Fault::Unavailable, Fault::Lost] {
        ground.store.set(fault);
        let (admitted, last) = ground.admitted(3).await;
        assert_eq!((admitted, last.refused.unwrap().1.reason), (0, "store_unavailable"));
        assert_eq!(last.checks[0].source, Source::Fallback);
        assert!(last.refused.unwrap().1.retry_after_ms.is_some());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn closed_local_admits_this_node_s_share_of_the_limit() {
    let ground = ground(limited(Policy::ClosedLocal)).await;
    assert!(ground.check().await.allowed);
    ground.store.set(Fault::Unavailable);
    let (admitted, last) = ground.admitted(50).await;
    assert_eq!((admitted, last.refused.unwrap().1.reason), (25, "local_budget_exhausted"));
    ground.store.set(Fault::None);
    ground.counted(26).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn open_admits_up_to_its_cap_and_the_overage_is_counted_after_recovery() {
    let ground = ground(Definition { local_cap: Some(150), ..limited(Policy::Open) }).await;
    assert_eq!(ground.admitted(90).await.0, 90);
    ground.store.set(Fault::Unavailable);
    assert_eq!(ground.admitted(200).await.0, 150, "the cap, whatever the limit says");
    ground.store.set(Fault::None);
    ground.counted(240).await;
    assert!(!ground.check().await.allowed, "more was used than may be");
}

#[tokio::test(flavor = "multi_thread")]
async fn local_and_snapshot_divide_what_remained_and_an_outage_that_flaps_brings_no_fresh_share() {
    for policy in [Policy::Local, Policy::Snapshot] {
        let ground = ground(limited(policy)).await;
        assert_eq!(ground.admitted(60).await.0, 60);
        ground.store.set(Fault::Unavailable);
        assert_eq!(ground.admitted(30).await.0, 10, "{policy:?}: a quarter of the forty that remained");
        ground.store.set(Fault::None);
        ground.counted(70).await;
        assert!(ground.check().await.allowed, "the store decides again");
        ground.store.set(Fault::Unavailable);
        assert_eq!(ground.admitted(30).await.0, 0, "{policy:?}: its share is used up for this window");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_that_was_never_seen_has_its_share_of_the_whole() {
    let ground = ground(limited(Policy::Local)).await;
    ground.store.set(Fault::Unavailable);
    assert_eq!(ground.admitted(60).await.0, 25);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_leased_is_spent_before_the_policy_decides() {
    let leased = Definition { mechanism: Mechanism::Leased, limit: 1_000, ..limited(Policy::Closed) };
    let ground = ground(leased).await;
    assert_eq!(ground.admitted(3).await.0, 3);
    ground.store.set(Fault::Unavailable);
    let (admitted, last) = ground.admitted(100).await;
    assert!((10..=60).contains(&admitted), "the rest of a lease: {admitted}");
    assert_eq!(last.refused.unwrap().1.reason, "store_unavailable");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_debt_whose_settlement_is_not_heard_of_is_settled_once() {
    let ground = ground(Definition { local_cap: Some(10), ..limited(Policy::Open) }).await;
    assert!(ground.check().await.allowed);
    ground.store.set(Fault::Unavailable);
    assert_eq!(ground.admitted(20).await.0, 10);
    // It arrives, and nobody hears of it: it is offered again.
    let before = ground.store.calls();
    ground.store.set(Fault::AnswerLost);
    ground.store.called(before + 4).await;
    ground.store.set(Fault::None);
    ground.counted(11).await;
    // Another debt after it: by then the first would have been settled a second time.
    ground.store.set(Fault::Unavailable);
    assert_eq!(ground.admitted(5).await.0, 0, "the cap is for the whole window");
    ground.store.set(Fault::None);
    assert!(ground.check().await.allowed);
    ground.counted(12).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn of_a_limit_that_is_not_known_nothing_is_said() {
    let ground = ground(limited(Policy::Open)).await;
    ground.store.set(Fault::Unavailable);
    let calls = [CheckCall { limit: Name::new("default", "other"), key: "k".into(), cost: 1 }];
    let error = ground.engine.check_limits(&calls, &Wanted::default()).await.unwrap_err();
    assert_eq!(error, LimitError::Failed(Failure::Unavailable { unknown: false }));
}

#[tokio::test]
async fn what_had_no_limit_has_none_in_an_outage_and_one_that_is_defined_is_found_at_once() {
    let ground = ground(limited(Policy::Open)).await;
    let (engine, other) = (&ground.engine, Name::new("default", "other"));
    assert_eq!(engine.has_limit(&name()).await, Ok(true));
    assert_eq!(engine.has_limit(&other).await, Ok(false));
    ground.store.set(Fault::Unavailable);
    assert_eq!(engine.has_limit(&name()).await, Ok(true));
    assert_eq!(engine.has_limit(&other).await, Ok(false));
    // Longer ago than it is believed without asking.
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(60)).await;
    tokio::time::resume();
    assert_eq!(engine.has_limit(&other).await, Ok(false));
    let unheard_of = engine.has_limit(&Name::new("default", "unheard of")).await;
    assert!(matches!(unheard_of, Err(LimitError::Failed(_))), "{unheard_of:?}");
    ground.store.set(Fault::None);
    engine.put_limit(&other, limited(Policy::Open)).await.unwrap();
    assert_eq!(engine.has_limit(&other).await, Ok(true));
    engine.remove_limit(&other).await.unwrap();
    assert_eq!(engine.has_limit(&other).await, Ok(false));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_an_outage_let_pass_beyond_the_limit_is_measured_beside_the_bound() {
    let ground = ground(limited(Policy::Open)).await;
    assert_eq!(ground.admitted(100).await.0, 100, "the store has admitted the limit");
    let measured = || async { ground.engine.bound(&name(), "k").await.unwrap().2 };
    assert_eq!(measured().await, Overshoot::default());
    ground.store.set(Fault::Unavailable);
    assert_eq!(ground.admitted(30).await.0, 30, "and the node some more");
    assert_eq!(measured().await.amount, 0, "which the store doesn't know yet");
    ground.store.set(Fault::None);
    ground.counted(130).await;
    let seen = measured().await;
    assert_eq!((seen.amount, seen.at.is_some()), (30, true));
    let (bound, _, _) = ground.engine.bound(&name(), "k").await.unwrap();
    let outage = bound.items.iter().find(|item| item.source == "outage").and_then(|item| item.amount);
    assert!(outage >= Some(seen.amount), "{outage:?}");
    let mut registry = Registry::default();
    ground.engine.metrics().register(&mut registry);
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
    let beyond = |le: &str| {
        let line = format!("limit_overshoot_ratio_bucket{{le=\"{le}\"}} ");
        let count = text.lines().find_map(|text| text.strip_prefix(&line));
        count.map(|count| count.parse::<u64>().unwrap()).unwrap()
    };
    assert!(beyond("0.25") < beyond("0.5"), "three tenths of the limit: {text}");
}
