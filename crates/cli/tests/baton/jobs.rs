//! Jobs at a real server: what their targets are sent, and the commands that define, run and show them (J7 to J10).

use crate::hook::{Hook, ok};
use crate::http;
use crate::process::eventually;
use crate::server::Server;
use crate::stores::on_redis;
use serde_json::{Value, json};
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(10);

/// Defines the jobs of a file.
pub fn apply(server: &Server, jobs: &str) {
    let file = server.file("jobs.yaml");
    std::fs::write(&file, jobs).unwrap();
    let output = server.run(&["cron", "apply", "-f", file.to_str().unwrap()]);
    assert_eq!(output.code, 0, "{output:?}");
}

/// The runs of a job, the newest first.
pub fn runs(server: &Server, job: &str) -> Vec<Value> {
    let answer = http::get(&server.url, &format!("/v1/jobs/{job}/runs?limit=1000"), PATIENCE).unwrap();
    answer.body["runs"].as_array().unwrap_or_else(|| panic!("{answer:?}")).clone()
}

pub fn run(server: &Server, id: &str) -> Value {
    http::get(&server.url, &format!("/v1/runs/{id}"), PATIENCE).unwrap().body
}

fn hooked(hook: &Hook, more: &str) -> String {
    format!("jobs:\n  j:\n    target: {{http: {{url: 'http://{}/x?y=1'{more}}}}}\n", hook.address)
}

#[test]
fn a_request_says_which_run_it_is_and_shows_who_sent_it() {
    let hook = Hook::willing();
    let server = Server::start_with(hook.allowed());
    apply(&server, &hooked(&hook, ", method: PUT, body: '{\"a\":1}', headers: {X-Mine: yes}, secret: hush"));
    let output = server.run(&["cron", "run", "j", "--wait"]);
    assert_eq!((output.code, output.stdout.as_str()), (0, "done\n"), "{output:?}");
    let call = hook.calls()[0].clone();
    assert_eq!(call.line, "PUT /x?y=1 HTTP/1.1");
    assert_eq!((call.headers["x-mine"].as_str(), call.body.as_str()), ("yes", "{\"a\":1}"));
    let run = &runs(&server, "j")[0];
    assert_eq!((call.key(), call.attempt()), (run["runId"].as_str().unwrap(), 1));
    assert_eq!(call.scheduled_at(), run["scheduledAt"].as_u64().unwrap());
    assert!(call.token() > 0);
    let said = call.headers["x-baton-signature"].clone();
    let at = said.strip_prefix("t=").unwrap().split(',').next().unwrap().parse().unwrap();
    let secret = baton_core::job::Secret("hush".into());
    assert_eq!(said, baton_core::job::signature(&secret, baton_core::WallTime(at), call.body.as_bytes()));
    for shown in [server.run(&["cron", "show", "j", "--output", "json"]).stdout, server.log()] {
        assert!(!shown.contains("hush"), "a secret is shown: {shown}");
    }
}

#[test]
fn an_internal_address_is_not_called_unless_the_server_may() {
    let hook = Hook::willing();
    let server = Server::start();
    apply(&server, &hooked(&hook, "").replace("target", "retry: {maxAttempts: 1}\n    target"));
    let output = server.run(&["cron", "run", "j", "--wait"]);
    assert_eq!(output.code, 1);
    assert!(output.stderr.contains("--job-allow"), "{output:?}");
    assert!(hook.calls().is_empty());
}

#[test]
fn what_fails_is_tried_again_under_the_same_id_and_a_redirect_is_a_failure() {
    let hook = Hook::start(|call| {
        let answer = match call.attempt() {
            1 => "503 Busy\r\ncontent-length: 0\r\n\r\n".into(),
            2 => "302 Found\r\nlocation: /elsewhere\r\ncontent-length: 0\r\n\r\n".into(),
            _ => ok("at last"),
        };
        (Duration::ZERO, answer)
    });
    let server = Server::start_with(hook.allowed());
    let retry = "retry: {maxAttempts: 5, backoffMillis: 10}\n    target";
    apply(&server, &hooked(&hook, "").replace("target", retry));
    let output = server.run(&["cron", "run", "j", "--wait"]);
    assert_eq!((output.code, output.stdout.as_str()), (0, "at last\n"), "{output:?}");
    let calls = hook.calls();
    assert_eq!(calls.len(), 3);
    assert!(calls.iter().all(|call| call.key() == calls[0].key() && call.line.contains("/x?y=1")));
    assert!(calls.is_sorted_by(|one, other| one.token() < other.token()));
}

