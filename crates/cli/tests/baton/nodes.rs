//! Three nodes on one store, killed, paused and cut off from it: never two holders, tokens grow, things go on (L1, L3, L7, O10).

use crate::http::post;
use crate::server::Server;
use crate::stores::{on_etcd, on_postgresql, on_redis};
use baton_testkit::Dice;
use baton_testkit::proxy::{Direction, Proxy};
use serde_json::json;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const NODES: usize = 3;
const CLIENTS: u64 = 12;
const KEYS: u64 = 2;
const TTL: Duration = Duration::from_secs(4);
/// How much earlier than the lease a client stops to rely on it.
const MARGIN: Duration = Duration::from_millis(50);
/// How long a client waits for one answer.
const PATIENCE: Duration = Duration::from_millis(2500);
/// When nothing goes wrong any more, every client gets a lock within this.
const RECOVERED_WITHIN: Duration = Duration::from_secs(40);

/// For how long things go wrong: longer by `BATON_CHAOS_SECONDS`.
fn active() -> Duration {
    let seconds = std::env::var("BATON_CHAOS_SECONDS").ok().and_then(|seconds| seconds.parse().ok());
    Duration::from_secs(seconds.unwrap_or(8))
}

/// That a client held a lock, by its own clock.
#[derive(Clone, Copy, Debug)]
struct Belief {
    key: u64,
    client: u64,
    from: Instant,
    to: Instant,
    token: u64,
}

struct World {
    nodes: Vec<String>,
    beliefs: Mutex<Vec<Belief>>,
    granted: [AtomicU64; CLIENTS as usize],
    stop: AtomicBool,
}

