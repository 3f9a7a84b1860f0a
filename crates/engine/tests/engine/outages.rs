//! Limits while the store can't be asked: each policy does what it says, within its bound, and what was admitted is counted
//! afterwards.

use super::limits::definition;
use super::locks::until;
use baton_core::Name;
use baton_core::limit::{Definition, Identity, Mechanism, Policy};
use baton_core::meter::Algorithm;
use baton_engine::limit::{Answered, CheckCall, LimitError, Overshoot, Source, Wanted};
use baton_engine::state::State;
use baton_engine::{Config, Engine, Failure, Random};
use baton_testkit::faulty::{Fault, Faulty};
use baton_testkit::store_url;
use prometheus_client::registry::Registry;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;
use tokio::time::Instant;

const DAY_MS: u64 = 24 * 60 * 60 * 1000;

struct Ground {
    engine: Engine,
    store: Faulty,
    /// On the same store, which never fails it.
    witness: Engine,
    _directory: TempDir,
}

async fn ground(definition: Definition) -> Ground {
    ground_with(definition, Config::default()).await
}

async fn ground_with(definition: Definition, config: Config) -> Ground {
    let directory = tempfile::tempdir().unwrap();
    let url = store_url(directory.path());
    ground_on(&url, directory, definition, config).await
}

async fn ground_on(url: &str, directory: TempDir, definition: Definition, config: Config) -> Ground {
    let store = baton_store::open(url, directory.path()).await.unwrap();
    let witness = Engine::start(store.clone(), Config::default(), Random::system()).await.unwrap();
    let store = Faulty::new(store);
    let engine = Engine::start(Arc::new(store.clone()), config, Random::system()).await.unwrap();
    engine.put_limit(&name(), definition).await.unwrap();
    Ground { engine, store, witness, _directory: directory }
}

