//! Twenty processes and three nodes whose clocks differ, on one store: exactly the limit is admitted (A2, A3, M1).
//!
//! On the embedded store there is one node.

use crate::clocks::{ahead_ms, node};
use crate::process::eventually;
use crate::server::Server;
use crate::worker::{self, Admission, Orders, admissions, now_us};
use baton_testkit::store_url;

const PROCESSES: u64 = 20;
const LIMIT: u64 = 100;
const WINDOW_MS: u64 = 3_000;
const ALGORITHMS: [&str; 4] = ["token_bucket", "sliding_window", "fixed_window", "sliding_log"];
/// What nodes' clocks are ahead by, as libfaketime wants to hear it and in milliseconds.
const AHEAD: [(&str, i64); 3] = [("+0", 0), ("+0.2", 200), ("+2", 2000)];
/// How much older than the moment at which it is read a node's last log line may be.
const STALE_MS: i64 = 1500;

/// Nodes on one store, and a directory for what their users write.
struct Ground {
    nodes: Vec<Server>,
    /// By how much the clock that decides is ahead.
    ahead_ms: u64,
    directory: tempfile::TempDir,
}

fn ground() -> Ground {
    let directory = tempfile::tempdir().unwrap();
    let url = store_url(directory.path());
    if url.starts_with("embedded") {
        return Ground { nodes: vec![Server::start()], ahead_ms: 0, directory };
    }
    let nodes: Vec<_> = AHEAD
        .iter()
        .map(|(offset, expected_ms)| {
            let node = node(&url, offset, Vec::new());
            let shown_ms = ahead_ms(&node);
            assert!(
                shown_ms > expected_ms - STALE_MS,
                "ahead by {expected_ms} ms, but it shows {shown_ms} ms"
            );
            node
        })
        .collect();
    // etcd has no clock: there the one that is furthest ahead counts.
    let ahead_ms = if url.starts_with("etcd") { 2000 } else { 0 };
    Ground { nodes, ahead_ms, directory }
}

impl Ground {
    fn put(&self, name: &str, algorithm: &str, per: &str) {
        let limit = LIMIT.to_string();
        let made = self.nodes[0].run(&[
            "limits",
            "put",
            name,
            "--limit",
            &limit,
            "--per",
            per,
            "--algorithm",
            algorithm,
            "--aligned",
        ]);
        assert_eq!(made.code, 0, "{}", made.stderr);
    }

    /// Starts all processes, lets them go once `begins` is over, and waits for their ends.
    fn run(&self, this: &str, orders: impl Fn(Orders) -> Orders, begins: impl FnOnce()) -> Vec<Admission> {
        let (go, log) = (self.directory.path().join("go"), self.directory.path().join("log"));
        let workers: Vec<_> = (0..PROCESSES)
            .map(|process| {
                let plain = Orders {
                    urls: self.nodes[process as usize % self.nodes.len()].url.clone(),
                    limits: Vec::new(),
                    decides_itself: false,
                    burst: 1,
                    pause_ms: 0,
                    rounds: u64::MAX,
                    until_ms: now_us() / 1000 + 60_000,
                    go: go.clone(),
                    log: log.clone(),
                    seed: process,
                };
                orders(plain).start(this)
            })
            .collect();
        begins();
        std::fs::write(&go, "").unwrap();
        for worker in workers {
            let output = worker.end();
            assert_eq!(output.code, 0, "{output:?}");
        }
        admissions(&log)
    }
}

#[test]
fn twenty_processes_admit_exactly_the_limit_by_every_algorithm() {
    if worker::works() {
        return;
    }
    let this = "shared_limits::twenty_processes_admit_exactly_the_limit_by_every_algorithm";
    let ground = ground();
    for algorithm in ALGORITHMS {
        // A bucket leaks all the time: little enough to be no part of it here, and enough to show if a clock that is behind could
        // set it back by two seconds for each time that it is asked.
        ground.put(algorithm, algorithm, if algorithm == "token_bucket" { "1h" } else { "24h" });
    }
    let limits: Vec<_> = ALGORITHMS.map(str::to_owned).into();
    let admitted = ground.run(this, |orders| Orders { limits: limits.clone(), rounds: 8, ..orders }, || ());
    for algorithm in ALGORITHMS {
        let count = admitted.iter().filter(|admission| admission.limit == algorithm).count() as u64;
        assert_eq!(count, LIMIT, "{algorithm}");
    }
}

#[test]
fn a_window_opens_once_for_all_nodes_whatever_their_clocks_say() {
    if worker::works() {
        return;
    }
    let this = "shared_limits::a_window_opens_once_for_all_nodes_whatever_their_clocks_say";
    let ground = ground();
    ground.put("l", "fixed_window", "3s");
    let decided_ms = || now_us() / 1000 + ground.ahead_ms;
    // From the begin of a window, when all processes are there, to the middle of the next one.
    let begin_ms = (decided_ms() + 2_500).next_multiple_of(WINDOW_MS);
    let until_ms = begin_ms + WINDOW_MS * 3 / 2 - ground.ahead_ms;
    let orders = |orders| Orders { limits: vec!["l".into()], pause_ms: 200, until_ms, ..orders };
    let admitted = ground.run(this, orders, || {
        eventually("the window begins", || decided_ms() >= begin_ms);
        // Where there is no clock but the nodes', the one that is ahead is to come first.
        let last = ground.nodes.last().unwrap();
        assert_eq!(last.run(&["limits", "check", "l", worker::KEY]).code, 0);
    });
    assert_eq!(admitted.len() as u64 + 1, 2 * LIMIT, "two windows");
    let window_of = |at_us: u64| (at_us / 1000 + ground.ahead_ms) / WINDOW_MS;
    // What was asked for and answered in one window surely belongs to it.
    for window in [begin_ms / WINDOW_MS, begin_ms / WINDOW_MS + 1] {
        let is_in = |admission: &&Admission| {
            window_of(admission.asked_us) == window && window_of(admission.heard_us) == window
        };
        let count = admitted.iter().filter(is_in).count() as u64;
        assert!(count <= LIMIT, "{count} of {LIMIT} in a window");
    }
}