impl World {
    fn is_over(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    fn node(&self, dice: &mut Dice) -> &str {
        &self.nodes[dice.below(NODES as u64) as usize]
    }

    /// Takes locks, one after the other, at whichever node.
    fn client(&self, client: u64) {
        let mut dice = Dice::new(client);
        for round in 0.. {
            let key = dice.below(KEYS);
            let (owner, request) = (format!("client-{client}"), format!("{client}-{round}"));
            let acquire = json!({
                "ownerId": owner, "ttlMillis": TTL.as_millis() as u64, "wait": true, "requestId": request,
            });
            let (sent, granted) = loop {
                if self.is_over() {
                    return;
                }
                let sent = Instant::now();
                match post(
                    self.node(&mut dice),
                    &format!("/v1/locks/chaos-{key}/acquire"),
                    &acquire,
                    PATIENCE,
                ) {
                    Ok(answer) if answer.status == 200 => break (sent, Some(answer.body)),
                    Ok(answer) if ["ALREADY_RELEASED", "LOCK_EXPIRED"].contains(&answer.code()) => {
                        break (sent, None);
                    }
                    Ok(answer) => assert!([409, 503].contains(&answer.status), "{request}: {}", answer.body),
                    Err(_) => {}
                }
                std::thread::sleep(dice.millis((1, 30)));
            };
            // Somebody heard of a grant, but it wasn't us: then it is over.
            let Some(granted) = granted else { continue };
            let (from, limit) = (Instant::now(), sent + TTL - MARGIN);
            std::thread::sleep(dice.millis((0, 40)).min(limit.saturating_duration_since(from)));
            let (to, token) = (Instant::now().min(limit), granted["fencingToken"].as_u64().unwrap());
            if from < to {
                self.beliefs.lock().unwrap().push(Belief { key, client, from, to, token });
            }
            self.granted[client as usize].fetch_add(1, Ordering::Relaxed);
            let release = json!({ "ownerId": owner, "lockToken": granted["lockToken"] });
            for _ in 0..3 {
                let path = format!("/v1/locks/chaos-{key}/release");
                if post(self.node(&mut dice), &path, &release, PATIENCE)
                    .is_ok_and(|answer| answer.status != 503)
                {
                    break;
                }
            }
        }
    }

    /// Waits until every client has got a lock since now.
    fn recovers(&self) {
        let before: Vec<_> = self.granted.iter().map(|granted| granted.load(Ordering::Relaxed)).collect();
        let deadline = Instant::now() + RECOVERED_WITHIN;
        let has_gone_on = |client: usize| self.granted[client].load(Ordering::Relaxed) > before[client];
        while !(0..before.len()).all(has_gone_on) {
            let stuck: Vec<_> = (0..before.len()).filter(|client| !has_gone_on(*client)).collect();
            assert!(Instant::now() < deadline, "clients {stuck:?} don't get a lock any more");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn judge(&self) {
        let mut beliefs = self.beliefs.lock().unwrap().clone();
        beliefs.sort_by_key(|belief| (belief.key, belief.from));
        for pair in beliefs.windows(2).filter(|pair| pair[0].key == pair[1].key) {
            let (before, after) = (&pair[0], &pair[1]);
            let who = format!("clients {} and {}: {before:?}, {after:?}", before.client, after.client);
            assert!(before.to <= after.from, "two holders at once, {who}");
            assert!(before.token < after.token, "tokens don't grow, {who}");
        }
        assert!(beliefs.len() as u64 > 2 * CLIENTS, "only {} grants", beliefs.len());
    }
}

/// Nodes on one store, each with a way to it that can be disturbed.
pub struct Nodes {
    pub nodes: Vec<Server>,
    pub proxies: Vec<Proxy>,
    /// The proxies run in it.
    _runtime: tokio::runtime::Runtime,
}

impl Nodes {
    pub fn start(url: &str, count: usize) -> Self {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let rest = &url[url.find("127.0.0.1:").expect("a loopback address")..];
        let upstream: String =
            rest.chars().take_while(|letter| letter.is_ascii_digit() || ".:".contains(*letter)).collect();
        let proxy = || runtime.block_on(Proxy::start(upstream.parse().unwrap())).unwrap();
        let proxies: Vec<_> = (0..count).map(|_| proxy()).collect();
        let own_url = |proxy: &Proxy| url.replace(&upstream, &proxy.address().to_string());
        let nodes = proxies.iter().map(|proxy| Server::start_on_a_store(&own_url(proxy))).collect();
        Self { nodes, proxies, _runtime: runtime }
    }
}

/// A commit that was given up arrives later, when somebody else has the lock: it comes to nothing.
fn keeps_a_late_commit_out(url: &str) {
    let Nodes { nodes, proxies, _runtime } = Nodes::start(url, 2);
    let patience = Duration::from_secs(10);
    let acquire = |node: usize, owner: &str| {
        let body = json!({ "ownerId": owner, "ttlMillis": 60_000, "requestId": format!("of {owner}") });
        post(&nodes[node].url, "/v1/locks/late/acquire", &body, patience).unwrap()
    };
    proxies[0].hold(Direction::Requests);
    let late = acquire(0, "late");
    assert_eq!((late.status, late.code()), (503, "STORE_UNAVAILABLE"), "{}", late.body);
    assert!(proxies[0].held_bytes(Direction::Requests) > 0, "nothing is under way");

    let granted = acquire(1, "punctual");
    assert_eq!(granted.status, 200, "{}", granted.body);
    proxies[0].pass();
    crate::process::eventually("the held commit has arrived and the node works again", || {
        acquire(0, "another").status == 409
    });
    let again = acquire(0, "late");
    assert_eq!(again.code(), "LOCK_ALREADY_HELD", "{}", again.body);
    for node in &nodes {
        let renew =
            json!({ "ownerId": "punctual", "lockToken": granted.body["lockToken"], "ttlMillis": 60_000 });
        let renewed = post(&node.url, "/v1/locks/late/renew", &renew, patience).unwrap();
        assert_eq!(renewed.status, 200, "the holder lost it: {}", renewed.body);
    }
    let release = json!({ "ownerId": "punctual", "lockToken": granted.body["lockToken"] });
    assert_eq!(post(&nodes[1].url, "/v1/locks/late/release", &release, patience).unwrap().status, 200);
    let taken = acquire(0, "late");
    assert_eq!(taken.status, 200, "a ghost holds it: {}", taken.body);
    assert!(taken.body["fencingToken"].as_u64() > granted.body["fencingToken"].as_u64());
}

/// The store is away, and comes back.
fn outlives_an_outage(url: &str) {
    let Nodes { nodes, proxies, _runtime } = Nodes::start(url, 1);
    let (node, patience) = (&nodes[0].url, Duration::from_secs(10));
    let acquire = |key: &str| {
        let body = json!({ "ownerId": "a", "ttlMillis": 60_000 });
        post(node, &format!("/v1/locks/{key}/acquire"), &body, patience).unwrap()
    };
    let granted = acquire("kept");
    assert_eq!(granted.status, 200, "{}", granted.body);
    // Nothing is refused, nothing is answered: each call could take as long as it may.
    proxies[0].hold(Direction::Requests);
    let deadline = Instant::now() + Duration::from_secs(20);
    for round in 0.. {
        let before = Instant::now();
        let refused = acquire("new");
        let taken = before.elapsed();
        assert_eq!((refused.status, refused.code()), (503, "STORE_UNAVAILABLE"), "{}", refused.body);
        assert!(taken < Duration::from_millis(2500), "an answer after {taken:?}");
        assert!(Instant::now() < deadline, "still not at once after {round} calls");
        if round >= 10 && taken < Duration::from_millis(100) {
            break;
        }
    }
    let status = |path: &str| nodes[0].get_status(path);
    assert_eq!((status("/healthz"), status("/readyz")), (200, 503));
    proxies[0].pass();
    crate::process::eventually("the node is ready again", || status("/readyz") == 200);
    let renew = json!({ "ownerId": "a", "lockToken": granted.body["lockToken"], "ttlMillis": 60_000 });
    let renewed = post(node, "/v1/locks/kept/renew", &renew, patience).unwrap();
    assert_eq!(renewed.status, 200, "the holder lost it: {}", renewed.body);
    // What was under way may have arrived, as "unknown" says; so another lock.
    assert_eq!(acquire("another").status, 200);
}

/// Lets things go wrong between and in the nodes of one store.
fn survives(url: &str, seed: u64) {
    let Nodes { mut nodes, proxies, _runtime } = Nodes::start(url, NODES);
    let world = Arc::new(World {
        nodes: nodes.iter().map(|node| node.url.clone()).collect(),
        beliefs: Mutex::default(),
        granted: Default::default(),
        stop: AtomicBool::new(false),
    });
    let clients: Vec<_> = (0..CLIENTS)
        .map(|client| {
            let world = world.clone();
            std::thread::spawn(move || world.client(client))
        })
        .collect();
    let mut dice = Dice::new(seed);
    let end = Instant::now() + active();
    while Instant::now() < end {
        std::thread::sleep(dice.millis((50, 500)));
        let victim = dice.below(NODES as u64) as usize;
        match dice.below(5) {
            0 => {
                nodes[victim].kill();
                nodes[victim].restart();
            }
            1 => {
                nodes[victim].pause();
                std::thread::sleep(dice.millis((100, 3000)));
                nodes[victim].resume();
            }
            2 => proxies[victim].cut(),
            3 => {
                proxies[victim].hold(Direction::Requests);
                std::thread::sleep(dice.millis((100, 3000)));
                proxies[victim].pass();
            }
            _ => {
                proxies[victim].hold(Direction::Answers);
                std::thread::sleep(dice.millis((100, 3000)));
                proxies[victim].cut();
                proxies[victim].pass();
            }
        }
    }
    world.recovers();
    world.stop.store(true, Ordering::Relaxed);
    for client in clients {
        client.join().expect("a client's assertion failed");
    }
    world.judge();
}

#[test]
fn three_nodes_on_etcd_survive_being_killed_paused_and_cut_off() {
    on_etcd(|url| survives(url, 1));
}

#[test]
fn three_nodes_on_postgresql_survive_being_killed_paused_and_cut_off() {
    on_postgresql(|url| survives(url, 2));
}

#[test]
fn three_nodes_on_redis_survive_being_killed_paused_and_cut_off() {
    on_redis(|url| survives(url, 3));
}

#[test]
fn a_commit_that_arrives_late_makes_no_second_holder_and_no_ghost() {
    on_etcd(keeps_a_late_commit_out);
    on_postgresql(keeps_a_late_commit_out);
    on_redis(keeps_a_late_commit_out);
}

#[test]
fn a_store_that_is_away_is_said_to_be_and_work_goes_on_when_it_is_back() {
    on_etcd(outlives_an_outage);
    on_postgresql(outlives_an_outage);
    on_redis(outlives_an_outage);
}
