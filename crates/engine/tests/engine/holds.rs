//! Several limits in one check on a store that can't charge them in one step (A5, A6).

use super::counting::Counting;
use super::limits::{DAY_MS, call, definition, name};
use baton_core::limit::Definition;
use baton_core::meter::Algorithm;
use baton_engine::asleep::Asleep;
use baton_engine::limit::{Answered, LimitError, Source, Wanted};
use baton_engine::{Config, Engine, Failure, Random};
use baton_testkit::dice::Dice;
use baton_testkit::simulated::{Faults, Node, Simulated};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

const SETTLED: Duration = Duration::from_secs(5);

async fn node(store: &Simulated, seed: u64) -> (Engine, Arc<Node>) {
    let handle = store.node(Faults::none());
    (Engine::start(handle.clone(), Config::default(), Random::seeded(seed)).await.unwrap(), handle)
}

async fn put(engine: &Engine, limit: &str, most: u64) {
    engine.put_limit(&name(limit), definition(Algorithm::FixedWindow, most, DAY_MS)).await.unwrap();
}

/// What counts when everything has been settled.
async fn used(engine: &Engine, limit: &str) -> u64 {
    let usage = engine.usage(&name(limit), "k").await.unwrap();
    assert_eq!(usage.outstanding, 0, "{limit}");
    usage.used
}

async fn check_both(engine: &Engine, wanted: &Wanted) -> Result<Answered, LimitError> {
    engine.check_limits(&[call("a", "k", 1), call("b", "k", 1)], wanted).await
}

