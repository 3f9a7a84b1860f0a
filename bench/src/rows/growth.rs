//! P13: whether an operation costs the same however much there is.

use super::Bench;
use crate::http::{Lines, text_of};
use crate::load::{self, Sample, count};
use crate::peers::baton::{Baton, LockUser, Pairs};
use crate::progress;
use crate::report::{Row, Target, Unit};
use anyhow::{Context, anyhow, ensure};
use hdrhistogram::Histogram;
use std::time::{Duration, Instant};
use tokio::sync::mpsc;

const FEW_LOCKS: usize = 1_000;
const MANY_LOCKS: usize = 1_000_000;
const CLIENTS: usize = 64;
const FEW_WAITERS: usize = 10;
const MANY_WAITERS: usize = 10_000;
/// Hand-overs of a round; the same number joins the queue before the next.
const HANDOVERS: usize = 250;
const FLAT: f64 = 1.3;

pub async fn measure(bench: &mut Bench<'_>) -> anyhow::Result<()> {
    pairs(bench).await?;
    handovers(bench).await?;
    bench.report.methods.push((
        "P13",
        format!(
            "locks: two servers, one with few and one with many held locks, and {CLIENTS} clients as in P1 on each in turn; \
             the processor time is the server's, user and system. Waiters: they wait by requests of 256 for two locks of \
             one server, which are passed on {HANDOVERS} times in turn: release, until the next one's grant has come. Before \
             each round as many join as have left."
        ),
    ));
    Ok(())
}

async fn pairs(bench: &mut Bench<'_>) -> anyhow::Result<()> {
    let (length, turns) = (bench.options.length(), bench.options.turns());
    let many_locks = bench.options.size(MANY_LOCKS);
    let mut sides = Vec::new();
    for locks in [FEW_LOCKS, many_locks] {
        progress::say(&format!("P13: filling a store with {locks} held locks"));
        let baton = Baton::start(bench.binary, bench.place).await?;
        baton.hold("held:", locks).await?;
        let users = Pairs::connect(baton.address(), CLIENTS).await?;
        sides.push((baton, users, Vec::new(), Vec::new()));
    }
    for turn in 1..=turns {
        progress::say(&format!("P13: lock pairs beside few and many held locks, round {turn} of {turns}"));
        for (baton, users, samples, cpu) in &mut sides {
            let before = baton.process.cpu_time()?;
            let (back, sample) = load::run(std::mem::take(users), length).await?;
            cpu.push((baton.process.cpu_time()? - before).as_secs_f64() * 1e6 / sample.done as f64);
            *users = back;
            samples.push(sample);
        }
    }
    let mut figures = Vec::new();
    for (baton, _, samples, cpu) in sides {
        figures.push((Sample::median(&samples), load::median(cpu)));
        baton.stop().await?;
    }
    let ((few, few_cpu), (many, many_cpu)) = (figures[0], figures[1]);
    let what = format!("beside {} held locks, against {}", count(many_locks as f64), count(FEW_LOCKS as f64));
    let target = Some(Target::AtMost(FLAT));
    bench.report.rows.push(Row {
        id: "P13",
        what: format!("time a lock pair, {CLIENTS} clients, {what}"),
        ours: format!("{:.1} us", 1e6 / many.per_second),
        peer: format!("{:.1} us", 1e6 / few.per_second),
        figure: few.per_second / many.per_second,
        unit: Unit::Times,
        target,
    });
    bench.report.rows.push(Row {
        id: "P13",
        what: "the same, the server's processor time".into(),
        ours: format!("{many_cpu:.1} us"),
        peer: format!("{few_cpu:.1} us"),
        figure: many_cpu / few_cpu,
        unit: Unit::Times,
        target: None,
    });
    Ok(())
}

/// A lock with a queue that waits by batches, and whoever passes it on.
struct Line {
    key: &'static str,
    releaser: LockUser,
    token: String,
    grants: mpsc::Receiver<Result<String, String>>,
    granted: mpsc::Sender<Result<String, String>>,
}

impl Line {
    async fn form(baton: &Baton, key: &'static str) -> anyhow::Result<Self> {
        let mut releaser = LockUser::connect(baton.address(), key, false).await?;
        let token = releaser.acquire().await?;
        let (granted, grants) = mpsc::channel(16);
        Ok(Self { key, releaser, token, grants, granted })
    }

    async fn join(&mut self, baton: &Baton, waiters: usize) -> anyhow::Result<()> {
        for stream in baton.queue(self.key, waiters).await? {
            tokio::spawn(follow(stream, self.granted.clone()));
        }
        Ok(())
    }

    /// Releases, and waits for the next one's grant.
    async fn pass_on(&mut self) -> anyhow::Result<Duration> {
        let began = Instant::now();
        let released = self.releaser.release(&self.token);
        let granted = tokio::time::timeout(Duration::from_secs(10), self.grants.recv());
        let (released, granted) = tokio::join!(released, granted);
        released?;
        let granted = granted.context("nobody got the lock for 10 s")?.context("all streams have ended")?;
        self.token = granted.map_err(|answer| anyhow!("a waiter was answered {answer}"))?;
        Ok(began.elapsed())
    }
}

/// Hands on every token that comes, and what came instead of one.
async fn follow(mut stream: Lines, granted: mpsc::Sender<Result<String, String>>) -> anyhow::Result<()> {
    while let Some(line) = stream.next().await? {
        let token = text_of(line, "lockToken").map(str::to_owned);
        granted.send(token.ok_or_else(|| String::from_utf8_lossy(line).into_owned())).await?;
    }
    Ok(())
}

async fn handovers(bench: &mut Bench<'_>) -> anyhow::Result<()> {
    let turns = bench.options.turns();
    let many = bench.options.size(MANY_WAITERS);
    let baton = Baton::start(bench.binary, bench.place).await?;
    let mut short = Line::form(&baton, "short").await?;
    let mut long = Line::form(&baton, "long").await?;
    long.join(&baton, many).await?;
    let (mut few_samples, mut many_samples) = (Vec::new(), Vec::new());
    for turn in 1..=turns {
        progress::say(&format!("P13: hand-overs beside few and many waiters, round {turn} of {turns}"));
        let mut times = Histogram::<u64>::new(3)?;
        for _ in 0..HANDOVERS / FEW_WAITERS {
            short.join(&baton, FEW_WAITERS).await?;
            for _ in 0..FEW_WAITERS {
                times.record(load::nanos(short.pass_on().await?))?;
            }
        }
        few_samples.push(Sample::of(&times, Duration::from_secs(1)));
        times.reset();
        for _ in 0..HANDOVERS {
            times.record(load::nanos(long.pass_on().await?))?;
        }
        many_samples.push(Sample::of(&times, Duration::from_secs(1)));
        if turn < turns {
            long.join(&baton, HANDOVERS).await?;
        }
    }
    ensure!(!many_samples.is_empty(), "no rounds");
    let (few_times, many_times) = (Sample::median(&few_samples), Sample::median(&many_samples));
    bench.report.rows.push(Row {
        id: "P13",
        what: format!("time a hand-over (median) with {} waiters, against {FEW_WAITERS}", count(many as f64)),
        ours: format!("{:.0} us", many_times.p50_ms * 1e3),
        peer: format!("{:.0} us", few_times.p50_ms * 1e3),
        figure: many_times.p50_ms / few_times.p50_ms,
        unit: Unit::Times,
        target: Some(Target::AtMost(FLAT)),
    });
    drop((short, long));
    baton.stop().await?;
    Ok(())
}
