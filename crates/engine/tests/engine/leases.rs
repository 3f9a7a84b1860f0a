//! Leased limits, and several in one check, on a simulated store with nodes that crash and are cut off (A5, M2).

use super::limits::{COUNTING, DAY_MS, call, check, definition, ground, name};
use baton_core::limit::{Definition, Mechanism, Policy};
use baton_core::meter::{Algorithm, Reclaim};
use baton_engine::limit::{LimitError, Source, Wanted};
use baton_engine::{Config, Engine, Random};
use baton_testkit::admitted::{Admitted, Judged, most_in_a_window};
use baton_testkit::dice::Dice;
use baton_testkit::faulty::Fault;
use baton_testkit::simulated::{Faults, Simulated};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::time::Instant;

#[tokio::test(flavor = "multi_thread")]
async fn leased_checks_cost_the_store_a_hundredth_of_themselves() {
    let ground = ground(3).await;
    let definition =
        Definition { mechanism: Mechanism::Leased, ..definition(Algorithm::TokenBucket, 100_000, 1_000) };
    ground.engines[0].put_limit(&name("l"), definition).await.unwrap();
    let before = ground.store.charges();
    // Seven tenths of the limit for two seconds, evenly.
    let callers: Vec<_> = ground
        .engines
        .iter()
        .cloned()
        .map(|engine| {
            tokio::spawn(async move {
                let (mut sent, mut refused) = (0_u64, 0_u64);
                let began = Instant::now();
                while began.elapsed() < Duration::from_secs(2) {
                    let due = began.elapsed().as_micros() as u64 * 70_000 / 3 / 1_000_000;
                    while sent < due {
                        refused += u64::from(!check(&engine, "l", "k", 1).await.allowed);
                        sent += 1;
                    }
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
                (sent, refused)
            })
        })
        .collect();
    let (mut sent, mut refused) = (0, 0);
    for caller in callers {
        let (one_sent, one_refused) = caller.await.unwrap();
        (sent, refused) = (sent + one_sent, refused + one_refused);
    }
    let charges = ground.store.charges() - before;
    assert!(charges * 100 <= sent, "{charges} charges for {sent} checks");
    assert!(refused * 50 <= sent, "{refused} of {sent} were refused below the limit");
}

const LIMIT: u64 = 400;
const BURST: u64 = 200;
const WINDOW_MS: u64 = 1_000;

/// Nodes on a simulated store, whose answers may get lost and which may die; all time is the store's. What was admitted.
async fn leased_world(seed: u64, algorithm: Algorithm, faults: Faults) -> Vec<Admitted> {
    const NODES: usize = 12;
    let store = Simulated::for_many(seed);
    let mut engines = Vec::new();
    let first = store.node(Faults::none());
    let author = Engine::start(first, Config::default(), Random::seeded(seed)).await.unwrap();
    let definition = Definition {
        mechanism: Mechanism::Leased,
        lease_ttl_ms: Some(400),
        burst: (algorithm == Algorithm::TokenBucket).then_some(BURST),
        ..definition(algorithm, LIMIT, WINDOW_MS)
    };
    author.put_limit(&name("l"), definition).await.unwrap();
    for node in 0..NODES {
        let handle = store.node(Faults::none());
        let random = Random::seeded(seed * 100 + node as u64);
        engines.push((Engine::start(handle.clone(), Config::default(), random).await.unwrap(), handle));
    }
    let admitted: Arc<Mutex<Vec<Admitted>>> = Arc::default();
    let began = store.now();
    let mut dice = Dice::new(seed);
    let mut nodes = Vec::new();
    for (engine, handle) in engines {
        handle.set_faults(faults.clone());
        let (store, admitted, seed) =
            (store.clone(), admitted.clone(), u64::from(dice.below(1_000_000) as u32));
        nodes.push(tokio::spawn(async move {
            let mut dice = Dice::new(seed);
            let dies_at =
                (dice.below(4) == 0).then(|| began + Duration::from_millis(2_000 + dice.below(3_000)));
            let cut_off_at =
                (dice.below(3) == 0).then(|| began + Duration::from_millis(1_500 + dice.below(2_000)));
            // Idle at first, then all at once, then in bursts.
            tokio::time::sleep(Duration::from_millis(900 + dice.below(200))).await;
            while store.now() < began + Duration::from_secs(6) {
                if dies_at.is_some_and(|at| store.now() >= at) {
                    handle.kill();
                    return;
                }
                if cut_off_at.is_some_and(|at| store.now() >= at) {
                    // It doesn't know, and spends what it has, slowly.
                    handle.set_faults(Faults { lost: 1_000, ..Faults::none() });
                    let (calls, wanted) = ([call("l", "k", 1)], Wanted::default());
                    let checking = engine.check_limits(&calls, &wanted);
                    let before = store.now().as_millis() as u64;
                    if let Ok(Ok(answered)) = tokio::time::timeout(Duration::from_millis(20), checking).await
                        && answered.checks[0].source == Source::Local
                        && answered.allowed
                    {
                        admitted.lock().unwrap().push((before, store.now().as_millis() as u64));
                    }
                    tokio::time::sleep(Duration::from_millis(20)).await;
                    continue;
                }
                for _ in 0..1 + dice.below(30) {
                    let before = store.now();
                    let (calls, wanted) = ([call("l", "k", 1)], Wanted::default());
                    let checking = engine.check_limits(&calls, &wanted);
                    let Ok(Ok(answered)) = tokio::time::timeout(Duration::from_secs(3), checking).await
                    else {
                        break;
                    };
                    if answered.allowed && answered.checks[0].source != Source::Fallback {
                        let times = (before.as_millis() as u64, store.now().as_millis() as u64);
                        admitted.lock().unwrap().push(times);
                    }
                }
                tokio::time::sleep(Duration::from_millis(1 + dice.below(120))).await;
            }
        }));
    }
    for node in nodes {
        node.await.unwrap();
    }
    let admitted = admitted.lock().unwrap();
    admitted.clone()
}

#[tokio::test(start_paused = true)]
async fn leases_never_admit_more_than_the_limit_with_lost_answers_and_nodes_that_die() {
    let faults = Faults { answer_lost: 100, lost: 60, late: 30, late_ms: (50, 600), ..Faults::none() };
    for algorithm in COUNTING {
        let judged = Judged { algorithm, limit: LIMIT, burst: BURST, window: WINDOW_MS, grain: 2 };
        let (mut busiest, mut worst) = (0, i64::MIN);
        for seed in 1..=6 {
            let admitted = leased_world(seed, algorithm, faults.clone()).await;
            let beyond = judged.beyond(&admitted);
            assert!(beyond <= 0, "{algorithm:?}: {beyond} beyond its bound, seed {seed}");
            (busiest, worst) = (busiest.max(most_in_a_window(&admitted, WINDOW_MS)), worst.max(beyond));
        }
        assert!(
            busiest > LIMIT / 2 && worst > -(LIMIT as i64) / 2,
            "{algorithm:?}: {busiest} in a window, {worst} beyond it: a limit that nobody comes near proves nothing"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_node_that_is_cut_off_stops_spending_before_its_lease_ends() {
    let store = Simulated::for_many(1);
    let handles = [store.node(Faults::none()), store.node(Faults::none())];
    let start =
        |index: usize| Engine::start(handles[index].clone(), Config::default(), Random::seeded(index as u64));
    let (cut_off, other) = (start(0).await.unwrap(), start(1).await.unwrap());
    let definition = Definition {
        mechanism: Mechanism::Leased,
        lease_ttl_ms: Some(400),
        ..definition(Algorithm::FixedWindow, 1_000, 1_000)
    };
    other.put_limit(&name("l"), definition).await.unwrap();
    // At the begin of a window, so that all of this happens in one.
    let into = store.now().as_millis() as u64 % 1_000;
    tokio::time::sleep(Duration::from_millis(1_000 - into)).await;
    for _ in 0..3 {
        assert!(check(&cut_off, "l", "k", 1).await.allowed);
    }
    assert!(other.usage(&name("l"), "k").await.unwrap().outstanding > 10, "it has a lease");
    handles[0].set_faults(Faults { lost: 1_000, ..Faults::none() });
    assert_eq!(check(&cut_off, "l", "k", 1).await.checks[0].source, Source::Local, "it has some left");
    tokio::time::sleep(Duration::from_millis(400)).await;
    let late = check(&cut_off, "l", "k", 1).await;
    assert!(!late.allowed, "the lease is over, and what was left of it may be somebody else's: {late:?}");
    // What it had counts as spent until the window is over, and is there again in the next.
    let usage = other.usage(&name("l"), "k").await.unwrap();
    assert!(usage.outstanding == 0 && usage.used >= 50, "{usage:?}");
    tokio::time::sleep(Duration::from_millis(1_000)).await;
    assert_eq!(other.usage(&name("l"), "k").await.unwrap().used, 0);
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_somebody_else_returns_as_if_it_were_a_place_stays_its_holders_to_spend() {
    let store = Simulated::for_many(1);
    let start = |seed| Engine::start(store.node(Faults::none()), Config::default(), Random::seeded(seed));
    let (holder, other) = (start(0).await.unwrap(), start(1).await.unwrap());
    let definition =
        Definition { mechanism: Mechanism::Leased, ..definition(Algorithm::FixedWindow, 1_000, DAY_MS) };
    other.put_limit(&name("l"), definition).await.unwrap();
    let mut admitted = 0;
    for _ in 0..3 {
        admitted += u64::from(check(&holder, "l", "k", 1).await.allowed);
    }
    let (leases, _) = other.leases(&name("l"), 10).await.unwrap();
    assert_eq!(leases.len(), 1, "it has a lease: {leases:?}");
    let left = other.leave(&name("l"), "k", &leases[0].row.id, "").await;
    while check(&other, "l", "k", 1).await.allowed {
        admitted += 1;
    }
    while check(&holder, "l", "k", 1).await.allowed {
        admitted += 1;
    }
    assert!(admitted <= 1_000, "{admitted} of 1000: what one has to spend was given to another");
    assert_eq!(left, Err(LimitError::NoPlaces));
}

#[tokio::test(start_paused = true)]
async fn sixty_nodes_share_a_leased_limit_fairly() {
    const NODES: u64 = 60;
    const WINDOWS: u64 = 3;
    for algorithm in COUNTING {
        // A log has a thousand entries at most.
        let limit = if algorithm == Algorithm::SlidingLog { 1_000 } else { 3_000 };
        let store = Simulated::for_many(7);
        let mut engines = Vec::new();
        for node in 0..NODES {
            let handle = store.node(Faults::none());
            engines.push(Engine::start(handle, Config::default(), Random::seeded(node)).await.unwrap());
        }
        let definition = Definition {
            mechanism: Mechanism::Leased,
            lease_ttl_ms: Some(500),
            ..definition(algorithm, limit, WINDOW_MS)
        };
        engines[0].put_limit(&name("l"), definition).await.unwrap();
        let into_ms = store.now().as_millis() as u64 % WINDOW_MS;
        tokio::time::sleep(Duration::from_millis(WINDOW_MS - into_ms)).await;
        let began = store.now();
        // Everybody asks for twice its share.
        let pause = Duration::from_micros(2 * NODES * WINDOW_MS * 1_000 / limit);
        let callers: Vec<_> = engines
            .into_iter()
            .map(|engine| {
                let store = store.clone();
                tokio::spawn(async move {
                    let (mut admitted, mut leased) = (0_u64, 0_u64);
                    while store.now() < began + Duration::from_millis(WINDOWS * WINDOW_MS) {
                        for _ in 0..4 {
                            let answered = check(&engine, "l", "k", 1).await;
                            let is_leased =
                                [Source::Local, Source::Renewed].contains(&answered.checks[0].source);
                            admitted += u64::from(answered.allowed);
                            leased += u64::from(answered.allowed && is_leased);
                        }
                        tokio::time::sleep(pause).await;
                    }
                    (admitted, leased)
                })
            })
            .collect();
        let (mut shares, mut leased) = (Vec::new(), 0);
        for caller in callers {
            let (admitted, of_leases) = caller.await.unwrap();
            shares.push(admitted);
            leased += of_leases;
        }
        let sum: u64 = shares.iter().sum();
        let allowed = limit * WINDOWS;
        // A bucket has its burst besides; and the last may be answered in the window that follows.
        assert!(sum <= allowed + 2 * limit, "{algorithm:?}: {sum} of {allowed}");
        assert!(sum * 10 >= allowed * 8, "{algorithm:?}: {sum} of {allowed} is no use of a limit");
        assert!(leased * 2 > sum, "{algorithm:?}: {leased} of {sum} out of leases");
        let mean = sum / NODES;
        let (least, most) = (shares.iter().min().unwrap(), shares.iter().max().unwrap());
        assert!(
            *least * 5 >= mean * 2 && *most <= mean * 2,
            "{algorithm:?}: between {least} and {most}, {mean} on average"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn what_passes_besides_when_leases_are_reclaimed_optimistically_is_what_the_bound_says() {
    const LIMIT: u64 = 1_000;
    for size in [300, 120] {
        let store = Simulated::for_many(size);
        let handles = [store.node(Faults::none()), store.node(Faults::none())];
        let start = |index: usize| {
            Engine::start(handles[index].clone(), Config::default(), Random::seeded(index as u64))
        };
        let (dies, other) = (start(0).await.unwrap(), start(1).await.unwrap());
        let definition = Definition {
            mechanism: Mechanism::Leased,
            lease_size: Some(size),
            lease_ttl_ms: Some(400),
            reclaim: Reclaim::Drop,
            ..definition(Algorithm::FixedWindow, LIMIT, DAY_MS)
        };
        other.put_limit(&name("l"), definition).await.unwrap();
        // Renewed so often that it has all that a lease may have, in parts of a twentieth of the limit.
        let mut admitted = 0;
        for _ in 0..30 {
            admitted += u64::from(check(&dies, "l", "k", 1).await.allowed);
            tokio::time::sleep(Duration::from_millis(140)).await;
        }
        assert_eq!(check(&dies, "l", "k", size + 1).await.checks[0].source, Source::Central);
        admitted += size + 1;
        let lent = other.usage(&name("l"), "k").await.unwrap().outstanding;
        // It is cut off, spends what it has, and never tells.
        handles[0].set_faults(Faults { lost: 1_000, ..Faults::none() });
        let mut spent = 0;
        while let Ok(answered) =
            tokio::time::timeout(Duration::from_millis(1), check(&dies, "l", "k", 1)).await
            && answered.checks[0].source == Source::Local
            && answered.allowed
        {
            spent += 1;
        }
        handles[0].kill();
        tokio::time::sleep(Duration::from_millis(500)).await;
        while check(&other, "l", "k", 1).await.allowed {
            admitted += 1;
        }
        let besides = admitted + spent - LIMIT;
        let (bound, ..) = other.bound(&name("l"), "k").await.unwrap();
        let item = bound.items.iter().find(|item| item.source == "mechanism").unwrap();
        assert_eq!((item.amount, item.each, bound.worst()), (None, Some(size), None), "{}", item.because);
        assert!(lent <= size && besides <= size, "{besides} besides, {lent} lent, of {size} at most");
        assert!(besides > LIMIT / 20, "{besides}: more than what is given at once");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_spent_of_a_lease_goes_back_when_another_limit_refuses() {
    let ground = ground(1).await;
    let engine = &ground.engines[0];
    let wide = Definition {
        mechanism: Mechanism::Leased,
        lease_ttl_ms: Some(300),
        ..definition(Algorithm::FixedWindow, 100_000, DAY_MS)
    };
    engine.put_limit(&name("wide"), wide).await.unwrap();
    engine.put_limit(&name("narrow"), definition(Algorithm::FixedWindow, 3, DAY_MS)).await.unwrap();
    let mut admitted = 0;
    while check(engine, "wide", "k", 1).await.checks[0].source != Source::Local {
        admitted += 1;
    }
    admitted += 1;
    let orders =
        [[call("wide", "k", 7), call("narrow", "k", 1)], [call("narrow", "k", 1), call("wide", "k", 7)]];
    let began = Instant::now();
    let (mut passed, mut refused) = (0, 0);
    // Long enough for its lease to be renewed in between, more than once.
    while began.elapsed() < Duration::from_millis(800) {
        let answered = engine.check_limits(&orders[refused % 2], &Wanted::default()).await.unwrap();
        (passed, refused) = (passed + u64::from(answered.allowed), refused + usize::from(!answered.allowed));
    }
    // Callers that go away while the store is asked.
    ground.faulty.set(Fault::Silent);
    for order in orders.iter().cycle().take(20) {
        let wanted = Wanted::default();
        let asking = engine.check_limits(order, &wanted);
        assert!(tokio::time::timeout(Duration::from_millis(1), asking).await.is_err());
    }
    ground.faulty.set(Fault::None);
    assert!(passed == 3 && refused > 100, "{passed} and {refused}");
    engine.drain().await;
    let usage = engine.usage(&name("wide"), "k").await.unwrap();
    assert_eq!((usage.used, usage.outstanding), (admitted + 7 * passed, 0));
    assert_eq!(engine.usage(&name("narrow"), "k").await.unwrap().used, 3);
}

#[tokio::test(start_paused = true)]
async fn holds_over_several_steps_never_admit_more_than_one_step_would() {
    for seed in 1..=8 {
        let store = Simulated::for_many(seed);
        let mut engines = Vec::new();
        for node in 0..4 {
            let handle = store.node(Faults::none());
            let random = Random::seeded(seed * 10 + node);
            engines.push((Engine::start(handle.clone(), Config::default(), random).await.unwrap(), handle));
        }
        let limits = [("a", 30), ("b", 20), ("c", 25)];
        for (limit, most) in limits {
            engines[0]
                .0
                .put_limit(&name(limit), definition(Algorithm::FixedWindow, most, DAY_MS))
                .await
                .unwrap();
        }
        let mut callers = Vec::new();
        for (node, (engine, handle)) in engines.iter().cloned().enumerate() {
            handle.set_faults(Faults {
                answer_lost: 60,
                lost: 60,
                late: 20,
                late_ms: (50, 900),
                ..Faults::none()
            });
            callers.push(tokio::spawn(async move {
                let mut dice = Dice::new(seed * 100 + node as u64);
                let mut admitted = [0_u64; 3];
                for _ in 0..25 {
                    let first = dice.below(3) as usize;
                    let chosen = [first, (first + 1) % 3];
                    let calls = chosen.map(|index| call(limits[index].0, "k", 1));
                    // A definition that was forgotten and can't be read now leaves nothing to say.
                    let Ok(answered) = engine.check_limits(&calls, &Wanted::default()).await else {
                        continue;
                    };
                    if answered.allowed && answered.checks.iter().all(|check| check.source == Source::Central)
                    {
                        chosen.into_iter().for_each(|index| admitted[index] += 1);
                    }
                }
                admitted
            }));
        }
        let mut admitted = [0; 3];
        for caller in callers {
            let one = caller.await.unwrap();
            (0..3).for_each(|index| admitted[index] += one[index]);
        }
        engines.iter().for_each(|(_, handle)| handle.set_faults(Faults::none()));
        tokio::time::sleep(Duration::from_secs(5)).await;
        for (index, (limit, most)) in limits.into_iter().enumerate() {
            let usage = engines[0].0.usage(&name(limit), "k").await.unwrap();
            assert!(admitted[index] <= most, "seed {seed}: {} of {most} at {limit}", admitted[index]);
            assert!(
                usage.outstanding == 0 && usage.used >= admitted[index],
                "seed {seed}: {usage:?}, {admitted:?}"
            );
        }
    }
}

#[tokio::test(start_paused = true)]
async fn what_a_seldom_used_key_does_not_spend_goes_back_before_it_is_burned() {
    let store = Simulated::for_many(3);
    let node = Engine::start(store.node(Faults::none()), Config::default(), Random::seeded(1)).await.unwrap();
    let definition =
        Definition { mechanism: Mechanism::Leased, ..definition(Algorithm::FixedWindow, 1_000, DAY_MS) };
    node.put_limit(&name("l"), definition).await.unwrap();
    let mut spent = 0;
    for _ in 0..12 {
        assert!(check(&node, "l", "k", 1).await.allowed);
        spent += 1;
        tokio::time::sleep(Duration::from_secs(10)).await;
    }
    tokio::time::sleep(Duration::from_secs(30)).await;
    let usage = node.usage(&name("l"), "k").await.unwrap();
    assert_eq!((usage.used, usage.outstanding), (spent, 0), "nothing was burned");
}

#[tokio::test(start_paused = true)]
async fn a_policy_is_still_known_when_hints_were_lost_before_the_store_went_away() {
    let store = Simulated::for_many(5);
    let handle = store.node(Faults::none());
    let node = Engine::start(handle.clone(), Config::default(), Random::seeded(1)).await.unwrap();
    let open = Definition { on_failure: Policy::Open, ..definition(Algorithm::FixedWindow, 10, DAY_MS) };
    node.put_limit(&name("l"), open).await.unwrap();
    assert!(check(&node, "l", "k", 1).await.allowed);
    // Every hint gets lost from now on, and the watchers are told so.
    handle.set_faults(Faults { hints_lost: 1_000, ..Faults::none() });
    node.put_limit(&name("other"), definition(Algorithm::FixedWindow, 1, DAY_MS)).await.unwrap();
    handle.set_faults(Faults::none());
    node.put_limit(&name("another"), definition(Algorithm::FixedWindow, 1, DAY_MS)).await.unwrap();
    tokio::time::sleep(Duration::from_millis(100)).await;
    handle.set_faults(Faults { refused: 1_000, ..Faults::none() });
    let answered = check(&node, "l", "k", 1).await;
    assert!(answered.allowed && answered.checks[0].source == Source::Fallback, "{answered:?}");
}