/// Files of what is owed. Beside them a node keeps a copy of the limits, if its store is a server.
fn debts(state: &Path) -> usize {
    let names = std::fs::read_dir(state).into_iter().flatten().map(|entry| entry.unwrap().file_name());
    names.filter(|name| name.to_str().unwrap().starts_with("spool-")).count()
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
        self.check_of("k", 1).await
    }

    async fn check_of(&self, key: &str, cost: u64) -> Answered {
        let calls = [CheckCall { limit: name(), key: key.into(), cost, identity: Identity::default() }];
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

    /// Lets what is owed arrive without anybody hearing of it, until this much is counted.
    async fn settled_unheard(&self, used: u64) {
        self.store.set(Fault::AnswerLost);
        let deadline = Instant::now() + Duration::from_secs(30);
        while self.witness.usage(&name(), "k").await.unwrap().used != used {
            assert!(Instant::now() < deadline, "it never arrived");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
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
    ground.settled_unheard(11).await;
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
    let calls = [CheckCall {
        limit: Name::new("default", "other"),
        key: "k".into(),
        cost: 1,
        identity: Identity::default(),
    }];
    let error = ground.engine.check_limits(&calls, &Wanted::default()).await.unwrap_err();
    assert_eq!(error, LimitError::Failed(Failure::Unavailable { unknown: false }));
}

#[tokio::test]
async fn what_had_no_limit_has_none_in_an_outage_and_one_that_is_defined_is_found_at_once() {
    // Its clock is moved, by which connections to a server would be over.
    let directory = tempfile::tempdir().unwrap();
    let ground = ground_on("embedded:", directory, limited(Policy::Open), Config::default()).await;
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

#[tokio::test(flavor = "multi_thread")]
async fn more_than_a_node_s_share_is_worth_trying_when_the_store_is_back_and_more_than_the_limit_never() {
    let ground = ground(limited(Policy::ClosedLocal)).await;
    ground.store.set(Fault::Unavailable);
    for (cost, retry) in [(26, true), (100, true), (101, false)] {
        let refused = ground.check_of("k", cost).await.refused.unwrap().1;
        assert_eq!(
            (refused.reason, refused.retry_after_ms.is_some()),
            ("local_budget_exhausted", retry),
            "{cost}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_look_in_an_outage_says_whether_anything_is_left() {
    for (policy, at_first) in [(Policy::ClosedLocal, true), (Policy::Closed, false)] {
        let ground = ground(limited(policy)).await;
        ground.store.set(Fault::Unavailable);
        assert_eq!(ground.check_of("k", 0).await.allowed, at_first);
        assert_eq!(ground.admitted(30).await.0, if at_first { 25 } else { 0 }, "a look takes nothing");
        let look = ground.check_of("k", 0).await;
        assert!(!look.allowed && look.refused.is_some());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dry_run_in_an_outage_says_what_it_would_have_done_and_refuses_nobody() {
    for (policy, would_admit) in [(Policy::ClosedLocal, 25), (Policy::Closed, 0)] {
        let ground = ground(Definition { dry_run: true, ..limited(policy) }).await;
        ground.store.set(Fault::Unavailable);
        let mut refused = 0;
        for _ in 0..40 {
            let answered = ground.check().await;
            assert!(answered.allowed);
            refused += u32::from(answered.checks[0].would_refuse);
        }
        assert_eq!(refused, 40 - would_admit, "{policy:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_is_sent_again_in_an_outage_or_after_it_counts_once() {
    let ground = ground(limited(Policy::ClosedLocal)).await;
    ground.store.set(Fault::Unavailable);
    let wanted = Wanted { request_id: Some("r".into()), ..Wanted::default() };
    let calls = [CheckCall { limit: name(), key: "k".into(), cost: 3, identity: Identity::default() }];
    let first = ground.engine.check_limits(&calls, &wanted).await.unwrap();
    assert!(first.allowed);
    assert_eq!(ground.engine.check_limits(&calls, &wanted).await.unwrap(), first);
    let other = [CheckCall { cost: 4, ..calls[0].clone() }];
    assert_eq!(ground.engine.check_limits(&other, &wanted).await, Err(LimitError::RequestIdReused));
    ground.store.set(Fault::None);
    assert_eq!(ground.engine.check_limits(&calls, &wanted).await.unwrap(), first);
    ground.counted(3).await;
}

/// One has asked the store before it turns out that it doesn't answer, and the other one waits for what becomes of that.
#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_is_sent_twice_just_when_an_outage_begins_counts_once() {
    let ground = ground(limited(Policy::ClosedLocal)).await;
    // So that the definition is known.
    assert!(ground.check().await.allowed);
    ground.store.set(Fault::Silent);
    let before = ground.store.charges();
    let check = || {
        let engine = ground.engine.clone();
        tokio::spawn(async move {
            let wanted = Wanted { request_id: Some("r".into()), ..Wanted::default() };
            let calls =
                [CheckCall { limit: name(), key: "k".into(), cost: 3, identity: Identity::default() }];
            engine.check_limits(&calls, &wanted).await.unwrap()
        })
    };
    let both = [check(), check()];
    until("one asks", async || ground.store.charges() == before + 1).await;
    ground.store.set(Fault::Unavailable);
    let [first, second] = both;
    let first = first.await.unwrap();
    assert!(first.allowed);
    assert_eq!(second.await.unwrap(), first);
    ground.store.set(Fault::None);
    ground.counted(1 + 3).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_beyond_a_limit_s_number_share_one_meter_in_an_outage_too() {
    let ground = ground(Definition { keys_max: 1, ..limited(Policy::ClosedLocal) }).await;
    assert!(ground.check().await.allowed);
    ground.store.set(Fault::Unavailable);
    let mut admitted = 0;
    for number in 0..50 {
        admitted += u32::from(ground.check_of(&format!("other {number}"), 1).await.allowed);
    }
    assert_eq!(admitted, 25, "all others together");
    assert_eq!(ground.admitted(30).await.0, 25, "and the first has its own");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_written_down_is_not_admitted_by_open_and_still_is_by_a_share() {
    for (policy, admitted) in [(Policy::Open, 0), (Policy::ClosedLocal, 25)] {
        let place = tempfile::tempdir().unwrap();
        let state = place.path().join("state");
        let config = Config { state: Some(State::open(&state).unwrap()), ..Config::default() };
        let ground = ground_with(Definition { local_cap: Some(10), ..limited(policy) }, config).await;
        std::fs::write(&state, "a file is where the directory should be").unwrap();
        ground.store.set(Fault::Unavailable);
        assert_eq!(ground.admitted(40).await.0, admitted, "{policy:?}");
        let refusals = ground.engine.metrics().spool_refusals.get();
        assert_eq!(refusals > 0, policy == Policy::Open);
        std::fs::remove_file(&state).unwrap();
        if policy == Policy::Open {
            assert_eq!(ground.admitted(40).await.0, 10, "there is room again");
            assert!(ground.engine.metrics().spool_bytes.get() > 0);
        }
        ground.store.set(Fault::None);
        ground.counted(if policy == Policy::Open { 10 } else { 25 }).await;
        // The store has it a moment before the node knows that.
        until("what is settled isn't kept", async || debts(&state) == 0).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_debt_that_was_settled_unheard_by_a_node_that_was_killed_is_not_counted_again() {
    let place = tempfile::tempdir().unwrap();
    let [state, copy] = ["state", "copy"].map(|name| place.path().join(name));
    let config = |path: &Path| Config { state: Some(State::open(path).unwrap()), ..Config::default() };
    let definition = Definition { local_cap: Some(10), ..limited(Policy::Open) };
    let ground = ground_with(definition, config(&state)).await;
    ground.store.set(Fault::Unavailable);
    assert_eq!(ground.admitted(12).await.0, 10);
    ground.settled_unheard(10).await;
    // As it is on disk when the node is killed now.
    std::fs::create_dir(&copy).unwrap();
    for entry in std::fs::read_dir(&state).unwrap().map(Result::unwrap) {
        std::fs::copy(entry.path(), copy.join(entry.file_name())).unwrap();
    }
    ground.store.set(Fault::None);
    ground.counted(10).await;
    let next = Engine::start(Arc::new(ground.store.clone()), config(&copy), Random::system()).await.unwrap();
    next.drain().await;
    assert_eq!(next.metrics().overage.get(), 10, "it was offered");
    assert_eq!(debts(&copy), 0);
    ground.counted(10).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_admitted_after_a_debt_was_offered_is_a_debt_of_its_own() {
    let ground = ground(Definition { local_cap: Some(20), ..limited(Policy::Open) }).await;
    ground.store.set(Fault::Unavailable);
    assert_eq!(ground.admitted(10).await.0, 10);
    ground.settled_unheard(10).await;
    ground.store.set(Fault::Unavailable);
    assert_eq!(ground.admitted(5).await.0, 5);
    ground.store.set(Fault::None);
    ground.counted(15).await;
}
