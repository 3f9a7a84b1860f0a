//! Jobs on a store that several nodes share, on a clock that the test drives (J3 to J6, J12, J13, J15).

use baton_core::job::{
    AttemptEnd, Definition, Guarantee, Http, Outcome, Overlap, Progress, Reason, RunId, Target,
};
use baton_core::{Name, WallTime};
use baton_engine::job::{Attempt, Ran, RunState, Runner, Running};
use baton_engine::{Config, Engine, Random};
use baton_testkit::Dice;
use baton_testkit::simulated::{Faults, Node, Simulated};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::time::Instant;

/// Notes every attempt that is made, and ends it as it is told to.
pub struct Noting {
    node: usize,
    store: Simulated,
    made: Arc<Mutex<Vec<Made>>>,
    ends: Ends,
}

/// An attempt that was made.
#[derive(Clone, Debug)]
pub struct Made {
    pub node: usize,
    pub run: RunId,
    pub fencing: u64,
    /// By so much after its run was due.
    pub late: Duration,
    /// Whether it told that it had succeeded.
    pub succeeded: bool,
}

impl Runner for Noting {
    fn run<'a>(&'a self, attempt: &'a Attempt) -> Running<'a> {
        let (takes, succeeds) = (self.ends)(attempt);
        let (run, fencing) = (attempt.run, attempt.fencing.0);
        let mut made = self.made.lock().unwrap();
        let place = made.len();
        let late = Duration::from_millis(self.store.wall_now().0.saturating_sub(attempt.due.0));
        made.push(Made { node: self.node, run, fencing, late, succeeded: false });
        let all = self.made.clone();
        Box::pin(async move {
            tokio::time::sleep(takes).await;
            all.lock().unwrap()[place].succeeded = succeeds;
            Ran::Ended(if succeeds { AttemptEnd::succeeded() } else { AttemptEnd::failed("no") })
        })
    }
}

pub struct Ground {
    pub nodes: Vec<Engine>,
    pub handles: Vec<Arc<Node>>,
    pub made: Arc<Mutex<Vec<Made>>>,
}

/// How long an attempt takes, and whether it succeeds.
type Ends = Arc<dyn Fn(&Attempt) -> (Duration, bool) + Send + Sync>;

async fn ground(seed: u64, count: usize, faults: Faults, ends: Ends) -> Ground {
    let store = Simulated::for_many(seed);
    let made = Arc::<Mutex<Vec<Made>>>::default();
    let (mut nodes, mut handles) = (Vec::new(), Vec::new());
    for node in 0..count {
        let handle = store.node(Faults::none());
        let config = Config { address: Some(format!("node-{node}").into()), ..Config::default() };
        let random = Random::seeded(seed * 100 + node as u64);
        let engine = Engine::start(handle.clone(), config, random).await.unwrap();
        let runner = Noting { node, store: store.clone(), made: made.clone(), ends: ends.clone() };
        engine.set_runner(Arc::new(runner));
        handle.set_faults(faults.clone());
        nodes.push(engine);
        handles.push(handle);
    }
    // Until all of them know of each other.
    tokio::time::sleep(Duration::from_secs(5)).await;
    Ground { nodes, handles, made }
}

fn at_once() -> Ends {
    Arc::new(|_| (Duration::ZERO, true))
}

pub fn target() -> Target {
    let (method, url) = ("POST".into(), "http://127.0.0.1:9/".into());
    Target::Http(Http { method, url, headers: Vec::new(), body: String::new(), secret: None })
}

pub fn every(seconds: u32) -> Definition {
    Definition {
        timeout_ms: 5_000,
        kept_max: 1_000,
        ..Definition::plain(Some(format!("@every {seconds}s")), target())
    }
}

pub fn name(job: &str) -> Name {
    Name::new("default", job)
}

impl Ground {
    fn made(&self) -> Vec<Made> {
        self.made.lock().unwrap().clone()
    }

    async fn runs(&self, node: usize, job: &str) -> Vec<RunState> {
        let mut runs = self.nodes[node].list_runs(&name(job), 1_000, None).await.unwrap().runs;
        runs.reverse();
        runs
    }
}

fn outcome(run: &RunState) -> Option<Outcome> {
    run.run.end().map(|end| end.outcome)
}

