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
/// The lease of who relies on nearly all of it: short, so that the others get their turn.
const TTL_OF_A_LONG_HOLD: Duration = Duration::from_secs(2);
/// How much earlier than the lease a client stops to rely on it.
const MARGIN: Duration = Duration::from_millis(50);
/// How long a client waits for one answer.
const PATIENCE: Duration = Duration::from_millis(2500);
/// When nothing goes wrong any more, every client gets a lock twice within this.
const RECOVERED_WITHIN: Duration = Duration::from_secs(40);
/// Somebody gets a lock within this, whatever goes wrong meanwhile: leases, sessions of dead nodes and pauses end in less.
const PROGRESS_WITHIN: Duration = Duration::from_secs(20);

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

/// What a client does with a lock.
#[derive(Clone, Copy, Debug)]
enum Hold {
    Briefly,
    /// Until the lease is nearly over, and then renews it once.
    ToTheEnd,
    /// And renews it so often.
    Renewed(u64),
}

impl Hold {
    fn any(dice: &mut Dice) -> Self {
        match dice.below(3) {
            0 => Self::Briefly,
            1 => Self::ToTheEnd,
            _ => Self::Renewed(2 + dice.below(2)),
        }
    }

    fn ttl(self) -> Duration {
        if matches!(self, Self::Briefly) { TTL } else { TTL_OF_A_LONG_HOLD }
    }
}

/// A grant, as its client knows it.
struct Lease {
    path: String,
    owner: String,
    token: serde_json::Value,
    ttl: Duration,
    /// Until then it is relied on.
    limit: Instant,
}

struct World {
    nodes: Vec<String>,
    beliefs: Mutex<Vec<Belief>>,
    granted: [AtomicU64; CLIENTS as usize],
    renewed: AtomicU64,
    /// Nothing goes wrong any more, and nobody holds a lock for long.
    is_calm: AtomicBool,
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
            let hold =
                if self.is_calm.load(Ordering::Relaxed) { Hold::Briefly } else { Hold::any(&mut dice) };
            let ttl = hold.ttl();
            let (owner, request) = (format!("client-{client}"), format!("{client}-{round}"));
            let path = format!("/v1/locks/chaos-{key}");
            let acquire = json!({
                "ownerId": owner, "ttlMillis": ttl.as_millis() as u64, "wait": true, "requestId": request,
            });
            let (sent, granted) = loop {
                if self.is_over() {
                    return;
                }
                let sent = Instant::now();
                match post(self.node(&mut dice), &format!("{path}/acquire"), &acquire, PATIENCE) {
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
            let from = Instant::now();
            let (limit, lock_token) = (sent + ttl - MARGIN, granted["lockToken"].clone());
            let mut lease = Lease { path, owner, token: lock_token, ttl, limit };
            self.hold(&mut dice, hold, &mut lease);
            let (to, token) = (Instant::now().min(lease.limit), granted["fencingToken"].as_u64().unwrap());
            if from < to {
                self.beliefs.lock().unwrap().push(Belief { key, client, from, to, token });
            }
            self.granted[client as usize].fetch_add(1, Ordering::Relaxed);
            let release = json!({ "ownerId": lease.owner, "lockToken": lease.token });
            for _ in 0..3 {
                let path = format!("{}/release", lease.path);
                if post(self.node(&mut dice), &path, &release, PATIENCE)
                    .is_ok_and(|answer| answer.status != 503)
                {
                    break;
                }
            }
        }
    }

    /// Relies on a lease for a while, and never hears before its end that it is over.
    fn hold(&self, dice: &mut Dice, hold: Hold, lease: &mut Lease) {
        let sleep = |time: Duration, limit: Instant| {
            std::thread::sleep(time.min(limit.saturating_duration_since(Instant::now())));
        };
        match hold {
            Hold::Briefly => sleep(dice.millis((0, 40)), lease.limit),
            Hold::ToTheEnd => {
                sleep(lease.ttl, lease.limit - dice.millis((200, 500)));
                // Nobody else need have taken it for it to be lost: it is asked for.
                self.renew(dice, lease);
            }
            Hold::Renewed(times) => {
                for _ in 0..times {
                    sleep(dice.millis((100, 600)), lease.limit);
                    if !self.renew(dice, lease) {
                        break;
                    }
                }
            }
        }
    }

