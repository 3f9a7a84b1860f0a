//! One file a row of the targets. Each adds its rows to the report, and how they were measured.

mod growth;
mod handover;
mod jobs;
mod limits;
mod memory;
mod nodes;
mod pairs;
mod redis;
mod renew;
mod replica;
mod sdk;
mod servers;
mod start;
mod store;

use crate::load::{self, Client, Sample};
use crate::machine::Place;
use crate::options::{Options, RowId};
use crate::progress;
use crate::report::Report;
use anyhow::Context;
use baton_testkit::process::version;
use baton_testkit::servers::postgres;
use clap::ValueEnum;
pub use limits::memory::{HolderOptions, hold};
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

impl Bench<'_> {
    /// Lets our clients and a peer's take turns; the medians.
    async fn in_turns<Ours: Client, Theirs: Client>(
        &self,
        what: &str,
        mut ours: Vec<Ours>,
        mut theirs: Vec<Theirs>,
    ) -> anyhow::Result<(Sample, Sample)> {
        let (length, turns) = (self.options.length(), self.options.turns());
        let (mut our_samples, mut their_samples) = (Vec::new(), Vec::new());
        for turn in 1..=turns {
            progress::say(&format!("{what}, round {turn} of {turns}"));
            let sample;
            (ours, sample) = load::run(ours, length).await?;
            our_samples.push(sample);
            let sample;
            (theirs, sample) = load::run(theirs, length).await?;
            their_samples.push(sample);
        }
        Ok((Sample::median(&our_samples), Sample::median(&their_samples)))
    }
}

/// Measures what was asked for.
pub async fn measure(options: &Options, place: &Place, binary: &Path) -> anyhow::Result<Report> {
    let mut versions = vec![version("etcd")?, version("redis-server")?, postgres::version()?];
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
    for row in RowId::value_variants().iter().copied() {
        if !options.wants(row) {
            continue;
        }
        let done = match row {
            RowId::P1 => pairs::measure(b).await,
            RowId::P2 => sdk::measure(b).await,
            RowId::P3 => store::measure(b).await,
            RowId::P4 => handover::measure(b).await,
            RowId::P5 => redis::measure(b).await,
            RowId::P6 => servers::measure(b).await,
            RowId::Handover => nodes::measure(b).await,
            RowId::P7 => limits::sdk::measure(b).await,
            RowId::P8 => limits::http::measure(b).await,
            RowId::P9 => limits::traffic::measure(b).await,
            RowId::P10 => limits::outage::measure(b).await,
            RowId::HotKey => limits::hot::measure(b).await,
            RowId::P11 => jobs::due::measure(b).await,
            RowId::P12 => memory::measure(b).await,
            RowId::P12Limits => limits::memory::measure(b).await,
            RowId::P12Jobs => jobs::stored::measure(b).await,
            RowId::P13 => growth::measure(b).await,
            RowId::P13Jobs => jobs::growth::measure(b).await,
            RowId::P14 => start::measure(b).await,
            RowId::P15 => renew::measure(b).await,
            RowId::Replica => replica::measure(b).await,
        };
        progress::clear();
        done.with_context(|| format!("{row:?} can't be measured"))?;
    }
    Ok(bench.report)
}
