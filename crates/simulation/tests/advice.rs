//! What is advised is what happens: figures that are reckoned, beside figures that are simulated.

#![allow(clippy::unwrap_used, reason = "a test that can't be set up should stop there")]

use baton_core::limit::advise::{Figures, Question};
use baton_core::limit::{Purpose, Way};
use baton_core::meter::Algorithm;
use baton_simulation::plan::definition;
use baton_simulation::{Mechanism, Outcome, Plan, advise, allowed, run};

fn question(plan: &Plan) -> Question {
    Question {
        definition: plan.definition.clone(),
        purpose: Purpose::Abuse,
        rate: plan.rate,
        nodes: plan.nodes,
        keys: plan.keys,
        store_latency_us: plan.latency_us,
        is_counted_elsewhere: false,
        is_exact: false,
    }
}

fn both(plan: &Plan, mechanism: Mechanism, way: Way) -> (Figures, Outcome) {
    let advised = advise(&question(plan)).figures.into_iter().find(|figures| figures.way == way).unwrap();
    (advised, run(plan, mechanism, &allowed(plan).unwrap(), |_| {}).unwrap())
}

fn agree(advised: f64, simulated: f64, within: f64) -> bool {
    (advised - simulated).abs() <= within * simulated
}

/// The rate, nodes, keys, limit and window of limits that are in good health.
const HEALTHY: [(u64, u64, u64, u64, u64); 7] = [
    (100_000, 20, 1, 142_858, 1_000),
    (20_000, 5, 1, 40_000, 1_000),
    (1_000, 10, 2, 40_000, 60_000),
    (3_000, 3, 2, 30_000, 10_000),
    (700, 2, 1, 1_000, 1_000),
    (1_000, 10, 1_000, 100, 1_000),
    (400, 10, 20, 3_000, 60_000),
];

/// What the store sees a second when all has found its way: without the first windows, and over whole ones.
fn steady(plan: &Plan, outcome: &Outcome) -> f64 {
    let window = (plan.definition.window_ms / 1_000) as usize;
    let seconds = &outcome.seconds[window.max(2)..];
    let operations: u64 = seconds.iter().map(|second| second.store_operations).sum();
    operations as f64 / seconds.len() as f64
}

#[test]
fn what_the_store_sees_is_advised_within_a_tenth_of_what_is_simulated() {
    for (rate, nodes, keys, limit, window_ms) in HEALTHY {
        for algorithm in [Algorithm::TokenBucket, Algorithm::FixedWindow, Algorithm::SlidingWindow] {
            let duration_ms = (window_ms * 4).max(7_000);
            let plan =
                Plan { duration_ms, keys, ..Plan::new(rate, nodes, definition(algorithm, limit, window_ms)) };
            // Near its end a sliding window has little to share, and who gets how much of it is chance; and so is when a key comes that
            // comes seldom.
            let is_example = nodes == 20;
            let is_seldom = rate / nodes / keys < 10;
            let is_chance = is_seldom || (algorithm == Algorithm::SlidingWindow && !is_example);
            let within = if is_chance { 0.25 } else { 0.1 };
            for (mechanism, way) in
                [(Mechanism::Leased, Way::Leased), (Mechanism::Approximate, Way::Approximate)]
            {
                let (advised, simulated) = both(&plan, mechanism, way);
                let (advised, simulated) = (advised.store_operations, steady(&plan, &simulated));
                assert!(
                    agree(advised, simulated, within),
                    "{rate}/s, {nodes} nodes, {keys} keys, {limit} in {window_ms} ms, {algorithm:?}, {way:?}: \
                     {advised:.1} is advised, {simulated:.1} happens"
                );
            }
        }
    }
}

#[test]
fn the_example_of_twenty_nodes_is_advised_as_it_happens() {
    let plan = Plan {
        duration_ms: 5_000,
        ..Plan::new(100_000, 20, definition(Algorithm::TokenBucket, 142_858, 1_000))
    };
    let (advised, simulated) = both(&plan, Mechanism::Central, Way::Central);
    assert!(agree(advised.store_operations, simulated.store_operations_per_second, 0.1));
    assert!(agree(advised.added_latency_us, simulated.added_latency_micros, 0.1));
    assert_eq!(advised.worst, simulated.bound);
    let (advised, simulated) = both(&plan, Mechanism::Leased, Way::Leased);
    assert!(simulated.added_latency_micros < 10.0 && advised.added_latency_us == 0.0);
    assert_eq!((advised.worst, advised.adds), (simulated.bound, Some(0)));
    let (advised, simulated) = both(&plan, Mechanism::Owned, Way::Owned);
    assert!(agree(advised.added_latency_us, simulated.added_latency_micros, 0.1));
    assert!(
        agree(advised.store_operations, steady(&plan, &simulated), 0.1),
        "{} {}",
        advised.store_operations,
        steady(&plan, &simulated)
    );
    let (advised, simulated) = both(&plan, Mechanism::Approximate, Way::Approximate);
    assert!(
        agree(advised.store_operations, steady(&plan, &simulated), 0.1),
        "{} {}",
        advised.store_operations,
        steady(&plan, &simulated)
    );
    assert_eq!((advised.worst, advised.adds), (simulated.bound, Some(1_428)));
}

/// The same where more is wanted than there is.
const SHORT: [(u64, u64, u64, u64, u64); 3] =
    [(1_300, 10, 1, 1_000, 1_000), (800, 2, 1, 500, 1_000), (1_300, 5, 2, 500, 1_000)];

#[test]
fn in_overload_what_the_store_sees_is_advised_within_a_tenth_of_what_is_simulated_by_another_chance() {
    for (rate, nodes, keys, limit, window_ms) in SHORT {
        for algorithm in [Algorithm::TokenBucket, Algorithm::FixedWindow, Algorithm::SlidingWindow] {
            let limited = definition(algorithm, limit, window_ms);
            let plan = Plan { seed: 7, duration_ms: 20_000, keys, ..Plan::new(rate, nodes, limited) };
            for (mechanism, way) in [
                (Mechanism::Leased, Way::Leased),
                (Mechanism::Approximate, Way::Approximate),
                (Mechanism::Owned, Way::Owned),
            ] {
                let (advised, simulated) = both(&plan, mechanism, way);
                assert!(!advised.is_most, "{algorithm:?}, {way:?}");
                let (advised, simulated) = (advised.store_operations, steady(&plan, &simulated));
                assert!(
                    agree(advised, simulated, 0.1),
                    "{rate}/s, {nodes} nodes, {keys} keys, {limit} in {window_ms} ms, {algorithm:?}, {way:?}: \
                     {advised:.1} is advised, {simulated:.1} happens"
                );
            }
        }
    }
}

#[test]
fn what_would_take_too_long_to_simulate_is_said_to_be_up_to_two_charges_a_check() {
    let plan = Plan::new(1_000_000, 10, definition(Algorithm::TokenBucket, 500_000, 1_000));
    let advice = advise(&question(&plan));
    let leased = advice.figures.iter().find(|figures| figures.way == Way::Leased).unwrap();
    assert!(leased.is_most);
    assert_eq!(leased.store_operations, 2_000_000.0);
}