    /// Whether there is still something to rely on.
    fn renew(&self, dice: &mut Dice, lease: &mut Lease) -> bool {
        let renew = json!({
            "ownerId": lease.owner, "lockToken": lease.token, "ttlMillis": lease.ttl.as_millis() as u64,
        });
        let sent = Instant::now();
        let answer = post(self.node(dice), &format!("{}/renew", lease.path), &renew, PATIENCE);
        let answered = Instant::now();
        match answer {
            Ok(answer) if answer.status == 200 => {
                lease.limit = sent + lease.ttl - MARGIN;
                self.renewed.fetch_add(1, Ordering::Relaxed);
            }
            Ok(answer) if answer.status == 409 => {
                // On its way it may have been held up for longer than the lease. But nobody says so before its end.
                let early = lease.limit.saturating_duration_since(answered);
                assert!(
                    early.is_zero(),
                    "{} lost its lock {early:?} before its end: {}",
                    lease.owner,
                    answer.body
                );
            }
            Ok(answer) => assert_eq!(answer.status, 503, "{}", answer.body),
            Err(_) => {}
        }
        answered < lease.limit
    }

    /// Waits until every client has got a lock twice since now.
    fn recovers(&self) {
        let before: Vec<_> = self.granted.iter().map(|granted| granted.load(Ordering::Relaxed)).collect();
        let deadline = Instant::now() + RECOVERED_WITHIN;
        let has_gone_on = |client: usize| self.granted[client].load(Ordering::Relaxed) >= before[client] + 2;
        while !(0..before.len()).all(has_gone_on) {
            let stuck: Vec<_> = (0..before.len()).filter(|client| !has_gone_on(*client)).collect();
            assert!(Instant::now() < deadline, "clients {stuck:?} don't get a lock any more");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    #[allow(clippy::print_stdout, reason = "how much went on is worth knowing also when it is fine")]
    fn judge(&self, begun: Instant) {
        let mut beliefs = self.beliefs.lock().unwrap().clone();
        beliefs.sort_by_key(|belief| (belief.key, belief.from));
        for pair in beliefs.windows(2).filter(|pair| pair[0].key == pair[1].key) {
            let (before, after) = (&pair[0], &pair[1]);
            let who = format!("clients {} and {}: {before:?}, {after:?}", before.client, after.client);
            assert!(before.to <= after.from, "two holders at once, {who}");
            assert!(before.token < after.token, "tokens don't grow, {who}");
        }
        assert!(beliefs.len() as u64 > 2 * CLIENTS, "only {} grants", beliefs.len());
        let mut grants: Vec<_> = beliefs.iter().map(|belief| belief.from).collect();
        grants.extend([begun, Instant::now()]);
        grants.sort();
        let pause = grants.windows(2).map(|pair| pair[1] - pair[0]).max().expect("there are two at least");
        let renewals = self.renewed.load(Ordering::Relaxed);
        println!("{} grants and {renewals} renewals, {pause:?} at most without a grant", beliefs.len());
        assert!(pause < PROGRESS_WITHIN, "nobody got a lock for {pause:?}");
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

/// Lets things go wrong between and in the nodes of one store.
fn survives(url: &str, seed: u64) {
    let Nodes { mut nodes, proxies, _runtime } = Nodes::start(url, NODES);
    let world = Arc::new(World {
        nodes: nodes.iter().map(|node| node.url.clone()).collect(),
        beliefs: Mutex::default(),
        granted: Default::default(),
        renewed: AtomicU64::default(),
        is_calm: AtomicBool::new(false),
        stop: AtomicBool::new(false),
    });
    let clients: Vec<_> = (0..CLIENTS)
        .map(|client| {
            let world = world.clone();
            std::thread::spawn(move || world.client(client))
        })
        .collect();
    let mut dice = Dice::new(seed);
    let begun = Instant::now();
    let end = begun + active();
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
    world.is_calm.store(true, Ordering::Relaxed);
    world.recovers();
    world.stop.store(true, Ordering::Relaxed);
    for client in clients {
        client.join().expect("a client's assertion failed");
    }
    world.judge(begun);
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
