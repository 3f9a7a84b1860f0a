//! Doing something once, against a real server process, on whichever store the tests run (L18): from HTTP, from the SDK
//! and from the shell.

use crate::http::post;
use crate::process::{Running, eventually, line_of, run, wait};
use crate::server::{Server, quoted};
use baton_client::once::{Claimed, NotDone};
use baton_client::{Baton, ErrorCode};
use rustix::process::Signal;
use serde_json::json;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(30);

/// A command that says so when it runs, and runs until its file is gone.
fn until_removed(file: &Path) -> String {
    format!("echo started > {0}; while [ -e {0} ]; do sleep 0.02; done; echo done", quoted(file))
}

#[test]
fn of_a_hundred_racing_callers_one_is_first_and_its_result_survives_a_kill_of_the_server() {
    let mut server = Server::start_on_a_fixed_port();
    let callers: Vec<_> = (0..100)
        .map(|caller| {
            let url = server.url.clone();
            std::thread::spawn(move || {
                let body = json!({
                    "ownerId": format!("caller-{caller}"), "ttlMillis": 60_000, "waitTimeoutMillis": 30_000,
                });
                let claim = post(&url, "/v1/once/k", &body, PATIENCE).unwrap();
                if claim.body["first"] == true {
                    let body = json!({ "claimToken": claim.body["claimToken"], "result": caller });
                    assert_eq!(post(&url, "/v1/once/k/complete", &body, PATIENCE).unwrap().status, 200);
                }
                claim.body
            })
        })
        .collect();
    let claims: Vec<_> = callers.into_iter().map(|caller| caller.join().unwrap()).collect();
    let firsts: Vec<_> = claims.iter().filter(|claim| claim["first"] == true).collect();
    assert_eq!(firsts.len(), 1, "{firsts:?}");
    let by = format!("caller-{}", claims.iter().find(|claim| claim["first"] == false).unwrap()["result"]);
    assert_eq!(firsts[0]["ownerId"], by);
    assert_eq!(claims.iter().filter(|claim| format!("caller-{}", claim["result"]) == by).count(), 99);

    server.kill();
    server.restart();
    let body = json!({ "ownerId": "late", "ttlMillis": 60_000 });
    let late = post(&server.url, "/v1/once/k", &body, PATIENCE).unwrap().body;
    assert_eq!(format!("caller-{}", late["result"]), by, "{late}");
}

#[test]
fn a_command_runs_once_and_later_callers_print_and_exit_alike_without_running_it() {
    let server = Server::start_on_a_fixed_port();
    let file = server.file("runs");
    let script = format!("echo ran >> {}; printf 'é\\377'; exit 7", quoted(&file));
    for _ in 0..3 {
        let mut command = server.command(&["once", "k", "--", "sh", "-c", &script]);
        let output = command.stdin(std::process::Stdio::null()).output().unwrap();
        assert_eq!((output.status.code(), &output.stdout[..]), (Some(7), &[0xc3, 0xa9, 0xff][..]));
    }
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "ran\n");
    let other = server.run(&["once", "k2", "--", "sh", "-c", "echo $BATON_ONCE_KEY $BATON_FENCING_TOKEN"]);
    assert!(other.code == 0 && other.stdout.starts_with("k2 "), "{other:?}");
    assert_eq!(server.run(&["once", "k2", "--namespace", "n", "--", "echo", "new"]).stdout, "new\n");
}

#[test]
fn a_command_that_prints_many_small_pieces_and_leaves_somebody_behind_comes_to_its_end() {
    let server = Server::start_on_a_fixed_port();
    // 12,000 pieces are more than any pipe holds; 200 is not a signal's code; who is left behind keeps the output open.
    let script = "i=0; while [ $i -lt 12000 ]; do echo line $i; i=$((i + 1)); done; sleep 5 & exit 200";
    let arguments = ["once", "k", "--", "sh", "-c", script];
    let printed = server.file("printed");
    let mut first = server.command(&arguments);
    let mut first = first.stdout(std::fs::File::create(&printed).unwrap()).spawn().unwrap();
    assert_eq!(wait(&mut first).code(), Some(200));
    let printed = std::fs::read_to_string(&printed).unwrap();
    assert!(printed.ends_with("line 11999\n"), "{} bytes", printed.len());
    let later = run(&mut server.command(&arguments));
    assert_eq!(later.code, 200);
    assert!(
        later.stdout.len() > 30_000 && printed.starts_with(&later.stdout),
        "{} bytes",
        later.stdout.len()
    );
    assert!(later.stderr.contains("more than is kept"), "{}", later.stderr);
}

#[test]
fn who_comes_while_it_runs_waits_or_exits_with_75() {
    let server = Server::start_on_a_fixed_port();
    let file = server.file("first");
    let script = until_removed(&file);
    let first =
        Running::start(&mut server.command(&["once", "k", "--owner", "me", "--", "sh", "-c", &script]));
    line_of(&file);
    for arguments in [
        &["once", "k", "--try", "--", "echo", "ran"][..],
        &["once", "k", "--wait", "100ms", "--", "echo", "ran"],
    ] {
        let output = server.run(arguments);
        assert_eq!((output.code, output.stdout.as_str()), (75, ""), "{}", output.stderr);
        assert!(output.stderr.contains("me is at \"k\""), "{}", output.stderr);
    }
    let waiting = Running::start(&mut server.command(&["once", "k", "--", "echo", "ran"]));
    std::fs::remove_file(&file).unwrap();
    assert_eq!(first.end().stdout, "done\n");
    let waited = waiting.end();
    assert_eq!((waited.code, waited.stdout.as_str()), (0, "done\n"), "{}", waited.stderr);
}

