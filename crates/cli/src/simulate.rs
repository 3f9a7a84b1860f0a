//! `baton simulate`: what a limit would admit and cost, by mechanism, before anybody depends on it.

use crate::advise::micros;
use crate::duration;
use crate::failure::{CANNOT_WRITE, Failure};
use crate::output;
use crate::traffic::{TrafficOptions, algorithm_word, ms, one_of, part, unfit};
use baton_core::limit::Definition;
use baton_simulation::{Mechanism, Outcome, Pattern, Plan, SIMULATED, allowed, run as simulated, svg};
use clap::builder::TypedValueParser;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde_json::json;
use std::io::IsTerminal;
use std::path::PathBuf;
use std::time::Duration;

pub const HELP: &str = "Examples:\n  \
    baton simulate --rate 100000 --nodes 20\n  \
    baton simulate --rate 800 --nodes 2 --limit 500 --sync 200ms --algorithm fixed_window\n  \
    baton simulate --traffic bursty --key-skew 1 --keys 100 --crashes 3 --joins 2 --partitions 2 --svg plot.svg\n\n\
    Every decision is made by the rules that nodes and stores run; traffic, latency and failures come from --seed, and the same \
    seed gives the same output. ALLOWED is what one counter would admit that every check reaches at once; WORST is the most that \
    one key had in any interval as long as the window, and BOUND what that may be. It exits with 1 if a bound was broken.";

/// A bound was broken.
const BROKEN: u8 = 1;

#[derive(clap::Args, Debug)]
pub struct SimulateArguments {
    #[command(flatten)]
    limit: TrafficOptions,
    /// How much time is simulated
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = duration::parse)]
    duration: Duration,
    /// Where all chance comes from
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Only this mechanism; may be repeated
    #[arg(long, value_parser = mechanism())]
    mechanism: Vec<Mechanism>,
    /// How checks follow each other
    #[arg(long, default_value = "poisson", value_parser = pattern())]
    traffic: Pattern,
    /// How unequal keys are: 0 for alike, 1 as words in a text
    #[arg(long, value_name = "S", default_value_t = 0.0)]
    key_skew: f64,
    /// How unequal nodes are
    #[arg(long, value_name = "S", default_value_t = 0.0)]
    node_skew: f64,
    /// Nodes that die, to come back empty-handed
    #[arg(long, value_name = "N", default_value_t = 0)]
    crashes: u64,
    /// Nodes that come later
    #[arg(long, value_name = "N", default_value_t = 0)]
    joins: u64,
    /// How often a node is cut off from the store
    #[arg(long, value_name = "N", default_value_t = 0)]
    partitions: u64,
    /// For how long
    #[arg(long, value_name = "DURATION", default_value = "5s", value_parser = duration::parse)]
    partition_length: Duration,
    /// How often the definition changes: the limit is halved, and then what it was
    #[arg(long, value_name = "N", default_value_t = 0)]
    changes: u64,
    /// Below which part of the limit the store decides every check of an approximate one
    #[arg(long, value_name = "PART", default_value = "0.2", value_parser = part)]
    low_watermark: u64,
    /// How much a lease has [default: adapts to what is used]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    lease_size: Option<u64>,
    /// How long a lease lives [default: 10s, and never longer than the window]
    #[arg(long, value_name = "DURATION", value_parser = duration::parse)]
    lease_ttl: Option<Duration>,
    /// Write a plot of admitted against allowed to this file
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
}

fn mechanism() -> impl TypedValueParser<Value = Mechanism> {
    one_of(SIMULATED.iter().map(|mechanism| (mechanism.as_str(), *mechanism)).collect())
}

fn pattern() -> impl TypedValueParser<Value = Pattern> {
    one_of(vec![("steady", Pattern::Steady), ("poisson", Pattern::Poisson), ("bursty", Pattern::Bursty)])
}

pub fn run(arguments: &SimulateArguments, json: bool) -> Result<u8, Failure> {
    let limit = &arguments.limit;
    let definition = Definition {
        lease_size: arguments.lease_size,
        lease_ttl_ms: arguments.lease_ttl.map(|ttl| ms(ttl).max(1)),
        low_watermark: Some(arguments.low_watermark),
        ..limit.definition()?
    };
    let plan = Plan {
        seed: arguments.seed,
        duration_ms: ms(arguments.duration),
        keys: limit.keys,
        pattern: arguments.traffic,
        key_skew: arguments.key_skew,
        node_skew: arguments.node_skew,
        latency_us: limit.latency_us(),
        crashes: arguments.crashes,
        joins: arguments.joins,
        partitions: arguments.partitions,
        partition_ms: ms(arguments.partition_length),
        changes: arguments.changes,
        ..Plan::new(limit.rate, limit.nodes, definition)
    };
    plan.check().map_err(|error| unfit(error.to_string()))?;
    let all = match arguments.mechanism.is_empty() {
        true => SIMULATED.to_vec(),
        false => arguments.mechanism.clone(),
    };
    let outcomes = simulate(&plan, &all)?;
    if let Some(path) = &arguments.svg {
        std::fs::write(path, svg::plot(&plan, &outcomes)).map_err(|error| {
            let message = format!("{} can't be written: {error}", path.display());
            Failure::new(CANNOT_WRITE, message, "give --svg a file in a directory that is there")
        })?;
    }
    if json || limit.json { print_json(&plan, &outcomes) } else { print_table(&plan, &outcomes) }?;
    Ok(if outcomes.iter().all(Outcome::keeps_its_bound) { 0 } else { BROKEN })
}

