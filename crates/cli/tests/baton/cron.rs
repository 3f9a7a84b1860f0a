//! `baton cron next`: no server, the same times as the server's preview, and a caret under what is wrong.

use crate::process::{Output, run};
use crate::server::Server;
use baton_client::wire_preview::PreviewRequest;
use baton_client::{Baton, Position};
use serde_json::Value;
use std::process::Command;

fn next(arguments: &[&str]) -> Output {
    // Nobody answers there: it may not ask.
    let mut command = Command::new(env!("CARGO_BIN_EXE_baton"));
    run(command.args(["cron", "next"]).args(arguments).env("BATON_SERVER", "http://127.0.0.1:1"))
}

#[test]
fn the_next_times_are_shown_without_a_server() {
    let spring = ["30 2 * * *", "--tz", "Europe/Berlin", "--from", "2026-03-28T00:00:00Z", "--count", "3"];
    let people = next(&spring);
    assert_eq!(people.code, 0, "{people:?}");
    for text in [
        "at 02:30 every day",
        "Europe/Berlin, vixie",
        "2026-03-28 02:30:00+01:00",
        "2026-03-29 03:00:00+02:00",
        "2026-03-29 01:00:00Z",
        "its time doesn't exist that day",
        "2026-03-30 02:30:00+02:00",
    ] {
        assert!(people.stdout.contains(text), "{text} in {}", people.stdout);
    }
    let literal = next(&[&spring[..], &["--dst", "literal", "--output", "json"]].concat());
    let literal: Value = serde_json::from_str(&literal.stdout).unwrap();
    let times: Vec<_> = literal["next"].as_array().unwrap().iter().map(|time| &time["local"]).collect();
    assert_eq!(
        times,
        ["2026-03-28T02:30:00+01:00", "2026-03-30T02:30:00+02:00", "2026-03-31T02:30:00+02:00"]
    );
}

#[test]
fn a_fault_is_shown_with_a_caret_under_it() {
    let wrong = next(&["0 25 * * *"]);
    assert_eq!((wrong.code, wrong.stdout.as_str()), (64, ""));
    let lines: Vec<_> = wrong.stderr.lines().collect();
    assert_eq!(lines[0], "baton: schedule, hour: \"25\" is not allowed; allowed are 0 to 23");
    assert_eq!(lines[1..3], ["  0 25 * * *", "    ^^"]);
    for (arguments, says) in [
        (&["0 0 * * *", "--tz", "Berlin"][..], "Europe/Berlin"),
        (&["0 0 * * *", "--count", "101"], "1 to 100"),
        (&["H 0 * * *"], "--name"),
        (&["0 0 * * *", "--from", "today"], "2026-03-28T00:00:00Z"),
        (&["0 0 * * *", "--dst", "summer"], "literal"),
    ] {
        let wrong = next(arguments);
        assert_eq!(wrong.code, 64, "{arguments:?}: {wrong:?}");
        assert!(wrong.stderr.contains(says), "{arguments:?}: {}", wrong.stderr);
    }
}

#[test]
fn what_never_comes_is_said_so_also_to_scripts() {
    let never = next(&["0 0 30 2 *"]);
    assert_eq!(never.code, 69, "{never:?}");
    assert!(never.stdout.contains("never"), "{}", never.stdout);
    let never = next(&["0 0 30 2 *", "--output", "json"]);
    let shown: Value = serde_json::from_str(&never.stdout).unwrap();
    assert_eq!((never.code, &shown["neverFires"]), (69, &Value::Bool(true)));
}

#[test]
fn a_hash_is_of_namespace_and_name() {
    let reading = |arguments: &[&str]| {
        let shown = next(&[&["H H * * *", "--output", "json"], arguments].concat());
        let shown: Value = serde_json::from_str(&shown.stdout).unwrap();
        shown["reading"].as_str().unwrap().to_owned()
    };
    let one = reading(&["--name", "report"]);
    assert_eq!(one, reading(&["--name", "report", "--namespace", "default"]));
    assert_ne!(one, reading(&["--name", "other"]));
    assert_ne!(one, reading(&["--name", "report", "--namespace", "n"]));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_server_the_sdk_and_the_command_line_say_the_same() {
    let server = Server::start();
    let baton = Baton::builder().namespace("n").connect(&server.url).await.unwrap();
    let request = PreviewRequest {
        time_zone: Some("Australia/Lord_Howe".into()),
        name: Some("report".into()),
        count: Some(30),
        from: Some(1_774_652_400_000),
        ..PreviewRequest::new("H/20 0-3 * * *")
    };
    let asked = baton.preview(&request).await.unwrap();
    let alone = next(&[
        "H/20 0-3 * * *",
        "--tz",
        "Australia/Lord_Howe",
        "--name",
        "report",
        "--count",
        "30",
        "--namespace",
        "n",
        "--from",
        "2026-03-27T23:00:00Z",
        "--output",
        "json",
    ]);
    assert_eq!(asked, serde_json::from_str(&alone.stdout).unwrap());
    assert_eq!(asked.next.len(), 30);

    let wrong = baton.preview(&PreviewRequest::new("0 0 * * 8")).await.unwrap_err();
    let position = wrong.body().and_then(|body| body.position);
    assert!(wrong.is_invalid() && position == Some(Position { start: 8, end: 9 }), "{wrong}");
}
