//! `baton worker`: takes runs, says that it lives, and leaves what it had to others when it dies (J6, J7).

use crate::jobs::{apply, run, runs};
use crate::process::{Running, eventually, line_of, wait};
use crate::server::{Server, quoted};
use rustix::process::Signal;

const JOB: &str = "jobs:\n  j:\n    retry: {maxAttempts: 5, backoffMillis: 10}\n    target: {worker: {queue: q, payload: hello}}\n";

fn ask(server: &Server) -> String {
    let output = server.run(&["cron", "run", "j"]);
    assert_eq!(output.code, 0, "{output:?}");
    output.stdout.trim().to_owned()
}

#[test]
fn a_worker_runs_its_command_for_every_run_and_keeps_what_it_prints() {
    let server = Server::start();
    apply(&server, JOB);
    let script =
        "echo $BATON_PAYLOAD $BATON_JOB $BATON_ATTEMPT $BATON_RUN_ID; echo oops >&2; test $BATON_ATTEMPT = 2";
    let worker =
        Running::start(&mut server.command(&["worker", "q", "--concurrency", "2", "--", "sh", "-c", script]));
    let id = ask(&server);
    let output = server.run(&["cron", "logs", "-f", &id]);
    assert_eq!(output.code, 0, "{output:?}");
    assert!(
        output.stdout.contains(&format!("hello j 2 {id}")) && output.stdout.contains("oops"),
        "{output:?}"
    );
    let first = runs(&server, "j").pop().unwrap();
    assert_eq!((&first["outcome"], first["attempt"].as_u64()), (&"succeeded".into(), Some(2)));
    worker.signal(Signal::TERM);
    let output = worker.end();
    assert_eq!(output.code, 0, "{output:?}");
    assert!(
        output.stdout.contains(&id) && output.stderr.contains("oops"),
        "it is shown here too: {output:?}"
    );
}

#[test]
fn a_run_whose_worker_died_is_free_again_after_its_lease_and_the_token_grows() {
    let server = Server::start();
    apply(&server, JOB);
    let id = {
        let hangs = ["worker", "q", "--lease", "1s", "--owner", "first", "--", "sleep", "4"];
        let first = Running::start(&mut server.command(&hangs));
        let id = ask(&server);
        eventually("it is taken", || run(&server, &id)["state"] == "running");
        first.signal(Signal::KILL);
        id
    };
    let before = run(&server, &id);
    assert_eq!((&before["runner"], before["attempt"].as_u64()), (&"first".into(), Some(1)));
    let second = ["worker", "q", "--owner", "second", "--", "true"];
    let second = Running::start(&mut server.command(&second));
    eventually("another does it", || run(&server, &id)["state"] == "ended");
    let after = run(&server, &id);
    assert_eq!((&after["outcome"], &after["runner"]), (&"succeeded".into(), &"second".into()));
    assert_eq!(after["attempt"], 2);
    second.signal(Signal::TERM);
    assert_eq!(second.end().code, 0);
}

#[test]
fn a_run_that_is_called_off_ends_its_command() {
    let server = Server::start();
    apply(&server, JOB);
    let marker = server.file("ended");
    let script = format!("trap 'echo term > {}; exit' TERM; sleep 20 & wait", marker.display());
    let worker =
        Running::start(&mut server.command(&["worker", "q", "--lease", "600ms", "--", "sh", "-c", &script]));
    let id = ask(&server);
    eventually("it is taken", || run(&server, &id)["state"] == "running");
    assert_eq!(server.run(&["cron", "cancel", &id]).code, 0);
    eventually("the command is told", || marker.exists());
    worker.signal(Signal::TERM);
    let output = worker.end();
    assert_eq!(output.code, 0, "{output:?}");
    assert!(output.stderr.contains("the command was stopped"), "{output:?}");
}

#[test]
fn what_a_worker_s_command_prints_is_shown_while_it_runs() {
    let server = Server::start();
    apply(&server, "jobs:\n  j: {target: {worker: {queue: q}}}\n");
    let go_on = server.file("go-on");
    let script = format!("echo first; while [ ! -e {} ]; do sleep 0.1; done; echo last", quoted(&go_on));
    let _worker = Running::start(&mut server.command(&["worker", "q", "--", "sh", "-c", &script]));
    let id = ask(&server);
    let shown = server.file("shown");
    let to = std::fs::File::create(&shown).unwrap();
    let mut following = server.command(&["cron", "logs", "-f", &id]).stdout(to).spawn().unwrap();
    assert_eq!(line_of(&shown), "first");
    assert_eq!(run(&server, &id)["state"], "running", "it is shown before its end");
    std::fs::write(&go_on, "").unwrap();
    assert!(wait(&mut following).success());
    assert_eq!(std::fs::read_to_string(&shown).unwrap(), "first\nlast\n", "and nothing twice");
}
