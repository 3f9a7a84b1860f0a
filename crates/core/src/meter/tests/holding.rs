//! Decisions over several meters: at once where they are together, else held first and then confirmed or cancelled.

use super::world::{COUNTING, World, claim, row, rule};
use crate::meter::{Algorithm, Claim, Meter, Reclaim, RowClaim, RowKind, Rule, Take, Verdict};
use alloc::vec::Vec;
use proptest::prelude::*;

const TTL_MS: u64 = 2_000;

fn said(id: &str, sequence: u64, spent: u64) -> RowClaim {
    RowClaim { kind: RowKind::Hold, ttl_ms: TTL_MS, ..row(id, sequence, spent, 0) }
}

fn hold(name: &str, rule: &Rule, id: &str, amount: u64) -> Claim {
    claim(name, rule, Take::AllOrNone(amount), Some(said(id, 1, 0)))
}

fn confirm(name: &str, rule: &Rule, id: &str, amount: u64) -> Claim {
    claim(name, rule, Take::Nothing, Some(said(id, 2, amount)))
}

fn cancel(name: &str, rule: &Rule, id: &str) -> Claim {
    claim(name, rule, Take::Nothing, Some(said(id, 2, 0)))
}

fn both(world: &World) -> [(u64, u64); 2] {
    ["a", "b"]
        .map(|name| world.meter(name).map_or((0, 0), |meter: Meter| (meter.used(), meter.outstanding())))
}

#[test]
fn what_is_held_counts_as_outstanding_until_it_is_confirmed_or_cancelled() {
    for algorithm in COUNTING {
        let rule = rule(algorithm, 10, 60_000);
        let mut world = World::new();
        assert_eq!(world.charge(&[hold("a", &rule, "x", 4)]).verdict, Verdict::Charged);
        assert_eq!(world.charge(&[hold("b", &rule, "x", 4)]).verdict, Verdict::Charged);
        assert_eq!(both(&world), [(0, 4), (0, 4)], "{algorithm:?}");
        let refused = world.charge(&[claim("a", &rule, Take::AllOrNone(7), None)]);
        assert_eq!(
            refused.verdict,
            Verdict::Refused { index: 0 },
            "{algorithm:?}: it is not there for others"
        );
        for _ in 0..2 {
            world.charge(&[confirm("a", &rule, "x", 4)]);
            world.charge(&[cancel("b", &rule, "x")]);
            assert_eq!(both(&world), [(4, 0), (0, 0)], "{algorithm:?}, also if it is sent twice");
        }
    }
}

#[test]
fn a_hold_that_is_sent_twice_is_held_once() {
    let rule = rule(Algorithm::FixedWindow, 10, 60_000);
    let mut world = World::new();
    for _ in 0..2 {
        let charged = world.charge(&[hold("a", &rule, "x", 7)]);
        assert_eq!((charged.verdict, charged.meters[0].granted), (Verdict::Charged, 7));
    }
    assert_eq!(both(&world)[0], (0, 7));
    assert_eq!(world.charge(&[hold("a", &rule, "y", 4)]).verdict, Verdict::Refused { index: 0 });
    assert_eq!(both(&world)[0], (0, 7), "a hold that finds no room leaves nothing");
}

#[test]
fn what_nobody_confirmed_is_burned_and_whoever_comes_late_changes_nothing() {
    for (algorithm, reclaim) in
        COUNTING.into_iter().flat_map(|it| [Reclaim::Burn, Reclaim::Drop].map(|reclaim| (it, reclaim)))
    {
        let rule = Rule { reclaim, ..rule(algorithm, 10, 60_000) };
        let mut world = World::new();
        world.charge(&[hold("a", &rule, "x", 4), hold("b", &rule, "x", 4)]);
        world.now_ms += TTL_MS - 1;
        assert_eq!(world.charge(&[claim("a", &rule, Take::Nothing, None)]).meters[0].meter.outstanding(), 4);
        world.now_ms += 1;
        world.charge(&[confirm("a", &rule, "x", 4)]);
        world.charge(&[cancel("b", &rule, "x")]);
        let late = [(4, 0), (4, 0)];
        assert_eq!(both(&world), late, "{algorithm:?}, {reclaim:?}: only leases are ever dropped");
    }
}

