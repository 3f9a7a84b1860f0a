//! The simulation itself: the same for the same seed, never above the bound, and not blind.

#![allow(clippy::unwrap_used, reason = "a test that can't be set up should stop there")]

use baton_core::limit::{Definition, Policy, slack};
use baton_core::meter::{Algorithm, Reclaim};
use baton_simulation::plan::definition;
use baton_simulation::{Closest, Mechanism, Outcome, Pattern, Plan, SIMULATED, allowed, run, run_on, svg};
use std::collections::BTreeMap;
use std::sync::Mutex;

/// Histories tried with each algorithm and mechanism; `BATON_SIMULATED_HISTORIES` makes them more, and `BATON_SIMULATED_MECHANISM`
/// tries only one mechanism.
const HISTORIES: u64 = 24;

const ALGORITHMS: [Algorithm; 4] =
    [Algorithm::TokenBucket, Algorithm::SlidingWindow, Algorithm::FixedWindow, Algorithm::SlidingLog];

fn outcome(plan: &Plan, mechanism: Mechanism) -> Outcome {
    run(plan, mechanism, &allowed(plan).unwrap(), |_| {}).unwrap()
}

/// One of so many, for a purpose of its own: what one purpose has says nothing about what another one has.
fn drawn(seed: u64, purpose: u64, of: u64) -> u64 {
    let mut word = seed.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15)
        ^ purpose.wrapping_mul(0xd1b5_4a32_d192_ed03);
    word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (word ^ (word >> 31)) % of
}

/// A plan in which everything goes wrong, different for each seed.
fn troubled(seed: u64, algorithm: Algorithm) -> Plan {
    let some = |of: u64, purpose: u64| drawn(seed, purpose, of);
    let limit = [100, 400, 1_000][some(3, 1) as usize];
    let window_ms = [500, 1_000, 3_000][some(3, 2) as usize];
    let burst = (algorithm == Algorithm::TokenBucket).then(|| [limit, limit / 4][some(2, 3) as usize]);
    let on_failure = Policy::ALL[some(Policy::ALL.len() as u64, 4) as usize];
    let sync_ms = [None, Some(50), Some(200), Some(500)][some(4, 9) as usize];
    let epsilon = [None, Some(0), Some(50_000), Some(200_000)][some(4, 13) as usize];
    // Of the limit, from half to twice of it.
    let rate = limit * 1_000 / window_ms * (50 + some(150, 5)) / 100;
    Plan {
        seed,
        duration_ms: 8_000,
        keys: 1 + some(2, 6),
        pattern: [Pattern::Steady, Pattern::Poisson, Pattern::Bursty][some(3, 7) as usize],
        node_skew: [0.0, 1.0][some(2, 8) as usize],
        latency_us: [200, 5_000, 60_000][some(3, 10) as usize],
        crashes: 4,
        joins: 2,
        partitions: [0, 3, 12][some(3, 11) as usize],
        partition_ms: [800, 4_000][some(2, 12) as usize],
        changes: [0, 3][some(2, 14) as usize],
        ..Plan::new(
            rate,
            4,
            Definition { burst, on_failure, sync_ms, epsilon, ..definition(algorithm, limit, window_ms) },
        )
    }
}

/// How near histories of one kind came to what is allowed.
#[derive(Clone, Copy, Default)]
struct Near {
    histories: u64,
    /// Of them, those in which all was used that is allowed at once.
    full: u64,
    closest: Closest,
    /// The most in any interval, with what policies admitted, beside the bound with theirs.
    worst: Closest,
}

impl Near {
    fn note(&mut self, outcome: &Outcome) {
        let part = |one: Closest| one.most as f64 / one.allowed.max(1) as f64;
        self.histories += 1;
        if let Some(closest) = outcome.closest {
            self.full += u64::from(closest.most >= closest.allowed);
            if part(closest) >= part(self.closest) {
                self.closest = closest;
            }
        }
        let worst = Closest { most: outcome.worst, allowed: outcome.bound.unwrap_or(u64::MAX) };
        if part(worst) >= part(self.worst) {
            self.worst = worst;
        }
    }
}

type Nearest = Mutex<BTreeMap<String, Near>>;