#[test]
fn what_may_be_sent_once_is_sent_once_also_if_the_connection_breaks() {
    // It takes the request and closes the connection: nobody knows what it did.
    let hook = Hook::start(|_| (Duration::ZERO, String::new()));
    let server = Server::start_with(hook.allowed());
    apply(&server, &hooked(&hook, "").replace("target", "guarantee: at_most_once\n    target"));
    let output = server.run(&["cron", "run", "j", "--wait"]);
    assert_eq!(output.code, 1, "{output:?}");
    assert_eq!(hook.calls().len(), 1);
    assert_eq!(runs(&server, "j")[0]["attempt"], 1);
}

#[test]
fn a_target_that_answers_202_says_later_how_it_ended_and_only_once_counts() {
    let hook = Hook::start(|_| (Duration::ZERO, "202 Accepted\r\ncontent-length: 0\r\n\r\n".into()));
    let server = Server::start_with(hook.allowed());
    apply(&server, &hooked(&hook, ""));
    let id = server.run(&["cron", "run", "j"]).stdout.trim().to_owned();
    eventually("it is sent", || hook.calls().len() == 1);
    let token = hook.calls()[0].token();
    let say = |what: &str, token: u64| {
        let body = json!({ "fencingToken": token, "output": "later" });
        http::post(&server.url, &format!("/v1/runs/{id}/{what}"), &body, PATIENCE).unwrap()
    };
    assert_eq!(run(&server, &id)["state"], "running");
    assert_eq!(say("complete", token - 1).code(), "RUN_LOST", "another token's word doesn't count");
    let body = json!({ "fencingToken": token, "leaseMillis": 30_000 });
    let heard = http::post(&server.url, &format!("/v1/runs/{id}/heartbeat"), &body, PATIENCE).unwrap();
    assert_eq!(heard.status, 200, "{heard:?}");
    assert_eq!(say("complete", token).body["outcome"], "succeeded");
    assert_eq!(say("complete", token).body["outcome"], "succeeded", "said again it is the same");
    assert_eq!(say("fail", token).code(), "RUN_LOST");
    let run = run(&server, &id);
    assert_eq!((&run["outcome"], &run["output"]), (&json!("succeeded"), &json!("later")));
}

#[test]
fn a_command_runs_on_the_server_only_if_it_may_and_ends_with_its_time() {
    let jobs = "jobs:\n  \
        say: {target: {command: {program: sh, arguments: ['-c', 'echo run $BATON_ATTEMPT; echo oops >&2; env']}}}\n  \
        hang: {timeoutMillis: 300, retry: {maxAttempts: 1}, target: {command: {program: sh, arguments: ['-c', 'sleep 30 & echo $!; wait']}}}\n";
    let refusing = Server::start();
    apply(&refusing, jobs);
    let output = refusing.run(&["cron", "run", "say", "--request-id", "a"]);
    assert_eq!(output.code, 0);
    let id = output.stdout.trim();
    eventually("it fails", || {
        run(&refusing, id)["message"].as_str().unwrap_or("").contains("--allow-commands")
    });
    let server = Server::start_with(vec![("BATON_ALLOW_COMMANDS", "true".into()), ("SECRET", "hush".into())]);
    apply(&server, jobs);
    let output = server.run(&["cron", "run", "say", "--wait"]);
    assert!(output.stdout.contains("run 1\n") && output.stdout.contains("oops"), "{output:?}");
    assert!(!output.stdout.contains("hush"), "the server's environment isn't the command's");
    let output = server.run(&["cron", "run", "hang", "--wait"]);
    assert!(output.code == 1 && output.stderr.contains("timeout"), "{output:?}");
}

