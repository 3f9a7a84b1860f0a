//! `baton lock KEY --and KEY` with real processes: all or none, in whatever order they are named (L16).

use crate::process::{Running, eventually, line_of};
use crate::server::{Server, quoted};

#[test]
fn commands_under_the_same_locks_in_opposite_orders_never_overlap_and_all_come_to_their_end() {
    let server = Server::start();
    let log = quoted(&server.file("log"));
    // One write each, to a file that is only appended to.
    let script = format!("echo + >> {log}; sleep 0.02; echo - >> {log}");
    for round in 0..3 {
        let workers: Vec<_> = (0..8)
            .map(|number| {
                let keys = if number % 2 == 0 { ["a", "b"] } else { ["b", "a"] };
                let arguments =
                    ["lock", keys[0], "--and", keys[1], "--wait", "60s", "--", "sh", "-c", &script];
                Running::start(&mut server.command(&arguments))
            })
            .collect();
        for worker in workers {
            let output = worker.end();
            assert_eq!(output.code, 0, "round {round}: {}", output.stderr);
        }
    }
    let log = std::fs::read_to_string(server.file("log")).unwrap();
    let lines: Vec<_> = log.lines().collect();
    assert_eq!(lines.len(), 48, "everybody had a turn");
    assert!(lines.chunks(2).all(|turn| turn == ["+", "-"]), "two at once: {lines:?}");
    assert!(!server.is_held("a") && !server.is_held("b"));
}

#[test]
fn the_command_finds_the_first_lock_s_token_and_all_tokens_in_its_environment() {
    let server = Server::start();
    let script = "echo $BATON_LOCK_KEY $BATON_FENCING_TOKEN; echo $BATON_FENCING_TOKENS";
    let output = server.run(&["lock", "b", "--and", "a", "--and", "c \"", "--", "sh", "-c", script]);
    assert_eq!(output.code, 0, "{}", output.stderr);
    let (first, all) = output.stdout.split_once('\n').unwrap();
    let all: serde_json::Map<String, serde_json::Value> = serde_json::from_str(all).unwrap();
    assert_eq!(first, format!("b {}", all["b"]));
    assert!(
        all.len() == 3 && all.contains_key("c \"") && all.values().all(serde_json::Value::is_u64),
        "{all:?}"
    );
    let plain = server.run(&["lock", "b", "--", "sh", "-c", "echo ${BATON_FENCING_TOKENS-none}"]);
    assert_eq!(plain.stdout, "none\n");
}

#[test]
fn try_exits_with_75_and_says_which_lock_is_held() {
    let server = Server::start();
    let file = server.file("holds");
    let script = format!("echo held > {0}; while [ -e {0} ]; do sleep 0.02; done", quoted(&file));
    let holder = Running::start(&mut server.command(&["lock", "b", "--", "sh", "-c", &script]));
    line_of(&file);
    let output = server.run(&["lock", "a", "--and", "b", "--try", "--", "echo", "ran"]);
    assert_eq!((output.code, output.stdout.as_str()), (75, ""));
    assert!(output.stderr.contains("lock \"b\" is held by"), "{}", output.stderr);
    assert!(!server.is_held("a"));
    let waiter = Running::start(&mut server.command(&["lock", "a", "--and", "b", "--", "echo", "ran"]));
    eventually("it waits", || server.waiting("b") == 1);
    assert!(!server.is_held("a"), "nothing is held while it waits");
    std::fs::remove_file(file).unwrap();
    assert_eq!(holder.end().code, 0);
    let output = waiter.end();
    assert_eq!((output.code, output.stdout.as_str()), (0, "ran\n"));
    assert!(output.stderr.contains("waiting for lock \"b\", held by"), "{}", output.stderr);
}

#[test]
fn one_lock_that_is_lost_stops_the_command_and_the_other_is_given_back() {
    let server = Server::start();
    let file = server.file("runs");
    let script = format!("echo running > {}; while :; do sleep 0.02; done", quoted(&file));
    let arguments = ["lock", "a", "--and", "b", "--ttl", "1s", "--", "sh", "-c", &script];
    let running = Running::start(&mut server.command(&arguments));
    line_of(&file);
    assert_eq!(server.run(&["locks", "force-release", "b", "--reason", "test"]).code, 0);
    let output = running.end();
    assert_eq!(output.code, 76, "{}", output.stderr);
    assert!(output.stderr.contains("the lease of \"b\""), "{}", output.stderr);
    eventually("the other one is free", || !server.is_held("a"));
}

#[test]
fn what_does_not_go_together_is_refused() {
    let server = Server::start();
    for other in [&["--shared"][..], &["--permits", "2"]] {
        let arguments = [&["lock", "a", "--and", "b"], other, &["--", "true"]].concat();
        let output = server.run(&arguments);
        assert!(output.code != 0 && output.stderr.contains("--and"), "{}", output.stderr);
    }
    let twice = server.run(&["lock", "a", "--and", "b", "--and", "a", "--", "true"]);
    assert_eq!(twice.code, 64);
    assert!(twice.stderr.contains("lockKeys[2]"), "{}", twice.stderr);
}
