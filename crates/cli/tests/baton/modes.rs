//! `baton lock --permits` and `--shared` with real processes: never one too many, never a reader beside a writer (L17).

use crate::process::{Running, eventually};
use crate::server::{Server, quoted};
use std::collections::BTreeMap;

/// A command that writes down when it begins and ends, and what for.
fn worker(server: &Server, arguments: &[&str], what: &str) -> Running {
    let log = quoted(&server.file("log"));
    // One write each, to a file that is only appended to.
    let script = format!("echo +{what} >> {log}; sleep 0.05; echo -{what} >> {log}");
    let arguments = [&["lock", "k"], arguments, &["--", "sh", "-c", &script]].concat();
    Running::start(&mut server.command(&arguments))
}

/// What the workers wrote, each line with how many of each kind were inside by then.
fn inside(server: &Server) -> Vec<BTreeMap<String, i32>> {
    let log = std::fs::read_to_string(server.file("log")).unwrap();
    let mut now = BTreeMap::new();
    log.lines()
        .map(|line| {
            let (sign, what) = line.split_at(1);
            *now.entry(what.to_owned()).or_default() += if sign == "+" { 1 } else { -1 };
            now.clone()
        })
        .collect()
}

#[test]
fn a_semaphore_of_two_never_runs_three_commands_at_once() {
    let server = Server::start();
    let workers: Vec<_> = (0..8).map(|_| worker(&server, &["--permits", "2"], "permit")).collect();
    assert!(workers.into_iter().all(|worker| worker.end().code == 0));
    let inside = inside(&server);
    assert_eq!(inside.len(), 16, "everybody had a turn");
    assert_eq!(inside.iter().filter_map(|now| now.get("permit")).max(), Some(&2));
}

#[test]
fn readers_run_together_and_never_beside_a_writer_who_gets_a_turn_too() {
    let server = Server::start();
    let workers: Vec<_> = (0..12)
        .map(|number| match number % 4 {
            3 => worker(&server, &[], "writer"),
            _ => worker(&server, &["--shared"], "reader"),
        })
        .collect();
    assert!(workers.into_iter().all(|worker| worker.end().code == 0));
    let inside = inside(&server);
    assert_eq!(inside.len(), 24, "everybody had a turn");
    for now in &inside {
        let of = |what: &str| now.get(what).copied().unwrap_or(0);
        assert!(of("writer") <= 1 && (of("writer") == 0 || of("reader") == 0), "{now:?}");
    }
}

#[test]
fn a_permit_tells_its_slot_and_a_shared_lock_no_token() {
    let server = Server::start();
    let script = "echo ${BATON_SLOT-none} ${BATON_FENCING_TOKEN-none} $BATON_LOCK_KEY";
    let permit = server.run(&["lock", "k", "--permits", "2", "--", "sh", "-c", script]);
    assert!(permit.stdout.starts_with("0 ") && !permit.stdout.contains("none"), "{}", permit.stdout);
    let shared = server.run(&["lock", "k", "--shared", "--", "sh", "-c", script]);
    assert_eq!(shared.stdout, "none none k\n");
}

#[test]
fn another_number_of_permits_is_refused_and_several_holders_are_shown() {
    let server = Server::start();
    let file = server.file("holds");
    let script = format!("echo held > {0}; while [ -e {0} ]; do sleep 0.02; done", quoted(&file));
    let running =
        Running::start(&mut server.command(&["lock", "k", "--permits", "2", "--", "sh", "-c", &script]));
    eventually("it is held", || server.is_held("k"));
    let refused = server.run(&["lock", "k", "--permits", "3", "--", "true"]);
    assert_eq!(refused.code, 65);
    assert!(
        refused.stderr.contains("MODE_MISMATCH") && refused.stderr.contains("2 permits"),
        "{}",
        refused.stderr
    );
    let shown = server.run(&["locks", "show", "k"]);
    assert!(shown.stdout.contains("semaphore of 2") && shown.stdout.contains("slot"), "{}", shown.stdout);
    let listed = server.run(&["locks", "ls"]);
    assert!(listed.stdout.contains("semaphore of 2"), "{}", listed.stdout);
    std::fs::remove_file(file).unwrap();
    assert_eq!(running.end().code, 0);
}