#[test]
fn jobs_are_defined_shown_paused_backfilled_called_off_and_removed() {
    let server = Server::start();
    apply(
        &server,
        "jobs:\n  a: {schedule: '0 * * * *', target: {worker: {queue: q}}}\n  b: {target: {worker: {queue: q}}}\n",
    );
    let file = server.file("more.yaml");
    let path = file.to_str().unwrap();
    std::fs::write(&file, "jobs:\n  a: {schedule: '5 * * * *', target: {worker: {queue: q}}}\n  c: {target: {worker: {queue: q}}}\n").unwrap();
    let planned = server.run(&["cron", "apply", "-f", path, "--dry-run"]);
    assert_eq!(planned.stdout, "~ a (schedule)\n+ c\n1 would be made, 1 would be changed, 0 unchanged\n");
    assert_eq!(server.run(&["cron", "show", "c"]).code, 69);
    assert_eq!(
        server.run(&["cron", "apply", "-f", path]).stdout,
        "~ a (schedule)\n+ c\n1 made, 1 changed, 0 unchanged\n"
    );
    std::fs::write(&file, "jobs:\n  d: {target: {worker: {queue: q}}}\n  e: {schedule: nonsense, target: {worker: {queue: q}}}\n").unwrap();
    let refused = server.run(&["cron", "apply", "-f", path]);
    assert!(refused.code == 64 && refused.stderr.contains("jobs.e"), "{refused:?}");
    assert_eq!(server.run(&["cron", "show", "d"]).code, 69, "none of a file that is wrong is put");
    let listed = server.run(&["cron", "ls"]).stdout;
    assert!(listed.contains("5 * * * *") && listed.contains("worker q"), "{listed}");
    assert!(server.run(&["cron", "pause", "a"]).stdout.contains("ago)"));
    assert_eq!(server.run(&["cron", "resume", "a", "--missed", "skip"]).code, 0);
    let range = ["--from", "2026-01-01T00:00:00Z", "--to", "2026-01-01T03:00:00Z"];
    let output = server.run(&[&["cron", "backfill", "a"][..], &range].concat());
    assert!(output.stdout.starts_with("3 times"), "{output:?}");
    eventually("the first of them is ready", || runs(&server, "a").iter().any(|run| run["state"] == "ready"));
    let id = runs(&server, "a").last().unwrap()["runId"].as_str().unwrap().to_owned();
    assert!(server.run(&["cron", "cancel", &id]).stdout.contains("cancelled"));
    assert!(server.run(&["cron", "runs", "a"]).stdout.contains("cancelled (requested)"));
    assert_eq!(server.run(&["cron", "logs", &id]).code, 0);
    assert_eq!(server.run(&["cron", "rm", "b"]).code, 0);
    assert_eq!(server.run(&["cron", "rm", "b"]).code, 69);
}

#[test]
fn calendars_come_with_the_jobs_of_a_file_and_what_it_does_not_name_goes_if_that_is_asked_for() {
    let server = Server::start();
    let target = "target: {worker: {queue: q}}";
    apply(&server, &format!("jobs:\n  old: {{{target}}}\n"));
    let text = format!(
        "calendars:\n  closed:\n    days: [{{day: 2027-01-01..2027-01-03, note: x}}]\njobs:\n  j:\n    schedule: '0 9 2 1 *'\n    \
         calendars: [{{name: closed, policy: move_to_previous}}]\n    {target}\n"
    );
    let file = server.file("jobs.yaml");
    std::fs::write(&file, &text).unwrap();
    let file = file.to_str().unwrap();
    let planned = server.run(&["cron", "apply", "-f", file, "--prune", "--dry-run"]);
    assert!(planned.stdout.contains("+ calendar closed") && planned.stdout.contains("- old"), "{planned:?}");
    assert_eq!(server.run(&["cron", "show", "old"]).code, 0, "nothing was done yet");
    assert_eq!(server.run(&["cron", "apply", "-f", file, "--prune"]).code, 0);
    assert_eq!(server.run(&["cron", "show", "old"]).code, 69);
    let from = ["--from", "2026-12-01T00:00:00Z", "--count", "1"];
    let next = ["cron", "next", "0 9 2 1 *", "--calendar", "closed=move_to_previous"];
    let shown = server.run(&[&next[..], &from].concat());
    assert!(
        shown.stdout.contains("2026-12-31 09:00:00") && shown.stdout.contains("moved from 2027-01-02"),
        "{shown:?}"
    );
    assert_eq!(server.run(&["cron", "calendar", "rm", "closed"]).code, 65);
    let put = server.run(&["cron", "calendar", "put", "closed", "SAT..SUN=weekend", "12-25"]);
    assert!(put.stdout.contains("which 1 jobs use"), "{put:?}");
    assert!(server.run(&["cron", "calendar", "show", "closed"]).stdout.contains("weekend"));
    assert!(server.run(&["cron", "calendar", "ls"]).stdout.contains("closed"));
    let wrong = server.run(&["cron", "calendar", "put", "closed", "SATURDAY"]);
    assert!(wrong.code == 64 && wrong.stderr.contains("names no day"), "{wrong:?}");
    assert_eq!(server.run(&["cron", "calendar", "show", "none"]).code, 69);
}