#[test]
fn a_refusal_by_one_charges_none_and_names_the_first() {
    let (wide, narrow) = (rule(Algorithm::FixedWindow, 10, 60_000), rule(Algorithm::FixedWindow, 1, 60_000));
    let mut world = World::new();
    let claims = |amount| {
        let names = [("a", &wide), ("b", &narrow), ("c", &narrow)];
        names.map(|(name, rule)| claim(name, rule, Take::AllOrNone(amount), None))
    };
    let charged = world.charge(&claims(2));
    assert_eq!(charged.verdict, Verdict::Refused { index: 1 });
    assert_eq!(charged.meters.iter().map(|it| it.granted).collect::<Vec<_>>(), [2, 0, 0]);
    assert!(world.meters.is_empty());
    assert_eq!(world.charge(&claims(1)).verdict, Verdict::Charged);
    // Whoever only tries refuses nobody, nor does a share of nothing.
    let mut tries = claims(1);
    (tries[1].take, tries[2].take) = (Take::Try(1), Take::Share(1));
    let charged = world.charge(&tries);
    assert_eq!(charged.verdict, Verdict::Charged);
    assert_eq!(charged.meters.iter().map(|it| it.granted).collect::<Vec<_>>(), [1, 0, 0]);
    assert_eq!(both(&world), [(2, 0), (1, 0)]);
}

#[test]
fn an_outdated_claim_charges_none_and_learns_the_newer_version() {
    let old = rule(Algorithm::FixedWindow, 10, 60_000);
    let new = Rule { version: 7, ..old.clone() };
    let mut world = World::new();
    world.charge(&[claim("b", &new, Take::AllOrNone(1), None)]);
    let before = world.meters.clone();
    let claims = ["a", "b"].map(|name| claim(name, &old, Take::AllOrNone(1), None));
    let charged = world.charge(&claims);
    assert_eq!(charged.verdict, Verdict::Outdated { index: 1, version: 7 });
    assert!(charged.meters.is_empty());
    assert_eq!(world.meters, before);
}

#[derive(Clone, Debug)]
enum Step {
    /// Takes from both: held on one, then on the other, and confirmed or cancelled, unless it stops on the way.
    Decide {
        amounts: [u64; 2],
        delays_ms: [u64; 3],
        stops_after: usize,
        again: bool,
    },
    One {
        which: usize,
        amount: u64,
    },
    Pass(u64),
}

fn step() -> impl Strategy<Value = Step> {
    let (amounts, delays_ms) = ([0..6_u64, 0..6], [0..900_u64, 0..900, 0..900]);
    prop_oneof![
        4 => (amounts, delays_ms, 0..6_usize, any::<bool>()).prop_map(
            |(amounts, delays_ms, stops_after, again)| Step::Decide { amounts, delays_ms, stops_after, again }
        ),
        1 => (0..2_usize, 0..6_u64).prop_map(|(which, amount)| Step::One { which, amount }),
        1 => (0..30_000_u64).prop_map(Step::Pass),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// Whoever admits does so before its own deadline, counted from before the first hold was sent.
    #[test]
    fn no_more_is_admitted_than_each_of_two_meters_allows(
        algorithm in proptest::sample::select(&COUNTING[..]),
        limits in [1..12_u64, 1..12],
        steps in proptest::collection::vec(step(), 1..40),
    ) {
        let rules = limits.map(|limit| rule(algorithm, limit, 10_000));
        let mut world = World::new();
        let mut admitted = [super::actual::Actual::default(), super::actual::Actual::default()];
        for (number, step) in steps.into_iter().enumerate() {
            match step {
                Step::Decide { amounts, delays_ms, stops_after, again } => {
                    let id = alloc::format!("decision-{number}");
                    let deadline_ms = world.now_ms + TTL_MS;
                    let mut is_held = true;
                    let mut sent = Vec::new();
                    for (which, name) in ["a", "b"].into_iter().enumerate() {
                        if stops_after > which && is_held {
                            let claims = [hold(name, &rules[which], &id, amounts[which])];
                            is_held = world.charge(&claims).verdict == Verdict::Charged;
                            sent.push(which);
                            world.now_ms += delays_ms[which];
                        }
                    }
                    let is_admitted = is_held && sent.len() == 2 && world.now_ms < deadline_ms;
                    if is_admitted && stops_after > 2 {
                        admitted[0].spend(world.now_ms, amounts[0]);
                        admitted[1].spend(world.now_ms, amounts[1]);
                    }
                    // It may be gone before all has been said, or say it late, or twice.
                    for which in sent.into_iter().take(stops_after.saturating_sub(3)) {
                        world.now_ms += delays_ms[2];
                        let name = ["a", "b"][which];
                        let last = match is_admitted {
                            true => confirm(name, &rules[which], &id, amounts[which]),
                            false => cancel(name, &rules[which], &id),
                        };
                        for _ in 0..1 + usize::from(again) {
                            world.charge(core::slice::from_ref(&last));
                        }
                    }
                }
                Step::One { which, amount } => {
                    let name = ["a", "b"][which];
                    let claims = [claim(name, &rules[which], Take::AllOrNone(amount), None)];
                    if world.charge(&claims).verdict == Verdict::Charged {
                        admitted[which].spend(world.now_ms, amount);
                    }
                }
                Step::Pass(millis) => world.now_ms += millis,
            }
        }
        for (rule, admitted) in rules.iter().zip(&admitted) {
            admitted.assert_within(rule, 0);
        }
    }
}
