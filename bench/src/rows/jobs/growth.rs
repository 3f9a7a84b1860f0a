//! P13, jobs: whether a run and an edit cost the same however many jobs are stored.

use crate::load::{self, Sample, count};
use crate::peers::baton::Baton;
use crate::peers::jobs::{Edits, Sink, define, yearly};
use crate::progress;
use crate::report::{Row, Target, Unit};
use crate::rows::Bench;

const FEW: usize = 1_000;
const MANY: usize = 100_000;
/// Jobs that are due every second.
const DUE: usize = 500;
const CLIENTS: usize = 16;
const FLAT: f64 = 1.3;

struct Side {
    baton: Baton,
    sink: Sink,
    edits: Vec<Edits>,
    samples: Vec<Sample>,
    micros_a_run: Vec<f64>,
}

pub async fn measure(bench: &mut Bench<'_>) -> anyhow::Result<()> {
    let (length, turns) = (bench.options.length(), bench.options.turns());
    let many = bench.options.size(MANY);
    let mut sides = Vec::new();
    for jobs in [FEW, many] {
        progress::say(&format!("P13: filling a store with {jobs} jobs"));
        let sink = Sink::start().await?;
        let baton = Baton::start_for_jobs(bench.binary, bench.place, &sink).await?;
        define(baton.address(), "report:customer:", jobs, yearly()).await?;
        let edits = Edits::connect(baton.address(), CLIENTS).await?;
        sides.push(Side { baton, sink, edits, samples: Vec::new(), micros_a_run: Vec::new() });
    }
    for turn in 1..=turns {
        progress::say(&format!("P13: edits beside few and many jobs, round {turn} of {turns}"));
        for side in &mut sides {
            let sample;
            (side.edits, sample) = load::run(std::mem::take(&mut side.edits), length).await?;
            side.samples.push(sample);
        }
    }
    for side in &sides {
        define(side.baton.address(), "due:", DUE, &side.sink.job("@every 1s", 0)).await?;
    }
    for turn in 1..=turns {
        progress::say(&format!("P13: runs beside few and many jobs, round {turn} of {turns}"));
        let mut began = Vec::new();
        for side in &sides {
            side.sink.take();
            began.push(side.baton.process.cpu_time()?);
        }
        tokio::time::sleep(length).await;
        for (side, began) in sides.iter_mut().zip(began) {
            let used = side.baton.process.cpu_time()? - began;
            side.micros_a_run.push(used.as_secs_f64() * 1e6 / side.sink.count().max(1) as f64);
        }
    }
    let mut figures = Vec::new();
    for side in sides {
        figures.push((Sample::median(&side.samples), load::median(side.micros_a_run)));
        side.baton.stop().await?;
    }
    let ((few_edits, few_run), (many_edits, many_run)) = (figures[0], figures[1]);
    let what = format!("beside {} stored jobs, against {}", count(many as f64), count(FEW as f64));
    let target = Some(Target::AtMost(FLAT));
    bench.report.rows.push(Row {
        id: "P13",
        what: format!("the server's processor time a run, {DUE} due every second, {what}"),
        ours: format!("{many_run:.0} us"),
        peer: format!("{few_run:.0} us"),
        figure: many_run / few_run,
        unit: Unit::Times,
        target,
    });
    bench.report.rows.push(Row {
        id: "P13",
        what: format!("time an edit of a job, {CLIENTS} clients, {what}"),
        ours: format!("{:.1} us", 1e6 / many_edits.per_second),
        peer: format!("{:.1} us", 1e6 / few_edits.per_second),
        figure: few_edits.per_second / many_edits.per_second,
        unit: Unit::Times,
        target,
    });
    bench.report.methods.push((
        "P13, jobs",
        format!(
            "two servers, one with few and one with many jobs that aren't due. Edits: {CLIENTS} clients on each in turn, each changing \
             the schedule of a job of its own. Runs: {DUE} more jobs on each are due every second and call a sink as in P11, on both at the \
             same time; each server's processor time, user and system, divided by the requests that came."
        ),
    ));
    Ok(())
}
