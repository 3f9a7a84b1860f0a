//! A seed from its beginning to its verdict.

use crate::broken::Broken;
use crate::client::{self, Client};
use crate::invariants::{self, Evidence};
use crate::nodes;
use crate::scenarios;
use crate::timeline;
use crate::trace;
use crate::world::World;
use baton_testkit::Dice;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinHandle;

/// By then every client has come to its end, if things go on at all.
const FINISHED_WITHIN: Duration = Duration::from_secs(150);
/// Waiters without a call are forgotten after 15 s, and what expired is found out: then nothing is left.
const SETTLED_WITHIN: Duration = Duration::from_secs(30);
/// What went wrong before has its consequences for so long.
const AFTERMATH: Duration = Duration::from_secs(10);
/// The same where a dead node is taken to live until its session ends, and is waited for in its turn.
const AFTERMATH_OF_NODES: Duration = Duration::from_secs(15);

/// What to do besides checking.
#[derive(Clone, Copy, Default, Debug)]
pub struct Options {
    /// Write everything down.
    pub trace: bool,
    /// Leave a check out.
    pub broken: Option<Broken>,
}

/// What came of a seed.
#[derive(Debug)]
pub struct Report {
    /// Which scenario it was.
    pub scenario: &'static str,
    /// What didn't hold.
    pub violations: Vec<String>,
    /// Everything that happened, if asked for.
    pub trace: String,
    /// How many calls clients made.
    pub calls: usize,
    /// How many grants there were.
    pub grants: usize,
}

/// Runs one seed.
pub fn run(seed: u64, options: Options) -> Report {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime without I/O needs nothing");
    runtime.block_on(simulate(seed, options))
}

async fn simulate(seed: u64, options: Options) -> Report {
    let mut dice = Dice::new(seed);
    // Seeds that follow each other have nothing in common but their scenario's turn.
    dice = dice.fork();
    let (scenario, draw) = scenarios::ALL[(seed % scenarios::ALL.len() as u64) as usize];
    let mut plan = draw(&mut dice);
    (plan.is_traced, plan.broken) = (options.trace, options.broken);
    let world = World::new(plan, dice.number());
    world.note(|| format!("seed {seed}, scenario {scenario}: {:?}", world.plan));

    for place in 0..world.plan.nodes {
        tokio::spawn(nodes::keep(world.clone(), place, dice.fork()));
    }
    let admin = tokio::spawn(client::force(world.clone(), dice.fork()));
    let clients: Vec<_> = (0..world.plan.clients)
        .map(|number| tokio::spawn(Client::new(world.clone(), number, dice.fork()).run()))
        .collect();

    tokio::time::sleep(world.plan.active).await;
    let calm = world.now();
    world.note(|| "from here on nothing goes wrong".into());
    world.calm.raise();
    let unfinished = finish(clients).await;
    drop(tokio::time::timeout(Duration::from_secs(30), admin).await);
    tokio::time::sleep(SETTLED_WITHIN).await;
    judge(&world, scenario, calm, unfinished)
}

/// Waits for the clients; says which of them don't end.
async fn finish(clients: Vec<JoinHandle<()>>) -> Vec<usize> {
    let deadline = tokio::time::Instant::now() + FINISHED_WITHIN;
    let mut unfinished = Vec::new();
    for (number, client) in clients.into_iter().enumerate() {
        match tokio::time::timeout_at(deadline, client).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => std::panic::resume_unwind(error.into_panic()),
            Err(_) => unfinished.push(number),
        }
    }
    unfinished
}

fn judge(world: &Arc<World>, scenario: &'static str, calm: Duration, unfinished: Vec<usize>) -> Report {
    let history = world.store.take_history();
    let stories = timeline::stories(&history, &world.locks);
    let desks = world.nodes().iter().fold((0, 0), |(desks, parked), live| {
        let metrics = live.engine.metrics();
        (desks + metrics.desks.get(), parked + metrics.parked.get())
    });
    let records = world.records();
    let evidence = Evidence {
        locks: &world.locks,
        kind: world.plan.kind,
        stories: &stories,
        records: &records,
        calm,
        aftermath: if world.plan.nodes > 1 { AFTERMATH_OF_NODES } else { AFTERMATH },
        end: world.now(),
        left: &world.store.records(),
        desks,
        unfinished: &unfinished,
        is_slow: world.plan.faults.slow > 0
            && Duration::from_millis(world.plan.faults.slow_ms.1) * 2 > world.plan.config.store_deadline,
        is_spinning: world.store.is_spinning(),
    };
    let violations = invariants::violations(&evidence);
    let trace = if world.plan.is_traced { trace::text(&history, &records) } else { String::new() };
    let grants = stories.iter().map(|story| story.lives.len()).sum();
    Report { scenario, violations, trace, calls: records.calls.len(), grants }
}
