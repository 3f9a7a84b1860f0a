//! Meters as a store keeps them: everything goes through text, and nothing is written unless all of a charge was charged.

use crate::meter::answer::ChargedMeter;
use crate::meter::{
    Algorithm, Charged, Claim, Edges, Meter, Reclaim, RowClaim, RowKind, Rule, Take, Verdict, encode_answer,
    settle,
};
use crate::record::{Bytes, Group, Key};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use proptest::prelude::*;

/// Those that count; what is in flight is only outstanding.
pub const COUNTING: [Algorithm; 4] =
    [Algorithm::TokenBucket, Algorithm::SlidingWindow, Algorithm::FixedWindow, Algorithm::SlidingLog];

/// A multiple of all the windows that tables use, so that times are easy to read there.
pub const START_MS: u64 = 1_000_000;

pub fn rule(algorithm: Algorithm, limit: u64, window_ms: u64) -> Rule {
    Rule {
        version: 1,
        algorithm,
        limit,
        window_ms,
        capacity: limit,
        edges: Edges::Every { offset_ms: 0 },
        reclaim: Reclaim::Burn,
    }
}

/// Any rule whose windows have one length, small enough for everything to happen soon.
pub fn any_rule() -> impl Strategy<Value = Rule> {
    let algorithm = proptest::sample::select(&COUNTING[..]);
    let limit = proptest::sample::select(&[1_u64, 2, 3, 7, 10, 64, 100][..]);
    let window_ms = proptest::sample::select(&[1_u64, 2, 7, 10, 50, 100, 333][..]);
    (algorithm, limit, window_ms, 1..150_u64, any::<u64>()).prop_map(
        |(algorithm, limit, window_ms, burst, offset)| {
            let rule = rule(algorithm, limit, window_ms);
            let capacity = if algorithm == Algorithm::TokenBucket { burst } else { limit };
            Rule { capacity, edges: Edges::Every { offset_ms: offset % window_ms }, ..rule }
        },
    )
}

/// A message about the row `id`, which lives for 100 ms.
pub fn row(id: &str, sequence: u64, spent: u64, kept: u64) -> RowClaim {
    let (id, owner) = (id.into(), "node".into());
    RowClaim { id, owner, kind: RowKind::Lease, ttl_ms: 100, sequence, spent, kept }
}

pub fn key(name: &str) -> Key {
    Key::new(Group(0), name.as_bytes())
}

pub fn claim(name: &str, rule: &Rule, take: Take, row: Option<RowClaim>) -> Claim {
    Claim { key: key(name), rule: rule.clone(), take, row }
}

#[derive(Default)]
pub struct World {
    pub now_ms: u64,
    pub meters: BTreeMap<Key, Bytes>,
}

impl World {
    pub fn new() -> Self {
        Self { now_ms: START_MS, meters: BTreeMap::new() }
    }

    pub fn charge(&mut self, claims: &[Claim]) -> Charged {
        assert!(claims.iter().all(Claim::is_valid), "{claims:?}");
        let found: Vec<_> = claims.iter().map(|claim| self.meters.get(&claim.key).cloned()).collect();
        let settled = settle(claims, &found, self.now_ms).unwrap();
        if settled.verdict == Verdict::Charged {
            for (claim, (_, _, value)) in claims.iter().zip(&settled.effects) {
                if !claim.is_look() {
                    self.meters.insert(claim.key.clone(), value.clone());
                }
            }
        }
        Charged::decode(&encode_answer(settled.verdict, self.now_ms, &settled.effects)).unwrap()
    }

    pub fn meter(&self, name: &str) -> Option<Meter> {
        self.meters.get(&key(name)).map(|value| Meter::decode(value).unwrap())
    }
}

/// One meter in a world of its own, and its rule.
pub struct One {
    pub world: World,
    pub rule: Rule,
}

impl One {
    pub fn new(rule: Rule) -> Self {
        Self { world: World::new(), rule }
    }

    pub fn charge(&mut self, take: Take, row: Option<RowClaim>) -> ChargedMeter {
        let mut charged = self.world.charge(&[claim("one", &self.rule, take, row)]);
        charged.meters.pop().expect("it follows the newest version")
    }

    pub fn granted(&mut self, take: Take) -> u64 {
        self.charge(take, None).granted
    }

    pub fn say(&mut self, take: Take, row: RowClaim) -> ChargedMeter {
        self.charge(take, Some(row))
    }

    /// The meter as it is now; nothing is written by looking.
    pub fn look(&mut self) -> Meter {
        self.charge(Take::Nothing, None).meter
    }

    pub fn used(&mut self) -> u64 {
        self.look().used()
    }

    pub fn pass(&mut self, millis: u64) {
        self.world.now_ms += millis;
    }
}
