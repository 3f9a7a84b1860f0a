//! One file a row of the targets. Each adds its rows to the report, and how they were measured.

mod growth;
mod handover;
mod memory;
mod pairs;
mod renew;
mod sdk;
mod start;
mod store;

use crate::machine::Place;
use crate::options::{Options, RowId};
use crate::report::Report;
use crate::{process, progress};
use anyhow::Context;
use std::path::Path;

/// What every row needs.
pub struct Bench<'a> {
    /// What was asked for.
    pub options: &'a Options,
    /// Where we are.
    pub place: &'a Place,
    /// The release binary.
    pub binary: &'a Path,
    /// What came of it.
    pub report: Report,
}

/// Measures what was asked for.
pub async fn measure(options: &Options, place: &Place, binary: &Path) -> anyhow::Result<Report> {
    let mut versions = vec![process::version("etcd")?, process::version("redis-server")?];
    versions.iter_mut().for_each(|version| version.truncate(version.find(" sha=").unwrap_or(version.len())));
    let (turns, length) = (options.turns(), options.length().as_secs_f64());
    let rounds = format!("medians of {turns} rounds in which the sides take turns, {length} s each");
    let mut report = Report { versions, rounds, ..Report::default() };
    if place.is_in_memory() {
        report.rounds +=
            "; the data was on a file system in memory: SYNCS COST NOTHING, the figures mean little";
    }
    let mut bench = Bench { options, place, binary, report };
    let b = &mut bench;
    for row in [RowId::P1, RowId::P2, RowId::P3, RowId::P4, RowId::P12, RowId::P13, RowId::P14, RowId::P15] {
        if !options.wants(row) {
            continue;
        }
        let done = match row {
            RowId::P1 => pairs::measure(b).await,
            RowId::P2 => sdk::measure(b).await,
            RowId::P3 => store::measure(b).await,
            RowId::P4 => handover::measure(b).await,
            RowId::P12 => memory::measure(b).await,
            RowId::P13 => growth::measure(b).await,
            RowId::P14 => start::measure(b).await,
            RowId::P15 => renew::measure(b).await,
        };
        progress::clear();
        done.with_context(|| format!("{row:?} can't be measured"))?;
    }
    Ok(bench.report)
}
