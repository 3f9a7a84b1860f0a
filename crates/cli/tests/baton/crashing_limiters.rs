//! Leased and approximate limits when nodes and users crash and stall (M2, M4): no more is admitted than the algorithm alone would let
//! pass, and epsilon of the limit where it is approximate.
//!
//! Every admission is known by two moments, before it was asked for and after it was heard of, by the clock of the machine, which
//! is also the store's. It happened in between. So an interval is only charged with what was asked for and heard of within it, and
//! no allowance is made for how long anything took. What is left is that stores count in whole milliseconds: see [`GRAIN_US`].
//! What a process was admitted that died before it could write it down is missing: that can hide an excess of one for each.

use crate::nodes::Nodes;
use crate::process::{Running, eventually};
use crate::server::Server;
use crate::stores::on_redis;
use crate::worker::{self, Admission, Orders, admissions, now_us};
use baton_core::meter::Algorithm;
use baton_testkit::Dice;
use baton_testkit::admitted::{Admitted, Judged, most_in, most_in_a_window};
use baton_testkit::proxy::Direction;
use baton_testkit::store_url;
use rustix::process::Signal;
use std::io::Write;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

const LIMIT: u64 = 400;
const BURST: u64 = 100;
const WINDOW_US: u64 = 2_000_000;
const TTL_MS: u64 = 600;
const WORKERS: u64 = 6;
/// A worker's number says how it works: some ask their nodes, some spend so slowly that they always have something, and the others
/// take all they can get.
const WAYS: u64 = 3;
const ASKS: u64 = 0;
const SAVES: u64 = 1;
/// For how long things go wrong.
const ACTIVE_US: u64 = 11_000_000;
/// A moment is cut to a millisecond where it is stored, and so is the one it is compared with.
const GRAIN_US: u64 = 2_000;
const ALGORITHMS: [&str; 4] = ["token_bucket", "sliding_window", "fixed_window", "sliding_log"];

/// Who decides, and what may pass besides.
#[derive(Clone, Copy)]
struct Way {
    arguments: &'static [&'static str],
    /// In any interval as long as the window.
    besides: u64,
}

const LEASED: Way = Way { arguments: &["--mechanism", "leased", "--lease-ttl", "600ms"], besides: 0 };
/// Slack lives for four rounds, as long as those leases. Without a watermark it is spent to the last.
const APPROXIMATE: Way = Way {
    arguments: &[
        "--mechanism",
        "approximate",
        "--epsilon",
        "0.05",
        "--low-watermark",
        "0",
        "--sync",
        "150ms",
    ],
    besides: LIMIT / 20,
};

/// What was admitted beyond the algorithm's own bound, which is below 0 if it was less, stays within what may pass besides.
fn judge(name: &str, way: Way, admitted: &[Admitted]) {
    let (algorithm, besides) = match name {
        "token_bucket" => (Algorithm::TokenBucket, way.besides),
        // Each of two windows that an interval meets has half of it.
        "fixed_window" => (Algorithm::FixedWindow, way.besides / 2),
        "sliding_window" => {
            let any = most_in(admitted, WINDOW_US);
            assert!(any <= 2 * LIMIT + way.besides, "{any} in an interval");
            (Algorithm::SlidingWindow, way.besides / 2)
        }
        "sliding_log" => (Algorithm::SlidingLog, way.besides),
        other => panic!("{other}"),
    };
    let judged = Judged { algorithm, limit: LIMIT, burst: BURST, window: WINDOW_US, grain: GRAIN_US };
    let beyond = judged.beyond(admitted);
    let kind = if way.besides == 0 { "leased" } else { "approximate" };
    measured(&format!(
        "{kind} {name}: {beyond} beyond the algorithm's own bound, and {besides} is what may be"
    ));
    assert!(beyond <= besides as i64, "{name}: {beyond} beyond it, of {besides}");
}

/// Shows what was measured: of a test that passes nobody sees what it prints, so also at the end of the file that `BATON_MEASURED` names.
#[allow(clippy::print_stdout, reason = "what was measured is shown beside its bound")]
fn measured(line: &str) {
    println!("{line}");
    if let Some(path) = std::env::var_os("BATON_MEASURED") {
        let mut file = std::fs::OpenOptions::new().create(true).append(true).open(path).unwrap();
        writeln!(file, "{line}").unwrap();
    }
}

