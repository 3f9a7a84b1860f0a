//! Runs simulations from the shell: `cargo run --release -p baton-sim -- --seeds 10000`.

#![allow(clippy::print_stdout, reason = "a command's output")]

use baton_sim::run::Options;
use baton_sim::{Broken, run};
use clap::Parser;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::collections::BTreeMap;
use std::io::IsTerminal;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

/// Violations shown before the run stops.
const FAILED_MAX: usize = 10;

#[derive(Parser)]
#[command(about = "Runs seeded simulations of the lock service and checks what must hold")]
struct Arguments {
    /// How many seeds to run
    #[arg(long, default_value_t = 1000)]
    seeds: u64,
    /// The first seed
    #[arg(long, default_value_t = 0)]
    from: u64,
    /// Only this seed
    #[arg(long, conflicts_with_all = ["seeds", "from"])]
    seed: Option<u64>,
    /// Print everything that happens
    #[arg(long, requires = "seed")]
    trace: bool,
    /// Leave one kind of check out of every commit: the run must then fail
    #[arg(long)]
    broken: Option<Broken>,
    /// How many seeds at once
    #[arg(long, default_value_t = std::thread::available_parallelism().map_or(1, |count| count.get().min(8)))]
    threads: usize,
}

#[derive(Default)]
struct Summary {
    failed: BTreeMap<u64, (&'static str, Vec<String>)>,
    scenarios: BTreeMap<&'static str, u64>,
    calls: u64,
    grants: u64,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let (from, count) = match arguments.seed {
        Some(seed) => (seed, 1),
        None => (arguments.from, arguments.seeds),
    };
    let options = Options { trace: arguments.trace, broken: arguments.broken };
    let started = Instant::now();
    let summary = run_all(from, count, arguments.threads, options);
    for (seed, (scenario, violations)) in &summary.failed {
        println!("seed {seed} ({scenario}):");
        for violation in violations {
            println!("  {violation}");
        }
        let broken = arguments.broken.and_then(|broken| clap::ValueEnum::to_possible_value(&broken));
        let broken = broken.map(|value| format!(" --broken {}", value.get_name())).unwrap_or_default();
        println!("  cargo run --release -p baton-sim -- --seed {seed} --trace{broken}");
    }
    let ran: u64 = summary.scenarios.values().sum();
    let seconds = started.elapsed().as_secs_f64();
    println!(
        "{ran} seeds from {from}, {} calls, {} grants, {:.0} seeds/s: {} failed",
        summary.calls,
        summary.grants,
        ran as f64 / seconds,
        summary.failed.len()
    );
    let scenarios = summary.scenarios.iter().map(|(name, count)| format!("{name} {count}"));
    println!("{}", scenarios.collect::<Vec<_>>().join(", "));
    if summary.failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn run_all(from: u64, count: u64, threads: usize, options: Options) -> Summary {
    let progress = progress(count);
    let next = Arc::new(AtomicU64::new(from));
    let summary = Arc::new(Mutex::new(Summary::default()));
    std::thread::scope(|scope| {
        for _ in 0..threads.max(1) {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    let enough = summary.lock().expect("no panic while held").failed.len() >= FAILED_MAX;
                    if seed >= from + count || enough {
                        return;
                    }
                    let report = run(seed, options);
                    print!("{}", report.trace);
                    let mut summary = summary.lock().expect("no panic while held");
                    *summary.scenarios.entry(report.scenario).or_default() += 1;
                    summary.calls += report.calls as u64;
                    summary.grants += report.grants as u64;
                    if !report.violations.is_empty() {
                        summary.failed.insert(seed, (report.scenario, report.violations));
                    }
                    drop(summary);
                    progress.inc(1);
                }
            });
        }
    });
    progress.finish_and_clear();
    std::mem::take(&mut *summary.lock().expect("no panic while held"))
}

/// On a terminal only.
fn progress(count: u64) -> ProgressBar {
    let target = if std::io::stderr().is_terminal() && count > 1 {
        ProgressDrawTarget::stderr()
    } else {
        ProgressDrawTarget::hidden()
    };
    let style = ProgressStyle::with_template("{bar:40} {pos}/{len} seeds, {per_sec}, {eta} left");
    ProgressBar::with_draw_target(Some(count), target)
        .with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}