#[test]
fn no_history_of_any_algorithm_and_mechanism_goes_above_its_bound() {
    let histories = std::env::var("BATON_SIMULATED_HISTORIES").ok().and_then(|text| text.parse().ok());
    let histories: u64 = histories.unwrap_or(HISTORIES);
    let threads = std::thread::available_parallelism().map_or(1, usize::from) as u64;
    let nearest = Nearest::default();
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let nearest = &nearest;
            scope.spawn(move || {
                for seed in (thread..histories).step_by(threads as usize) {
                    ALGORITHMS.into_iter().for_each(|algorithm| judge(seed, algorithm, nearest));
                }
            });
        }
    });
    for (kind, Near { histories, full, closest, worst }) in nearest.into_inner().unwrap() {
        println!(
            "{kind}: {histories} histories; at once {} where {} are allowed, and as much as that in {full}; with what policies admitted \
             {} in a window, of {}",
            closest.most, closest.allowed, worst.most, worst.allowed
        );
        let is_near = 10 * closest.most >= 9 * closest.allowed;
        assert!(is_near, "{kind}: nothing came near to the bound, so nothing is shown by keeping it");
    }
}

fn judge(seed: u64, algorithm: Algorithm, nearest: &Nearest) {
    let plan = troubled(seed, algorithm);
    let only = std::env::var("BATON_SIMULATED_MECHANISM").ok();
    let is_tried = |mechanism: &&Mechanism| only.as_ref().is_none_or(|only| only == mechanism.as_str());
    for mechanism in SIMULATED.iter().filter(is_tried).copied() {
        // What would have been allowed doesn't matter here.
        let outcome = run(&plan, mechanism, &[], |_| {}).unwrap();
        assert!(outcome.admitted > 0, "seed {seed}, {algorithm:?}, {mechanism:?}: nothing happened");
        assert!(
            outcome.keeps_its_bound(),
            "seed {seed}, {algorithm:?}, {mechanism:?}: {} of {:?}, at once {:?} in {plan:?}",
            outcome.worst,
            outcome.bound,
            outcome.closest
        );
        nearest
            .lock()
            .unwrap()
            .entry(format!("{algorithm:?}, {}", mechanism.as_str()))
            .or_default()
            .note(&outcome);
    }
}

