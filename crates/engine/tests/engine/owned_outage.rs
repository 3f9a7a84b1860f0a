//! Owned limits while nobody reaches the store, and the owner can be reached: each policy does what it says, once (M3).

use super::limits::{DAY_MS, call, check, definition, name};
use super::owned::{CHUNK, Ground, LIMIT, admitted};
use baton_core::limit::{Definition, Mechanism, Policy};
use baton_core::meter::Algorithm;
use baton_engine::Engine;
use baton_engine::limit::Source;
use baton_engine::peers::PeerVerdict;
use baton_testkit::simulated::Faults;
use std::time::Duration;
use tokio::time::Instant;

/// What each node admits at most by itself, if it is open.
const CAP: u64 = 70;
const NODES: u64 = 3;

/// Owned, and as the policy says; leases outlast every outage here.
fn owned(on_failure: Policy) -> Definition {
    let local_cap = (on_failure == Policy::Open).then_some(CAP);
    Definition {
        mechanism: Mechanism::Owned,
        lease_ttl_ms: Some(60_000),
        on_failure,
        local_cap,
        ..definition(Algorithm::FixedWindow, LIMIT, DAY_MS)
    }
}

async fn ground(on_failure: Policy) -> Ground {
    let ground = Ground::start(NODES as usize).await;
    ground.nodes[0].0.put_limit(&name("l"), owned(on_failure)).await.unwrap();
    // Until everybody has heard of it.
    tokio::time::sleep(Duration::from_secs(6)).await;
    ground
}

fn away() -> Faults {
    Faults { refused: 1_000, ..Faults::none() }
}

/// How many pass of so many at each of these, in turn.
async fn in_turn(engines: &[&Engine], checks: u64) -> u64 {
    let mut passed = 0;
    for _ in 0..checks {
        for engine in engines {
            passed += admitted(engine, 1).await.0;
        }
    }
    passed
}

#[tokio::test(start_paused = true)]
async fn while_the_store_is_away_each_policy_keeps_its_bound_and_all_that_passed_is_counted_once() {
    for policy in [Policy::Open, Policy::Local, Policy::Snapshot, Policy::ClosedLocal, Policy::Closed] {
        let ground = ground(policy).await;
        let owner = ground.owner("k");
        let others = ground.others(owner);
        let before = in_turn(&others, 150).await;
        assert_eq!(before, 300);
        ground.set_faults(&away());
        let began = Instant::now();
        let by_others = in_turn(&others, 250).await;
        let by_owner = in_turn(&[&ground.nodes[owner].0], 250).await;
        let meanwhile = by_others + by_owner;
        assert!(began.elapsed() < Duration::from_secs(10), "nobody is taken for dead: {:?}", began.elapsed());
        let (least, most) = match policy {
            Policy::Closed => (0, CHUNK),
            Policy::Open => (NODES * CAP, NODES * CAP + CHUNK),
            Policy::ClosedLocal => (LIMIT / 2, LIMIT + CHUNK),
            // What remained, but for what doesn't divide, and what was debited since it was heard of.
            Policy::Local | Policy::Snapshot => (LIMIT - before - 2 * CHUNK, LIMIT - before),
        };
        assert!((least..=most).contains(&meanwhile), "{policy:?}: {meanwhile} of {least} to {most}");
        ground.set_faults(&Faults::none());
        // What is owed is offered, and what is left of the owner's purse goes back.
        tokio::time::sleep(Duration::from_secs(120)).await;
        let usage = ground.nodes[owner].0.usage(&name("l"), "k").await.unwrap();
        assert_eq!(usage.used, before + meanwhile, "{policy:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_owner_that_has_to_ask_a_slow_store_leaves_that_check_alone_undecided() {
    let ground = ground(Policy::Local).await;
    let owner = &ground.nodes[ground.owner("k")].0;
    // Something to spend of one key, of which there is none of the other: it is the same owner's.
    admitted(owner, 5).await;
    let (mine, keys) = (ground.owner("k"), (0..1_000).map(|key| format!("k{key}")));
    let cold = keys.into_iter().find(|key| ground.owner(key) == mine).unwrap();
    ground.set_faults(&Faults { there_ms: (300, 300), ..Faults::none() });
    let began = Instant::now();
    let verdicts = owner.check_for_peer(None, &[call("l", &cold, 1), call("l", "k", 1)]).await;
    assert!(began.elapsed() < Duration::from_millis(500), "{:?}", began.elapsed());
    assert_eq!(verdicts[0], PeerVerdict::Undecided);
    assert!(matches!(verdicts[1], PeerVerdict::Decided { denial: None, .. }), "{verdicts:?}");
    let other = ground.others(mine)[0];
    let (one, other) = tokio::join!(check(other, "l", &cold, 1), check(other, "l", "k", 1));
    assert_eq!((one.checks[0].source, other.checks[0].source), (Source::Central, Source::Owner));
}

#[tokio::test(start_paused = true)]
async fn a_node_that_begins_to_leave_while_it_looks_at_the_others_owns_nothing_again() {
    for phase_ms in (0..3_000).step_by(200) {
        let ground = Ground::start(2).await;
        let (leaving, handle) = &ground.nodes[0];
        handle.set_faults(Faults { back_ms: (400, 400), ..Faults::none() });
        tokio::time::sleep(Duration::from_millis(5_000 + phase_ms)).await;
        leaving.drain().await;
        let owners: Vec<_> =
            (0..=255).filter_map(|group| leaving.ring().owner(baton_core::Group(group))).collect();
        assert!(owners.iter().all(|owner| *owner != leaving.node()), "{phase_ms} ms into a look");
    }
}
