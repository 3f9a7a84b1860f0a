//! P12, jobs: what a stored job takes of the server's memory, and what very many that aren't due cost.

use crate::load::count;
use crate::peers::baton::Baton;
use crate::peers::jobs::{define, yearly};
use crate::progress;
use crate::report::{Row, Target, Unit};
use crate::rows::Bench;
use std::time::Duration;

const JOBS: usize = 100_000;
/// Memory settles.
const SETTLE: Duration = Duration::from_secs(3);
/// Every group is looked at once in so long.
const IDLE: Duration = Duration::from_secs(60);

pub async fn measure(bench: &mut Bench<'_>) -> anyhow::Result<()> {
    let jobs = bench.options.size(JOBS);
    let idle = if bench.options.quick { IDLE / 20 } else { IDLE };
    progress::say(&format!("P12: memory of {jobs} stored jobs"));
    let empty = Baton::start(bench.binary, bench.place).await?;
    let full = Baton::start(bench.binary, bench.place).await?;
    define(full.address(), "first:", 1_000, yearly()).await?;
    tokio::time::sleep(SETTLE).await;
    let before = full.process.resident_bytes()?;
    define(full.address(), "report:customer:", jobs, yearly()).await?;
    tokio::time::sleep(SETTLE).await;
    let grown = full.process.resident_bytes()?.saturating_sub(before);
    bench.report.rows.push(Row {
        id: "P12",
        what: "resident memory a stored job".into(),
        ours: format!("{:.1} MiB for {}", grown as f64 / f64::from(1 << 20), count(jobs as f64)),
        peer: String::new(),
        figure: grown as f64 / jobs as f64,
        unit: Unit::Bytes,
        target: Some(Target::AtMost(1024.0)),
    });
    progress::say(&format!("P12: {jobs} stored jobs that aren't due, {idle:?}"));
    let began = [empty.process.cpu_time()?, full.process.cpu_time()?];
    tokio::time::sleep(idle).await;
    let share = |used: Duration| used.as_secs_f64() / idle.as_secs_f64();
    let of_empty = share(empty.process.cpu_time()? - began[0]);
    let of_full = share(full.process.cpu_time()? - began[1]);
    empty.stop().await?;
    full.stop().await?;
    bench.report.rows.push(Row {
        id: "P12",
        what: format!(
            "part of a core that {} jobs cost while none is due, against none stored",
            count(jobs as f64)
        ),
        ours: format!("{:.2} %", 100.0 * of_full),
        peer: format!("{:.2} %", 100.0 * of_empty),
        figure: of_full,
        unit: Unit::Fraction,
        target: Some(Target::AtMost(0.02)),
    });
    bench.report.methods.push((
        "P12, jobs",
        format!(
            "growth of the server's resident memory (VmRSS), divided; names like `report:customer:123456`, a schedule, a time zone and \
             an URL, none of them ever due. Then both servers do nothing for {} s, in which every group is looked at once; processor \
             time, user and system.",
            IDLE.as_secs()
        ),
    ));
    Ok(())
}
