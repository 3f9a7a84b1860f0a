//! Losing the lock while the command runs: SIGTERM, then SIGKILL, for everyone in its group.

use crate::process::{Running, eventually, is_running, line_of};
use crate::server::{Server, quoted};
use std::time::{Duration, Instant};

#[test]
fn a_command_that_loses_its_lock_gets_sigterm_in_time_and_baton_says_so() {
    // A busy machine's shell may be late to tell; one that is told late each time was told too late.
    let late: Vec<_> = (0..3).map_while(|_| Some(told_after()).filter(|took| *took >= TOLD_WITHIN)).collect();
    assert!(late.len() < 3, "{late:?}");
}

/// Nobody else can have had it: the lease had at most its TTL, a second, left when the server last answered.
const TOLD_WITHIN: Duration = Duration::from_millis(1_100);

fn told_after() -> Duration {
    let server = Server::start();
    let (ready, told) = (server.file("ready"), server.file("told"));
    let script = format!(
        "trap 'echo told > {}; exit 0' TERM; echo ready > {}; while :; do sleep 0.02; done",
        quoted(&told),
        quoted(&ready)
    );
    let running =
        Running::start(&mut server.command(&["lock", "k", "--ttl", "1s", "--", "sh", "-c", &script]));
    line_of(&ready);
    server.pause();
    let paused = Instant::now();
    line_of(&told);
    let took = paused.elapsed();
    let output = running.end();
    assert_eq!(output.code, 76, "{}", output.stderr);
    assert!(output.stderr.contains("lost") && output.stderr.contains("SIGTERM"), "{}", output.stderr);
    server.resume();
    took
}

#[test]
fn a_server_that_dies_costs_the_lock_and_the_command_is_stopped() {
    let mut server = Server::start();
    let ready = server.file("ready");
    let script = format!("echo ready > {0}; while [ -e {0} ]; do sleep 0.02; done", quoted(&ready));
    let running =
        Running::start(&mut server.command(&["lock", "k", "--ttl", "500ms", "--", "sh", "-c", &script]));
    line_of(&ready);
    server.kill();
    assert_eq!(running.end().code, 76);
}

#[test]
fn whoever_ignores_sigterm_is_killed_after_the_grace_time_grandchildren_too() {
    let server = Server::start();
    let (child, grandchild) = (server.file("child"), server.file("grandchild"));
    let script = format!(
        "trap '' TERM; (trap '' TERM; exec sh -c 'echo $$ > {}; while :; do sleep 0.02; done') & \
         echo $$ > {}; while :; do sleep 0.02; done",
        grandchild.display(),
        quoted(&child)
    );
    let arguments = ["lock", "k", "--ttl", "500ms", "--grace", "300ms", "--", "sh", "-c", &script];
    let running = Running::start(&mut server.command(&arguments));
    let pids = [line_of(&child), line_of(&grandchild)];
    assert!(pids.iter().all(|pid| is_running(pid)));
    server.pause();
    let output = running.end();
    assert_eq!(output.code, 76, "{}", output.stderr);
    assert!(output.stderr.contains("killed"), "{}", output.stderr);
    assert!(!pids.iter().any(|pid| is_running(pid)), "nobody is left");
}

#[test]
fn a_grandchild_that_outlives_a_polite_parent_is_killed_too() {
    let server = Server::start();
    let grandchild = server.file("grandchild");
    let script = format!(
        "(trap '' TERM; exec sh -c 'echo $$ > {}; while :; do sleep 0.02; done') & wait",
        grandchild.display()
    );
    let arguments = ["lock", "k", "--ttl", "500ms", "--grace", "300ms", "--", "sh", "-c", &script];
    let running = Running::start(&mut server.command(&arguments));
    let pid = line_of(&grandchild);
    server.pause();
    assert_eq!(running.end().code, 76);
    assert!(!is_running(&pid), "it is gone before baton is");
}

#[test]
fn a_forced_release_is_noticed_at_the_next_renewal() {
    let server = Server::start();
    let ready = server.file("ready");
    let script = format!("echo ready > {0}; while [ -e {0} ]; do sleep 0.02; done", quoted(&ready));
    let running =
        Running::start(&mut server.command(&["lock", "k", "--ttl", "1500ms", "--", "sh", "-c", &script]));
    line_of(&ready);
    let forced = server.run(&["locks", "force-release", "k", "--reason", "a test"]);
    assert_eq!(forced.code, 0, "{}", forced.stderr);
    let output = running.end();
    assert_eq!(output.code, 76, "{}", output.stderr);
    assert!(output.stderr.contains("forced away"), "{}", output.stderr);
}

#[test]
fn a_command_that_ends_after_its_lock_was_forced_away_is_reported_as_suspect() {
    let server = Server::start();
    let (ready, go) = (server.file("ready"), server.file("go"));
    let script = format!("echo > {}; while [ ! -e {} ]; do sleep 0.02; done", quoted(&ready), quoted(&go));
    // With this TTL, no renewal comes before the command ends.
    let running =
        Running::start(&mut server.command(&["lock", "k", "--ttl", "5m", "--", "sh", "-c", &script]));
    line_of(&ready);
    assert_eq!(server.run(&["locks", "force-release", "k", "--reason", "a test"]).code, 0);
    std::fs::write(&go, "").unwrap();
    let output = running.end();
    assert_eq!(output.code, 76, "{}", output.stderr);
    assert!(output.stderr.contains("ran out or was forced away"), "{}", output.stderr);
}

#[test]
fn an_outage_shorter_than_the_lease_is_ridden_out() {
    let server = Server::start();
    let (ready, go) = (server.file("ready"), server.file("go"));
    let script =
        format!("echo > {}; while [ ! -e {} ]; do sleep 0.02; done; exit 9", quoted(&ready), quoted(&go));
    let running =
        Running::start(&mut server.command(&["lock", "k", "--ttl", "3s", "--", "sh", "-c", &script]));
    line_of(&ready);
    server.pause();
    std::thread::sleep(Duration::from_millis(1_500));
    server.resume();
    eventually("it was renewed since", || {
        let output = server.run(&["locks", "show", "k", "--output", "json"]);
        let status: serde_json::Value = serde_json::from_str(&output.stdout).unwrap();
        status["renewals"].as_u64() >= Some(2)
    });
    std::fs::write(&go, "").unwrap();
    assert_eq!(running.end().code, 9);
}
