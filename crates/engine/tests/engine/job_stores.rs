//! Jobs on a real store, whichever it is, and by its own clock (J3, J5, J12).

use super::jobs::{every, name, target};
use super::promptly::promptly;
use baton_core::job::{AttemptEnd, Definition, Outcome, Progress, RunId, Target};
use baton_engine::job::{Attempt, Claim, JobError, Ran, RunState, Runner, Running};
use baton_engine::{Config, Engine, Random};
use baton_testkit::store_url;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::runtime::{Builder, Handle};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;

/// Counts the attempts of every run, and notes how late each was.
#[derive(Default)]
struct Counting(Mutex<BTreeMap<RunId, u32>>, Mutex<Vec<Duration>>);

impl Runner for Counting {
    fn run<'a>(&'a self, attempt: &'a Attempt) -> Running<'a> {
        *self.0.lock().unwrap().entry(attempt.run).or_default() += 1;
        // The store has the clock of this machine.
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        self.1.lock().unwrap().push(now.saturating_sub(Duration::from_millis(attempt.due.0)));
        Box::pin(async { Ran::Ended(AttemptEnd::succeeded()) })
    }
}

struct Ground {
    engines: Vec<Engine>,
    counts: Arc<Counting>,
    _directory: tempfile::TempDir,
}

async fn ground(nodes: usize) -> Ground {
    let directory = tempfile::tempdir().unwrap();
    let store = baton_store::open(&store_url(directory.path()), directory.path()).await.unwrap();
    let (mut engines, counts) = (Vec::new(), Arc::new(Counting::default()));
    for node in 0..nodes {
        let config = Config { address: Some(format!("node-{node}").into()), ..Config::default() };
        let engine = Engine::start(store.clone(), config, Random::system()).await.unwrap();
        engine.set_runner(counts.clone());
        engines.push(engine);
    }
    Ground { engines, counts, _directory: directory }
}