fn request(id: &str) -> Wanted {
    Wanted { request_id: Some(id.into()), receipt: true, ..Wanted::default() }
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_goes_away_between_two_holds_leaves_nothing_counted() {
    let store = Simulated::for_many(1);
    let (engine, handle) = node(&store, 1).await;
    put(&engine, "a", 10).await;
    put(&engine, "b", 10).await;
    assert!(check_both(&engine, &Wanted::default()).await.unwrap().allowed);
    for gone_after_ms in [50, 150, 250, 350, 450] {
        handle.set_faults(Faults { there_ms: (60, 60), back_ms: (60, 60), ..Faults::none() });
        let caller = {
            let engine = engine.clone();
            tokio::spawn(async move { check_both(&engine, &Wanted::default()).await })
        };
        tokio::time::sleep(Duration::from_millis(gone_after_ms)).await;
        assert!(!caller.is_finished());
        caller.abort();
        tokio::time::sleep(SETTLED).await;
        handle.set_faults(Faults::none());
        for limit in ["a", "b"] {
            assert_eq!(used(&engine, limit).await, 1, "{limit}, gone after {gone_after_ms} ms");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_sleeps_while_it_holds_admits_nothing_by_holds_that_are_over() {
    let store = Simulated::for_many(1);
    let handle = store.node(Faults::none());
    let slept_ms = Arc::new(AtomicU64::new(0));
    let config = Config { asleep: Asleep::Set(slept_ms.clone()), ..Config::default() };
    let engine = Engine::start(handle.clone(), config, Random::seeded(1)).await.unwrap();
    put(&engine, "a", 10).await;
    put(&engine, "b", 10).await;
    assert!(check_both(&engine, &Wanted::default()).await.unwrap().allowed);
    handle.set_faults(Faults { there_ms: (60, 60), back_ms: (60, 60), ..Faults::none() });
    let wanted = Wanted::default();
    let (answered, ()) = tokio::join!(check_both(&engine, &wanted), async {
        // Between the first hold and the second: the clock that timers go by stands still meanwhile.
        tokio::time::sleep(Duration::from_millis(150)).await;
        slept_ms.fetch_add(2_000, Ordering::Relaxed);
    });
    assert!(!answered.is_ok_and(|answered| answered.allowed), "the first hold is over");
    assert!(check_both(&engine, &Wanted::default()).await.unwrap().allowed, "and this is another one");
}

#[tokio::test(start_paused = true)]
async fn a_limit_that_only_counts_does_not_count_what_another_refuses() {
    let store = Simulated::for_many(1);
    let (engine, _) = node(&store, 1).await;
    let counts = Definition { dry_run: true, ..definition(Algorithm::FixedWindow, 1, DAY_MS) };
    engine.put_limit(&name("counts"), counts).await.unwrap();
    put(&engine, "a", 2).await;
    let calls = [call("counts", "k", 1), call("a", "k", 1)];
    for would_refuse in [false, true] {
        let answered = engine.check_limits(&calls, &Wanted::default()).await.unwrap();
        assert!(answered.allowed, "{answered:?}");
        assert_eq!((answered.indices, answered.checks[0].would_refuse), (vec![0, 1], would_refuse));
    }
    let refused = engine.check_limits(&calls, &Wanted::default()).await.unwrap();
    assert!(!refused.allowed && refused.indices == [1], "{refused:?}");
    tokio::time::sleep(SETTLED).await;
    assert_eq!((used(&engine, "counts").await, used(&engine, "a").await), (1, 2));
    let wide = Definition { dry_run: true, ..definition(Algorithm::FixedWindow, 100, DAY_MS) };
    engine.put_limit(&name("counts"), wide).await.unwrap();
    for _ in 0..3 {
        assert!(!engine.check_limits(&calls, &Wanted::default()).await.unwrap().allowed);
    }
    tokio::time::sleep(SETTLED).await;
    assert_eq!(used(&engine, "counts").await, 1, "a refusal counts nothing");
}

#[tokio::test(start_paused = true)]
async fn a_request_that_is_sent_again_counts_once() {
    let store = Simulated::for_many(1);
    let (engine, _) = node(&store, 1).await;
    let (other, _) = node(&store, 2).await;
    put(&engine, "a", 2).await;
    put(&engine, "b", 2).await;
    for round in 0..3 {
        let answered = check_both(&engine, &request("r")).await.unwrap();
        assert!(answered.allowed && answered.checks.iter().all(|check| check.receipt.is_some()), "{round}");
    }
    let changed = [call("a", "k", 2), call("b", "k", 1)];
    let reused = engine.check_limits(&changed, &request("r")).await;
    assert_eq!(reused.unwrap_err(), LimitError::RequestIdReused);
    tokio::time::sleep(SETTLED).await;
    assert_eq!((used(&engine, "a").await, used(&engine, "b").await), (1, 1));
    // At both nodes at once.
    let twice = request("s");
    let (first, second) = tokio::join!(check_both(&engine, &twice), check_both(&other, &twice));
    assert!(first.is_ok_and(|first| first.allowed) || second.is_ok_and(|second| second.allowed));
    tokio::time::sleep(SETTLED).await;
    assert_eq!((used(&engine, "a").await, used(&engine, "b").await), (2, 2));
    // Nothing is left, and what was admitted stays admitted.
    assert!(!check_both(&other, &request("t")).await.unwrap().allowed);
    let again = check_both(&other, &request("r")).await.unwrap();
    assert!(again.allowed && again.indices == [0, 1], "{again:?}");
    let receipt = again.checks[0].receipt.clone().unwrap();
    for _ in 0..2 {
        assert_eq!(other.refund(&name("a"), "k", &receipt, "").await.unwrap(), 1);
    }
    tokio::time::sleep(SETTLED).await;
    assert_eq!((used(&engine, "a").await, used(&engine, "b").await), (1, 2), "given back once");
}

#[tokio::test(start_paused = true)]
async fn requests_that_are_sent_again_after_lost_answers_are_all_counted() {
    const MOST: u64 = 25;
    let mut passed = 0;
    for seed in 1..=20 {
        let store = Simulated::for_many(seed);
        let (watching, _) = node(&store, seed * 10 + 9).await;
        put(&watching, "a", MOST).await;
        put(&watching, "b", MOST).await;
        let mut callers = Vec::new();
        for caller in 0..3 {
            let (engine, handle) = node(&store, seed * 10 + caller).await;
            let faults = Faults { answer_lost: 120, lost: 60, late: 40, late_ms: (5, 300), ..Faults::none() };
            handle.set_faults(Faults { spares_reads: true, ..faults });
            callers.push(tokio::spawn(async move {
                let mut dice = Dice::new(seed * 100 + caller);
                let mut admitted = 0;
                for request_number in 0..12 {
                    let wanted = request(&format!("{caller} {request_number}"));
                    for _ in 0..4 {
                        let Ok(answered) = check_both(&engine, &wanted).await else { continue };
                        let is_central = answered.checks.iter().all(|check| check.source == Source::Central);
                        if is_central {
                            admitted += u64::from(answered.allowed);
                            break;
                        }
                    }
                    tokio::time::sleep(dice.millis((0, 300))).await;
                }
                admitted
            }));
        }
        let mut admitted = 0;
        for caller in callers {
            admitted += caller.await.unwrap();
        }
        tokio::time::sleep(SETTLED).await;
        for limit in ["a", "b"] {
            let used = used(&watching, limit).await;
            assert!(
                admitted <= used && used <= MOST,
                "seed {seed}: {admitted} admitted, {used} counted by {limit}"
            );
        }
        passed += admitted;
    }
    assert!(passed > 20 * MOST / 2, "only {passed}");
}

#[tokio::test(start_paused = true)]
async fn a_request_whose_admission_nobody_heard_of_is_counted_and_admitted_when_it_comes_again() {
    let store = Arc::new(Counting::new(Simulated::for_many(1).node(Faults::none())));
    let engine = Engine::start(store.clone(), Config::default(), Random::seeded(1)).await.unwrap();
    put(&engine, "a", 10).await;
    put(&engine, "b", 10).await;
    store.forget(true);
    let unheard = check_both(&engine, &request("r")).await;
    assert!(unheard.is_ok_and(|answered| answered.checks[0].source == Source::Fallback), "nobody knows");
    store.forget(false);
    tokio::time::sleep(SETTLED).await;
    let again = check_both(&engine, &request("r")).await.unwrap();
    assert!(again.allowed && again.checks[0].source == Source::Central, "{again:?}");
    tokio::time::sleep(SETTLED).await;
    assert_eq!((used(&engine, "a").await, used(&engine, "b").await), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn no_more_than_a_thousand_checks_hold_at_once() {
    let store = Simulated::for_many(1);
    let (engine, handle) = node(&store, 1).await;
    put(&engine, "a", 10_000).await;
    put(&engine, "b", 10_000).await;
    assert!(check_both(&engine, &Wanted::default()).await.unwrap().allowed);
    tokio::time::sleep(SETTLED).await;
    handle.set_faults(Faults { there_ms: (60_000, 60_000), ..Faults::none() });
    let callers: Vec<_> = (0..1_100)
        .map(|_| {
            let engine = engine.clone();
            tokio::spawn(async move { check_both(&engine, &Wanted::default()).await })
        })
        .collect();
    let mut overloaded = 0;
    for caller in callers {
        overloaded += u64::from(caller.await.unwrap() == Err(Failure::Overloaded.into()));
    }
    assert_eq!(overloaded, 100);
}
