//! Charges on Redis: the script against the function at the edges of its numbers, and the faults.

use crate::redis::{store, until, url};
use crate::simulated::{commit, key, put};
use baton_core::meter::{
    Algorithm, Claim, Edges, Memo, Meter, NUMBER_MAX, PRODUCT_MAX, ROWS_MAX, Reclaim, Row, RowClaim, RowKind,
    Rule, Take, Verdict, settle,
};
use baton_core::{Bytes, Group, Key, Ttl, Write};
use baton_store::watch::Change;
use baton_store::{Charge, Reason, StoreError};
use baton_testkit::servers::redis::{Cluster, Redis};
use std::time::Duration;

const CHARGES: usize = 2_000;
/// As many as a meter may have, of rows and of pairs in its log.
const MANY: u64 = ROWS_MAX as u64;
const MINUTE: Duration = Duration::from_secs(60);

/// In one window that never ends.
pub fn claim(key: Key, capacity: u64, take: Take) -> Claim {
    let edges = Edges::At([0, NUMBER_MAX - 1, NUMBER_MAX]);
    let (algorithm, reclaim) = (Algorithm::FixedWindow, Reclaim::Burn);
    let rule =
        Rule { version: 1, algorithm, limit: capacity, window_ms: 86_400_000, capacity, edges, reclaim };
    Claim { key, rule, take, row: None }
}

fn take(name: &str, amount: u64) -> Charge {
    Charge { claims: vec![claim(key(name), 10, Take::AllOrNone(amount))], memo: None }
}

fn memo(name: &str) -> Option<Memo> {
    Some(Memo { key: key(name), digest: format!("{:032x}", 7), ttl_ms: 600_000 })
}

/// The same numbers for the same seed.
struct Dice(u64);

