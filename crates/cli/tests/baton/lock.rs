//! `baton lock`: exit codes, environment, waiting, signals.

use crate::process::{Running, eventually, line_of, run};
use crate::server::{Server, binary, quoted};
use rustix::process::Signal;
use std::os::unix::fs::PermissionsExt;

/// A command that holds a lock until its file is removed.
fn holder(server: &Server, key: &str) -> (Running, std::path::PathBuf) {
    let file = server.file(&format!("{key}.holds"));
    let script = format!("echo held > {0}; while [ -e {0} ]; do sleep 0.02; done", quoted(&file));
    let running = Running::start(&mut server.command(&["lock", key, "--", "sh", "-c", &script]));
    line_of(&file);
    (running, file)
}

#[test]
fn the_exit_code_is_the_command_s_and_128_plus_n_for_signal_n() {
    let server = Server::start();
    for (script, code) in [("exit 0", 0), ("exit 7", 7), ("kill -9 $$", 137), ("kill -TERM $$", 143)] {
        assert_eq!(server.run(&["lock", "k", "--", "sh", "-c", script]).code, code, "{script}");
        assert!(!server.is_held("k"), "released after {script}");
    }
}

#[test]
fn the_command_finds_key_and_a_growing_fencing_token_in_its_environment() {
    let server = Server::start();
    let tokens = [0; 2].map(|_| {
        let script = "echo $BATON_LOCK_KEY $BATON_FENCING_TOKEN";
        let output = server.run(&["lock", "inventory:sku/1 é", "--", "sh", "-c", script]);
        let token = output.stdout.trim().strip_prefix("inventory:sku/1 é ").map(str::to_owned);
        token.and_then(|token| token.parse::<u64>().ok()).expect(&output.stdout)
    });
    assert!(tokens[1] > tokens[0], "{tokens:?}");
}

#[test]
fn try_exits_with_75_and_says_who_holds_it_without_running_the_command() {
    let server = Server::start();
    let (running, file) = holder(&server, "k");
    let output = server.run(&["lock", "k", "--try", "--", "echo", "ran"]);
    assert_eq!((output.code, output.stdout.as_str()), (75, ""));
    assert!(output.stderr.contains("held by") && output.stderr.contains("help:"), "{}", output.stderr);
    std::fs::remove_file(file).unwrap();
    assert_eq!(running.end().code, 0);
}

#[test]
fn a_wait_that_runs_out_exits_with_75() {
    let server = Server::start();
    let (_running, _file) = holder(&server, "k");
    let output = server.run(&["lock", "k", "--wait", "200ms", "--", "echo", "ran"]);
    assert_eq!((output.code, output.stdout.as_str()), (75, ""));
    assert!(output.stderr.contains("WAIT_TIMEOUT") && output.stderr.contains("--wait"), "{}", output.stderr);
    eventually("it left the queue", || server.waiting("k") == 0);
}

#[test]
fn a_waiter_says_what_it_waits_for_once_and_runs_when_its_turn_comes() {
    let server = Server::start();
    let (running, file) = holder(&server, "k");
    let waiter = Running::start(&mut server.command(&["lock", "k", "--", "echo", "ran"]));
    eventually("it waits", || server.waiting("k") == 1);
    std::fs::remove_file(file).unwrap();
    assert_eq!(running.end().code, 0);
    let output = waiter.end();
    assert_eq!((output.code, output.stdout.as_str()), (0, "ran\n"));
    let said = "baton: waiting for lock \"k\", held by ";
    assert_eq!(output.stderr.matches(said).count(), 1, "{}", output.stderr);
    assert!(output.stderr.contains("place 1 of 1"), "{}", output.stderr);
}

#[test]
fn signals_reach_the_command_and_its_exit_code_counts() {
    let server = Server::start();
    for (signal, name) in [
        (Signal::TERM, "TERM"),
        (Signal::INT, "INT"),
        (Signal::HUP, "HUP"),
        (Signal::QUIT, "QUIT"),
        (Signal::USR1, "USR1"),
        (Signal::USR2, "USR2"),
    ] {
        let file = server.file(name);
        let script =
            format!("trap 'exit 42' {name}; echo ready > {}; while :; do sleep 0.02; done", quoted(&file));
        let running = Running::start(&mut server.command(&["lock", "k", "--", "sh", "-c", &script]));
        line_of(&file);
        running.signal(signal);
        let output = running.end();
        assert_eq!(output.code, 42, "{name}: {}", output.stderr);
    }
}

#[test]
fn a_signal_while_waiting_leaves_the_queue() {
    let server = Server::start();
    let (_running, _file) = holder(&server, "k");
    for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143)] {
        let waiter = Running::start(&mut server.command(&["lock", "k", "--", "echo", "ran"]));
        eventually("it waits", || server.waiting("k") == 1);
        waiter.signal(signal);
        let output = waiter.end();
        assert_eq!((output.code, output.stdout.as_str()), (code, ""), "{}", output.stderr);
        eventually("it left the queue", || server.waiting("k") == 0);
    }
}

#[test]
fn a_command_that_cannot_be_started_gives_the_lock_back() {
    let server = Server::start();
    let plain = server.file("plain");
    std::fs::write(&plain, "no program").unwrap();
    std::fs::set_permissions(&plain, PermissionsExt::from_mode(0o644)).unwrap();
    for (command, code) in [("no-such-command-anywhere", 127), (plain.to_str().unwrap(), 126)] {
        let output = server.run(&["lock", "k", "--", command]);
        assert_eq!(output.code, code, "{}", output.stderr);
        assert!(output.stderr.contains("can't be started"), "{}", output.stderr);
        assert!(!server.is_held("k"), "released after {code}");
    }
}

#[test]
fn without_a_server_it_exits_with_75_and_says_how_to_get_one() {
    let mut server = Server::start();
    server.kill();
    let output = run(binary().env("BATON_SERVER", &server.url).args(["lock", "k", "--", "echo", "ran"]));
    assert_eq!((output.code, output.stdout.as_str()), (75, ""));
    assert!(output.stderr.contains("baton serve"), "{}", output.stderr);
}

#[test]
fn a_long_command_keeps_its_lock_by_renewing() {
    let server = Server::start();
    let script = "sleep 1.5; exit 5";
    let running =
        Running::start(&mut server.command(&["lock", "k", "--ttl", "300ms", "--", "sh", "-c", script]));
    eventually("it is held", || server.is_held("k"));
    let second = server.run(&["lock", "k", "--try", "--", "true"]);
    assert_eq!(second.code, 75);
    assert_eq!(running.end().code, 5);
    assert!(!server.is_held("k"));
}