#[tokio::test(start_paused = true)]
async fn every_time_runs_once_however_many_nodes_there_are() {
    let ground = ground(1, 3, Faults::none(), at_once()).await;
    for job in 0..20 {
        ground.nodes[job % 3].put_job(&name(&format!("j{job}")), every(10)).await.unwrap();
    }
    tokio::time::sleep(Duration::from_secs(60)).await;
    let made = ground.made();
    let mut runs: Vec<_> = made.iter().map(|made| made.run).collect();
    let count = runs.len();
    runs.sort();
    runs.dedup();
    assert_eq!((runs.len(), count), (120, 120));
    let nodes: std::collections::BTreeSet<_> = made.iter().map(|made| made.node).collect();
    assert_eq!(nodes.len(), 3, "all of them have a share");
    for job in 0..20 {
        let runs = ground.runs(0, &format!("j{job}")).await;
        assert!(runs.iter().all(|run| outcome(run) == Some(Outcome::Succeeded)));
        assert_eq!(runs.len(), 6);
    }
}

#[tokio::test(start_paused = true)]
async fn an_attempt_is_made_within_moments_of_its_time() {
    let ground = ground(2, 2, Faults::none(), at_once()).await;
    ground.nodes[0].put_job(&name("j"), every(10)).await.unwrap();
    tokio::time::sleep(Duration::from_secs(100)).await;
    let made = ground.made();
    assert!(made.len() >= 9);
    for Made { late, .. } in made {
        assert!(late <= Duration::from_millis(8), "{late:?}: a commit, of up to 4 ms");
    }
}

/// Half a second before its time it has been decided what is due (J12).
#[tokio::test(start_paused = true)]
async fn what_is_paused_or_edited_in_the_last_moment_is_decided_anew() {
    let begun = Arc::<Mutex<Vec<(String, u64)>>>::default();
    let noted = begun.clone();
    let ends = move |attempt: &Attempt| {
        let Attempt { job, definition, .. } = attempt;
        noted.lock().unwrap().push((job.key().into(), definition.timeout_ms));
        (Duration::ZERO, true)
    };
    let ground = ground(8, 1, Faults::none(), Arc::new(ends)).await;
    let node = &ground.nodes[0];
    for job in ["paused", "edited", "removed", "left"] {
        node.put_job(&name(job), every(20)).await.unwrap();
    }
    let left = 20_000 - node.now().unwrap().0 % 20_000;
    tokio::time::sleep(Duration::from_millis(left + 20_000 - 200)).await;
    begun.lock().unwrap().clear();
    node.pause_job(&name("paused")).await.unwrap();
    node.put_job(&name("edited"), Definition { timeout_ms: 4_000, ..every(20) }).await.unwrap();
    node.remove_job(&name("removed")).await.unwrap();
    tokio::time::sleep(Duration::from_millis(150)).await;
    assert!(begun.lock().unwrap().is_empty(), "nothing begins before its time");
    tokio::time::sleep(Duration::from_secs(2)).await;
    let mut begun = begun.lock().unwrap().clone();
    begun.sort();
    assert_eq!(begun, [("edited".into(), 4_000), ("left".into(), 5_000)]);
}