/// Processes that use all limits.
struct Workers<'a> {
    this: &'a str,
    orders: Orders,
    directory: &'a Path,
    running: Vec<Running>,
    logs: Vec<PathBuf>,
}

impl Workers<'_> {
    fn start(&mut self, number: u64) -> Running {
        let log = self.directory.join(format!("log-{}", self.logs.len()));
        self.logs.push(log.clone());
        let seed = self.logs.len() as u64;
        let mut urls: Vec<_> = self.orders.urls.split(',').collect();
        let first = number as usize % urls.len();
        urls.rotate_left(first);
        let orders = Orders { urls: urls.join(","), log, seed, ..self.orders.clone() };
        let orders = match number % WAYS {
            ASKS => Orders { decides_itself: false, ..orders },
            SAVES => Orders { burst: 2, pause_ms: 200, ..orders },
            _ => orders,
        };
        orders.start(self.this)
    }
}

/// Kills and stops nodes and their users, one after the other, while all four algorithms are used.
fn stays_within_its_bounds(mut nodes: Vec<Server>, way: Way, this: &str, seed: u64) {
    let directory = tempfile::tempdir().unwrap();
    let limit = LIMIT.to_string();
    for algorithm in ALGORITHMS {
        let burst = BURST.to_string();
        let burst: &[&str] = if algorithm == "token_bucket" { &["--burst", &burst] } else { &[] };
        let put = ["limits", "put", algorithm, "--limit", &limit, "--per", "2s", "--algorithm", algorithm];
        let made = nodes[0].run(&[&put[..], &["--aligned"], way.arguments, burst].concat());
        assert_eq!(made.code, 0, "{}", made.stderr);
    }
    let end_us = now_us() + ACTIVE_US;
    let urls: Vec<_> = nodes.iter().map(|node| node.url.clone()).collect();
    let orders = Orders {
        urls: urls.join(","),
        limits: ALGORITHMS.map(str::to_owned).into(),
        decides_itself: true,
        burst: 30,
        pause_ms: 60,
        rounds: u64::MAX,
        until_ms: end_us / 1000,
        go: directory.path().to_owned(),
        log: PathBuf::new(),
        seed: 0,
    };
    let mut workers =
        Workers { this, orders, directory: directory.path(), running: Vec::new(), logs: Vec::new() };
    for number in 0..WORKERS {
        let worker = workers.start(number);
        workers.running.push(worker);
    }
    let mut dice = Dice::new(seed);
    // Who stands still, and until when: past the end of what it has leased, and past the window in which that is burned.
    let (mut still_worker, mut still_node) = (None, None);
    let mut pauses = 0;
    let stands_still_us = TTL_MS * 1000 + WINDOW_US + 200_000;
    for turn in 0.. {
        std::thread::sleep(dice.millis((100, 500)));
        let is_over = now_us() >= end_us;
        let is_due = |still: &mut (u64, usize)| is_over || now_us() >= still.0;
        if let Some((_, worker)) = still_worker.take_if(is_due) {
            workers.running[worker].signal(Signal::CONT);
        }
        if let Some((_, node)) = still_node.take_if(is_due) {
            nodes[node].resume();
        }
        if is_over {
            break;
        }
        let (worker, node) = (dice.below(WORKERS), dice.below(nodes.len() as u64) as usize);
        let saver = SAVES + WAYS * dice.below(WORKERS / WAYS);
        match turn % 4 {
            // Gone without a word, with what it had; another one comes.
            0 if still_worker.is_none_or(|(_, still)| still != worker as usize) => {
                workers.running[worker as usize] = workers.start(worker);
            }
            1 if still_worker.is_none() => {
                workers.running[saver as usize].signal(Signal::STOP);
                still_worker = Some((now_us() + stands_still_us, saver as usize));
            }
            2 if still_node.is_none() => {
                nodes[node].kill();
                nodes[node].restart();
            }
            // Where there is another one to go on with.
            3 if still_node.is_none() && nodes.len() > 1 => {
                nodes[node].pause();
                pauses += 1;
                still_node = Some((now_us() + stands_still_us, node));
            }
            _ => {}
        }
    }
    assert!(pauses > 0 || nodes.len() == 1, "no node ever stood still: that proves nothing of one that does");
    for worker in workers.running.drain(..) {
        let output = worker.end();
        assert_eq!(output.code, 0, "{output:?}");
    }
    let admitted: Vec<_> = workers.logs.iter().flat_map(|log| admissions(log)).collect();
    for algorithm in ALGORITHMS {
        let admitted: Vec<_> = admitted.iter().filter(|one| one.limit == algorithm).cloned().collect();
        let is_here = |one: &&Admission| !["central", "global_check"].contains(&one.source.as_str());
        let here = admitted.iter().filter(is_here).count();
        let times: Vec<_> = admitted.iter().map(|one| (one.asked_us, one.heard_us)).collect();
        let (all, window) = (admitted.len(), most_in_a_window(&times, WINDOW_US));
        assert!(
            window > LIMIT / 2 && here > all / 2,
            "{algorithm}: {all} in all, {here} of a lease, {window} in a window: that proves nothing"
        );
        judge(algorithm, way, &times);
    }
}

