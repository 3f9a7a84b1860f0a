//! A gate whose process is killed, and one that several processes share.

use crate::scripted::ms;
use baton_client::fence::{EpochGate, FencingToken, Refused};
use std::io::{BufRead, BufReader, Lines};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

const PATH: &str = "BATON_TEST_GATE";
const ROUNDS: u64 = 25;

/// Starts this very test in another process, where it admits one epoch after the other, and says so after each.
fn admit_in_another_process(test: &str, path: &Path) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", test, "--nocapture"]).env(PATH, path);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap()
}

#[allow(clippy::print_stdout, reason = "its only way to say what it did before it is killed")]
fn admit_for_ever(path: &str) {
    let gate = EpochGate::open(path).unwrap();
    loop {
        let next = gate.highest().unwrap().map_or(1, |highest| highest.get() + 1);
        match gate.admit(FencingToken::new(next)) {
            Ok(()) => println!("admitted {next}"),
            // Another process was quicker.
            Err(Refused::Stale(_)) => {}
            Err(Refused::Failed(error)) => panic!("{error}"),
        }
    }
}

/// What a process says.
fn output(child: &mut Child) -> Lines<BufReader<ChildStdout>> {
    BufReader::new(child.stdout.take().unwrap()).lines()
}

/// The epochs that it says it has admitted; what a kill cut off was not said.
fn admitted(lines: &mut Lines<BufReader<ChildStdout>>) -> impl Iterator<Item = u64> {
    let lines = lines.map_while(Result::ok);
    lines.filter_map(|line| line.strip_prefix("admitted ").and_then(|epoch| epoch.parse().ok()))
}

#[test]
fn what_was_admitted_is_remembered_by_a_gate_whose_process_was_killed() {
    if let Ok(path) = std::env::var(PATH) {
        return admit_for_ever(&path);
    }
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("gate");
    for round in 0..ROUNDS {
        let test = "gate::what_was_admitted_is_remembered_by_a_gate_whose_process_was_killed";
        let mut child = admit_in_another_process(test, &path);
        let mut lines = output(&mut child);
        let first = admitted(&mut lines).next().expect("it admits something");
        // It is killed wherever it happens to be, a little later each time.
        std::thread::sleep(Duration::from_micros(700 * round));
        child.kill().unwrap();
        child.wait().unwrap();
        let admitted = admitted(&mut lines).last().unwrap_or(first);
        let gate = EpochGate::open(&path).unwrap();
        let highest = gate.highest().unwrap().map_or(0, |highest| highest.get());
        // One more may be on disk than was said, and never one less.
        assert!(admitted <= highest, "round {round}: {admitted} was admitted, {highest} is remembered");
        if admitted > 1 {
            assert!(gate.admit(FencingToken::new(admitted - 1)).unwrap_err().stale().is_some());
        }
    }
}

#[test]
fn a_gate_is_one_gate_to_all_processes_that_open_it() {
    if let Ok(path) = std::env::var(PATH) {
        return admit_for_ever(&path);
    }
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("gate");
    let test = "gate::a_gate_is_one_gate_to_all_processes_that_open_it";
    let mut children: Vec<_> = (0..3).map(|_| admit_in_another_process(test, &path)).collect();
    let mut outputs: Vec<_> = children.iter_mut().map(output).collect();
    for lines in &mut outputs {
        admitted(lines).next().expect("all of them are at it");
    }
    let gate = EpochGate::open(&path).unwrap();
    let mut before = 0;
    let until = std::time::Instant::now() + ms(500);
    while std::time::Instant::now() < until {
        // Nobody gets in while this runs, so the highest stays what it is.
        let Some(highest) = gate.highest().unwrap() else { continue };
        let seen = gate.write(highest, || gate.highest());
        match seen {
            Ok(seen) => {
                assert_eq!(seen, Some(highest));
                assert!(highest.get() >= before, "it went back from {before} to {highest}");
                before = highest.get();
            }
            Err(Refused::Stale(_)) => {}
            Err(Refused::Failed(error)) => panic!("{error}"),
        }
    }
    for child in &mut children {
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
