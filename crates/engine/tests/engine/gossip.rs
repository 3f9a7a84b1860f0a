//! Limits whose counts spread (M5): decided by what a node has heard, without the store, and the same for all who have heard the same.

use super::limits::{DAY_MS, Ground, call, check, definition, ground, name};
use super::replication::{SOON, SYNC, World, address};
use baton_core::crdt::{Edit, Kind, Object};
use baton_core::limit::gossip::window;
use baton_core::limit::{Definition, Mechanism, Policy};
use baton_core::meter::Algorithm;
use baton_engine::limit::{LimitError, Opening, ReplicaSource, Source, Wanted};
use baton_engine::replica::Replica;
use baton_engine::replication::PeerStatus;
use baton_engine::{Config, Engine, Random};
use baton_testkit::faulty::Fault;
use std::sync::Arc;
use std::time::Duration;

const LIMIT: u64 = 30;

struct Given(Arc<Replica>);

impl ReplicaSource for Given {
    fn open(&self) -> Opening<'_> {
        Box::pin(async { Ok(self.0.clone()) })
    }

    fn peers(&self) -> Vec<PeerStatus> {
        Vec::new()
    }
}

fn connect(engine: &Engine, replica: &Arc<Replica>) {
    engine.connect_replica(Arc::new(Given(replica.clone())), Some(replica.clone()));
}

fn spread(algorithm: Algorithm) -> Definition {
    Definition { mechanism: Mechanism::Gossip, sync_ms: Some(10), ..definition(algorithm, LIMIT, DAY_MS) }
}

/// Nodes that share definitions and nothing else but what their replicas tell each other.
async fn nodes(count: usize) -> (Ground, World) {
    let (ground, world) = (ground(count).await, World::new(count, SYNC).await);
    for (engine, replica) in ground.engines.iter().zip(&world.replicas) {
        connect(engine, replica);
    }
    ground.engines[0].put_limit(&name("l"), spread(Algorithm::FixedWindow)).await.unwrap();
    (ground, world)
}

async fn used(engine: &Engine) -> u64 {
    engine.usage(&name("l"), "k").await.unwrap().used
}