/// One node on the embedded store, three on one that nodes share.
#[test]
fn crashes_admit_nothing_on_top() {
    if worker::works() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let url = store_url(directory.path());
    let nodes = match url.starts_with("embedded") {
        true => vec![Server::start_on_a_fixed_port()],
        false => (0..3).map(|_| Server::start_on_a_store(&url)).collect(),
    };
    stays_within_its_bounds(nodes, LEASED, "crashing_limiters::crashes_admit_nothing_on_top", 1);
}

#[test]
fn with_three_nodes_on_redis_crashes_admit_nothing_on_top() {
    if worker::works() {
        return;
    }
    let this = "crashing_limiters::with_three_nodes_on_redis_crashes_admit_nothing_on_top";
    on_redis(|url| {
        let nodes = (0..3).map(|_| Server::start_on_a_store(url)).collect();
        stays_within_its_bounds(nodes, LEASED, this, 2);
    });
}

#[test]
fn with_three_nodes_on_redis_crashes_admit_no_more_than_epsilon_on_top_of_approximate_limits() {
    if worker::works() {
        return;
    }
    let this = "crashing_limiters::\
                with_three_nodes_on_redis_crashes_admit_no_more_than_epsilon_on_top_of_approximate_limits";
    on_redis(|url| {
        let nodes = (0..3).map(|_| Server::start_on_a_store(url)).collect();
        stays_within_its_bounds(nodes, APPROXIMATE, this, 3);
    });
}

#[test]
fn what_a_dead_process_held_comes_back_with_the_window_or_when_its_lease_ends() {
    if worker::works() {
        return;
    }
    let this =
        "crashing_limiters::what_a_dead_process_held_comes_back_with_the_window_or_when_its_lease_ends";
    let server = Server::start();
    let limits = [("safe", "24h", "safe"), ("optimistic", "24h", "optimistic"), ("soon", "2s", "safe")].map(
        |(name, per, reclaim)| {
            let put = ["limits", "put", name, "--limit", "2000", "--per", per, "--algorithm", "fixed_window"];
            let leased = ["--mechanism", "leased", "--lease-ttl", "2s", "--reclaim", reclaim];
            let made = server.run(&[&put[..], &leased].concat());
            assert_eq!(made.code, 0, "{}", made.stderr);
            name.to_owned()
        },
    );
    let log = server.file("log");
    let worker = Orders {
        urls: server.url.clone(),
        limits: limits.into(),
        decides_itself: true,
        burst: 1,
        pause_ms: 20,
        rounds: u64::MAX,
        until_ms: now_us() / 1000 + 20_000,
        go: server.file("data"),
        log: log.clone(),
        seed: 1,
    };
    let worker = worker.start(this);
    let usage = |limit: &str| {
        let shown = server.run(&["limits", "usage", limit, worker::KEY, "--output", "json"]);
        let shown: serde_json::Value = serde_json::from_str(&shown.stdout).expect(&shown.stderr);
        (shown["used"].as_u64().unwrap(), shown["outstanding"].as_u64().unwrap())
    };
    eventually("it decides for itself", || {
        admissions(&log).iter().filter(|one| one.source == "local").count() >= 9
    });
    // Killed.
    drop(worker);
    let spent = |limit: &str| admissions(&log).iter().filter(|one| one.limit == limit).count() as u64;
    let held = |limit: &str| {
        let (used, outstanding) = usage(limit);
        assert!(outstanding > 10 && used <= spent(limit), "{limit}: {used} used, {outstanding} held");
        used + outstanding
    };
    let (safe, optimistic) = (held("safe"), held("optimistic"));
    for limit in ["safe", "optimistic", "soon"] {
        eventually("its lease is over", || usage(limit).1 == 0);
    }
    assert_eq!(usage("safe").0, safe, "all of it counts as spent, since it may have been");
    let (used, _) = usage("optimistic");
    assert!(
        used <= spent("optimistic") && used < optimistic,
        "{used}: what wasn't reported is available again"
    );
    eventually("the window is over, and with it what was burned", || usage("soon") == (0, 0));
}

