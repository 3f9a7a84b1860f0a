//! Measures Baton beside etcd, Redis, PostgreSQL and the bare disk: in one run, on one machine, in turns.
//!
//! `make bench` runs everything and writes `bench/RESULTS.md`. Nothing here asserts: it reports.
//!
//! # Layout
//! - [`options`]: what can be asked for
//! - [`rows`]: one file a row of the targets, P1 to P15, and the hand-over between nodes
//! - [`peers`]: the servers that are measured, and how a client speaks to each
//! - [`http`]: a client so cheap that the server is what is measured
//! - [`load`]: many clients for a while, and what came of it
//! - [`machine`]: where it ran; [`cores`]: whoever would have a machine of its own
//! - [`report`]: the table, on the terminal and in the file
//!
//! # What it promises
//! All load is on loopback and ends by itself; every server it starts has its own port and directory, and ends with
//! it, also after Ctrl-C or a failure.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a report on a terminal is what this is for")]

mod cores;
mod http;
mod load;
mod machine;
mod options;
mod peers;
mod progress;
mod report;
mod rows;

use anyhow::{Context, bail};
use clap::Parser;
use options::{Options, Role};
use std::process::ExitCode;
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};

/// As in the `baton` binary: what is measured in this process, the store and the replica, runs there.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// However slow the machine, it ends.
const RUN_MAX: Duration = Duration::from_secs(60 * 60);

fn main() -> ExitCode {
    let options = Options::parse();
    let done = match &options.role {
        Some(Role::Bare(bare)) => peers::bare::serve(bare),
        Some(Role::Handler(handler)) => peers::limits::serve(handler),
        Some(Role::Holder(holder)) => rows::hold(holder),
        Some(Role::Requests(requests)) => peers::requests::send(requests),
        None => run(&options),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("\nbench: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(options: &Options) -> anyhow::Result<()> {
    let place = machine::Place::find()?;
    place.use_its_disk()?;
    let baton = match &options.baton {
        Some(binary) => binary.clone(),
        None => peers::baton::build(&place)?,
    };
    // The load gets one thread, whoever is measured: on two cores the other is the server's.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let report = runtime.block_on(async {
        let mut interrupt = signal(SignalKind::interrupt())?;
        let mut terminate = signal(SignalKind::terminate())?;
        tokio::select! {
            report = rows::measure(options, &place, &baton) => report,
            _ = interrupt.recv() => bail!("interrupted; every server that was started is stopped"),
            _ = terminate.recv() => bail!("told to stop; every server that was started is stopped"),
            () = tokio::time::sleep(RUN_MAX) => bail!("gave up after {} minutes", RUN_MAX.as_secs() / 60),
        }
    })?;
    println!("{}", report.table());
    match options.results(&place) {
        Some(path) => {
            std::fs::write(&path, report.markdown(&place)).context("can't write the results")?;
            println!("Written to bench/RESULTS.md.");
        }
        None => println!("A run of some rows, or a quick one, doesn't touch bench/RESULTS.md; --write does."),
    }
    Ok(())
}
