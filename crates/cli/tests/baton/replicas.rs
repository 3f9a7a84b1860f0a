//! Three servers that share no store, stopped, killed and cut off from each other: everybody goes on writing, nothing acknowledged is
//! lost, retries count once, and after healing all are equal within two rounds (D2, D3, D6, D9).

use crate::http::{get, post};
use crate::server::Server;
use crate::stores::on_redis;
use baton_testkit::Dice;
use baton_testkit::proxy::{Direction, Proxy};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

pub const REPLICAS: usize = 3;
const SECRET: &str = "what all of them know, and nobody else";
/// How long one call may take; a stopped server doesn't answer at all.
pub const PATIENCE: Duration = Duration::from_millis(1500);
/// Things become equal within rounds, and those within this.
pub const SOON: Duration = Duration::from_secs(60);

/// How many schedules of faults: more by `BATON_REPLICA_SCHEDULES`.
fn schedules() -> u64 {
    let wanted = std::env::var("BATON_REPLICA_SCHEDULES").ok().and_then(|count| count.parse().ok());
    wanted.unwrap_or(4)
}

pub struct Cluster {
    pub servers: Vec<Server>,
    /// From each to each other one.
    pub links: Vec<((usize, usize), Proxy)>,
    runtime: tokio::runtime::Runtime,
}

impl Cluster {
    pub fn start(sync: &str) -> Self {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let mut servers: Vec<_> =
            (0..REPLICAS).map(|_| Server::stopped_on_a_store_with("embedded:", Vec::new())).collect();
        let mut links = Vec::new();
        for from in 0..REPLICAS {
            for to in (0..REPLICAS).filter(|to| *to != from) {
                let upstream = servers[to].url.strip_prefix("http://").unwrap().parse().unwrap();
                links.push(((from, to), runtime.block_on(Proxy::start(upstream)).unwrap()));
            }
        }
        for (at, server) in servers.iter_mut().enumerate() {
            server.set_variables(variables(&links, at, sync));
            server.restart();
        }
        Self { servers, links, runtime }
    }

    /// What a server is told in its environment.
    pub fn variables(&self, at: usize, sync: &str) -> Vec<(&'static str, String)> {
        variables(&self.links, at, sync)
    }

    /// Proxies in front of the servers, for those who call them.
    fn fronts(&self) -> Vec<Proxy> {
        let front = |server: &Server| {
            let upstream = server.url.strip_prefix("http://").unwrap().parse().unwrap();
            self.runtime.block_on(Proxy::start(upstream)).unwrap()
        };
        self.servers.iter().map(front).collect()
    }

    /// Cuts the links for which that is so, in that direction.
    pub fn cut(&self, is_cut: impl Fn(usize, usize) -> bool) {
        for (_, proxy) in self.links.iter().filter(|((from, to), _)| is_cut(*from, *to)) {
            proxy.refuse();
            proxy.cut();
        }
    }

    pub fn heal(&self) {
        self.links.iter().for_each(|(_, proxy)| proxy.pass());
    }

    pub fn urls(&self) -> Vec<String> {
        self.servers.iter().map(|server| server.url.clone()).collect()
    }

    pub fn statuses(&self) -> Vec<Value> {
        self.servers.iter().map(|server| get(&server.url, "/v1/replication", SOON).unwrap().body).collect()
    }

