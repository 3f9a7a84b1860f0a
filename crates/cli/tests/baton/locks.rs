//! `baton locks`, `baton status`, `baton completions`: what they print and how they exit.

use crate::process::{Running, eventually, line_of, run};
use crate::server::{Server, binary, quoted};
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::process::Stdio;

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

fn hold(server: &Server, key: &str) -> Running {
    let file = server.file("holds");
    // The file goes with the server's directory, and then so does whoever still holds.
    let script = format!("echo held > {0}; while [ -e {0} ]; do sleep 0.02; done", quoted(&file));
    let running =
        Running::start(&mut server.command(&["lock", key, "--owner", "me", "--", "sh", "-c", &script]));
    line_of(&file);
    running
}

#[test]
fn held_locks_are_listed_and_shown_without_their_secret() {
    let server = Server::start();
    let _running = hold(&server, "a/lock");
    let list = server.run(&["locks", "ls", "--output", "json"]);
    assert_eq!(json(&list.stdout)[0]["lockKey"], "a/lock");
    let show = server.run(&["locks", "show", "a/lock", "--output", "json"]);
    assert_eq!(json(&show.stdout)["ownerId"], "me");
    assert_eq!(json(&show.stdout)["metadata"]["command"], "sh");
    let table = server.run(&["locks", "ls"]);
    assert!(table.stdout.contains("KEY") && table.stdout.contains("a/lock"), "{}", table.stdout);
    for output in [list, show, table] {
        assert_eq!(output.code, 0);
        assert!(!output.stdout.to_lowercase().contains("locktoken"), "{}", output.stdout);
        assert!(!output.stdout.contains('\u{1b}'), "no colours outside a terminal");
    }
    assert!(!server.run(&["locks", "ls", "--prefix", "b"]).stdout.contains("a/lock"));
    assert!(!server.run(&["locks", "ls", "--namespace", "other"]).stdout.contains("a/lock"));
}

#[test]
fn a_free_lock_is_shown_as_free_with_an_exit_code_of_its_own() {
    let server = Server::start();
    let output = server.run(&["locks", "show", "k"]);
    assert_eq!((output.code, output.stdout.as_str()), (69, "\"k\" is free\n"));
    let output = server.run(&["locks", "show", "k", "--output", "json"]);
    assert_eq!((output.code, json(&output.stdout)), (69, serde_json::json!({"locked": false})));
}

#[test]
fn a_forced_release_needs_a_reason_and_stands_in_the_history() {
    let server = Server::start();
    let running = hold(&server, "k");
    assert_eq!(server.run(&["locks", "force-release", "k"]).code, 64);
    assert_eq!(server.run(&["locks", "force-release", "k", "--reason", " "]).code, 64);
    let forced = server.run(&["locks", "force-release", "k", "--reason", "pod crashed", "--output", "json"]);
    assert_eq!(json(&forced.stdout)["previousOwner"], "me");
    let history = server.run(&["locks", "history", "k", "--output", "json"]);
    let events = json(&history.stdout)["events"].clone();
    assert_eq!(
        (&events[0]["event"], &events[0]["reason"]),
        (&"forced".into(), &"pod crashed".into()),
        "{events}"
    );
    assert_eq!(events[1]["event"], "granted");
    let again = server.run(&["locks", "force-release", "k", "--reason", "again"]);
    assert_eq!(again.code, 69, "{}", again.stderr);
    drop(running);
}

#[test]
fn a_watch_prints_events_as_they_happen() {
    let server = Server::start();
    let mut command = server.command(&["locks", "watch", "k", "--output", "json"]);
    let mut watch = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(watch.stdout.take().unwrap()).lines();
    let (send, events) = std::sync::mpsc::sync_channel(1024);
    std::thread::spawn(move || lines.by_ref().map_while(Result::ok).try_for_each(|line| send.send(line)));
    // When the watch begins can't be seen from outside: lock until it shows.
    let mut seen = Vec::new();
    eventually("both kinds of event come", || {
        assert_eq!(server.run(&["lock", "k", "--", "true"]).code, 0);
        seen.extend(events.try_iter().map(|line| json(&line)["event"].as_str().unwrap().to_owned()));
        seen.iter().any(|event| event == "granted") && seen.iter().any(|event| event == "released")
    });
    watch.kill().unwrap();
    watch.wait().unwrap();
}

#[test]
fn status_says_what_the_store_promises() {
    let server = Server::start();
    let output = server.run(&["status", "--output", "json"]);
    assert_eq!((output.code, &json(&output.stdout)["ready"]), (0, &Value::Bool(true)), "{}", output.stderr);
    let table = server.run(&["status"]);
    assert!(table.stdout.contains("on crash"), "{}", table.stdout);
}

#[test]
fn mistakes_on_the_line_exit_with_64_and_say_what_is_right() {
    for (arguments, hint) in [
        (&["lock", "k", "--ttl", "30", "--", "true"][..], "30s"),
        (&["lock", "k"], "CMD"),
        (&["locks", "ls", "--server", "https://x"], "TLS comes with authentication"),
    ] {
        let output = run(binary().args(arguments));
        assert_eq!(output.code, 64, "{}", output.stderr);
        assert!(output.stderr.contains(hint), "{}", output.stderr);
    }
}

#[test]
fn completions_are_printed_for_shells() {
    let output = run(binary().args(["completions", "bash"]));
    assert!(output.code == 0 && output.stdout.contains("baton"), "{}", output.stderr);
}

#[test]
fn nothing_secret_is_in_the_server_s_log() {
    let server = Server::start();
    assert_eq!(server.run(&["lock", "k", "--", "true"]).code, 0);
    assert!(!server.log().to_lowercase().contains("locktoken"), "{}", server.log());
}
