//! Jobs by clocks that are minutes off, or step: no time runs twice, and nothing that is under way is ended by it (J6, J16).

use crate::clocks::{library, node};
use crate::hook::{Hook, ok};
use crate::http;
use crate::jobs::{apply, runs};
use crate::process::{eventually, within};
use crate::server::Server;
use crate::stores::on_etcd;
use std::time::Duration;

/// A node's session has to end before another has its jobs.
const TAKEN_OVER_WITHIN: Duration = Duration::from_secs(60);

/// Those that are asked for take a while, the others none.
fn hook() -> Hook {
    Hook::start(|call| {
        let takes = if call.job().starts_with("long") { 6 } else { 0 };
        (Duration::from_secs(takes), ok(""))
    })
}

fn job(name: &str, hook: &Hook, more: &str) -> String {
    let target = format!("target: {{http: {{url: 'http://{}/'}}}}", hook.address);
    format!("  {name}: {{timeoutMillis: 20000, missed: skip, overlap: allow, {more}, {target}}}\n")
}

fn ask_for(server: &Server, job: &str) {
    let output = server.run(&["cron", "run", job]);
    assert_eq!(output.code, 0, "{output:?}");
}

/// Which times a job was called for, as they came.
fn times(hook: &Hook, job: &str) -> Vec<u64> {
    hook.calls().iter().filter(|call| call.job() == job).map(crate::hook::Call::scheduled_at).collect()
}

fn succeeded(server: &Server, job: &str) -> bool {
    runs(server, job).iter().any(|run| run["outcome"] == "succeeded")
}

fn decided_until(server: &Server, job: &str) -> u64 {
    let shown = http::get(&server.url, &format!("/v1/jobs/{job}"), TAKEN_OVER_WITHIN).unwrap().body;
    shown["decidedUntil"].as_u64().unwrap_or_else(|| panic!("{shown}"))
}

/// On etcd, which has no clock, civil time is that of the node that looks.
fn off_by_minutes(store: &str) {
    let hook = hook();
    let start = |offset| node(store, offset, hook.allowed());
    let mut behind = start("-5m");
    let long: Vec<_> = (0..8).map(|number| format!("long{number}")).collect();
    let once = "guarantee: at_most_once, schedule: '@every 1s'";
    let again = "guarantee: at_least_once, retry: {maxAttempts: 9, backoffMillis: 10}";
    let jobs: String = long.iter().map(|name| job(name, &hook, again)).collect();
    apply(&behind, &format!("jobs:\n{}{jobs}", job("j", &hook, once)));
    eventually("it runs", || times(&hook, "j").len() > 2);
    long.iter().for_each(|name| ask_for(&behind, name));
    eventually("they are sent", || long.iter().all(|name| times(&hook, name).len() == 1));
    // To this one whatever the other has begun is long over; some of it is its own to look at.
    let mut ahead = start("+5m");
    eventually("they succeed", || long.iter().all(|name| succeeded(&ahead, name)));
    for name in &long {
        assert_eq!(times(&hook, name).len(), 1, "{name} was begun again beside the first");
    }

    behind.kill();
    let before = hook.count();
    within(TAKEN_OVER_WITHIN, "the other goes on", || {
        hook.since(before).iter().any(|call| call.job() == "j")
    });
    let mark = decided_until(&ahead, "j");
    behind.restart();
    ahead.kill();
    let known = times(&hook, "j").len();
    assert!(decided_until(&behind, "j") >= mark);
    // When it has what is new it has all that there is.
    apply(&behind, &format!("jobs:\n{}", job("probe", &hook, once)));
    within(TAKEN_OVER_WITHIN, "this one goes on", || times(&hook, "probe").len() > 4);
    let times = times(&hook, "j");
    assert!(
        times.is_sorted_by(|one, other| one < other),
        "a time was called for twice, or after a later one: {times:?}"
    );
    assert!(times.len() <= known + 1, "its clock is ten minutes before the mark: {:?}", &times[known..]);
}

#[test]
fn nodes_with_wrong_wall_clocks_on_etcd_call_for_no_time_twice_and_begin_nothing_beside_what_runs() {
    on_etcd(off_by_minutes);
}

#[test]
fn a_step_of_the_wall_clock_ends_nothing_that_is_under_way_on_the_embedded_store() {
    let hook = hook();
    let directory = tempfile::tempdir().unwrap();
    let clock = directory.path().join("clock");
    std::fs::write(&clock, "+0").unwrap();
    let mut variables = vec![
        ("LD_PRELOAD", library().display().to_string()),
        ("FAKETIME_TIMESTAMP_FILE", clock.display().to_string()),
        ("FAKETIME_DONT_FAKE_MONOTONIC", "1".to_owned()),
        ("FAKETIME_NO_CACHE", "1".to_owned()),
    ];
    variables.extend(hook.allowed());
    let server = Server::start_on_a_store_with("embedded:", variables);
    let guarantees = ["at_most_once", "at_least_once", "effectively_once"];
    let named = |guarantee: &str| format!("long_{guarantee}");
    let jobs: String = guarantees
        .iter()
        .map(|guarantee| job(&named(guarantee), &hook, &format!("guarantee: {guarantee}")))
        .collect();
    // Something goes on all the time, so that everybody knows what time it is.
    let probe = job("probe", &hook, "schedule: '@every 1s', guarantee: at_most_once");
    apply(&server, &format!("jobs:\n{jobs}{probe}"));
    guarantees.iter().for_each(|guarantee| ask_for(&server, &named(guarantee)));
    let sent = |guarantee: &&str| times(&hook, &named(guarantee)).len();
    eventually("they are sent", || guarantees.iter().all(|guarantee| sent(guarantee) == 1));
    let mark = decided_until(&server, "probe");
    std::fs::write(&clock, "+1h").unwrap();
    eventually("the clock has stepped", || decided_until(&server, "probe") > mark + 3_500_000);
    for guarantee in guarantees {
        eventually("it succeeds", || succeeded(&server, &named(guarantee)));
        assert_eq!(sent(&guarantee), 1, "{guarantee}: begun again beside the first");
    }
    let probed = times(&hook, "probe");
    assert!(probed.is_sorted_by(|one, other| one < other), "{probed:?}");
}