async fn eventually(what: &str, is_so: impl AsyncFn() -> bool) {
    let waiting = async {
        while !is_so().await {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::time::timeout(SOON, waiting).await.expect(what);
}

async fn all_know(ground: &Ground, count: u64) {
    for engine in &ground.engines {
        eventually("it is heard of", async || used(engine).await == count).await;
    }
}

/// How many of so many checks pass.
async fn admitted(engine: &Engine, checks: u64) -> u64 {
    let mut admitted = 0;
    for _ in 0..checks {
        admitted += u64::from(check(engine, "l", "k", 1).await.allowed);
    }
    admitted
}

#[tokio::test(flavor = "multi_thread")]
async fn what_one_admits_the_others_hear_of_and_then_admit_no_more() {
    let (ground, _world) = nodes(3).await;
    assert_eq!(admitted(&ground.engines[0], 10).await, 10);
    all_know(&ground, 10).await;
    assert_eq!(admitted(&ground.engines[1], 25).await, LIMIT - 10);
    all_know(&ground, LIMIT).await;
    let refused = check(&ground.engines[2], "l", "k", 1).await;
    let (_, denial) = refused.refused.unwrap();
    assert_eq!((denial.reason, refused.checks[0].source), ("budget_exhausted", Source::Local));
    assert!(denial.retry_after_ms.is_some_and(|retry_ms| retry_ms <= DAY_MS));
    let (_, _, measured) = ground.engines[2].bound(&name("l"), "k").await.unwrap();
    assert_eq!(measured.amount, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn who_is_cut_off_admits_the_limit_at_most_and_the_overshoot_is_what_the_sum_is_beyond_it() {
    let (ground, world) = nodes(3).await;
    for engine in &ground.engines {
        // A first check each, so that all of them know the definition.
        assert_eq!(admitted(engine, 1).await, 1);
    }
    all_know(&ground, 3).await;
    world.network.cut.lock().unwrap().insert(address(2));
    assert_eq!(admitted(&ground.engines[2], 100).await, LIMIT - 3);
    assert_eq!(admitted(&ground.engines[0], 20).await, 20);
    eventually("the others hear each other", async || used(&ground.engines[1]).await == 23).await;
    assert_eq!(admitted(&ground.engines[1], 100).await, LIMIT - 23);
    world.network.cut.lock().unwrap().clear();
    let sum = 3 + 2 * (LIMIT - 3);
    all_know(&ground, sum).await;
    for engine in &ground.engines {
        assert_eq!(admitted(engine, 5).await, 0);
        let (bound, _, measured) = engine.bound(&name("l"), "k").await.unwrap();
        assert_eq!(measured.amount, sum - LIMIT);
        assert!(bound.items.iter().any(|item| item.source == "partition"), "{bound:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_starts_again_knows_what_was_written_down_and_drained_nodes_write_all() {
    let (ground, world) = nodes(2).await;
    assert_eq!(admitted(&ground.engines[0], 12).await, 12);
    ground.engines[0].drain().await;
    let again = Engine::start(ground.store.clone(), Config::default(), Random::system()).await.unwrap();
    connect(&again, &world.replicas[0]);
    assert_eq!(used(&again).await, 12);
    assert_eq!(admitted(&again, 100).await, LIMIT - 12);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_store_is_not_asked_and_checks_go_on_without_it() {
    let (ground, _world) = nodes(1).await;
    let engine = &ground.engines[0];
    assert_eq!(admitted(engine, 1).await, 1);
    // Whoever asks it waits for ever; whoever doesn't is done when first looked at.
    ground.faulty.set(Fault::Silent);
    for _ in 0..10 {
        let checked = tokio::time::timeout(Duration::ZERO, check(engine, "l", "k", 1)).await;
        assert!(checked.expect("it waits for nothing").allowed);
    }
    ground.faulty.set(Fault::Unavailable);
    assert_eq!(admitted(engine, 100).await, LIMIT - 11);
    let look = engine.check_limits(&[call("l", "k", 0)], &Wanted::default()).await.unwrap();
    assert!(!look.allowed && look.checks[0].remaining == 0, "{look:?}");
    assert!(engine.bound(&name("l"), "").await.is_ok());
    assert_eq!(used(engine).await, LIMIT);
    assert_eq!(ground.faulty.charges(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_by_another_limit_counts_nothing_whoever_decides_that() {
    let (ground, _world) = nodes(1).await;
    let engine = &ground.engines[0];
    for (limit, mechanism) in [("narrow", Mechanism::Central), ("tight", Mechanism::Gossip)] {
        let narrow = Definition { mechanism, ..definition(Algorithm::FixedWindow, 2, DAY_MS) };
        engine.put_limit(&name(limit), narrow).await.unwrap();
        let before = used(engine).await;
        for order in [[call("l", "k", 3), call(limit, "k", 1)], [call(limit, "k", 1), call("l", "k", 3)]] {
            for _ in 0..4 {
                let answered = engine.check_limits(&order, &Wanted::default()).await.unwrap();
                if let Some((place, _)) = answered.refused {
                    assert_eq!(answered.checks[place].defined.definition.limit, 2);
                }
            }
        }
        assert_eq!(used(engine).await, before + 2 * 3, "{limit}");
    }
    // And the other way round: the gossip limit refuses, and the store's isn't charged.
    engine.put_limit(&name("wide"), definition(Algorithm::FixedWindow, 1_000, DAY_MS)).await.unwrap();
    let both = [call("wide", "k", 1), call("l", "k", LIMIT)];
    assert!(!engine.check_limits(&both, &Wanted::default()).await.unwrap().allowed);
    assert_eq!(engine.usage(&name("wide"), "k").await.unwrap().used, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_receipt_gives_back_once_at_whichever_nodes() {
    let (ground, world) = nodes(2).await;
    let wanted = Wanted { receipt: true, ..Wanted::default() };
    let mut answered = ground.engines[0].check_limits(&[call("l", "k", 4)], &wanted).await.unwrap();
    let receipt = answered.checks.remove(0).receipt.unwrap();
    assert_eq!(admitted(&ground.engines[0], 3).await, 3);
    // Cut off from each other, both are asked, and one of them twice.
    world.network.cut.lock().unwrap().insert(address(1));
    for at in [0, 1, 1] {
        assert_eq!(ground.engines[at].refund(&name("l"), "k", &receipt, "").await.unwrap(), 4);
    }
    world.network.cut.lock().unwrap().clear();
    all_know(&ground, 3).await;
    world.equal().await;
    assert_eq!((used(&ground.engines[0]).await, used(&ground.engines[1]).await), (3, 3));
    // With other windows it was counted elsewhere.
    let other = Definition { window_ms: DAY_MS / 2, ..spread(Algorithm::FixedWindow) };
    ground.engines[0].put_limit(&name("l"), other).await.unwrap();
    assert_eq!(ground.engines[0].refund(&name("l"), "k", &receipt, "").await.unwrap(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_hears_of_what_is_given_back_before_what_was_counted() {
    let (ground, world) = nodes(2).await;
    // So seldom that it isn't written by itself meanwhile.
    let seldom = Definition { sync_ms: Some(10_000), ..spread(Algorithm::FixedWindow) };
    ground.engines[0].put_limit(&name("l"), seldom).await.unwrap();
    let wanted = Wanted { receipt: true, ..Wanted::default() };
    let mut answered = ground.engines[0].check_limits(&[call("l", "k", 4)], &wanted).await.unwrap();
    let receipt = answered.checks.remove(0).receipt.unwrap();
    assert_eq!(admitted(&ground.engines[0], 3).await, 3);
    assert_eq!(ground.engines[0].refund(&name("l"), "k", &receipt, "").await.unwrap(), 4);
    world.equal().await;
    let rows = world.replicas[1].size().rows;
    assert_eq!((used(&ground.engines[1]).await, rows), (3, 2), "both are there");
}

/// A counter of a replica has room for 1,024 who count in it.
#[tokio::test(flavor = "multi_thread")]
async fn however_much_is_given_back_what_another_node_counts_is_heard_of() {
    let (ground, _world) = nodes(2).await;
    let [engine, other] = &ground.engines[..] else { panic!("two nodes") };
    const CHECKS: u64 = 1_100;
    engine
        .put_limit(&name("l"), Definition { limit: 2 * CHECKS, ..spread(Algorithm::FixedWindow) })
        .await
        .unwrap();
    let wanted = Wanted { receipt: true, ..Wanted::default() };
    let mut refunds = tokio::task::JoinSet::new();
    for _ in 0..CHECKS {
        let mut answered = engine.check_limits(&[call("l", "k", 1)], &wanted).await.unwrap();
        let (engine, receipt) = (engine.clone(), answered.checks.remove(0).receipt.unwrap());
        refunds.spawn(async move { engine.refund(&name("l"), "k", &receipt, "").await });
    }
    let (mut given_back, mut refused) = (0, 0);
    while let Some(refund) = refunds.join_next().await {
        match refund.unwrap() {
            Ok(amount) => given_back += amount,
            Err(_) => refused += 1,
        }
    }
    assert!(given_back >= 1_000 && given_back + refused == CHECKS, "{given_back} and {refused}");
    all_know(&ground, CHECKS - given_back).await;
    assert_eq!(admitted(other, 3).await, 3);
    all_know(&ground, CHECKS - given_back + 3).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_counts_once_at_a_node_and_what_only_counts_refuses_nobody() {
    let (ground, _world) = nodes(1).await;
    let engine = &ground.engines[0];
    let wanted = Wanted { request_id: Some("r".into()), ..Wanted::default() };
    for _ in 0..3 {
        assert!(engine.check_limits(&[call("l", "k", 5)], &wanted).await.unwrap().allowed);
    }
    assert_eq!(used(engine).await, 5);
    assert!(engine.check_limits(&[call("l", "k", 6)], &wanted).await.is_err(), "another question");
    let dry = Definition { dry_run: true, ..spread(Algorithm::SlidingWindow) };
    engine.put_limit(&name("l"), dry).await.unwrap();
    assert_eq!(admitted(engine, 100).await, 100);
    let answered = check(engine, "l", "k", 1).await;
    assert!(answered.checks[0].would_refuse);
    assert_eq!(used(engine).await, LIMIT);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_comes_twice_at_once_counts_once_whoever_decides_beside_it() {
    let (ground, _world) = nodes(1).await;
    let engine = &ground.engines[0];
    engine
        .put_limit(&name("l"), Definition { limit: 1_000, ..spread(Algorithm::FixedWindow) })
        .await
        .unwrap();
    let open = Definition { on_failure: Policy::Open, ..definition(Algorithm::FixedWindow, 1_000, DAY_MS) };
    engine.put_limit(&name("central"), open).await.unwrap();
    let orders = [
        vec![call("l", "k", 1), call("central", "k", 1)],
        vec![call("central", "k", 1), call("l", "k", 1)],
        vec![call("l", "k", 1)],
    ];
    let (mut counted, mut at_the_store) = (0, 0);
    for (fault, rounds) in [(Fault::None, 60), (Fault::Unavailable, 20)] {
        ground.faulty.set(fault);
        for round in 0..rounds {
            let calls = &orders[round % orders.len()];
            let wanted = Wanted { request_id: Some(format!("{fault:?} {round}")), ..Wanted::default() };
            let mut callers = tokio::task::JoinSet::new();
            for _ in 0..4 {
                let (engine, calls, wanted) = (engine.clone(), calls.clone(), wanted.clone());
                callers.spawn(async move { engine.check_limits(&calls, &wanted).await });
            }
            while let Some(answered) = callers.join_next().await {
                let answered =
                    answered.unwrap().unwrap_or_else(|error| panic!("{error:?}, {fault:?}, {round}"));
                assert!(answered.allowed && answered.checks.len() == calls.len(), "{answered:?}");
            }
            counted += 1;
            at_the_store += calls.len() as u64 - 1;
            assert_eq!(used(engine).await, counted, "{fault:?}, {round}");
        }
    }
    ground.faulty.set(Fault::None);
    eventually("what is owed is counted", async || {
        engine.usage(&name("central"), "k").await.is_ok_and(|usage| usage.used >= at_the_store)
    })
    .await;
    assert_eq!(engine.usage(&name("central"), "k").await.unwrap().used, at_the_store);
    let other = [call("central", "k", 2), call("l", "k", 1)];
    let wanted = Wanted { request_id: Some("None 1".into()), ..Wanted::default() };
    assert_eq!(engine.check_limits(&other, &wanted).await.unwrap_err(), LimitError::RequestIdReused);
}

#[tokio::test(flavor = "multi_thread")]
async fn counts_of_windows_that_are_over_are_found_at_the_start_and_go() {
    let world = World::new(2, SYNC).await;
    let over = window::Window { start_ms: 1_000, end_ms: 2_000 }.row(&name("old"), "k");
    let now_ms =
        std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_millis() as u64;
    let live = window::Window { start_ms: now_ms - 1_000, end_ms: now_ms + 1_000 }.row(&name("old"), "k");
    let hits = Object::plain("n", "hits").row(Kind::Counter);
    let refunds = window::Window { start_ms: 1_000, end_ms: 2_000 }.refunds(&name("old"), "k");
    for key in [&over, &refunds, &live, &hits] {
        let edit = Edit { key: key.clone(), act: baton_core::crdt::Act::Add(1) };
        world.replicas[1].write(&[edit], None).await.unwrap();
    }
    world.equal().await;
    let ground = ground(1).await;
    connect(&ground.engines[0], &world.replicas[0]);
    let is_there = |key: &baton_core::crdt::RowKey| world.replicas[1].with_row(key, |row| row.is_some());
    eventually("they go", async || !is_there(&over) && !is_there(&refunds)).await;
    assert!(is_there(&live) && is_there(&hits));
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_beyond_the_most_share_a_count_and_without_a_replica_counts_stay_here() {
    let ground = ground(1).await;
    let few = Definition { keys_max: 2, ..spread(Algorithm::FixedWindow) };
    ground.engines[0].put_limit(&name("l"), few).await.unwrap();
    let mut left = Vec::new();
    for key in ["a", "b", "c", "d", "a"] {
        left.push(check(&ground.engines[0], "l", key, 10).await.checks[0].remaining);
    }
    assert_eq!(left, [20, 20, 20, 10, 10], "c and d share one");
    assert_eq!(
        ground.engines[0]
            .metrics()
            .gossip_writes
            .get_or_create(&baton_engine::metrics::OutcomeLabel { outcome: "written" })
            .get(),
        0
    );
}