#[tokio::test(start_paused = true)]
async fn when_its_node_dies_another_goes_on_and_what_was_under_way_keeps_its_promise() {
    for guarantee in [Guarantee::AtMostOnce, Guarantee::AtLeastOnce] {
        let takes = Arc::new(|_: &Attempt| (Duration::from_secs(3), true));
        let ground = ground(3, 2, Faults::none(), takes).await;
        let job = Definition { guarantee, ..every(20) };
        ground.nodes[0].put_job(&name("j"), job).await.unwrap();
        let deadline = Instant::now() + Duration::from_secs(60);
        while ground.made().is_empty() {
            assert!(Instant::now() < deadline, "it never begins");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        // In the middle of its first attempt.
        let first = ground.made()[0].clone();
        ground.handles[first.node].kill();
        tokio::time::sleep(Duration::from_secs(100)).await;
        let other = 1 - first.node;
        let runs = ground.runs(other, "j").await;
        let before = runs.iter().find(|run| run.id == first.run).unwrap();
        let attempts: Vec<_> = ground.made().into_iter().filter(|made| made.run == first.run).collect();
        if guarantee == Guarantee::AtMostOnce {
            let end = before.run.end().unwrap();
            assert_eq!((end.outcome, end.reason), (Outcome::Unknown, Some(Reason::AtMostOnceUnknown)));
            assert_eq!(attempts.len(), 1, "it is never sent again");
        } else {
            assert_eq!(outcome(before), Some(Outcome::Succeeded));
            assert_eq!(attempts.len(), 2);
            assert!(attempts[1].fencing > attempts[0].fencing);
        }
        let after = runs.iter().filter(|run| run.id.place.nominal > first.run.place.nominal);
        assert!(after.filter(|run| outcome(run) == Some(Outcome::Succeeded)).count() >= 2, "and it goes on");
    }
}

/// Nodes that die, answers and calls that get lost, commits that come late, hints that don't come at all.
#[test]
fn each_guarantee_holds_whatever_gets_lost_and_whoever_dies() {
    let seeds: u64 = std::env::var("BATON_JOB_SEEDS").map_or(2, |seeds| seeds.parse().unwrap());
    for seed in 0..seeds {
        // In a runtime of its own, which ends the nodes with it: else those of all earlier seeds would go on beside it.
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        runtime.enable_time().start_paused(true).build().unwrap().block_on(trouble(100 + seed));
    }
}

async fn trouble(seed: u64) {
    let faults = Faults {
        slow: 30,
        slow_ms: (10, 3_000),
        refused: 20,
        lost: 20,
        answer_lost: 60,
        late: 20,
        late_ms: (100, 20_000),
        hints_lost: 20,
        ..Faults::none()
    };
    let dice = Mutex::new(Dice::new(seed));
    let ends = move |_: &Attempt| {
        let mut dice = dice.lock().unwrap();
        (dice.millis((0, 6_000)), !dice.chance(200))
    };
    let ground = ground(seed, 3, faults, Arc::new(ends)).await;
    let jobs = [
        ("once", Definition { guarantee: Guarantee::AtMostOnce, ..every(7) }),
        ("least", Definition { guarantee: Guarantee::AtLeastOnce, attempts_max: 100, ..every(7) }),
        (
            "effective",
            Definition {
                guarantee: Guarantee::EffectivelyOnce,
                attempts_max: 100,
                overlap: Overlap::QueueAll,
                ..every(11)
            },
        ),
        ("beside", Definition { overlap: Overlap::Allow, attempts_max: 100, ..every(5) }),
    ];
    let mut begins = BTreeMap::new();
    for (job, definition) in &jobs {
        let mut put = ground.nodes[0].put_job(&name(job), definition.clone()).await;
        while put.is_err() {
            put = ground.nodes[1].put_job(&name(job), definition.clone()).await;
        }
        begins.insert(*job, put.unwrap().1.definition.changed_at);
    }
    tokio::time::sleep(Duration::from_secs(100)).await;
    ground.handles[0].kill();
    tokio::time::sleep(Duration::from_secs(100)).await;
    // No more trouble, and no more times: what is under way has to come to its end.
    ground.handles[1..].iter().for_each(|handle| handle.set_faults(Faults::none()));
    for (job, _) in &jobs {
        ground.nodes[1].pause_job(&name(job)).await.unwrap();
    }
    tokio::time::sleep(Duration::from_secs(400)).await;
    let mut attempts = BTreeMap::<_, Vec<Made>>::new();
    for made in ground.made() {
        attempts.entry(made.run).or_default().push(made);
    }
    for (job, definition) in &jobs {
        let runs = ground.runs(1, job).await;
        let mut covered = Vec::new();
        for run in &runs {
            let made = attempts.get(&run.id).map_or(&[][..], Vec::as_slice);
            let told = format!("seed {seed}, {job}: {run:?}\n{made:#?}");
            let end = run.run.end().unwrap_or_else(|| panic!("it has not ended: {told}"));
            let tokens: Vec<_> = made.iter().map(|made| made.fencing).collect();
            assert!(tokens.is_sorted_by(|one, other| one < other), "{told}");
            let first = run.run.stands_for.map_or(run.id.place.nominal, |(first, _)| first);
            covered.push((first, run.id.place.nominal));
            match end.outcome {
                Outcome::Skipped => assert!(made.is_empty(), "{told}"),
                Outcome::Succeeded => assert!(made.iter().any(|made| made.succeeded), "{told}"),
                Outcome::Unknown | Outcome::Failed => {
                    assert_eq!(definition.guarantee, Guarantee::AtMostOnce, "{told}");
                }
                Outcome::Cancelled => panic!("{told}"),
            }
            if definition.guarantee == Guarantee::AtMostOnce {
                assert!(made.len() <= 1, "sent twice: {told}");
            }
        }
        // Every time has a record that stands for it, and none has two (J14).
        let period = definition.schedule.as_ref().unwrap().trim_start_matches("@every ");
        let period: u64 = period.trim_end_matches('s').parse::<u64>().unwrap() * 1_000;
        let state = ground.nodes[1].job(&name(job)).await.unwrap().state;
        assert!(state.mark.0 + 20_000 > state.paused_at.unwrap().0, "seed {seed}, {job}: {state:?}");
        let mut at = WallTime((begins[job].0 / period + 1) * period);
        while at <= state.mark {
            let records = covered.iter().filter(|(first, last)| *first <= at && at <= *last).count();
            assert_eq!(records, 1, "seed {seed}, {job}: {at:?} has {records} records");
            at = WallTime(at.0 + period);
        }
    }
    assert!(attempts.len() > 40, "seed {seed}: hardly anything ran");
}

#[tokio::test(start_paused = true)]
async fn a_job_that_follows_runs_once_after_each_success_wherever_it_is_kept() {
    let ground = ground(4, 2, Faults::none(), at_once()).await;
    let followers: Vec<_> = (0..8).map(|job| format!("after-{job}")).collect();
    for job in &followers {
        let definition = Definition { schedule: None, ..every(1) };
        ground.nodes[0].put_job(&name(job), definition).await.unwrap();
    }
    let then = followers.iter().cloned().chain(["nobody".into()]).take(8).collect();
    ground.nodes[0].put_job(&name("first"), Definition { then, ..every(10) }).await.unwrap();
    tokio::time::sleep(Duration::from_secs(35)).await;
    let first = ground.runs(0, "first").await.len();
    assert!(first >= 3);
    for job in &followers {
        let runs = ground.runs(1, job).await;
        assert_eq!(runs.len(), first, "{job}");
        assert!(runs.iter().all(|run| outcome(run) == Some(Outcome::Succeeded)));
    }
}

#[tokio::test(start_paused = true)]
async fn no_more_ended_runs_are_kept_than_the_job_says_and_none_for_longer() {
    let ground = ground(5, 1, Faults::none(), at_once()).await;
    let job = Definition { kept_max: 10, kept_ms: 600_000, ..every(1) };
    ground.nodes[0].put_job(&name("j"), job).await.unwrap();
    tokio::time::sleep(Duration::from_secs(300)).await;
    let runs = ground.runs(0, "j").await;
    assert!((10..=30).contains(&runs.len()), "{} are kept", runs.len());
    let state = ground.nodes[0].job(&name("j")).await.unwrap().state;
    assert!(state.counts.succeeded >= 298);
    ground.nodes[0].pause_job(&name("j")).await.unwrap();
    tokio::time::sleep(Duration::from_secs(700)).await;
    assert_eq!(ground.runs(0, "j").await.len(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_run_that_is_called_off_stops_where_it_runs() {
    let takes = Arc::new(|_: &Attempt| (Duration::from_secs(4), true));
    let ground = ground(6, 1, Faults::none(), takes).await;
    ground.nodes[0].put_job(&name("j"), Definition { schedule: None, ..every(1) }).await.unwrap();
    let run = ground.nodes[0].run_job(&name("j"), Some("r".into())).await.unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(ground.made().len(), 1);
    let cancelled = ground.nodes[0].cancel_run(run).await.unwrap();
    assert!(matches!(cancelled.run.progress, Progress::Ended(end) if end.outcome == Outcome::Cancelled));
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert!(!ground.made()[0].succeeded, "it was stopped");
    assert_eq!(ground.nodes[0].run_job(&name("j"), Some("r".into())).await.unwrap(), run);
    assert_eq!(ground.made().len(), 1, "the same request is the same run");
}
