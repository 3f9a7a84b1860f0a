//! The examples, run against a real server: what they say goes wrong does, and what they say holds does.

#![allow(clippy::unwrap_used, reason = "a test that can't be set up should stop there")]

use baton_testkit::servers::baton::Node;
use std::process::{Command, Stdio};
use std::time::Duration;

mod examples {
    mod envoy;
    mod envoy_ring;
    mod nginx;
    mod web;
}

/// Runs an example to its end, and gives what it printed. It is killed if it takes longer than two minutes.
async fn run(program: &str, arguments: &[&str]) -> String {
    let node = Node::start("embedded:").await.unwrap();
    let mut command = Command::new("timeout");
    command.args(["--signal=KILL", "120", program]).args(arguments);
    command.env("BATON_SERVER", node.url()).stdin(Stdio::null());
    let output = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
    let (said, complaint) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{program}: {}\n{said}\n{complaint}", output.status);
    said.into_owned()
}

/// The lines that an example must print.
async fn shows(program: &str, lines: &[&str]) {
    let said = run(program, &[]).await;
    for line in lines {
        assert!(said.lines().any(|said| said == *line), "{program} doesn't say {line:?}, but\n{said}");
    }
}

#[tokio::test]
async fn nightly_report() {
    let lines = [
        "without a look at the run's id, 1 night had 3 reports",
        "with the run's id and its token, 1 night had 1 reports",
    ];
    shows(env!("CARGO_BIN_EXE_nightly-report"), &lines).await;
}

#[tokio::test]
async fn schema_migration() {
    let lines = [
        "without a lock, 5 copies ran the migration 5 times",
        "with a lock, 5 copies ran the migration 1 times",
    ];
    shows(env!("CARGO_BIN_EXE_schema-migration"), &lines).await;
}

#[tokio::test]
async fn cron_deduplication() {
    let lines = [
        "without a lock, 3 copies sent 9 reports in 3 nights",
        "with a lock, 3 copies sent 3 reports in 3 nights",
    ];
    shows(env!("CARGO_BIN_EXE_cron-deduplication"), &lines).await;
}

#[tokio::test]
async fn page_views() {
    let lines = [
        "reading and writing back, 5 copies counted 20 of 100 views",
        "with a counter, 5 copies counted 100 of 100 views",
        "a removal took the tag that it had seen, and left the one that was added again",
    ];
    shows(env!("CARGO_BIN_EXE_page-views"), &lines).await;
}

#[tokio::test]
async fn limited_api() {
    let lines = [
        "each counting for itself, 3 copies served 60 requests of 20",
        "with a limit, 3 copies served 20 requests of 20",
    ];
    shows(env!("CARGO_BIN_EXE_limited-api"), &lines).await;
}

#[tokio::test]
async fn a_leader_for_a_scheduler() {
    let lines = [
        "without an election, 3 schedulers dispatched 12 tasks 36 times",
        "with an election, 3 schedulers dispatched 12 tasks 12 times, one after the other",
        "what the first leader still wanted to dispatch was refused",
    ];
    shows(env!("CARGO_BIN_EXE_scheduler-leader"), &lines).await;
}

#[tokio::test]
async fn the_last_item() {
    let lines = [
        "without a lock, 10 orders got 10 of the 1 item: stock is -9",
        "with a lock, 10 orders got 1 of the 1 item: stock is 0",
    ];
    shows(env!("CARGO_BIN_EXE_last-item"), &lines).await;
}

#[tokio::test]
async fn a_payment_s_webhook() {
    let lines = [
        "without anything, 4 deliveries of a payment of 10 booked 40",
        "with a lock, 4 deliveries of a payment of 10 booked 40",
        "with once, 4 deliveries of a payment of 10 booked 10, and got 1 receipt",
    ];
    shows(env!("CARGO_BIN_EXE_payment-webhook"), &lines).await;
}

#[tokio::test]
async fn cache_rebuild() {
    let lines = [
        "without a lock, 20 requests rebuilt the page 20 times",
        "with a lock, 20 requests rebuilt the page 1 times; 19 were served the stale one at once",
    ];
    shows(env!("CARGO_BIN_EXE_cache-rebuild"), &lines).await;
}

#[tokio::test]
async fn files_processed_by_many_workers() {
    let lines = [
        "without a lock, 4 workers processed 12 files 48 times",
        "with a lock, 4 workers processed 12 files 12 times",
    ];
    shows(env!("CARGO_BIN_EXE_process-files"), &lines).await;
}

#[tokio::test]
async fn fenced_rows() {
    let lines =
        ["without a fence, 10 less 3 is 9", "the late write was refused", "with the fence, 10 less 3 is 7"];
    shows(env!("CARGO_BIN_EXE_fenced-rows"), &lines).await;
}

#[tokio::test]
async fn a_counter_shared_by_threads_without_async() {
    let lines = ["without a lock, 20 counts lost some", "with a lock, 20 counts lost none"];
    shows(env!("CARGO_BIN_EXE_shared-counter"), &lines).await;
}

/// A stop lasts a TTL: 20 of them in a row are over 10 s, so the two kinds run side by side.
#[tokio::test]
async fn a_paused_holder_corrupts_the_file_without_the_fence_and_never_with_it() {
    let program = env!("CARGO_BIN_EXE_pause-demo");
    let began = std::time::Instant::now();
    let (without, with) =
        tokio::join!(run(program, &["--runs", "20", "--without"]), run(program, &["--runs", "20", "--with"]));
    assert!(without.contains("without a fence, 20 of 20 runs corrupted the file"), "{without}");
    assert!(with.contains("with the fence, 0 of 20 runs corrupted the file"), "{with}");
    assert!(began.elapsed() < Duration::from_secs(60), "40 runs took {:?}", began.elapsed());
}