#[test]
fn a_run_that_is_called_off_at_another_node_is_stopped_where_it_runs() {
    on_redis(|store| {
        // It never answers, and says when whoever asked has gone.
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (came, has_come) = std::sync::mpsc::sync_channel(2);
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
            came.send("asked").unwrap();
            let mut rest = Vec::new();
            let ended = std::io::Read::read_to_end(&mut stream, &mut rest);
            came.send(if ended.is_ok() { "gone" } else { "still there" }).unwrap();
        });
        let nodes = [0, 1]
            .map(|_| Server::start_on_a_store_with(store, vec![("BATON_JOB_ALLOW", address.to_string())]));
        let job = format!(
            "jobs:\n  j: {{timeoutMillis: 300000, target: {{http: {{url: 'http://{address}/'}}}}}}\n"
        );
        apply(&nodes[0], &job);
        let asked = server_says(&nodes[0], &["cron", "run", "j"]);
        let id = asked.trim();
        assert_eq!(has_come.recv_timeout(Duration::from_secs(30)), Ok("asked"));
        let runner = run(&nodes[0], id)["runner"].as_str().unwrap().to_owned();
        let other = nodes.iter().find(|node| node_id(node) != runner).unwrap();
        assert!(server_says(other, &["cron", "cancel", id]).contains("cancelled"));
        assert_eq!(has_come.recv_timeout(Duration::from_secs(30)), Ok("gone"), "before its time-out");
    });
}

/// Of this start of it; runs show it as who ran them.
pub fn node_id(server: &Server) -> String {
    let status = http::get(&server.url, "/v1/status", PATIENCE).unwrap().body;
    status["nodeId"].as_str().unwrap_or_else(|| panic!("{status}")).to_owned()
}

fn server_says(server: &Server, arguments: &[&str]) -> String {
    let output = server.run(arguments);
    assert_eq!(output.code, 0, "{output:?}");
    output.stdout
}

/// A counter, as a node tells it.
fn counted(server: &Server, metric: &str) -> u64 {
    let metrics = http::text(&server.url, "/metrics", PATIENCE);
    let value = metrics.lines().find_map(|line| line.strip_prefix(metric)?.trim().parse().ok());
    value.unwrap_or_else(|| panic!("no {metric} in {metrics}"))
}

#[test]
fn times_that_were_missed_and_a_job_without_success_count_and_the_job_says_when_it_last_succeeded() {
    let hook = Hook::start(|call| {
        let answer = if call.job() == "good" { ok("") } else { "500 No\r\ncontent-length: 0\r\n\r\n".into() };
        (Duration::ZERO, answer)
    });
    let mut server = Server::start_on_a_store_with("embedded:", hook.allowed());
    let of = |job: &str| {
        let more = "missed: skip, overlap: allow, successWithinMillis: 2000, retry: {maxAttempts: 1}";
        let target = format!("target: {{http: {{url: 'http://{}/'}}}}", hook.address);
        format!("  {job}: {{schedule: '@every 1s', {more}, {target}}}\n")
    };
    apply(&server, &format!("jobs:\n{}{}", of("good"), of("bad")));
    let missed = "baton_job_skipped_total{outcome=\"missed\"}";
    eventually("one succeeds and the other is overdue", || {
        let good = http::get(&server.url, "/v1/jobs/good", PATIENCE).unwrap().body;
        good["lastSuccessAt"].is_u64() && counted(&server, "baton_job_overdue_total") == 1
    });
    let bad = http::get(&server.url, "/v1/jobs/bad", PATIENCE).unwrap().body;
    assert_eq!((&bad["overdue"], &bad["lastSuccessAt"]), (&json!(true), &Value::Null), "{bad}");
    assert_eq!(counted(&server, missed), 0);
    server.kill();
    std::thread::sleep(Duration::from_secs(4));
    server.restart();
    eventually("those of the meantime are missed", || counted(&server, missed) >= 4);
    let records: u64 =
        ["good", "bad"].iter().flat_map(|job| runs(&server, job)).filter_map(times_missed).sum();
    assert!(records >= counted(&server, missed), "{records} are recorded");
}

fn times_missed(run: Value) -> Option<u64> {
    (run["reason"] == "missed").then(|| run["times"].as_u64().unwrap_or(1))
}
