//! Approximate limits (M4): decided out of slack, of which the store is told every round, and by the store when little is left.

use super::limits::{DAY_MS, Ground, call, check, definition, ground, name};
use baton_core::limit::{Definition, Identity, Mechanism, Policy};
use baton_core::meter::Algorithm;
use baton_engine::limit::{CheckCall, Source, Wanted};
use baton_engine::{Config, Engine, Random};
use baton_testkit::faulty::Fault;
use std::collections::HashMap;
use std::time::Duration;
use tokio::time::Instant;

const LIMIT: u64 = 1_000;
/// Of a fixed window: half of epsilon, since an interval can meet two of them.
const BESIDES: u64 = LIMIT / 20;

fn approximate() -> Definition {
    Definition {
        mechanism: Mechanism::Approximate,
        epsilon: Some(100_000),
        ..definition(Algorithm::FixedWindow, LIMIT, DAY_MS)
    }
}

async fn define(ground: &Ground, definition: Definition) {
    ground.engines[0].put_limit(&name("l"), definition).await.unwrap();
}

/// Checks until there is nothing left; how many were admitted by whom, and why the last wasn't.
async fn spend(engine: &Engine) -> (HashMap<&'static str, u64>, Vec<&'static str>) {
    let (mut admitted, mut refused) = (HashMap::new(), Vec::new());
    while refused.len() < 5 {
        let answered = check(engine, "l", "k", 1).await;
        match answered.refused {
            None => *admitted.entry(answered.checks[0].source.as_str()).or_default() += 1,
            Some((_, denial)) => {
                refused.push(denial.reason);
                // Longer than a no stands.
                tokio::time::sleep(Duration::from_millis(120)).await;
            }
        }
    }
    (admitted, refused)
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_admit_the_limit_and_epsilon_at_most_and_the_store_decides_the_last() {
    let ground = ground(3).await;
    define(&ground, approximate()).await;
    let spending: Vec<_> = ground
        .engines
        .iter()
        .cloned()
        .map(|engine| tokio::spawn(async move { spend(&engine).await }))
        .collect();
    let (mut all, mut by_store) = (0, 0);
    for spending in spending {
        let (admitted, refused) = spending.await.unwrap();
        all += admitted.values().sum::<u64>();
        by_store += admitted.get("global_check").copied().unwrap_or_default();
        assert!(admitted["local"] > 0, "{admitted:?}");
        let known = ["global_budget_exhausted", "local_budget_exhausted"];
        assert!(refused.iter().all(|reason| known.contains(reason)), "{refused:?}");
    }
    assert!((LIMIT..=LIMIT + BESIDES).contains(&all), "{all} of {LIMIT}");
    // All of it is gone in less than a round: much of what the store takes to be left was spent by then.
    assert!(by_store > 0, "{all} and none by the store");
    let usage = ground.engines[0].usage(&name("l"), "k").await.unwrap();
    assert_eq!((usage.capacity, usage.remaining), (LIMIT, 0));
    let (bound, _, measured) = ground.engines[0].bound(&name("l"), "k").await.unwrap();
    assert_eq!((bound.worst(), measured.amount), (Some(2 * LIMIT + 2 * BESIDES), 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_comes_again_under_another_name_has_no_slack_that_was_not_issued() {
    let ground = ground(1).await;
    define(&ground, Definition { low_watermark: Some(0), ..approximate() }).await;
    let mut admitted = 0;
    // Each takes slack, spends a little of it, and is gone without a word.
    for _ in 0..40 {
        let engine = Engine::start(ground.store.clone(), Config::default(), Random::system()).await.unwrap();
        for _ in 0..4 {
            admitted += u64::from(check(&engine, "l", "k", 1).await.allowed);
        }
        let usage = ground.engines[0].usage(&name("l"), "k").await.unwrap();
        assert!(usage.used + usage.outstanding <= LIMIT + BESIDES, "{usage:?}");
        assert!(usage.used + usage.outstanding >= admitted, "{usage:?}, and {admitted} admitted");
    }
    assert!(admitted > 60, "{admitted}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_store_is_told_what_was_spent_without_waiting_for_more_to_be_needed() {
    let ground = ground(1).await;
    define(&ground, Definition { sync_ms: Some(50), ..approximate() }).await;
    for _ in 0..12 {
        assert!(check(&ground.engines[0], "l", "k", 1).await.allowed);
    }
    let deadline = Instant::now() + Duration::from_secs(20);
    while ground.engines[0].usage(&name("l"), "k").await.unwrap().used < 12 {
        assert!(Instant::now() < deadline, "it isn't told");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn who_is_not_known_has_less_slack() {
    let ground = ground(1).await;
    // So seldom that nothing of it goes back meanwhile.
    define(&ground, Definition { limit: 2_000, sync_ms: Some(60_000), ..approximate() }).await;
    for (key, identity) in [("stranger", Identity::Anonymous), ("friend", Identity::Authenticated)] {
        for _ in 0..2 {
            let calls = [CheckCall { identity, ..call("l", key, 1) }];
            let answered = ground.engines[0].check_limits(&calls, &Wanted::default()).await.unwrap();
            assert!(answered.allowed);
        }
    }
    let (leases, _) = ground.engines[0].leases(&name("l"), 10).await.unwrap();
    let held = |key: &str| leases.iter().find(|lease| lease.key == key).unwrap().row.amount;
    // A hundredth of the limit, and a twentieth.
    assert_eq!((held("stranger"), held("friend")), (20, 100));
}

#[tokio::test(flavor = "multi_thread")]
async fn without_the_store_slack_is_spent_first_and_then_the_policy_decides() {
    let ground = ground(1).await;
    let definition = Definition {
        on_failure: Policy::Open,
        local_cap: Some(7),
        lease_size: Some(40),
        sync_ms: Some(10_000),
        ..approximate()
    };
    define(&ground, definition).await;
    for _ in 0..2 {
        assert!(check(&ground.engines[0], "l", "k", 1).await.allowed);
    }
    ground.faulty.set(Fault::Unavailable);
    let mut by = HashMap::new();
    loop {
        let answered = check(&ground.engines[0], "l", "k", 1).await;
        if !answered.allowed {
            break;
        }
        *by.entry(answered.checks[0].source).or_insert(0) += 1;
        assert!(by.values().sum::<u64>() < LIMIT, "{by:?}");
    }
    assert_eq!((by[&Source::Local], by[&Source::Fallback]), (39, 7));
}
