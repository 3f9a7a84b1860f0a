//! What a look at a group's jobs reads (J12): what is due and what is next, however many jobs are stored.

use super::counting::Counting;
use super::jobs::{every, name, target};
use baton_core::Name;
use baton_core::job::{AttemptEnd, Definition};
use baton_engine::job::{Attempt, Ran, Runner, Running};
use baton_engine::{Config, Engine, Random};
use baton_testkit::simulated::{Faults, Simulated};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// Counts the attempts.
#[derive(Default)]
struct Counter(AtomicUsize);

impl Runner for Counter {
    fn run<'a>(&'a self, _: &'a Attempt) -> Running<'a> {
        self.0.fetch_add(1, Ordering::Relaxed);
        Box::pin(async { Ran::Ended(AttemptEnd::succeeded()) })
    }
}

struct Ground {
    store: Arc<Counting>,
    engine: Engine,
    ran: Arc<Counter>,
}

impl Ground {
    /// With jobs of one group that are due every second, and others of it that are due once a year.
    async fn with(due: usize, idle: usize) -> Self {
        let store = Arc::new(Counting::new(Simulated::new(1).node(Faults::none())));
        let engine = Engine::start(store.clone(), Config::default(), Random::seeded(1)).await.unwrap();
        let ran = Arc::new(Counter::default());
        engine.set_runner(ran.clone());
        let group = name("j0").group();
        let names = (0..).map(|number| name(&format!("j{number}"))).filter(|name| name.group() == group);
        let names: Vec<Name> = names.take(due + idle).collect();
        for (number, name) in names.iter().enumerate() {
            let yearly = || Definition::plain(Some("H H 1 1 *".into()), target());
            let definition = if number < due { every(1) } else { yearly() };
            engine.put_job(name, definition).await.unwrap();
        }
        tokio::time::sleep(Duration::from_secs(5)).await;
        Self { store, engine, ran }
    }

    /// Runs in a minute, and how many entries of the index were read for them.
    async fn minute(&self) -> (usize, u64) {
        let before = (self.ran.0.load(Ordering::Relaxed), self.store.entries());
        tokio::time::sleep(Duration::from_secs(60)).await;
        (self.ran.0.load(Ordering::Relaxed) - before.0, self.store.entries() - before.1)
    }
}

#[tokio::test(start_paused = true)]
async fn a_look_reads_what_is_due_and_not_all_that_is_stored() {
    let (alone, crowded) = (Ground::with(1, 0).await, Ground::with(1, 300).await);
    let ((runs_alone, read_alone), (runs, read)) = (alone.minute().await, crowded.minute().await);
    assert!(runs_alone >= 58 && runs >= 58, "{runs_alone}, {runs} runs");
    let looks = read_alone.max(1);
    assert!(read <= 8 * looks, "{read} entries were read beside many jobs, {read_alone} beside none");
    drop((alone.engine, crowded.engine));
}

#[tokio::test(start_paused = true)]
async fn many_of_a_group_that_are_due_together_all_run() {
    let ground = Ground::with(140, 300).await;
    let (runs, _) = ground.minute().await;
    assert!((58 * 140..=62 * 140).contains(&runs), "{runs} runs");
    drop(ground.engine);
}