async fn until(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !is_so().await {
        assert!(Instant::now() < deadline, "{what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Both nodes look at everything here if the store isn't a shared one: each believes to own it all.
#[tokio::test(flavor = "multi_thread")]
async fn two_nodes_that_may_both_believe_to_own_a_job_run_each_of_its_times_once() {
    let ground = ground(2).await;
    for job in ["a", "b", "c"] {
        ground.engines[0].put_job(&name(job), every(1)).await.unwrap();
    }
    let runs = async |job: &str| ground.engines[1].list_runs(&name(job), 100, None).await.unwrap().runs;
    let succeeded = |run: &RunState| run.run.end().is_some_and(|end| end.outcome == Outcome::Succeeded);
    for job in ["a", "b", "c"] {
        until("it doesn't run three times", async || {
            runs(job).await.iter().filter(|run| succeeded(run)).count() >= 3
        })
        .await;
        ground.engines[1].pause_job(&name(job)).await.unwrap();
    }
    let counts = ground.counts.0.lock().unwrap().clone();
    assert!(counts.len() >= 9);
    assert!(counts.values().all(|count| *count == 1), "{counts:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_takes_a_run_says_that_it_lives_and_that_it_is_done() {
    let ground = ground(1).await;
    let engine = &ground.engines[0];
    let target = Target::Worker { queue: "q".into(), payload: "p".into() };
    engine.put_job(&name("j"), Definition { schedule: None, target, ..every(1) }).await.unwrap();
    let run = engine.run_job(&name("j"), None).await.unwrap();
    let (namespace, queue, runner) = ("default".into(), "q".into(), "worker-1".into());
    let claim = Claim { namespace, queue, runner, ttl: Duration::from_secs(30) };
    let claimed = engine.claim_next(&claim, Duration::from_secs(20)).await.unwrap().unwrap();
    assert_eq!(claimed.begun.run, run);
    assert!(engine.claim_next(&claim, Duration::ZERO).await.unwrap().is_none(), "it is taken");
    let ends = engine.heartbeat_run(run, claimed.fencing, Duration::from_secs(60), None).await.unwrap();
    assert!(ends > claimed.expires_at);
    let mut stale = claimed.fencing;
    stale.0 -= 1;
    let end = AttemptEnd { output: b"done"[..].into(), ..AttemptEnd::succeeded() };
    assert_eq!(engine.finish_run(run, stale, &end).await, Err(JobError::RunLost));
    engine.finish_run(run, claimed.fencing, &end).await.unwrap();
    engine.finish_run(run, claimed.fencing, &end).await.unwrap();
    let shown = engine.run(run).await.unwrap().run;
    assert_eq!((&*shown.output, shown.runner.as_str()), (&b"done"[..], "worker-1"));
    assert!(engine.claim_next(&claim, Duration::ZERO).await.unwrap().is_none());
}

/// `BATON_DUE_JOBS=10000` measures what a node has to be able to do (P11): see what is printed.
#[tokio::test(flavor = "multi_thread")]
async fn many_jobs_that_are_due_at_once_are_begun_together() {
    let jobs: usize = std::env::var("BATON_DUE_JOBS").map_or(200, |jobs| jobs.parse().unwrap());
    let ground = ground(1).await;
    let engine = &ground.engines[0];
    // All at the same moments, far enough apart for all to be put between two of them.
    let schedule = Some(format!("@every {}s", 5 + jobs / 250));
    for job in 0..jobs {
        let definition = Definition { schedule: schedule.clone(), ..Definition::plain(None, target()) };
        engine.put_job(&name(&format!("j{job}")), definition).await.unwrap();
    }
    promptly(async || {
        let before = ground.counts.0.lock().unwrap().len();
        until("they don't run", async || ground.counts.0.lock().unwrap().len() >= before + 2 * jobs).await;
        let mut lags = std::mem::take(&mut *ground.counts.1.lock().unwrap());
        // Those of the last time.
        lags.drain(..lags.len() - jobs);
        lags.sort_unstable();
        let at = |part: f64| lags[((lags.len() - 1) as f64 * part) as usize];
        println!("{jobs} jobs due at once: {:?} / {:?} / {:?} (p50, p99, last)", at(0.5), at(0.99), at(1.0));
        (at(0.99), Duration::from_secs(1))
    })
    .await;
}

/// Notes on which threads it makes its attempts.
struct Elsewhere(Handle, Mutex<Vec<String>>);

impl Runner for Elsewhere {
    fn run<'a>(&'a self, _: &'a Attempt) -> Running<'a> {
        let thread = std::thread::current().name().unwrap_or_default().to_owned();
        self.1.lock().unwrap().push(thread);
        Box::pin(async { Ran::Ended(AttemptEnd::succeeded()) })
    }

    fn runtime(&self) -> Option<&Handle> {
        Some(&self.0)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn attempts_are_made_on_the_threads_of_their_runner_and_what_came_of_them_is_said() {
    let mut elsewhere = Builder::new_multi_thread();
    let runtime = elsewhere.worker_threads(1).thread_name("elsewhere").enable_all().build().unwrap();
    let directory = tempfile::tempdir().unwrap();
    let store = baton_store::open(&store_url(directory.path()), directory.path()).await.unwrap();
    let engine = Engine::start(store, Config::default(), Random::system()).await.unwrap();
    let runner = Arc::new(Elsewhere(runtime.handle().clone(), Mutex::default()));
    engine.set_runner(runner.clone());
    engine.put_job(&name("j"), Definition { schedule: None, ..every(1) }).await.unwrap();
    let run = engine.run_job(&name("j"), None).await.unwrap();
    let ended = async || engine.run(run).await.unwrap().run.end().map(|end| end.outcome);
    until("it doesn't succeed", async || ended().await == Some(Outcome::Succeeded)).await;
    assert_eq!(*runner.1.lock().unwrap(), ["elsewhere"]);
    runtime.shutdown_background();
}

/// Makes no progress until it is told to, and counts how many are made at once.
#[derive(Default)]
struct Blocking {
    is_open: watch::Sender<bool>,
    running: AtomicUsize,
    most: AtomicUsize,
    attempts: Mutex<BTreeMap<RunId, Vec<u32>>>,
}

impl Runner for Blocking {
    fn run<'a>(&'a self, attempt: &'a Attempt) -> Running<'a> {
        let running = self.running.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(running, Ordering::SeqCst);
        self.attempts.lock().unwrap().entry(attempt.run).or_default().push(attempt.attempt);
        Box::pin(async {
            self.is_open.subscribe().wait_for(|is_open| *is_open).await.unwrap();
            self.running.fetch_sub(1, Ordering::SeqCst);
            Ran::Ended(AttemptEnd::succeeded())
        })
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_makes_so_many_attempts_at_once_and_those_it_gave_back_are_made_later_as_the_first() {
    const JOBS: usize = 1_500;
    const AT_ONCE: usize = 1_024;
    let directory = tempfile::tempdir().unwrap();
    let store = baton_store::open(&store_url(directory.path()), directory.path()).await.unwrap();
    let engine = Engine::start(store, Config::default(), Random::system()).await.unwrap();
    let runner = Arc::new(Blocking::default());
    engine.set_runner(runner.clone());
    let definition = Definition { timeout_ms: 600_000, ..Definition::plain(None, target()) };
    let mut asking = JoinSet::new();
    let room = Arc::new(Semaphore::new(64));
    for job in 0..JOBS {
        let (engine, definition, room) = (engine.clone(), definition.clone(), room.clone());
        asking.spawn(async move {
            let _place = room.acquire().await.unwrap();
            engine.put_job(&name(&format!("j{job}")), definition).await.unwrap();
            engine.run_job(&name(&format!("j{job}")), None).await.unwrap()
        });
    }
    let runs = asking.join_all().await;
    until("there is room for more", async || runner.running.load(Ordering::SeqCst) == AT_ONCE).await;
    // What there is no room for goes back, and is shown to wait.
    let is_begun = |run: &RunState| run.run.attempt == 1;
    let waits = |run: &RunState| matches!(run.run.progress, Progress::Waiting(_)) && run.run.attempt == 0;
    let begun = runner.attempts.lock().unwrap().clone();
    let left = runs.iter().find(|run| !begun.contains_key(run)).unwrap();
    until("it isn't begun", async || is_begun(&engine.run(*left).await.unwrap())).await;
    until("it isn't given back", async || waits(&engine.run(*left).await.unwrap())).await;
    assert_eq!(runner.most.load(Ordering::SeqCst), AT_ONCE);
    runner.is_open.send(true).unwrap();
    until("not all are made", async || runner.attempts.lock().unwrap().len() == JOBS).await;
    let succeeded = async |run| {
        engine.run(run).await.unwrap().run.end().is_some_and(|end| end.outcome == Outcome::Succeeded)
    };
    for run in runs {
        until("it doesn't succeed", async || succeeded(run).await).await;
    }
    assert_eq!(runner.most.load(Ordering::SeqCst), AT_ONCE);
    let attempts = runner.attempts.lock().unwrap();
    assert!(attempts.values().all(|attempts| *attempts == [1]), "{attempts:?}");
}