/// What is wrong at the store, and with which mechanism that has to show.
type Flaw = (&'static str, Mechanism, fn(&Definition) -> Definition);

/// Each of these lets a little more pass than may, and stays far below twice the limit.
const FLAWS: [Flaw; 2] = [
    ("epsilon is doubled", Mechanism::Approximate, |definition| Definition {
        epsilon: Some(2 * definition.epsilon.unwrap_or(slack::EPSILON)),
        ..definition.clone()
    }),
    ("the limit is a twentieth higher", Mechanism::Leased, |definition| Definition {
        limit: definition.limit + definition.limit / 20,
        burst: definition.burst.map(|burst| burst + burst / 20),
        ..definition.clone()
    }),
];

#[test]
fn a_store_that_lets_a_little_too_much_pass_is_noticed_whatever_the_algorithm() {
    for (flaw, mechanism, at_store) in FLAWS {
        for algorithm in ALGORITHMS {
            let is_noticed = |seed: &u64| {
                let plan = troubled(*seed, algorithm);
                let wrong = run_on(&plan, mechanism, &[], |_| {}, at_store).unwrap();
                !wrong.keeps_its_bound()
            };
            let noticed = (0..HISTORIES).filter(is_noticed).count();
            println!("{flaw}, {algorithm:?}: noticed in {noticed} of {HISTORIES} histories");
            assert!(noticed > 0, "{flaw}, {algorithm:?}");
        }
    }
}

/// Without an outage, where a policy would add its own: what epsilon allows is all that passes besides. By the exact algorithm it
/// shows that it does.
#[test]
fn what_passes_besides_an_approximate_limit_is_epsilon_of_it_and_no_more() {
    for algorithm in ALGORITHMS {
        let epsilon = Some(100_000);
        let definition = Definition { epsilon, ..definition(algorithm, 900, 1_000) };
        let with = |mechanism| {
            let worst = |seed| {
                let plan = Plan {
                    seed,
                    duration_ms: 6_000,
                    crashes: 3,
                    joins: 2,
                    changes: 2,
                    pattern: Pattern::Bursty,
                    ..Plan::new(3_000, 4, definition.clone())
                };
                let outcome = outcome(&plan, mechanism);
                (outcome.worst, outcome.bound.unwrap())
            };
            (1..4).map(worst).max().unwrap()
        };
        let (central, exact) = with(Mechanism::Central);
        let (approximate, bound) = with(Mechanism::Approximate);
        println!(
            "{algorithm:?}: at most {approximate} in a window, and {bound} is the bound; {central} by the store alone"
        );
        assert_eq!(bound, exact + 90, "{algorithm:?}");
        assert!(approximate <= bound, "{algorithm:?}: {approximate} of {bound}");
        assert!(
            algorithm != Algorithm::SlidingLog || approximate > exact,
            "{approximate} of {exact}, and {central}"
        );
    }
}

#[test]
fn a_lease_that_is_given_away_while_it_may_still_be_spent_is_noticed() {
    // A store that forgets dead holders' leases early enough admits more than the limit: the log is exact, so it shows.
    let with = |reclaim| {
        let definition = Definition { reclaim, ..definition(Algorithm::SlidingLog, 1_000, 30_000) };
        let plan = Plan { duration_ms: 60_000, crashes: 8, ..Plan::new(60, 4, definition) };
        outcome(&plan, Mechanism::Leased)
    };
    let (safe, optimistic) = (with(Reclaim::Burn), with(Reclaim::Drop));
    assert!(safe.worst <= 1_000 && safe.bound == Some(1_000), "{}", safe.worst);
    assert!(optimistic.worst > 1_000 && optimistic.bound.is_none(), "{}", optimistic.worst);
}

#[test]
fn the_same_seed_gives_the_same_bytes_and_another_seed_others() {
    let bytes = |seed| {
        let plan = troubled(seed, Algorithm::TokenBucket);
        let outcomes: Vec<_> = SIMULATED.iter().map(|mechanism| outcome(&plan, *mechanism)).collect();
        (format!("{outcomes:?}"), svg::plot(&plan, &outcomes))
    };
    assert_eq!(bytes(3), bytes(3));
    assert_ne!(bytes(3), bytes(4));
}

#[test]
fn twenty_nodes_at_seven_tenths_of_the_limit_ask_the_store_once_for_a_hundred_checks_at_most() {
    for algorithm in [Algorithm::TokenBucket, Algorithm::FixedWindow, Algorithm::SlidingWindow] {
        let plan =
            Plan { duration_ms: 5_000, ..Plan::new(100_000, 20, definition(algorithm, 142_858, 1_000)) };
        for mechanism in [Mechanism::Leased, Mechanism::Owned, Mechanism::Approximate] {
            let outcome = outcome(&plan, mechanism);
            let operations = outcome.store_operations_per_second;
            assert!(operations <= 1_000.0, "{algorithm:?}, {mechanism:?}: {operations}");
            assert_eq!(outcome.under_admission, 0.0, "{algorithm:?}, {mechanism:?}");
            assert!(outcome.local_share > 0.999, "{algorithm:?}, {mechanism:?}: {}", outcome.local_share);
        }
    }
}

/// As much is wanted as makes a leased key's holders ask all the time, if each check asked for itself: nearly one operation for each.
#[test]
fn in_overload_leases_ask_the_store_a_tenth_as_often_as_it_is_checked_at_most() {
    for algorithm in [Algorithm::TokenBucket, Algorithm::FixedWindow, Algorithm::SlidingWindow] {
        let plan = Plan { duration_ms: 5_000, ..Plan::new(65_000, 20, definition(algorithm, 50_000, 1_000)) };
        for mechanism in [Mechanism::Leased, Mechanism::Owned] {
            let outcome = outcome(&plan, mechanism);
            let last = outcome.seconds.last().unwrap();
            println!(
                "{algorithm:?}, {mechanism:?}: {} operations for {} checks in the last second, {:.2} % too few admitted",
                last.store_operations,
                last.offered,
                100.0 * outcome.under_admission
            );
            assert!(last.store_operations * 10 <= last.offered, "{algorithm:?}, {mechanism:?}: {last:?}");
            assert!(outcome.under_admission < 0.05, "{algorithm:?}: {}", outcome.under_admission);
        }
    }
}

/// What others have published about themselves: a limit of 1,000 a second with a sync every 50 ms let 13.1 % more pass; two nodes, 500 a
/// second, a sync every 200 ms and 800 offered, 18 % more, and after a correction 12 % less.
#[test]
fn scenarios_that_others_published_stay_within_epsilon_above_and_two_percent_below() {
    for (limit, offered, sync_ms) in [(1_000, 1_500, 50), (500, 800, 200)] {
        for algorithm in [Algorithm::TokenBucket, Algorithm::FixedWindow, Algorithm::SlidingWindow] {
            let definition = Definition { sync_ms: Some(sync_ms), ..definition(algorithm, limit, 1_000) };
            let plan = Plan { duration_ms: 30_000, ..Plan::new(offered, 2, definition) };
            for (mechanism, above) in
                [(Mechanism::Central, 1.0), (Mechanism::Leased, 1.0), (Mechanism::Approximate, 1.01)]
            {
                let outcome = outcome(&plan, mechanism);
                // What is decided somewhat later than it came may fall into the next window.
                let most = above * outcome.allowed as f64 + limit as f64 / 50.0;
                let least = 0.98 * outcome.allowed as f64;
                assert!(
                    (least..=most).contains(&(outcome.admitted as f64)),
                    "{limit}, {algorithm:?}, {mechanism:?}: {} of {}",
                    outcome.admitted,
                    outcome.allowed
                );
            }
        }
    }
}

#[test]
fn a_node_that_is_cut_off_does_what_the_policy_says() {
    let with = |on_failure| {
        let definition = Definition { on_failure, ..definition(Algorithm::TokenBucket, 1_000, 1_000) };
        let plan = Plan { duration_ms: 20_000, partitions: 6, ..Plan::new(400, 2, definition) };
        outcome(&plan, Mechanism::Central)
    };
    let (closed, open) = (with(Policy::Closed), with(Policy::Open));
    assert!(closed.under_admission > 0.1, "{}", closed.under_admission);
    // What was admitted meanwhile is owed, and the store takes it from what comes after.
    assert!(open.under_admission < 0.05, "{}", open.under_admission);
    assert!(open.bound > closed.bound);
}

#[test]
fn a_plot_is_well_formed_and_shows_the_bound_of_each_mechanism() {
    let plan = troubled(1, Algorithm::FixedWindow);
    let plan = Plan { keys: 1, ..plan };
    let outcomes: Vec<_> = SIMULATED.iter().map(|mechanism| outcome(&plan, *mechanism)).collect();
    let plot = svg::plot(&plan, &outcomes);
    let mut open = Vec::new();
    for tag in plot.split('<').skip(1) {
        let (tag, text) = tag.split_once('>').unwrap();
        assert!(!text.contains(['&', '"']), "{text}");
        assert_eq!(tag.matches('"').count() % 2, 0, "{tag}");
        let name = tag.trim_start_matches('/').split([' ', '/']).next().unwrap();
        match (tag.starts_with('/'), tag.ends_with('/')) {
            (true, _) => assert_eq!(open.pop(), Some(name)),
            (_, true) => {}
            _ => open.push(name),
        }
    }
    assert!(open.is_empty(), "{open:?}");
    assert_eq!(plot.matches("stroke-dasharray").count(), 4);
    assert_eq!(plot.matches("<polyline").count(), 12);
    assert!(!plot.contains("NaN") && !plot.contains("inf"));
}

#[test]
fn what_would_take_too_long_or_makes_no_sense_is_refused() {
    let plan = Plan::new(100, 2, definition(Algorithm::TokenBucket, 100, 1_000));
    assert_eq!(plan.check(), Ok(()));
    let log = definition(Algorithm::SlidingLog, 1_001, 1_000);
    for (unfit, said) in [
        (Plan { nodes: 0, ..plan.clone() }, "nodes must be 1"),
        (Plan { joins: 1_000, ..plan.clone() }, "those that join"),
        (Plan { rate: 1_000_000, ..plan.clone() }, "50000000 checks"),
        (Plan { duration_ms: 10, ..plan.clone() }, "duration"),
        (Plan { key_skew: f64::NAN, ..plan.clone() }, "skew"),
        (Plan { definition: log, ..plan.clone() }, "1,000"),
        (Plan { definition: definition(Algorithm::InFlight, 5, 1_000), ..plan.clone() }, "in flight"),
        (Plan { definition: definition(Algorithm::TokenBucket, 1 << 51, 1_000), ..plan }, "the limit"),
    ] {
        let error = unfit.check().unwrap_err().to_string();
        assert!(error.contains(said), "{error}");
    }
}