fn simulate(plan: &Plan, all: &[Mechanism]) -> Result<Vec<Outcome>, Failure> {
    let progress = progress(plan.duration_ms * all.len() as u64);
    let allowed = allowed(plan).map_err(|error| unfit(error.to_string()))?;
    let mut outcomes = Vec::new();
    for (place, mechanism) in all.iter().enumerate() {
        progress.set_message(mechanism.as_str());
        let told = |now_ms: u64| {
            progress.set_position(place as u64 * plan.duration_ms + now_ms.min(plan.duration_ms))
        };
        outcomes.push(simulated(plan, *mechanism, &allowed, told).map_err(|error| unfit(error.to_string()))?);
    }
    progress.finish_and_clear();
    Ok(outcomes)
}

/// On a terminal only.
fn progress(length_ms: u64) -> ProgressBar {
    let target = match std::io::stderr().is_terminal() {
        true => ProgressDrawTarget::stderr(),
        false => ProgressDrawTarget::hidden(),
    };
    let style = ProgressStyle::with_template("{bar:40} {percent} % {msg}, {eta} left");
    ProgressBar::with_draw_target(Some(length_ms), target)
        .with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}

/// What is left out, and where its figures are.
const NOT_SIMULATED: &str = "gossip is not simulated; `baton advise` has figures for it by formula";

fn print_json(plan: &Plan, outcomes: &[Outcome]) -> Result<(), Failure> {
    output::json(&json!({
        "seed": plan.seed,
        "durationMillis": plan.duration_ms,
        "nodes": plan.nodes,
        "keys": plan.keys,
        "rate": plan.rate,
        "limit": plan.definition.limit,
        "windowMillis": plan.definition.window_ms,
        "algorithm": algorithm_word(plan.definition.algorithm),
        "onFailure": plan.definition.on_failure.as_str(),
        "storeLatencyMicros": plan.latency_us,
        "outcomes": outcomes,
        "notSimulated": ["gossip"],
    }))
}

fn print_table(plan: &Plan, outcomes: &[Outcome]) -> Result<(), Failure> {
    let definition = &plan.definition;
    output::fields(vec![
        (
            "limit",
            format!(
                "{} in {} ms for each key, {}, {} in an outage",
                definition.limit,
                definition.window_ms,
                algorithm_word(definition.algorithm),
                definition.on_failure.as_str()
            ),
        ),
        (
            "traffic",
            format!(
                "{}/s, {}, {}, {} s, seed {}",
                plan.rate,
                counted(plan.nodes, "node"),
                counted(plan.keys, "key"),
                plan.duration_ms / 1_000,
                plan.seed
            ),
        ),
        ("", String::new()),
    ])?;
    let percent = |part: f64| format!("{:.2} %", 100.0 * part);
    let rows = outcomes.iter().map(|outcome| {
        let bound = outcome.bound.map_or("no number".to_owned(), |bound| bound.to_string());
        let broken = if outcome.keeps_its_bound() { "" } else { ": broken" };
        [
            outcome.mechanism.to_owned(),
            outcome.offered.to_string(),
            outcome.admitted.to_string(),
            outcome.allowed.to_string(),
            percent(outcome.under_admission),
            outcome.worst.to_string(),
            format!("{bound}{broken}"),
            format!("{:.1}", outcome.store_operations_per_second),
            percent(outcome.local_share),
            micros(outcome.added_latency_micros),
            percent(outcome.worst_node_share),
        ]
    });
    output::table(
        [
            "MECHANISM",
            "OFFERED",
            "ADMITTED",
            "ALLOWED",
            "UNDER",
            "WORST",
            "BOUND",
            "STORE OPS/S",
            "LOCAL",
            "ADDED LATENCY",
            "WORST NODE ADMITS",
        ],
        rows.collect(),
    )?;
    output::line(format_args!("\n{NOT_SIMULATED}"))
}

/// `1 key`, `2 keys`.
fn counted(number: u64, noun: &str) -> String {
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}
