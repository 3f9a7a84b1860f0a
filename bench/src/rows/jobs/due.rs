//! P11: how late a run begins when very many are due together.

use crate::load::{self, count};
use crate::peers::baton::Baton;
use crate::peers::jobs::{Sink, define, now_us, within};
use crate::progress;
use crate::report::{Row, Target, Unit};
use crate::rows::Bench;
use anyhow::{bail, ensure};
use baton_core::WallTime;
use baton_core::cron::jitter;
use baton_core::job::RunId;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

const JOBS: usize = 10_000;
/// They are due this often; what came of one time is over well before the next.
const EVERY: Duration = Duration::from_secs(10);
/// How long they have to be sent.
const SENT_MAX: Duration = Duration::from_secs(60);
/// As late as a run may be, in the server's own words.
const LATE_MAX: (&str, f64) = ("0.1", 100.0);

/// When the jobs are due.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Due {
    /// All at one moment.
    Together,
    /// All in one second, each at its millisecond.
    WithinASecond,
    /// All in twenty seconds, each at its second.
    Hashed,
}

impl Due {
    fn schedule(self) -> &'static str {
        match self {
            Self::Together | Self::WithinASecond => "*/10 * * * * *",
            Self::Hashed => "H/20 * * * * *",
        }
    }

    fn jitter(self) -> Duration {
        if self == Self::WithinASecond { Duration::from_millis(999) } else { Duration::ZERO }
    }

    fn describe(self) -> &'static str {
        match self {
            Self::Together => "due at one moment",
            Self::WithinASecond => "due within one second, by their jitter",
            Self::Hashed => "due within 20 s, by H for the second",
        }
    }
}

/// How late the runs of one time were, in milliseconds.
struct Lateness {
    p50: f64,
    p99: f64,
    last: f64,
}

pub async fn measure(bench: &mut Bench<'_>) -> anyhow::Result<()> {
    let jobs = bench.options.size(JOBS);
    for due in [Due::Together, Due::WithinASecond, Due::Hashed] {
        many_due(bench, due, jobs).await?;
    }
    bench.report.methods.push((
        "P11",
        format!(
            "jobs with a request to a sink in the measuring process, which answers at once; at_least_once, other settings as \
             they are by default. A figure is from when a run was due to when its request had arrived at the sink, by the one clock \
             of the machine; medians of the rounds' quantiles, a round being a time at which all were due ({} s apart). The \
             first is left out: the server has no connections then. `recorded` and `handed over` are the server's own histograms over all \
             rounds, baton_job_lag_seconds and baton_job_dispatch_lag_seconds: how many runs were within {} ms. On two cores \
             that the sink shares, requests and their answers are most of it.",
            EVERY.as_secs(),
            LATE_MAX.1
        ),
    ));
    Ok(())
}

async fn many_due(bench: &mut Bench<'_>, due: Due, jobs: usize) -> anyhow::Result<()> {
    let sink = Sink::start().await?;
    let baton = Baton::start_for_jobs(bench.binary, bench.place, &sink).await?;
    progress::say(&format!("P11: {jobs} jobs {} are put", due.describe()));
    define(baton.address(), "due:", jobs, &sink.job(due.schedule(), due.jitter().as_millis() as u64)).await?;
    // From a time on at which all were there.
    let every = if due == Due::Hashed { 2 * EVERY } else { EVERY };
    let every_us = every.as_micros() as u64;
    let rounds = if due == Due::Hashed { 1 } else { u64::from(bench.options.turns()) };
    let mut from_us = now_us().next_multiple_of(every_us);
    if due != Due::Hashed {
        settled(&sink, from_us + every_us, jobs).await?;
        from_us += every_us;
    }
    sink.take();
    let before = recorded(&baton).await?;
    let until_us = from_us + rounds * every_us;
    progress::say(&format!("P11: {jobs} jobs {}, {} s", due.describe(), rounds * every.as_secs()));
    settled(&sink, until_us, jobs * rounds as usize).await?;
    let after = recorded(&baton).await?;
    baton.stop().await?;
    let mut by_time = BTreeMap::<u64, Vec<f64>>::new();
    for (run, arrived_us) in sink.take() {
        let due_ms = due_ms(due, run);
        let round = due_ms * 1000 / every_us;
        if due_ms * 1000 >= from_us && due_ms * 1000 < until_us {
            by_time.entry(round).or_default().push(arrived_us as f64 / 1e3 - due_ms as f64);
        }
    }
    let rounds: Vec<_> = by_time.into_values().map(lateness).collect();
    ensure!(!rounds.is_empty(), "nothing was due");
    let of = |figure: fn(&Lateness) -> f64| load::median(rounds.iter().map(figure));
    let share = |of: usize| 100.0 * (after[of].0 - before[of].0) / (after[of].1 - before[of].1).max(1.0);
    bench.report.rows.push(Row {
        id: "P11",
        what: format!("{} jobs {}: p99 from due to arrived", count(jobs as f64), due.describe()),
        ours: format!(
            "p50 {:.0} ms, last {:.0} ms; within {} ms recorded {:.1} %, handed over {:.1} %",
            of(|it| it.p50),
            of(|it| it.last),
            LATE_MAX.1,
            share(0),
            share(1)
        ),
        peer: String::new(),
        figure: of(|it| it.p99),
        unit: Unit::Milliseconds,
        target: Some(Target::AtMost(LATE_MAX.1)),
    });
    Ok(())
}

/// Recorded and handed over, in time and at all.
async fn recorded(baton: &Baton) -> anyhow::Result<[(f64, f64); 2]> {
    let address = baton.address();
    Ok([
        within(address, "baton_job_lag_seconds", LATE_MAX.0).await?,
        within(address, "baton_job_dispatch_lag_seconds", LATE_MAX.0).await?,
    ])
}

/// Waits until a moment, and until so many requests have come.
async fn settled(sink: &Sink, until_us: u64, requests: usize) -> anyhow::Result<()> {
    tokio::time::sleep(Duration::from_micros(until_us.saturating_sub(now_us() + 100_000))).await;
    let until = Instant::now() + SENT_MAX;
    while sink.count() < requests {
        if Instant::now() > until {
            bail!("{} of {requests} requests have come", sink.count());
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Ok(())
}

fn due_ms(due: Due, run: RunId) -> u64 {
    let nominal = run.place.nominal;
    let next = WallTime(nominal.0 + EVERY.as_millis() as u64);
    nominal.after(jitter(run.uid.0, nominal, due.jitter(), Some(next))).0
}

fn lateness(mut times: Vec<f64>) -> Lateness {
    times.sort_by(f64::total_cmp);
    let at = |part: f64| times[((times.len() - 1) as f64 * part) as usize];
    Lateness { p50: at(0.5), p99: at(0.99), last: at(1.0) }
}