impl Dice {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let high = self.0 >> 32;
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((high << 32) | (self.0 >> 32)) % end
    }

    fn one_of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len() as u64) as usize]
    }

    /// Likely to be where computing goes wrong.
    fn up_to(&mut self, most: u64) -> u64 {
        let any = self.below(most + 1);
        let half = (most / 2).saturating_sub(1) + self.below(3);
        let few = self.below(12);
        self.one_of(&[most, most.saturating_sub(1), half, any, any, any >> 20, few, few, 1, 0]).min(most)
    }

    /// Around now, or anywhere.
    fn moment(&mut self, now_ms: u64) -> u64 {
        let (early, late) = (self.below(100_000), self.below(10_000));
        let anywhere = self.up_to(NUMBER_MAX);
        self.one_of(&[now_ms, now_ms - early, now_ms - early, now_ms + late, anywhere])
    }

    fn rule(&mut self, now_ms: u64) -> Rule {
        let any = 1 + self.up_to(PRODUCT_MAX - 1);
        let window_ms = self.one_of(&[1, 2, 3, 7, 1_000, 60_000, 86_400_000, 31_622_400_000, any]);
        let most = PRODUCT_MAX / window_ms;
        let (limit, capacity) = (self.up_to(most).max(1), self.up_to(most).max(1));
        let edges = if self.below(3) > 0 {
            Edges::Every { offset_ms: self.up_to(window_ms - 1) }
        } else {
            let mut edges = [self.moment(now_ms), self.moment(now_ms), self.moment(now_ms)];
            edges.sort_unstable();
            let first = edges[0].min(NUMBER_MAX - 2);
            let second = edges[1].clamp(first + 1, NUMBER_MAX - 1);
            Edges::At([first, second, edges[2].max(second + 1)])
        };
        let (algorithm, version) = (self.one_of(&Algorithm::ALL), 5 + self.below(3));
        let reclaim = self.one_of(&[Reclaim::Burn, Reclaim::Drop]);
        Rule { version, algorithm, limit, window_ms, capacity, edges, reclaim }
    }

    fn kind(&mut self) -> RowKind {
        self.one_of(&[RowKind::Lease, RowKind::Lease, RowKind::Hold, RowKind::Place])
    }

    /// Any that a sequence of charges may have led to, most often by the same rule.
    fn meter(&mut self, asked: &Rule, now_ms: u64) -> Meter {
        let other = self.rule(now_ms);
        let rule = if self.below(4) == 0 { &other } else { asked };
        let (window_ms, limit) = (rule.window_ms, rule.limit);
        let offset_ms = match rule.edges {
            Edges::Every { offset_ms } => offset_ms,
            Edges::At(_) => window_ms,
        };
        let at_ms = self.moment(now_ms).min(now_ms + 10_000);
        let window = PRODUCT_MAX / window_ms;
        let (current, previous) = match rule.algorithm {
            Algorithm::TokenBucket => (self.up_to(NUMBER_MAX), 0),
            Algorithm::FixedWindow => (self.up_to(window), 0),
            Algorithm::SlidingWindow => (self.up_to(window), self.up_to(window)),
            _ => (0, 0),
        };
        let mut log = Vec::new();
        if rule.algorithm == Algorithm::SlidingLog {
            let count = if self.below(6) == 0 { MANY } else { self.below(6) };
            let moments = (1..=count).rev().map(|before_ms| at_ms - before_ms.min(at_ms));
            log = moments.map(|time| (time, 1 + self.up_to(window))).collect();
            log.dedup_by_key(|(time, _)| *time);
        }
        let is_full = self.below(20) == 0;
        let mut rows: Vec<_> = (0..if is_full { MANY } else { self.below(5) })
            .map(|index| {
                let (amount, spent) = (self.up_to(window).max(1), self.up_to(PRODUCT_MAX));
                let (soon, moment) = (now_ms + self.below(8), self.moment(now_ms));
                let expires_ms = if is_full { now_ms + 60_000 } else { self.one_of(&[moment, moment, soon]) };
                let (id, sequence) = (format!("row-{index}"), 1 + self.below(4));
                Row { id, owner: "node".into(), kind: self.kind(), amount, spent, sequence, expires_ms }
            })
            .collect();
        rows.sort_by_key(|row| row.expires_ms);
        let start_ms = if self.below(2) == 0 { rule.start_of(at_ms) } else { self.moment(now_ms).min(at_ms) };
        let since_ms = at_ms - self.up_to(at_ms.min(100_000));
        Meter {
            version: 5 + self.below(2),
            algorithm: rule.algorithm,
            limit,
            window_ms,
            offset_ms,
            since_ms,
            at_ms,
            start_ms,
            current,
            previous,
            log,
            rows,
        }
    }

    fn claim(&mut self, key: Key, rule: Rule, found: Option<&Meter>, now_ms: u64) -> Claim {
        let amount = self.up_to(PRODUCT_MAX / rule.window_ms);
        let mut moment = self.moment(now_ms);
        if let Some(meter) = found {
            let entry = meter.log.last().map_or(meter.start_ms, |(time, _)| *time);
            moment = self.one_of(&[moment, meter.at_ms, meter.since_ms, entry]);
        }
        let take = match self.below(8) {
            0 => Take::Nothing,
            1 => Take::AllOrNone(amount),
            2 => Take::Try(amount),
            3 => Take::Share(amount),
            4 => Take::Forced(amount),
            5 if rule.algorithm == Algorithm::TokenBucket => {
                Take::Book { amount, wait_max_ms: self.up_to(rule.window_ms) }
            }
            _ => Take::Credit { amount, at_ms: moment },
        };
        let (soon, any) = (self.below(8), self.up_to(PRODUCT_MAX));
        let id = self.one_of(&["row-0", "row-1", "row-2", "new"]).into();
        let may_have_row = !matches!(take, Take::Forced(_) | Take::Book { .. } | Take::Credit { .. });
        let row = (may_have_row && self.below(2) == 0).then(|| RowClaim {
            id,
            owner: "node".into(),
            kind: self.kind(),
            ttl_ms: self.one_of(&[soon, any, any]),
            sequence: 1 + self.below(6),
            spent: self.up_to(PRODUCT_MAX),
            kept: self.up_to(PRODUCT_MAX),
        });
        Claim { key, rule, take, row }
    }
}

