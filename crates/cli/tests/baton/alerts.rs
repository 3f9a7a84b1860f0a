//! The alerts that come with Baton: they fire when they should, by names that a server has, and each has its page.

use crate::http;
use crate::process;
use crate::server::Server;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// From the package that `scripts/install-test-tools` brings in.
fn promtool(arguments: &[&str]) -> process::Output {
    let mut command = Command::new("promtool");
    process::run(command.args(arguments).current_dir(root().join("deploy/prometheus")))
}

#[test]
fn the_rules_are_rules_and_fire_when_they_should() {
    for arguments in [&["check", "rules", "alerts.yml"][..], &["test", "rules", "alerts_test.yml"]] {
        let output = promtool(arguments);
        assert_eq!(output.code, 0, "{}{}", output.stdout, output.stderr);
    }
}

#[test]
fn every_alert_asks_for_metrics_that_there_are_and_has_a_page() {
    let rules = std::fs::read_to_string(root().join("deploy/prometheus/alerts.yml")).unwrap();
    let server = Server::start();
    let described = http::text(&server.url, "/metrics", Duration::from_secs(10));
    let names: Vec<_> = rules
        .split(|char: char| !char.is_ascii_alphanumeric() && char != '_')
        .filter(|word| word.starts_with("baton_"))
        .collect();
    assert!(!names.is_empty());
    for name in names {
        let family = name.trim_end_matches("_total");
        assert!(described.contains(&format!("# TYPE {family} ")), "no {name} in\n{described}");
    }
    // What is asked for by a label is there before anything has happened: the first of it would else be no increase.
    let labelled = rules.split_whitespace().filter_map(|word| {
        let word = &word[word.find("baton_")?..];
        Some(&word[..=word.find("\"}")? + 1])
    });
    for series in labelled.filter(|series| series.contains("_total{")) {
        assert!(described.contains(&format!("\n{series} 0")), "no {series} in\n{described}");
    }
    let alerts: Vec<_> = rules.lines().filter_map(|line| line.trim().strip_prefix("- alert: ")).collect();
    assert!(!alerts.is_empty());
    for alert in alerts {
        let page = format!("docs/alerts/{alert}.md");
        assert!(rules.contains(&format!("runbook: {page}")), "{alert} names its page");
        assert!(root().join(&page).is_file(), "{page}");
    }
}