#[test]
fn a_killed_caller_s_claim_passes_on() {
    let server = Server::start_on_a_fixed_port();
    let file = server.file("orphan");
    let script = until_removed(&file);
    let first = Running::start(&mut server.command(&["once", "k", "--ttl", "2s", "--", "sh", "-c", &script]));
    line_of(&file);
    first.signal(Signal::KILL);
    let next = server.run(&["once", "k", "--", "echo", "second"]);
    assert_eq!((next.code, next.stdout.as_str()), (0, "second\n"), "{}", next.stderr);
    // The command itself lives on without its caller, as after any crash: now it may end.
    std::fs::remove_file(&file).unwrap();
}

#[test]
fn what_is_not_kept_runs_again() {
    let server = Server::start_on_a_fixed_port();
    for (arguments, code) in [(&["--retry-failed"][..], 3), (&[], 143)] {
        let script = if code == 3 { "exit 3" } else { "kill -TERM $$" };
        let mut call = vec!["once", "k"];
        call.extend(arguments);
        call.extend(["--", "sh", "-c", script]);
        assert_eq!(server.run(&call).code, code);
    }
    let missing = server.run(&["once", "k", "--", "no-such-command-anywhere"]);
    assert_eq!(missing.code, 127, "{}", missing.stderr);
    let output = server.run(&["once", "k", "--retry-failed", "--", "echo", "at last"]);
    assert_eq!((output.code, output.stdout.as_str()), (0, "at last\n"), "{}", output.stderr);
    assert_eq!(server.run(&["once", "k", "--", "false"]).stdout, "at last\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn run_does_the_work_once_and_gives_its_result_to_all() {
    let server = Server::start_on_a_fixed_port();
    let baton = Baton::connect(&server.url).await.unwrap();
    let runs = Arc::new(AtomicUsize::new(0));
    let callers: Vec<_> = (0..20)
        .map(|caller| {
            let (baton, runs) = (baton.clone(), runs.clone());
            tokio::spawn(async move {
                let work = |_claim| async move {
                    runs.fetch_add(1, Ordering::SeqCst);
                    Ok::<_, std::convert::Infallible>(format!("by {caller}"))
                };
                baton.once("k").run(work).await.unwrap()
            })
        })
        .collect();
    let mut results = Vec::new();
    for caller in callers {
        results.push(caller.await.unwrap());
    }
    results.dedup();
    assert_eq!((results.len(), runs.load(Ordering::SeqCst)), (1, 1), "{results:?}");
    let status = baton.once("k").status().await.unwrap().unwrap();
    assert_eq!(status.result.unwrap().get(), format!("{:?}", results[0]));
}

#[tokio::test(flavor = "multi_thread")]
async fn work_that_fails_or_is_dropped_lets_the_next_caller_try_and_a_live_claim_outlasts_its_ttl() {
    let server = Server::start_on_a_fixed_port();
    let baton = Baton::connect(&server.url).await.unwrap();
    let once = baton.once("k").ttl(Duration::from_secs(1));
    let failed = once.clone().run(|_claim| async { Err::<(), _>("no luck") }).await;
    assert!(matches!(failed, Err(NotDone::Failed("no luck"))), "{failed:?}");

    let Claimed::First(claim) = once.claim().await.unwrap() else { panic!("it was given up") };
    let before = claim.fencing_token();
    drop(claim);
    let mut next = None;
    while next.is_none() {
        if let Claimed::First(claim) = once.claim().await.unwrap() {
            next = Some(claim);
        }
    }
    let claim = next.unwrap();
    assert!(claim.fencing_token() > before);
    tokio::time::sleep(Duration::from_millis(2500)).await;
    assert!(matches!(once.claim().await.unwrap(), Claimed::Running(_)), "it is renewed while it lives");
    let too_long = "x".repeat(64 * 1024);
    let error = claim.complete(&too_long).await.unwrap_err();
    assert_eq!(error.code(), Some(ErrorCode::InvalidArgument), "{error}");
    let done = once.clone().run(|_claim| async { Ok::<_, ()>(42) }).await;
    assert_eq!(done.unwrap(), 42, "a claim that couldn't be completed is given up");
}

#[test]
fn a_server_that_is_paused_past_the_ttl_costs_the_claim_and_the_command_is_stopped() {
    let server = Server::start_on_a_fixed_port();
    let file = server.file("paused");
    let script = until_removed(&file);
    let first = Running::start(&mut server.command(&["once", "k", "--ttl", "1s", "--", "sh", "-c", &script]));
    line_of(&file);
    server.pause();
    let output = first.end();
    server.resume();
    assert_eq!(output.code, 76, "{}", output.stderr);
    eventually("the claim passes on", || {
        server.run(&["once", "k", "--try", "--", "echo", "next"]).stdout == "next\n"
    });
}
