//! `baton advise` and `baton simulate`: no server, the same output for the same seed, and figures that agree.

use crate::process::{Output, run};
use serde_json::Value;
use std::process::Command;

fn baton(arguments: &[&str]) -> Output {
    // Nobody answers there: neither command may ask.
    run(Command::new(env!("CARGO_BIN_EXE_baton")).args(arguments).env("BATON_SERVER", "http://127.0.0.1:1"))
}

fn as_json(arguments: &[&str]) -> Value {
    let output = baton(&[arguments, &["--json"]].concat());
    assert_eq!(output.code, 0, "{}", output.stderr);
    serde_json::from_str(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"))
}

fn of<'a>(all: &'a Value, mechanism: &str) -> &'a Value {
    let found = all.as_array().unwrap().iter().find(|one| one["mechanism"] == mechanism);
    found.unwrap_or_else(|| panic!("{mechanism} in {all}"))
}

#[test]
fn the_example_of_twenty_nodes_is_advised_as_it_is_simulated() {
    let example = ["--rate", "100000", "--nodes", "20"];
    let advice = as_json(&[&["advise"], &example[..]].concat());
    assert_eq!(advice["recommendation"]["mechanism"], "leased");
    let simulated = as_json(&[&["simulate", "--duration", "4s"], &example[..]].concat());
    for mechanism in ["central", "leased", "owned", "approximate"] {
        let (advised, outcome) =
            (of(&advice["mechanisms"], mechanism), of(&simulated["outcomes"], mechanism));
        let [advised_micros, micros] =
            [advised, outcome].map(|figures| figures["addedLatencyMicros"].as_f64().unwrap());
        // Those who hold something wait only at the very start.
        assert!(
            (advised_micros - micros).abs() <= (micros / 10.0).max(10.0),
            "{mechanism}: a wait of {advised_micros} us is advised, {micros} are waited"
        );
        let advised_operations = advised["storeOperationsPerSecond"].as_f64().unwrap();
        // The first seconds find out what is needed.
        let seconds = outcome["seconds"].as_array().unwrap()[2..].iter();
        let operations: u64 = seconds.map(|second| second["storeOperations"].as_u64().unwrap()).sum();
        let operations = operations as f64 / 2.0;
        assert!(
            (advised_operations - operations).abs() <= operations / 10.0,
            "{mechanism}: {advised_operations} is advised, {operations} happen"
        );
        assert_eq!(advised["worst"], outcome["bound"]);
        assert!(outcome["worst"].as_u64() <= outcome["bound"].as_u64());
    }
    assert!(of(&simulated["outcomes"], "leased")["storeOperationsPerSecond"].as_f64().unwrap() <= 1_000.0);
    assert_eq!(simulated["notSimulated"], serde_json::json!(["gossip"]));
}

#[test]
fn overload_is_advised_as_it_is_simulated() {
    let example = ["--rate", "1300", "--nodes", "10", "--limit", "1000"];
    let advice = as_json(&[&["advise"], &example[..]].concat());
    let simulated = as_json(&[&["simulate", "--seed", "5"], &example[..]].concat());
    for mechanism in ["leased", "owned", "approximate"] {
        let (advised, outcome) =
            (of(&advice["mechanisms"], mechanism), of(&simulated["outcomes"], mechanism));
        assert_eq!(advised["isMost"], false);
        let advised = advised["storeOperationsPerSecond"].as_f64().unwrap();
        let happens = outcome["storeOperationsPerSecond"].as_f64().unwrap();
        assert!((advised - happens).abs() <= happens / 10.0, "{mechanism}: {advised}, {happens}");
    }
}

#[test]
fn advice_says_so_where_nothing_is_needed_and_knows_the_purpose() {
    let recommended = |arguments: &[&str]| {
        as_json(&[&["advise"], arguments].concat())["recommendation"]["mechanism"].clone()
    };
    assert_eq!(recommended(&["--nodes", "1"]), Value::Null);
    assert_eq!(recommended(&["--counted-elsewhere"]), Value::Null);
    assert_eq!(recommended(&["--exact"]), "central");
    assert_eq!(recommended(&["--purpose", "security"]), "central");
    assert!(baton(&["advise", "--nodes", "1"]).stdout.contains("you don't need this"));
    let people = baton(&["advise"]).stdout;
    for word in ["central", "leased", "owned", "approximate", "gossip", "because"] {
        assert!(people.contains(word), "{word} in {people}");
    }
    let window = as_json(&["advise", "--window", "1m", "--limit", "500"]);
    assert_eq!((&window["windowMillis"], &window["limit"]), (&60_000.into(), &500.into()));
}

