//! The simulation itself: clean on the engine as it is, the same for the same seed, and not blind.

use baton_sim::run::Options;
use baton_sim::{Broken, run};
use std::sync::atomic::{AtomicU64, Ordering};

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
    assert_ne!(run(0, options).trace, run(8, options).trace, "two seeds of one scenario are the same");
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
        (6201, "a hand-over and the eviction after it were both lost, and the waiter between them"),
    ] {
        assert_eq!(run(seed, Options::default()).violations, Vec::<String>::new(), "seed {seed}: {found}");
    }
}