    /// Waits until all are equal, which they have to be after two rounds of everybody with everybody.
    pub fn equal(&self, seed: u64) {
        let begun: Vec<_> = self.statuses().iter().map(rounds).collect();
        let until = Instant::now() + SOON;
        loop {
            let before = self.statuses();
            let states: BTreeSet<_> =
                self.statuses().iter().map(|status| status["replica"]["state"].to_string()).collect();
            if states.len() == 1 {
                return;
            }
            // The first to end may have begun before: two more are whole ones.
            let done = before
                .iter()
                .map(rounds)
                .zip(&begun)
                .all(|(now, begun)| now.iter().zip(begun).all(|(now, begun)| *now >= begun + 3));
            assert!(!done, "seed {seed}: not equal after two rounds: {before:#?}");
            assert!(Instant::now() < until, "seed {seed}: rounds don't go on: {before:#?}");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

fn variables(links: &[((usize, usize), Proxy)], at: usize, sync: &str) -> Vec<(&'static str, String)> {
    let mine = links.iter().filter(|((from, _), _)| *from == at);
    let peers: Vec<_> = mine.map(|(_, proxy)| format!("http://{}", proxy.address())).collect();
    vec![
        ("BATON_PEERS", peers.join(",")),
        ("BATON_SYNC", sync.into()),
        ("BATON_CLUSTER_SECRET", SECRET.into()),
    ]
}

/// How many rounds with each peer came to their end.
fn rounds(status: &Value) -> Vec<u64> {
    status["peers"].as_array().unwrap().iter().map(|peer| peer["rounds"].as_u64().unwrap()).collect()
}

/// What was acknowledged.
#[derive(Default)]
struct Acknowledged {
    added: u64,
    elements: BTreeSet<String>,
    /// How often the answer was that it had been done before.
    replayed: u64,
}

/// Sends it until it is answered; whether it had been done before.
pub fn insist(url: &str, path: &str, body: &Value) -> bool {
    let until = Instant::now() + SOON;
    loop {
        match post(url, path, body, PATIENCE) {
            Ok(answer) if answer.status == 200 => return answer.body["replayed"] == true,
            Ok(answer) => assert_eq!(answer.status, 503, "{path}: {}", answer.body),
            Err(_) => {}
        }
        assert!(Instant::now() < until, "{url}{path} is never answered");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Writes at one replica until it is told to stop; each write until it is acknowledged.
fn write(url: &str, at: usize, run: u64, stop: &AtomicBool, acknowledged: &Mutex<Acknowledged>) {
    let mut dice = Dice::new(run * REPLICAS as u64 + at as u64);
    let mut own = Vec::new();
    for number in 0.. {
        if stop.load(Ordering::Relaxed) {
            return;
        }
        let request = format!("{run}-{at}-{number}");
        let (writer, amount) = (format!("writer-{at}"), 1 + dice.below(5));
        let add = json!({ "add": amount, "writer": writer, "requestId": request });
        let replayed = insist(url, "/v1/counters/hits", &add);
        {
            let mut acknowledged = acknowledged.lock().unwrap();
            acknowledged.added += amount;
            acknowledged.replayed += u64::from(replayed);
        }
        let body = if own.len() > 2 && dice.below(2) == 0 {
            let gone: String = own.swap_remove(dice.below(own.len() as u64) as usize);
            let body = json!({ "remove": [&gone], "writer": writer, "requestId": format!("{request}-set") });
            acknowledged.lock().unwrap().elements.remove(&gone);
            body
        } else {
            own.push(request.clone());
            json!({ "add": [&request], "writer": writer, "requestId": format!("{request}-set") })
        };
        let replayed = insist(url, "/v1/sets/tags", &body);
        acknowledged.lock().unwrap().replayed += u64::from(replayed);
        if let Some(element) = body["add"][0].as_str() {
            acknowledged.lock().unwrap().elements.insert(element.to_owned());
        }
    }
}

pub fn elements(url: &str) -> BTreeSet<String> {
    let (mut all, mut cursor) = (BTreeSet::new(), String::new());
    loop {
        let page = get(url, &format!("/v1/sets/tags?limit=500{cursor}"), SOON).unwrap().body;
        let elements = page["elements"].as_array().unwrap_or_else(|| panic!("{page}"));
        all.extend(elements.iter().map(|element| element.as_str().unwrap().to_owned()));
        match page["nextCursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => return all,
        }
    }
}

/// A write is done, and whoever sent it doesn't hear of it.
fn lose_an_answer(cluster: &Cluster, front: &Proxy) {
    front.hold(Direction::Answers);
    cluster.runtime.block_on(async {
        tokio::time::timeout(SOON, front.held(Direction::Answers, 1)).await.expect("somebody writes");
    });
    front.refuse();
    front.cut();
    // What was held goes with its connection.
    cluster.runtime.block_on(async {
        tokio::time::timeout(SOON, front.connected(0)).await.expect("connections that are cut end");
    });
    front.pass();
}

/// Some of what goes wrong: servers that stand still or die, links that are cut or swallow what is said, answers that don't arrive.
fn disturb(cluster: &mut Cluster, fronts: &[Proxy], dice: &mut Dice) {
    let (mut paused, mut dead) = (BTreeSet::new(), BTreeSet::new());
    for _ in 0..5 {
        let at = dice.below(REPLICAS as u64) as usize;
        let link = dice.below(cluster.links.len() as u64) as usize;
        match dice.below(9) {
            0 if paused.len() + dead.len() < REPLICAS - 1 && !dead.contains(&at) && paused.insert(at) => {
                cluster.servers[at].pause();
            }
            1 if paused.len() + dead.len() < REPLICAS - 1 && !paused.contains(&at) && dead.insert(at) => {
                cluster.servers[at].kill();
            }
            2 => {
                for (_, proxy) in cluster.links.iter().filter(|((from, to), _)| *from == at || *to == at) {
                    proxy.refuse();
                    proxy.cut();
                }
            }
            3 => cluster.links[link].1.hold(Direction::Requests),
            4 => cluster.links[link].1.hold(Direction::Answers),
            5 => {
                cluster.links[link].1.refuse();
                cluster.links[link].1.cut();
            }
            6 => fronts[at].hold(Direction::Answers),
            7 => {
                fronts[at].cut();
                fronts[at].pass();
            }
            _ => cluster.links[link].1.pass(),
        }
        std::thread::sleep(dice.millis((20, 250)));
    }
    // Sometimes so long that callers give up and ask again.
    if !paused.is_empty() && dice.below(3) == 0 {
        std::thread::sleep(PATIENCE + Duration::from_millis(200));
    }
    paused.iter().for_each(|at| cluster.servers[*at].resume());
    dead.iter().for_each(|at| cluster.servers[*at].restart());
    fronts.iter().for_each(Proxy::pass);
    cluster.heal();
}

#[test]
fn replicas_that_share_nothing_lose_nothing_and_are_equal_two_rounds_after_healing() {
    let mut cluster = Cluster::start("200ms");
    let fronts = cluster.fronts();
    let acknowledged = Arc::new(Mutex::new(Acknowledged::default()));
    for seed in 0..schedules() {
        let stop = Arc::new(AtomicBool::new(false));
        let writers: Vec<_> = fronts
            .iter()
            .enumerate()
            .map(|(at, front)| {
                let url = format!("http://{}", front.address());
                let (stop, acknowledged) = (stop.clone(), acknowledged.clone());
                std::thread::spawn(move || write(&url, at, seed, &stop, &acknowledged))
            })
            .collect();
        lose_an_answer(&cluster, &fronts[seed as usize % REPLICAS]);
        disturb(&mut cluster, &fronts, &mut Dice::new(seed));
        stop.store(true, Ordering::Relaxed);
        writers.into_iter().for_each(|writer| writer.join().unwrap());
        cluster.equal(seed);
        let expected = acknowledged.lock().unwrap();
        for url in cluster.urls() {
            let counted = get(&url, "/v1/counters/hits", SOON).unwrap().body;
            assert_eq!(counted["value"].as_u64(), Some(expected.added), "seed {seed}: {counted}");
            assert_eq!(elements(&url), expected.elements, "seed {seed}");
        }
    }
    let replayed = acknowledged.lock().unwrap().replayed;
    println!("{} schedules: {replayed} writes were sent again after they had been done", schedules());
    assert!(replayed > 0, "no retry of something that was done: nothing was tested of them");
    drop(fronts);
    cluster.runtime.shutdown_background();
}

#[test]
fn a_change_to_a_large_set_costs_each_peer_less_than_a_kilobyte() {
    // Nobody asks in the meantime: what passes is what is told.
    let cluster = Cluster::start("1h");
    let urls = cluster.urls();
    let until = Instant::now() + SOON;
    // What is written before they have met is asked for later, and not told.
    while cluster.statuses()[0]["peers"].as_array().unwrap().iter().any(|peer| peer["reachable"] != true) {
        assert!(Instant::now() < until, "{:#?}", cluster.statuses());
        std::thread::sleep(Duration::from_millis(5));
    }
    let count =
        std::env::var("BATON_SET_ELEMENTS").ok().and_then(|count| count.parse().ok()).unwrap_or(800_u32);
    for first in (0..count).step_by(40) {
        let add: Vec<_> = (first..count.min(first + 40)).map(|n| format!("element-{n:06}")).collect();
        insist(&urls[0], "/v1/sets/tags", &json!({ "add": add }));
    }
    let seen_by_all = || {
        let until = Instant::now() + SOON;
        while cluster.statuses()[0]["peers"].as_array().unwrap().iter().any(|peer| peer["behind"] != 0) {
            assert!(Instant::now() < until, "{:#?}", cluster.statuses());
            std::thread::sleep(Duration::from_millis(5));
        }
    };
    seen_by_all();
    let passed = || -> Vec<u64> {
        let mine = cluster.links.iter().filter(|((from, _), _)| *from == 0);
        let both = [Direction::Requests, Direction::Answers];
        mine.map(|(_, proxy)| both.map(|way| proxy.passed_bytes(way)).iter().sum()).collect()
    };
    let before = passed();
    insist(&urls[0], "/v1/sets/tags", &json!({ "remove": ["element-000007"], "add": ["one more"] }));
    seen_by_all();
    for (after, before) in passed().iter().zip(before) {
        let bytes = after - before;
        println!("{bytes} bytes to a peer for a change of a set of {count}");
        assert!((1..1024).contains(&bytes), "{bytes} bytes for a change");
    }
    for url in &urls {
        assert!(elements(url).contains("one more") && !elements(url).contains("element-000007"));
    }
}

#[test]
fn whoever_does_not_know_the_secret_is_refused_and_peers_need_one() {
    let cluster = Cluster::start("200ms");
    let url = &cluster.urls()[0];
    let answer = post(url, "/v1/peers/replica", &json!({}), SOON).unwrap();
    assert_eq!((answer.status, answer.code()), (403, "FORBIDDEN"));
    let mut command = crate::server::binary();
    let directory = tempfile::tempdir().unwrap();
    command.args(["serve", "--listen", "127.0.0.1:0", "--peers", "http://127.0.0.1:1", "--data"]);
    let output = crate::process::run(command.arg(directory.path().join("data")));
    assert_eq!(output.code, 78, "{}", output.stderr);
    assert!(output.stderr.contains("--cluster-secret-file"), "{}", output.stderr);
}

#[test]
fn a_replica_that_is_gone_for_good_is_retired_and_what_it_wrote_stays() {
    let mut cluster = Cluster::start("200ms");
    let urls = cluster.urls();
    for url in &urls {
        insist(url, "/v1/counters/hits", &json!({ "add": 5 }));
        insist(url, "/v1/sets/tags", &json!({ "add": [format!("of {url}")] }));
    }
    cluster.equal(0);
    let gone = cluster.statuses()[2]["replica"]["actor"].as_str().unwrap().to_owned();
    let refused = cluster.servers[0].run(&["replica", "remove", &gone]);
    assert_eq!(refused.code, 64, "it runs: {}{}", refused.stdout, refused.stderr);
    cluster.servers[2].kill();
    // Until it was asked in vain it may still be there.
    let until = Instant::now() + SOON;
    while cluster.servers[0].run(&["replica", "remove", &gone]).code != 0 {
        assert!(Instant::now() < until, "it is never taken for gone");
        std::thread::sleep(Duration::from_millis(50));
    }
    let runs = cluster.servers[1].run(&["replica", "runs"]).stdout;
    assert!(runs.contains(&gone), "{runs}");
    let listed = cluster.servers[0].run(&["replica", "ls"]).stdout;
    assert!(listed.contains("unreachable"), "{listed}");
    // It comes back after all, with what it has, and as a run of its own.
    cluster.servers[2].restart();
    insist(&urls[2], "/v1/counters/hits", &json!({ "add": 1 }));
    cluster.equal(0);
    for (url, status) in urls.iter().zip(cluster.statuses()) {
        assert_eq!(get(url, "/v1/counters/hits", SOON).unwrap().body["value"], 16);
        assert_eq!(elements(url).len(), REPLICAS);
        let marked = status["runs"].as_array().unwrap().iter().filter(|run| run["retired"] == true);
        assert_eq!(marked.map(|run| run["actor"].as_str().unwrap()).collect::<Vec<_>>(), [&gone]);
    }
}

#[test]
fn a_replica_with_another_secret_is_told_nothing_and_believed_nothing() {
    let mut cluster = Cluster::start("200ms");
    let urls = cluster.urls();
    cluster.servers[2].kill();
    let peers = cluster.links.iter().filter(|((from, _), _)| *from == 2);
    let peers: Vec<_> = peers.map(|(_, proxy)| format!("http://{}", proxy.address())).collect();
    cluster.servers[2].set_variables(vec![
        ("BATON_PEERS", peers.join(",")),
        ("BATON_SYNC", "50ms".into()),
        ("BATON_CLUSTER_SECRET", "what only this one takes for the secret".into()),
    ]);
    cluster.servers[2].restart();
    insist(&urls[0], "/v1/counters/hits", &json!({ "add": 5 }));
    insist(&urls[2], "/v1/counters/hits", &json!({ "add": 7 }));
    let until = Instant::now() + SOON;
    let failures = |at: usize| -> Vec<u64> {
        let status = &cluster.statuses()[at];
        status["peers"].as_array().unwrap().iter().map(|peer| peer["failures"].as_u64().unwrap()).collect()
    };
    // Both sides have asked the other again since.
    let (outside, inside) = (failures(2), failures(0));
    while failures(2).iter().zip(&outside).any(|(now, then)| *now < then + 2)
        || failures(0).iter().zip(&inside).all(|(now, then)| *now < then + 2)
    {
        assert!(Instant::now() < until, "nobody is refused: {:#?}", cluster.statuses());
        std::thread::sleep(Duration::from_millis(10));
    }
    let values: Vec<_> =
        urls.iter().map(|url| get(url, "/v1/counters/hits", SOON).unwrap().body["value"].clone()).collect();
    assert_eq!(values, [5, 5, 7]);
}

#[test]
fn nodes_that_share_a_store_find_each_other_there_and_need_no_secret() {
    on_redis(|store| {
        let sync = || vec![("BATON_SYNC", "100ms".to_owned())];
        let nodes: Vec<_> = (0..2).map(|_| Server::start_on_a_store_with(store, sync())).collect();
        insist(&nodes[0].url, "/v1/counters/hits", &json!({ "add": 5 }));
        insist(&nodes[1].url, "/v1/counters/hits", &json!({ "add": 2 }));
        let until = Instant::now() + SOON;
        let counted =
            |node: &Server| get(&node.url, "/v1/counters/hits", SOON).unwrap().body["value"].clone();
        while nodes.iter().any(|node| counted(node) != 7) {
            assert!(Instant::now() < until, "{:?}", nodes.iter().map(counted).collect::<Vec<_>>());
            std::thread::sleep(Duration::from_millis(20));
        }
    });
}

#[test]
fn a_name_stands_for_all_its_addresses_and_a_replica_knows_itself_among_them() {
    let mut server = Server::stopped_on_a_store_with("embedded:", Vec::new());
    let port = server.url.rsplit(':').next().unwrap().to_owned();
    let peers = format!("dns:localhost:{port}");
    server.set_variables(vec![
        ("BATON_PEERS", peers),
        ("BATON_SYNC", "100ms".into()),
        ("BATON_CLUSTER_SECRET", SECRET.into()),
    ]);
    server.restart();
    let until = Instant::now() + SOON;
    loop {
        let status = get(&server.url, "/v1/replication", SOON).unwrap().body;
        if status["peers"].as_array().unwrap().iter().any(|peer| peer["this"] == true) {
            return;
        }
        assert!(Instant::now() < until, "{status:#}");
        std::thread::sleep(Duration::from_millis(20));
    }
}