#[test]
fn the_same_seed_prints_the_same_and_draws_the_same() {
    let directory = tempfile::tempdir().unwrap();
    let with = |seed: &str, name: &str| {
        let plot = directory.path().join(name);
        let output = baton(&[
            "simulate",
            "--rate",
            "400",
            "--nodes",
            "3",
            "--keys",
            "2",
            "--duration",
            "5s",
            "--traffic",
            "bursty",
            "--crashes",
            "2",
            "--joins",
            "1",
            "--partitions",
            "2",
            "--partition-length",
            "1s",
            "--seed",
            seed,
            "--svg",
            plot.to_str().unwrap(),
        ]);
        assert_eq!(output.code, 0, "{}", output.stderr);
        assert!(output.stderr.is_empty(), "no bar without a terminal: {}", output.stderr);
        (output.stdout, std::fs::read_to_string(plot).unwrap())
    };
    let (first, again, other) = (with("7", "a.svg"), with("7", "b.svg"), with("8", "c.svg"));
    assert_eq!(first, again);
    assert_ne!(first.0, other.0);
    assert!(first.1.starts_with("<svg ") && first.1.ends_with("</svg>\n"));
    assert!(first.0.contains("gossip is not simulated"), "{}", first.0);
}

#[test]
fn only_what_is_asked_for_is_simulated() {
    let small = ["simulate", "--rate", "100", "--duration", "2s"];
    let one = as_json(&[&small[..], &["--mechanism", "approximate", "--epsilon", "0.05"]].concat());
    assert_eq!(one["outcomes"].as_array().unwrap().len(), 1);
    assert_eq!(one["limit"], 143, "the rate is 70 % of it");
    // A bucket's burst and what comes in a window, and 5 % of the limit.
    assert_eq!(one["outcomes"][0]["bound"], 143 + 143 + 7);
    let output = baton(&[&small[..], &["--output", "json"]].concat());
    assert!(output.stdout.starts_with('{'), "{}", output.stdout);
}

#[test]
fn what_cannot_be_simulated_exits_with_64_and_says_why() {
    for (arguments, said) in [
        (&["simulate", "--nodes", "0"][..], "--nodes"),
        (&["simulate", "--rate", "9000000"], "at most"),
        (&["simulate", "--duration", "10ms"], "duration"),
        (&["simulate", "--duration", "2h", "--rate", "1"], "duration"),
        (&["simulate", "--epsilon", "2"], "0 to 1"),
        (&["simulate", "--key-skew", "9"], "skew"),
        (&["simulate", "--keys", "20000"], "keys"),
        (&["simulate", "--algorithm", "in_flight"], "token_bucket"),
        (&["simulate", "--algorithm", "sliding_log", "--limit", "5000"], "1,000"),
        (&["simulate", "--algorithm", "fixed_window", "--burst", "5"], "--burst goes with"),
        (&["simulate", "--mechanism", "gossip"], "approximate"),
        (&["simulate", "--store-latency", "5"], "30s"),
        (&["advise", "--per", "0s"], "at least 1ms"),
        (&["advise", "--limit", "1000000000000000", "--per", "1d"], "at most"),
        (&["advise", "--purpose", "fun"], "abuse"),
    ] {
        let output = baton(arguments);
        assert_eq!(output.code, 64, "{arguments:?}: {}", output.stderr);
        assert!(output.stderr.contains(said), "{arguments:?}: {}", output.stderr);
    }
    let unwritten = baton(&["simulate", "--rate", "100", "--duration", "2s", "--svg", "/nowhere/to/go.svg"]);
    assert!(unwritten.code == 73 && unwritten.stderr.contains("can't be written"), "{unwritten:?}");
}
