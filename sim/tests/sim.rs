//! The simulation itself: clean on the engine as it is, the same for the same seed, and not blind.

use baton_core::lock::{LockName, Mode};
use baton_engine::lock::{AcquireCall, ReleaseCall, Wait};
use baton_engine::{Config, Engine, Random};
use baton_sim::run::Options;
use baton_sim::{Broken, bundle, once, run};
use baton_testkit::simulated::{Faults, Happening, Simulated, What};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Runs seeds on all cores until one fails; gives its number and what didn't hold.
fn first_violation(seeds: u64, options: Options) -> Option<(u64, Vec<String>)> {
    let next = AtomicU64::new(0);
    let found = std::sync::Mutex::new(None);
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= seeds || found.lock().expect("no panic while held").is_some() {
                        return;
                    }
                    let violations = run(seed, options).violations;
                    if !violations.is_empty() {
                        found.lock().expect("no panic while held").get_or_insert((seed, violations));
                    }
                }
            });
        }
    });
    found.into_inner().expect("no panic while held")
}

#[test]
fn two_hundred_seeds_are_clean() {
    assert_eq!(first_violation(200, Options::default()), None);
}

#[test]
fn the_same_seed_gives_the_same_trace() {
    let options = Options { trace: true, broken: None };
    for seed in 0..24 {
        let (first, second) = (run(seed, options), run(seed, options));
        assert!(first.trace.len() > 1000, "seed {seed}: next to nothing happened");
        assert!(first.trace == second.trace, "seed {seed} gave two different traces");
    }
    assert_ne!(run(0, options).trace, run(13, options).trace, "two seeds of one scenario are the same");
}

#[test]
fn every_check_that_is_left_out_is_noticed() {
    for broken in Broken::NOTICED {
        let found = first_violation(400, Options { trace: false, broken: Some(broken) });
        assert!(found.is_some(), "nobody noticed that {broken:?} is left out");
    }
}

/// Seeds that found a bug once, each with what it was. They stay clean.
#[test]
fn seeds_that_found_bugs_are_clean() {
    for (seed, found) in [
        (5, "a waiter wasn't told of a hand-over whose reply was lost"),
        (9, "a free lock with orphaned waiters kept its desk spinning"),
        (22, "a waiter whose leaving failed stayed parked for good"),
        (250, "'not applied' was said while an earlier commit could still land"),
        (726, "a waiter that left the queue was granted by its own late commit"),
        (1404, "a waiter of a node that died stayed because the number of waiters was right"),
        (
            2986,
            "a waiter was told that it had waited in vain, and had been handed the lock by a lost answer's commit",
        ),
        (4734, "the same, and its call stood behind its own leaving"),
        (6201, "a hand-over and the eviction after it were both lost, and the waiter between them"),
        (10_094, "a grant was taken back from its holder because an older call of his had gone"),
    ] {
        assert_eq!(run(seed, Options::default()).violations, Vec::<String>::new(), "seed {seed}: {found}");
    }
}

/// The first bug that the simulation found, without chance: the seeds above move on whenever the engine does.
#[tokio::test(start_paused = true)]
async fn a_waiter_is_told_of_a_hand_over_whose_reply_was_lost() {
    let store = Simulated::new(1);
    let node = store.node(Faults::none());
    let engine = Engine::start(node.clone(), Config::default(), Random::seeded(1)).await.expect("it starts");
    let lock = LockName::new("default", "k");
    let call = |owner: &str, wait| AcquireCall {
        owner: owner.into(),
        principal: "".into(),
        ttl: Duration::from_secs(60),
        wait,
        request_id: Some(owner.into()),
        reentrant: false,
        metadata: None,
        mode: Mode::Exclusive,
        delay: Duration::ZERO,
    };
    let first = engine.acquire(&lock, call("a", Wait::No)).await.expect("it is free");
    let (other, name, waits) = (engine.clone(), lock.clone(), call("b", Wait::Forever));
    let second = tokio::spawn(async move { other.acquire(&name, waits).await });
    tokio::time::sleep(Duration::from_millis(100)).await;

    // The release's commit is done, its answer lost.
    node.set_faults(Faults { answer_lost: 1000, spares_reads: true, ..Faults::none() });
    let calm = tokio::spawn(async move {
        tokio::time::sleep(Duration::from_millis(8)).await;
        node.set_faults(Faults::none());
    });
    let token = first.token.reveal();
    let release = ReleaseCall { token, owner: "a".into(), principal: "".into(), request_id: None };
    engine.release(&lock, release).await.expect("sent again, and found done");
    calm.await.expect("no panic");
    let history = store.take_history();
    let unknown = history.iter().filter(|happening| matches!(happening.what, What::ToldUnknown));
    let unknown: Vec<_> = unknown.map(|happening| happening.call).collect();
    let handed_over = |happening: &Happening| match &happening.what {
        What::Committed { commit, .. } => commit.writes.len() > 4 && unknown.contains(&happening.call),
        _ => false,
    };
    assert!(history.iter().any(handed_over), "the answer to the hand-over wasn't lost");

    let granted = tokio::time::timeout(Duration::from_millis(200), second).await.expect("it is told in time");
    assert!(granted.expect("no panic").is_ok_and(|granted| granted.fencing > first.fencing));
}

#[test]
fn a_hundred_seeds_of_once_are_clean_and_a_check_that_is_left_out_is_noticed() {
    let (mut firsts, mut results) = (0, 0);
    for seed in 0..100 {
        let report = once::run(seed, None);
        assert_eq!(report.violations, Vec::<String>::new(), "seed {seed}");
        (firsts, results) = (firsts + report.firsts, results + report.results);
    }
    assert!(firsts > 1000 && results > 300, "next to nothing happened: {firsts} firsts, {results} results");
    for broken in [once::Broken::StateCheck, once::Broken::MemoCheck] {
        let noticed = (0..300).any(|seed| !once::run(seed, Some(broken)).violations.is_empty());
        assert!(noticed, "nobody noticed that {broken:?} is left out");
    }
}

#[test]
fn a_hundred_seeds_of_several_locks_at_once_are_clean_and_a_check_that_is_left_out_is_noticed() {
    let (mut granted, mut refused) = (0, 0);
    for seed in 0..100 {
        let report = bundle::run(seed, false);
        assert_eq!(report.violations, Vec::<String>::new(), "seed {seed}");
        (granted, refused) = (granted + report.granted, refused + report.refused);
    }
    assert!(
        granted > 1000 && refused > 300,
        "next to nothing happened: {granted} granted, {refused} refused"
    );
    for (seed, found) in [
        (2, "an earlier call's grants were forgotten because they couldn't be withdrawn"),
        (69, "a waiter that left was handed the lock by a commit whose answer was lost"),
        (75, "'not applied' was said by a call whose place was kept"),
        (2047, "a call took back what another call of its request had been given"),
    ] {
        assert_eq!(bundle::run(seed, false).violations, Vec::<String>::new(), "seed {seed}: {found}");
    }
    let noticed = (0..300).any(|seed| !bundle::run(seed, true).violations.is_empty());
    assert!(noticed, "nobody noticed that a bundle's record isn't checked");
}