#[tokio::test]
async fn a_charge_is_the_function_also_at_the_edges_of_what_is_exact() {
    let server = Redis::start(&["--appendfsync", "no"]).await.unwrap();
    let store = store(&url(&server)).await;
    let seed = getrandom::u64().unwrap();
    let mut dice = Dice(seed);
    let keys = [key("a"), key("b")];
    let mut now_ms = store.read(vec![key("a")]).await.unwrap().now.0;
    for turn in 0..CHARGES {
        let (mut writes, mut claims, mut found) = (Vec::new(), Vec::new(), Vec::new());
        for key in &keys[..1 + dice.below(2) as usize] {
            let rule = dice.rule(now_ms);
            let meter = (dice.below(8) > 0).then(|| dice.meter(&rule, now_ms));
            claims.push(dice.claim(key.clone(), rule, meter.as_ref(), now_ms));
            let value: Option<Bytes> = meter.map(|meter| meter.encode());
            writes.push(match value.clone() {
                Some(value) => Write::Put { key: key.clone(), value, ttl: Ttl::AtLeast(MINUTE) },
                None => Write::Delete { key: key.clone() },
            });
            found.push(value);
        }
        store.commit(commit(writes)).await.unwrap();
        let context = format!("seed {seed}, turn {turn}: {claims:?} on {found:?}");
        let charge = Charge { claims: claims.clone(), memo: None };
        let charged = store.charge(charge).await.unwrap_or_else(|error| panic!("{error}, {context}"));
        now_ms = charged.now.0;
        let expected = settle(&claims, &found, now_ms).unwrap();
        assert_eq!(charged.verdict, expected.verdict, "at {now_ms}, {context}");
        let effects = charged.meters.iter().map(|it| (it.granted, it.wait_ms, it.meter.encode()));
        let effects: Vec<_> = effects.collect();
        for (effect, expected) in effects.iter().zip(&expected.effects) {
            let text = |value: &Bytes| String::from_utf8_lossy(value).into_owned();
            assert_eq!(text(&effect.2), text(&expected.2), "at {now_ms}, {context}");
        }
        assert_eq!(effects, expected.effects, "at {now_ms}, {context}");
        // What was charged is there, for at least as long as it is worth anything.
        let reading = store.read(claims.iter().map(|claim| claim.key.clone()).collect()).await.unwrap();
        for (index, record) in reading.records.into_iter().enumerate() {
            let written = charged.verdict == Verdict::Charged && !claims[index].is_look();
            let value = record.as_ref().map(|record| record.value.clone());
            let expected_value =
                if written { Some(expected.effects[index].2.clone()) } else { found[index].clone() };
            assert_eq!(value, expected_value, "{context}");
            if written {
                let left = record.unwrap().expires_in.unwrap();
                // A record's expiry is in microseconds below 2^53, too.
                let worth_ms =
                    expected.worth_ms[index].min((NUMBER_MAX / 1_000).saturating_sub(now_ms + 60_000));
                assert!(
                    left + Duration::from_secs(5) > Duration::from_millis(worth_ms) + MINUTE / 2,
                    "{left:?}, {context}"
                );
            }
        }
    }
}

#[tokio::test]
async fn a_meter_is_a_record_like_any_other_and_its_expiry_moves_seldom() {
    let server = Redis::start(&[]).await.unwrap();
    let store = store(&url(&server)).await;
    let mut hints = store.watch(b""[..].into());
    until("it hears", async || matches!(hints.next().await, Some(Change::Lost))).await;
    store.charge(take("a", 1)).await.unwrap();
    let noted = || server.say(&["ZSCORE", "baton:{007}:expiry", "a"]).unwrap();
    let (first, score) = (store.read(vec![key("a")]).await.unwrap().records.remove(0).unwrap(), noted());
    assert!(!score.is_empty());
    assert_eq!(server.say(&["ZSCORE", "baton:{007}:names", "a"]).unwrap(), "0");
    store.charge(take("a", 2)).await.unwrap();
    let second = store.read(vec![key("a")]).await.unwrap().records.remove(0).unwrap();
    assert_eq!((second.created, noted()), (first.created, score));
    assert!(second.revision > first.revision);
    // Neither who looks nor who is refused leaves a trace.
    store.charge(take("a", 0)).await.unwrap();
    let refused = store.charge(take("a", 8)).await.unwrap();
    assert_eq!(refused.verdict, Verdict::Refused { index: 0 });
    let third = store.read(vec![key("a")]).await.unwrap().records.remove(0).unwrap();
    assert_eq!((third.revision, third.value), (second.revision, second.value));
    // A commit draws from where the charge did, and its hint is the first one.
    store.commit(commit([put("b", "1")])).await.unwrap();
    let hint = hints.next().await;
    let Some(Change::Put { key: told, revision, .. }) = &hint else { panic!("{hint:?}") };
    assert!(*told == key("b") && *revision > second.revision, "{hint:?}");
}