/// Stops a node when answers of the store to what it said of its leases are on their way.
fn burns_nothing(url: &str, this: &str) {
    let mut through = Nodes::start(url, 1);
    let (mut stopping, proxy) = (through.nodes.remove(0), &through.proxies[0]);
    let address = stopping.url.clone();
    let watching = Server::start_on_a_store(url);
    let put = ["limits", "put", "l", "--limit", "1000000", "--per", "24h", "--algorithm", "sliding_window"];
    // So small that one is asked for all the time.
    let leased = ["--mechanism", "leased", "--lease-size", "40", "--lease-ttl", "30s"];
    let made = watching.run(&[&put[..], &leased].concat());
    assert_eq!(made.code, 0, "{}", made.stderr);
    let logs: Vec<_> = (0..WORKERS).map(|number| watching.file(&format!("log-{number}"))).collect();
    let start = |(number, log): (usize, &PathBuf)| {
        let orders = Orders {
            urls: address.clone(),
            limits: vec!["l".into()],
            decides_itself: false,
            burst: 5,
            pause_ms: 2,
            rounds: u64::MAX,
            until_ms: now_us() / 1000 + 20_000,
            go: watching.file("data"),
            log: log.clone(),
            seed: number as u64,
        };
        orders.start(this)
    };
    let workers: Vec<_> = logs.iter().enumerate().map(start).collect();
    let admitted = || logs.iter().flat_map(|log| admissions(log)).collect::<Vec<_>>();
    eventually("it is used", || admitted().iter().filter(|one| one.source == "local").count() > 500);
    proxy.hold(Direction::Answers);
    eventually("an answer is on its way, and all wait for it", || {
        let before = admitted().len();
        std::thread::sleep(Duration::from_millis(50));
        proxy.held_bytes(Direction::Answers) > 0 && admitted().len() == before
    });
    std::thread::scope(|scope| {
        scope.spawn(|| stopping.stop());
        let address = address.strip_prefix("http://").unwrap();
        eventually("it takes nobody any more", || TcpStream::connect(address).is_err());
        // It has begun to give back by then, or the answers come in time anyway: nothing rests on it.
        std::thread::sleep(Duration::from_millis(100));
        proxy.pass();
    });
    drop(workers);
    let shown = watching.run(&["limits", "usage", "l", worker::KEY, "--output", "json"]);
    let shown: serde_json::Value = serde_json::from_str(&shown.stdout).expect(&shown.stderr);
    let (used, outstanding) = (shown["used"].as_u64().unwrap(), shown["outstanding"].as_u64().unwrap());
    let admitted = admitted().len() as u64;
    assert_eq!(outstanding, 0, "a lease was left to burn");
    // A worker may have gone before it wrote down the last.
    assert!((admitted..=admitted + WORKERS).contains(&used), "{admitted} admitted, {used} counted");
}

#[test]
fn a_node_that_is_stopped_while_it_is_used_burns_nothing() {
    if worker::works() {
        return;
    }
    let this = "crashing_limiters::a_node_that_is_stopped_while_it_is_used_burns_nothing";
    on_redis(|url| burns_nothing(url, this));
}
