//! P11: how late a run begins when very many are due together.

use crate::load::{self, count};
use crate::peers::baton::Baton;
use crate::peers::jobs::{Buckets, Sink, define, now_us};
use crate::peers::requests;
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
const EVERY: Duration = Duration::from_secs(5);
/// How long they have to be sent.
const SENT_MAX: Duration = Duration::from_secs(60);
/// Rounds at most: three of them and what is put before take two minutes.
const ROUNDS_MAX: u32 = 3;
/// As late as a run may be.
const LATE_MAX_MS: f64 = 100.0;
/// The server's own histograms of how late it was: until a run was recorded, until it was handed over, from the record to the request.
const LAGS: [&str; 3] =
    ["baton_job_lag_seconds", "baton_job_dispatch_lag_seconds", "baton_job_send_lag_seconds"];

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
            Self::Together | Self::WithinASecond => "*/5 * * * * *",
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
             they are by default. The target is held against the request's arrival, which is later than its dispatch and seen from outside. How late runs were recorded, and how \
             late requests were handed over and sent, are the server's own histograms over all rounds ({}), so a quantile is the bound of a \
             bucket. Arrived is at the sink, by the one clock of the machine; medians of the rounds' quantiles, a round being a time at which \
             all were due ({} s apart, at most {ROUNDS_MAX}). The first is left out: the server has no connections then. Bare requests: as many, \
             with the same header fields, made before and sent at one moment by a program with one thread on 32 open connections to the same sink, \
             in the same run.",
            LAGS.join(", "),
            EVERY.as_secs()
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
    let every = if due == Due::Hashed { 4 * EVERY } else { EVERY };
    let every_us = every.as_micros() as u64;
    let rounds = if due == Due::Hashed { 1 } else { u64::from(bench.options.turns().min(ROUNDS_MAX)) };
    let mut from_us = now_us().next_multiple_of(every_us);
    if due != Due::Hashed {
        settled(&sink, from_us + every_us, jobs).await?;
        from_us += every_us;
    }
    sink.take();
    let before = lags(&baton).await?;
    let until_us = from_us + rounds * every_us;
    progress::say(&format!("P11: {jobs} jobs {}, {} s", due.describe(), rounds * every.as_secs()));
    settled(&sink, until_us, jobs * rounds as usize).await?;
    let after = lags(&baton).await?;
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
    let floor = if due == Due::Together { Some(floor(&sink, jobs).await?) } else { None };
    ensure!(!rounds.is_empty(), "nothing was due");
    let of = |figure: fn(&Lateness) -> f64| load::median(rounds.iter().map(figure));
    let [recorded, handed_over, sent] = after;
    let [recorded, handed_over, sent] =
        [recorded.since(&before[0]), handed_over.since(&before[1]), sent.since(&before[2])];
    let share = |lags: &Buckets| 100.0 * lags.within(LATE_MAX_MS / 1e3);
    let what = format!("{} jobs {}", count(jobs as f64), due.describe());
    bench.report.rows.push(Row {
        id: "P11",
        what: format!("{what}: p99 from due to recorded, at most"),
        ours: format!(
            "within {LATE_MAX_MS} ms of their time {:.1} % recorded, {:.1} % handed over; {:.1} % of the requests within {LATE_MAX_MS} ms of their record",
            share(&recorded),
            share(&handed_over),
            share(&sent)
        ),
        peer: String::new(),
        figure: recorded.quantile_ms(0.99),
        unit: Unit::Milliseconds,
        target: None,
    });
    bench.report.rows.push(Row {
        id: "P11",
        what: format!("{what}: p99 from due to arrived"),
        ours: format!("p50 {:.0} ms, last {:.0} ms", of(|it| it.p50), of(|it| it.last)),
        peer: floor.map_or_else(String::new, |floor| {
            format!(
                "as many bare requests: p50 {:.0} ms, p99 {:.0} ms, last {:.0} ms",
                floor.p50, floor.p99, floor.last
            )
        }),
        figure: of(|it| it.p99),
        unit: Unit::Milliseconds,
        target: Some(Target::AtMost(LATE_MAX_MS)),
    });
    Ok(())
}

async fn lags(baton: &Baton) -> anyhow::Result<[Buckets; 3]> {
    let read = |histogram| Buckets::read(baton.address(), histogram);
    Ok([read(LAGS[0]).await?, read(LAGS[1]).await?, read(LAGS[2]).await?])
}

/// The same requests with no scheduler at all: what the machine and the sink can do.
async fn floor(sink: &Sink, jobs: usize) -> anyhow::Result<Lateness> {
    sink.take();
    let at_ms = requests::sent(sink.address, jobs).await?;
    Ok(lateness(sink.take().into_iter().map(|(_, us)| us as f64 / 1e3 - at_ms as f64).collect()))
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
