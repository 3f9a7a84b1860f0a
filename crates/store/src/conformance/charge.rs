//! A charge does to meters what the function in `baton_core::meter` says, whatever language it is done in.

use super::{Ground, Harness};
use crate::charge::Charge;
use baton_core::meter::{
    Algorithm, Charged, Claim, Edges, Memo, Reclaim, RowClaim, RowKind, Rule, Take, Verdict, settle,
};
use baton_core::{Bytes, Key};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

const CHARGES: usize = 500;
const CLIENTS: u64 = 20;
const TRIES: u64 = 6;
const LIMIT: u64 = 100;
const HOUR_MS: u64 = 3_600_000;

/// Numbers that look random and come again with the same seed.
struct Dice(u64);

impl Dice {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }

    fn one_of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len() as u64) as usize]
    }
}

fn rule(algorithm: Algorithm, limit: u64, window_ms: u64) -> Rule {
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

/// A rule as of a version: the same for everybody who asks.
fn random_rule(seed: u64, meter: usize, version: u64, now_ms: u64) -> Rule {
    let mut dice = Dice(seed ^ (meter as u64 * 7_919 + version * 104_729));
    dice.below(2);
    let algorithm = dice.one_of(&Algorithm::ALL);
    let window_ms = dice.one_of(&[1, 7, 50, 300, 60_000, 2_592_000_000]);
    let limit = dice.one_of(&[1, 3, 10, 100, 1_000_000]);
    let capacity = if algorithm == Algorithm::TokenBucket { dice.one_of(&[1, 5, 20, 500]) } else { limit };
    let reclaim = dice.one_of(&[Reclaim::Burn, Reclaim::Drop]);
    let edges = match dice.below(4) {
        // A calendar: any edges around the present will do, the same for a while.
        0 => {
            let first = now_ms / 100_000 * 100_000;
            Edges::At([first, first + 100_000, first + 200_000])
        }
        _ => Edges::Every { offset_ms: dice.below(window_ms) },
    };
    Rule { version, algorithm, limit, window_ms, capacity, edges, reclaim }
}

fn random_claim(dice: &mut Dice, rule: Rule, key: Key, now_ms: u64) -> Claim {
    let amount = dice.one_of(&[0, 1, 1, 1, 2, 5, 40, 1_000]);
    let take = match dice.below(12) {
        0..=3 => Take::AllOrNone(amount),
        4 => Take::Nothing,
        5 => Take::Try(amount),
        6..=7 => Take::Share(amount),
        8 => Take::Forced(dice.one_of(&[0, 1, 3, 1_000_000])),
        9 if rule.algorithm == Algorithm::TokenBucket => {
            Take::Book { amount, wait_max_ms: dice.one_of(&[0, 10, 1_000, 100_000_000]) }
        }
        _ => Take::Credit { amount, at_ms: now_ms.saturating_sub(dice.one_of(&[0, 1, 5, 30, 400])) },
    };
    let has_row =
        !matches!(take, Take::Forced(_) | Take::Book { .. } | Take::Credit { .. }) && dice.below(2) == 0;
    let row = has_row.then(|| RowClaim {
        id: format!("row-{}", dice.below(6)),
        owner: format!("node.{}", dice.below(3)),
        kind: dice.one_of(&[RowKind::Lease, RowKind::Lease, RowKind::Hold, RowKind::Place]),
        ttl_ms: dice.one_of(&[0, 3, 20, 200, 5_000]),
        sequence: 1 + dice.below(200),
        spent: dice.below(20),
        kept: dice.below(20),
    });
    Claim { key, rule, take, row }
}

/// Any sequence of charges has the effects and the answers of the function, at the times the store says.
pub(super) async fn is_the_function<H: Harness>(harness: &H) {
    let ground = Ground::new(harness, "charge").await;
    let seed = getrandom::u64().expect("the system has randomness");
    let mut dice = Dice(seed);
    let keys: Vec<_> = (0..5).map(|index| ground.key(&format!("meter-{index}"))).collect();
    let mut versions = [1_u64; 5];
    let mut model: HashMap<Key, Bytes> = HashMap::new();
    let mut memos: HashMap<Key, Charged> = HashMap::new();
    let mut now_ms = ground.store.read(vec![keys[0].clone()]).await.expect("the store answers").now.0;
    for turn in 0..CHARGES {
        let count = 1 + dice.below(3).saturating_sub(dice.below(2)) as usize;
        let first = dice.below(5) as usize;
        let claims: Vec<_> = (0..count)
            .map(|step| {
                let meter = (first + step) % 5;
                let ahead = dice.below(40);
                versions[meter] += u64::from(ahead == 0);
                let version = versions[meter] - u64::from(ahead == 1 && versions[meter] > 1);
                let rule = random_rule(seed, meter, version, now_ms);
                random_claim(&mut dice, rule, keys[meter].clone(), now_ms)
            })
            .collect();
        let memo = (dice.below(8) == 0).then(|| Memo {
            key: ground.key(&format!("memo-{}", dice.below(8))),
            digest: format!("{turn:032x}"),
            ttl_ms: HOUR_MS,
        });
        let charge = Charge { claims: claims.clone(), memo: memo.clone() };
        let charged = ground.store.charge(charge).await.expect("the store answers");
        let context = || format!("seed {seed}, turn {turn}: {claims:?} on {model:?}");
        if let Some(done) = memo.as_ref().and_then(|memo| memos.get(&memo.key)) {
            assert_eq!(&charged, done, "what was done once is done again: {}", context());
            continue;
        }
        let found: Vec<_> = claims.iter().map(|claim| model.get(&claim.key).cloned()).collect();
        let expected = settle(&claims, &found, charged.now.0).expect("the model is readable");
        assert_eq!(charged.verdict, expected.verdict, "another verdict: {}", context());
        let meters = charged.meters.iter().map(|it| (it.granted, it.wait_ms, it.meter.encode()));
        let meters: Vec<_> = meters.collect();
        assert_eq!(meters, expected.effects, "another effect at {}: {}", charged.now.0, context());
        now_ms = charged.now.0;
        if charged.verdict == Verdict::Charged {
            for (claim, (_, _, value)) in claims.iter().zip(expected.effects) {
                if !claim.is_look() {
                    model.insert(claim.key.clone(), value);
                }
            }
            if let Some(memo) = memo {
                let done = Charged { repeated: true, digest: Some(memo.digest), ..charged };
                memos.insert(memo.key, done);
            }
        }
        if dice.below(20) == 0 {
            harness.pass(Duration::from_millis(dice.below(60))).await;
        }
    }
    let reading = ground.store.read(keys.clone()).await.expect("the store answers");
    for (key, record) in keys.iter().zip(reading.records) {
        let stored = record.map(|record| record.value);
        assert_eq!(stored.as_ref(), model.get(key), "a meter is a record, seed {seed}");
    }
}

/// However many charge at once, exactly the limit is taken.
pub(super) async fn takes_exactly_the_limit<H: Harness>(harness: &H) {
    let algorithms =
        [Algorithm::TokenBucket, Algorithm::SlidingWindow, Algorithm::FixedWindow, Algorithm::SlidingLog];
    for algorithm in algorithms {
        let ground = Arc::new(Ground::new(harness, "charge-race").await);
        let clients: Vec<_> = (0..CLIENTS)
            .map(|_| {
                let ground = ground.clone();
                tokio::spawn(async move {
                    let mut taken = 0;
                    for _ in 0..TRIES {
                        let rule = rule(algorithm, LIMIT, 24 * HOUR_MS);
                        let claim =
                            Claim { key: ground.key("meter"), rule, take: Take::AllOrNone(1), row: None };
                        let charge = Charge { claims: vec![claim], memo: None };
                        let charged = ground.store.charge(charge).await.expect("the store answers");
                        taken += charged.meters[0].granted;
                    }
                    taken
                })
            })
            .collect();
        let mut taken = 0;
        for client in clients {
            taken += client.await.expect("the client ends well");
        }
        assert_eq!(taken, LIMIT, "{algorithm:?}");
    }
}