#[tokio::test]
async fn what_is_stored_as_a_meter_and_is_none_is_left_alone() {
    let server = Redis::start(&[]).await.unwrap();
    let store = store(&url(&server)).await;
    let meter = "1 1 f 10 86400000 0 5 5 0 3 0";
    let wrong = ["", "x", "2 1 f 10 1 0 0 0 0 0 0 0 0"].map(String::from).into_iter();
    let ends = [" 1 5 0", " 0 1", " 0 0 7", " 0 1 a b X 1 2 3 4", " 0 1 a b L 1 2 3 x"];
    for value in wrong.chain(ends.iter().map(|end| format!("{meter}{end}"))) {
        store.commit(commit([put("a", &value)])).await.unwrap();
        let answer = store.charge(take("a", 1)).await;
        let Err(StoreError::NotApplied { reason: Reason::Unavailable, .. }) = answer else {
            panic!("{value}: {answer:?}")
        };
        let found = store.read(vec![key("a")]).await.unwrap().records.remove(0).unwrap();
        assert_eq!(found.value[..], *value.as_bytes());
    }
    store.commit(commit([put("a", &format!("{meter} 0 0"))])).await.unwrap();
    assert_eq!(store.charge(take("a", 1)).await.unwrap().verdict, Verdict::Charged);
}

#[tokio::test]
async fn a_full_server_charges_nothing_and_says_so() {
    let server = Redis::start(&[]).await.unwrap();
    let store = store(&url(&server)).await;
    store.charge(Charge { memo: memo("done"), ..take("a", 1) }).await.unwrap();
    assert_eq!(server.say(&["CONFIG", "SET", "maxmemory", "1"]).unwrap(), "OK");
    let state = || server.say(&["MGET", "baton:{007}:revision", "baton:{007}:=a", "baton:{007}:=b"]).unwrap();
    let before = state();
    assert!(before.contains(" f 10 "), "{before}");
    let both = [claim(key("a"), 10, Take::Try(1)), claim(key("b"), 10, Take::Try(1))];
    let answer = store.charge(Charge { claims: both.into(), memo: memo("new") }).await;
    assert!(matches!(answer, Err(StoreError::NotApplied { reason: Reason::Full, .. })), "{answer:?}");
    assert_eq!(state(), before);
    // What needs no room is answered.
    let again = store.charge(Charge { memo: memo("done"), ..take("a", 1) }).await.unwrap();
    assert!(again.repeated);
    assert_eq!(store.charge(take("a", 10)).await.unwrap().verdict, Verdict::Refused { index: 0 });
}

#[tokio::test]
async fn while_the_replica_it_is_to_wait_for_stands_still_no_charge_is_answered() {
    let server = Redis::start(&[]).await.unwrap();
    let port = server.address.port().to_string();
    let replica = Redis::start(&["--replicaof", "127.0.0.1", &port]).await.unwrap();
    let url = format!("{}?wait=1&wait_millis=300", url(&server));
    let done = Charge { memo: memo("done"), ..take("a", 1) };
    until("the replica follows", async || store(&url).await.charge(done.clone()).await.is_ok()).await;
    replica.process().unwrap().pause().unwrap();
    // Also one that changes nothing, of a node that has written nothing: what it shows may be gone after a failover.
    for charge in [take("a", 1), take("a", 10), take("a", 0), done] {
        let answer = store(&url).await.charge(charge.clone()).await;
        assert!(matches!(answer, Err(StoreError::Unknown { .. })), "{charge:?}: {answer:?}");
    }
    replica.process().unwrap().resume().unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_a_cluster_only_meters_of_one_group_are_charged_together() {
    let cluster = Cluster::start(3).await.unwrap();
    let store = store(&cluster.url()).await;
    assert!(!store.guarantees().charge_spans_groups);
    let meter = |group, name: &str| claim(Key::new(Group(group), name.as_bytes()), 10, Take::AllOrNone(1));
    let charge = Charge { claims: vec![meter(7, "a"), meter(7, "b")], memo: memo("done") };
    assert_eq!(store.charge(charge).await.unwrap().verdict, Verdict::Charged);
    let charge = Charge { claims: vec![meter(7, "a"), meter(8, "b")], memo: None };
    let answer = store.charge(charge).await;
    assert!(matches!(answer, Err(StoreError::NotApplied { reason: Reason::Invalid, .. })), "{answer:?}");
}
