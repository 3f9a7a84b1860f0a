//! `baton advise`: which mechanism a limit should have, what each would cost and risk, and why.

use crate::failure::Failure;
use crate::monotone;
use crate::output;
use crate::traffic::{TrafficOptions, algorithm_word};
use baton_core::limit::advise::Figures;
use baton_core::limit::{Advice, Answer, Question};
use baton_simulation::advise;
use serde_json::json;

pub const HELP: &str = "Examples:\n  \
    baton advise --rate 100000 --nodes 20\n  \
    baton advise --rate 500 --nodes 3 --keys 200 --limit 100 --per 1m --purpose authenticated\n  \
    baton advise --rate 50 --nodes 4 --limit 5 --per 15m --keys 1000 --purpose security --store-latency 2ms\n  \
    baton advise --operation \"is the name taken?\"\n\n\
    Nothing is asked of a server: figures follow from how leases and slack behave, for traffic that is spread evenly. \
    `baton simulate` with the same flags runs it, with uneven traffic and failures if you like.";

#[derive(clap::Args, Debug)]
pub struct AdviseArguments {
    #[command(flatten)]
    traffic: TrafficOptions,
    /// A database that is asked anyway counts already
    #[arg(long)]
    counted_elsewhere: bool,
    /// Instead: whether what you want to do needs coordination at all, and what to use for it (docs/crdt.md)
    #[arg(long, value_name = "TEXT")]
    operation: Option<String>,
    /// Every single operation must be counted exactly when it happens
    #[arg(long)]
    exact: bool,
}

pub fn run(arguments: &AdviseArguments, json: bool) -> Result<u8, Failure> {
    let traffic = &arguments.traffic;
    if let Some(text) = &arguments.operation {
        return monotone::run(text, json || traffic.json);
    }
    let question = Question {
        definition: traffic.definition()?,
        purpose: traffic.purpose,
        rate: traffic.rate,
        nodes: traffic.nodes,
        keys: traffic.keys,
        store_latency_us: traffic.latency_us(),
        is_counted_elsewhere: arguments.counted_elsewhere,
        is_exact: arguments.exact,
    };
    let advice = advise(&question);
    if json || traffic.json { print_json(&question, &advice) } else { print_table(&question, &advice) }?;
    Ok(0)
}

fn print_json(question: &Question, advice: &Advice) -> Result<(), Failure> {
    let mechanisms = advice.figures.iter().map(|figures| {
        json!({
            "mechanism": figures.way.as_str(),
            "available": figures.way.is_available(),
            "storeOperationsPerSecond": figures.store_operations,
            "isMost": figures.is_most,
            "addedLatencyMicros": figures.added_latency_us,
            "adds": figures.adds,
            "worst": figures.worst,
            "outage": figures.outage,
        })
    });
    let used = match advice.answer {
        Answer::NotNeeded => None,
        Answer::Use(way) => Some(way.as_str()),
    };
    output::json(&json!({
        "limit": question.definition.limit,
        "windowMillis": question.definition.window_ms,
        "algorithm": algorithm_word(question.definition.algorithm),
        "purpose": question.purpose.as_str(),
        "onFailure": question.definition.on_failure.as_str(),
        "policy": advice.policy,
        "mechanisms": mechanisms.collect::<Vec<_>>(),
        "recommendation": { "mechanism": used, "because": advice.because },
    }))
}

fn print_table(question: &Question, advice: &Advice) -> Result<(), Failure> {
    let definition = &question.definition;
    let limit = format!(
        "{} in {} ms for each key, {}, {}",
        definition.limit,
        definition.window_ms,
        algorithm_word(definition.algorithm),
        question.purpose.as_str()
    );
    let answer = match advice.answer {
        Answer::NotNeeded => "you don't need this".to_owned(),
        Answer::Use(way) => way.as_str().to_owned(),
    };
    output::fields(vec![
        ("limit", limit),
        ("use", answer),
        ("because", advice.because.clone()),
        ("policy", advice.policy.clone()),
        ("", String::new()),
    ])?;
    let rows = advice.figures.iter().map(|figures| {
        let some = |amount: Option<u64>| amount.map_or("no number".to_owned(), |amount| amount.to_string());
        [
            figures.way.as_str().to_owned(),
            operations(figures),
            micros(figures.added_latency_us),
            some(figures.adds),
            some(figures.worst),
            figures.outage.to_owned(),
        ]
    });
    output::table(
        ["MECHANISM", "STORE OPS/S", "ADDED LATENCY", "ADDS", "AT MOST A WINDOW", "IN AN OUTAGE"],
        rows.collect(),
    )
}

fn operations(figures: &Figures) -> String {
    let most = if figures.is_most { "up to " } else { "" };
    match figures.store_operations {
        few if few < 10.0 => format!("{most}{few:.1}"),
        many => format!("{most}{many:.0}"),
    }
}

/// Microseconds as people read them.
pub fn micros(micros: f64) -> String {
    match micros {
        short if short < 1.0 => "0".into(),
        short if short < 1_000.0 => format!("{short:.0}us"),
        long => format!("{:.1}ms", long / 1_000.0),
    }
}
