//! Three servers that share no store, and a limit whose counts spread between them (M5): what passes is within what is stated, also while they can't
//! hear each other, and a server that is killed still counts what it had told.

use crate::http::{get, post};
use crate::process::eventually;
use crate::replicas::Cluster;
use serde_json::{Value, json};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(20);
/// How often replicas ask each other what they missed.
const ROUND: Duration = Duration::from_millis(200);
const LIMIT: u64 = 300;
/// A server that said no as often has heard that nothing is left.
const REFUSALS: usize = 20;

fn start() -> Cluster {
    let cluster = Cluster::start("200ms");
    eventually("all have met", || {
        let statuses = cluster.statuses();
        let mut peers = statuses.iter().flat_map(|status| status["peers"].as_array().unwrap());
        peers.all(|peer| peer["reachable"] == true)
    });
    for server in &cluster.servers {
        // Each has a store of its own, and so is told of the limit by itself.
        let limit = LIMIT.to_string();
        let put = ["limits", "put", "edge", "--limit", &limit, "--per", "24h", "--mechanism", "gossip"];
        let made = server.run(&[&put[..], &["--algorithm", "fixed_window", "--aligned"]].concat());
        assert_eq!(made.code, 0, "{}", made.stderr);
    }
    cluster
}

fn check(url: &str, key: &str) -> Value {
    let answer = post(url, "/v1/limits/edge/check", &json!({ "key": key }), PATIENCE).unwrap();
    assert!([200, 429].contains(&answer.status), "{}", answer.body);
    answer.body
}

fn passes(url: &str, key: &str) -> bool {
    check(url, key)["allowed"] == true
}

fn used(url: &str, key: &str) -> u64 {
    let usage = get(url, &format!("/v1/limits/edge/usage?key={key}"), PATIENCE).unwrap().body;
    usage["used"].as_u64().unwrap_or_else(|| panic!("{usage}"))
}

fn all_know(urls: &[String], key: &str, count: u64) {
    for url in urls {
        eventually("it is heard of", || used(url, key) == count);
    }
}

/// How long it takes until all others know of a check at the first.
fn probe(urls: &[String], number: usize) -> Duration {
    let (key, began) = (format!("probe-{number}"), Instant::now());
    assert!(passes(&urls[0], &key));
    all_know(&urls[1..], &key, 1);
    began.elapsed()
}

#[test]
fn what_passes_is_the_limit_and_what_is_offered_while_counts_spread() {
    let cluster = start();
    let urls = cluster.urls();
    let (offered, admitted) = (Mutex::new(Vec::new()), AtomicUsize::new(0));
    let mut spread = Duration::ZERO;
    std::thread::scope(|scope| {
        let offering: Vec<_> = urls
            .iter()
            .map(|url| {
                let (offered, admitted) = (&offered, &admitted);
                scope.spawn(move || {
                    let mut refused = 0;
                    while refused < REFUSALS {
                        offered.lock().unwrap().push(Instant::now());
                        let is_admitted = passes(url, "k");
                        admitted.fetch_add(usize::from(is_admitted), Ordering::Relaxed);
                        refused = if is_admitted { 0 } else { refused + 1 };
                        std::thread::sleep(Duration::from_millis(2));
                    }
                })
            })
            .collect();
        let mut number = 0;
        while number < 3 || offering.iter().any(|offering| !offering.is_finished()) {
            spread = spread.max(probe(&urls, number));
            number += 1;
        }
    });
    // What was not told as it happened is asked for a round later.
    let spread = spread + ROUND;
    let offered = offered.into_inner().unwrap();
    let within =
        |begin: &Instant| offered.iter().filter(|at| **at >= *begin && **at <= *begin + spread).count();
    let besides = offered.iter().map(within).max().unwrap_or_default() as u64;
    let admitted = admitted.into_inner() as u64;
    println!(
        "{admitted} admitted of {LIMIT}; {besides} were offered within {spread:?}, which counts take to spread"
    );
    assert!((LIMIT..=LIMIT + besides).contains(&admitted), "{admitted} of {LIMIT} and {besides}");
    all_know(&urls, "k", admitted);
    for url in &urls {
        assert!(!passes(url, "k"));
        let bound = get(url, "/v1/limits/edge/bound?key=k", PATIENCE).unwrap().body;
        assert_eq!(bound["measured"]["overshoot"].as_u64(), Some(admitted - LIMIT), "{bound:#}");
        let amount = |source: &str| {
            let items = bound["items"].as_array().unwrap();
            items.iter().find(|item| item["source"] == source).map(|item| item["amount"].clone())
        };
        assert_eq!(amount("partition"), Some(json!(2 * LIMIT)), "{bound:#}");
        assert!(amount("mechanism").is_some_and(|amount| amount.as_u64() > Some(0)), "{bound:#}");
    }
}

#[test]
fn who_is_cut_off_or_alone_admits_the_limit_at_most_and_who_was_killed_still_knows_what_it_told() {
    let mut cluster = start();
    let urls = cluster.urls();
    for (_, proxy) in cluster.links.iter().filter(|((from, to), _)| *from == 2 || *to == 2) {
        proxy.refuse();
        proxy.cut();
    }
    let count = |url: &String, checks: u64| (0..checks).filter(|_| passes(url, "k")).count() as u64;
    assert_eq!(count(&urls[2], LIMIT + 20), LIMIT, "alone");
    assert_eq!(count(&urls[0], 200), 200);
    eventually("the other side hears of each other", || used(&urls[1], "k") == 200);
    assert_eq!(count(&urls[1], LIMIT), LIMIT - 200, "two together");
    cluster.links.iter().for_each(|(_, proxy)| proxy.pass());
    all_know(&urls, "k", 2 * LIMIT);
    assert_eq!(urls.iter().map(|url| count(url, 3)).sum::<u64>(), 0);

    let before = (0..50).filter(|_| passes(&urls[1], "killed")).count() as u64;
    all_know(&urls, "killed", before);
    cluster.servers[1].kill();
    cluster.servers[1].restart();
    assert_eq!(used(&urls[1], "killed"), before, "it is on its own disk");
    assert!(passes(&urls[1], "killed"));
    all_know(&urls, "killed", before + 1);

    cluster.servers[0].kill();
    cluster.servers[2].kill();
    let answer = check(&urls[1], "alone");
    assert_eq!((&answer["allowed"], &answer["source"]), (&json!(true), &json!("local")));
    assert_eq!(used(&urls[1], "k"), 2 * LIMIT);
}
