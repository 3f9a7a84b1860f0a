//! Owned limits on three real nodes of one store: the owner is killed, stopped and woken, or told to leave, and nothing is admitted twice
//! (M3).

use crate::server::Server;
use crate::stores::{on_etcd, on_postgresql, on_redis};
use baton_client::limit::Checked;
use baton_client::wire_limit::{Algorithm, Mechanism};
use baton_client::{Baton, LimitDefinition, wire_cluster::NodeList};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

const LIMIT: u64 = 2_000;
/// No lease is larger.
const CHUNK: u64 = LIMIT / 20;
const LEASE: Duration = Duration::from_secs(2);
const CALLERS: usize = 6;
/// How long a session lives after it was last renewed, and how often the others look at it: then another node owns what the dead one did.
const TAKEOVER_MAX: Duration = Duration::from_millis(10_000 + 2_500);
/// How late a busy machine is with it.
const LATE_MAX: Duration = Duration::from_secs(1);
/// Everything that must happen happens within this.
const PATIENCE: Duration = Duration::from_secs(60);

#[derive(Default)]
struct Counted {
    admitted: AtomicU64,
    by_owner: AtomicU64,
    /// Checks without an answer: they may have been counted.
    unknown: AtomicU64,
    /// How many are to be admitted for now.
    ceiling: AtomicU64,
    /// Checks under way.
    under_way: AtomicU64,
}

impl Counted {
    /// Nobody spends more for now, and whoever does has come to an end with it.
    async fn pause(&self) {
        self.spend_up_to(0);
        let until = Instant::now() + PATIENCE;
        while self.under_way.load(Ordering::SeqCst) > 0 {
            assert!(Instant::now() < until, "somebody never stops");
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    fn spend_up_to(&self, ceiling: u64) {
        self.ceiling.store(ceiling, Ordering::SeqCst);
    }

    /// Another check, once there may be one.
    async fn begin(&self) {
        loop {
            let before = self.under_way.fetch_add(1, Ordering::SeqCst);
            if before + self.admitted.load(Ordering::SeqCst) < self.ceiling.load(Ordering::SeqCst) {
                return;
            }
            self.under_way.fetch_sub(1, Ordering::SeqCst);
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
}

/// Whoever lives on: checks of the key go to it, one after the other, until an owner decides one.
async fn taken_over(client: &Baton, counted: &Counted) -> Duration {
    let (began, mut seen) = (Instant::now(), BTreeMap::<String, u32>::new());
    loop {
        let said = match client.limit("l").check("k").await {
            Ok(Checked::Allowed(allowed)) => {
                counted.admitted.fetch_add(1, Ordering::SeqCst);
                if allowed.source == "owner" {
                    counted.by_owner.fetch_add(1, Ordering::SeqCst);
                    return began.elapsed();
                }
                allowed.source
            }
            Ok(Checked::Refused(_)) => "refused".into(),
            Err(error) => {
                counted.unknown.fetch_add(1, Ordering::SeqCst);
                error.to_string()
            }
        };
        *seen.entry(said).or_default() += 1;
        assert!(began.elapsed() < PATIENCE, "nobody takes over: {seen:?}, {:?}", client.nodes().await);
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

pub async fn connect(server: &Server) -> Baton {
    Baton::builder().call_timeout(Duration::from_secs(3)).connect(&server.url).await.unwrap()
}

/// Until every node knows of this many.
pub async fn know_each_other(clients: &[Baton], count: usize) {
    let until = Instant::now() + PATIENCE;
    for client in clients {
        let known = |list: &NodeList| list.nodes.iter().filter(|node| node.owns > 0).count();
        while known(&client.nodes().await.unwrap()) != count {
            assert!(Instant::now() < until, "{:?}", client.nodes().await);
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}

/// Which of the nodes holds what of the key's limit.
async fn owner(clients: &[Baton]) -> usize {
    let leases = clients[0].limit("l").leases().await.unwrap().leases;
    assert_eq!(leases.len(), 1, "only the owner holds any: {leases:?}");
    let mut ids = Vec::new();
    for client in clients {
        ids.push(client.status().await.unwrap().node_id);
    }
    ids.iter().position(|id| *id == leases[0].holder).unwrap()
}

/// Checks until there is nothing left. Whoever gets no answer goes on at another node.
async fn spend(urls: Arc<Vec<String>>, mut at: usize, counted: Arc<Counted>) {
    let (until, mut refused) = (Instant::now() + PATIENCE, 0);
    let mut client = Baton::builder().call_timeout(Duration::from_secs(1)).connect(&urls[at]).await.unwrap();
    while refused < 20 {
        assert!(Instant::now() < until, "there is no end to it");
        counted.begin().await;
        let checked = client.limit("l").check("k").await;
        counted.under_way.fetch_sub(1, Ordering::SeqCst);
        match checked {
            Ok(Checked::Allowed(allowed)) => {
                counted.admitted.fetch_add(1, Ordering::SeqCst);
                counted.by_owner.fetch_add(u64::from(allowed.source == "owner"), Ordering::SeqCst);
                refused = 0;
            }
            Ok(Checked::Refused(_)) => {
                refused += 1;
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            Err(_) => {
                counted.unknown.fetch_add(1, Ordering::SeqCst);
                loop {
                    at = (at + 1) % urls.len();
                    let builder = Baton::builder().call_timeout(Duration::from_secs(1));
                    if let Ok(connected) = builder.connect(&urls[at]).await {
                        client = connected;
                        break;
                    }
                    assert!(Instant::now() < until, "no node can be reached");
                }
            }
        }
    }
}

/// Spends all there is, and does something to the owner when a part is spent.
/// `hurt` hears of somebody else whom to ask.
async fn admitted_while(
    servers: &mut [Server],
    hurt: impl AsyncFnOnce(&mut Server, &Baton, &Counted),
) -> Counted {
    let mut clients = Vec::new();
    for server in &*servers {
        clients.push(connect(server).await);
    }
    know_each_other(&clients, servers.len()).await;
    let definition = LimitDefinition {
        algorithm: Some(Algorithm::FixedWindow),
        mechanism: Some(Mechanism::Owned),
        lease_ttl_millis: Some(LEASE.as_millis() as u64),
        staggered: Some(false),
        ..LimitDefinition::new(LIMIT, 24 * 60 * 60 * 1000)
    };
    clients[0].limits().put("l", &definition).await.unwrap();
    let counted = Arc::<Counted>::default();
    // Enough is to be left when the owner is hurt.
    counted.spend_up_to(LIMIT / 4);
    let urls = Arc::new(servers.iter().map(|server| server.url.clone()).collect::<Vec<_>>());
    let spending: Vec<_> = (0..CALLERS)
        .map(|caller| tokio::spawn(spend(urls.clone(), caller % urls.len(), counted.clone())))
        .collect();
    let until = Instant::now() + PATIENCE;
    while counted.admitted.load(Ordering::SeqCst) < LIMIT / 4 {
        assert!(Instant::now() < until, "nothing goes on");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let owner = owner(&clients).await;
    counted.spend_up_to(LIMIT / 2);
    let other = &clients[(owner + 1) % clients.len()];
    hurt(&mut servers[owner], other, &counted).await;
    for one in spending {
        one.await.unwrap();
    }
    Arc::into_inner(counted).unwrap()
}

/// Exactly the limit, but for a chunk that went with the owner, and checks that nobody heard the answer of.
fn is_exact(counted: &Counted) {
    let [admitted, by_owner, unknown] =
        [&counted.admitted, &counted.by_owner, &counted.unknown].map(|count| count.load(Ordering::SeqCst));
    assert!(admitted <= LIMIT, "{admitted} of {LIMIT} were admitted");
    assert!(admitted + unknown + CHUNK >= LIMIT, "{admitted} and {unknown} unknown, chunks of {CHUNK}");
    assert!(by_owner > LIMIT / 8, "only {by_owner} were decided by an owner");
}

/// Three nodes, of which the owner is hurt while all is spent.
fn hurt_on(store: &str, hurt: impl AsyncFnOnce(&mut Server, &Baton, &Counted)) -> Counted {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let mut servers: Vec<_> = (0..3).map(|_| Server::start_on_a_store(store)).collect();
    runtime.block_on(admitted_while(&mut servers, hurt))
}

fn killed_on(store: &str) {
    is_exact(&hurt_on(store, async |owner, other, counted| {
        owner.kill();
        let killed = Instant::now();
        counted.pause().await;
        taken_over(other, counted).await;
        let elapsed = killed.elapsed();
        assert!(elapsed <= TAKEOVER_MAX + LATE_MAX, "another node owns it after {elapsed:?}");
        counted.spend_up_to(u64::MAX);
    }));
}

#[test]
fn an_owner_that_is_killed_over_admits_nothing_and_another_takes_over_on_etcd() {
    on_etcd(killed_on);
}

#[test]
fn an_owner_that_is_killed_over_admits_nothing_and_another_takes_over_on_postgresql() {
    on_postgresql(killed_on);
}

#[test]
fn an_owner_that_is_killed_over_admits_nothing_and_another_takes_over_on_redis() {
    on_redis(killed_on);
}

fn stopped_on(store: &str) {
    is_exact(&hurt_on(store, async |owner, _, counted| {
        owner.pause();
        counted.spend_up_to(u64::MAX);
        tokio::time::sleep(2 * LEASE).await;
        owner.resume();
    }));
}

#[test]
fn an_owner_that_was_stopped_past_its_lease_admits_nothing_when_it_wakes_on_etcd() {
    on_etcd(stopped_on);
}

#[test]
fn an_owner_that_was_stopped_past_its_lease_admits_nothing_when_it_wakes_on_postgresql() {
    on_postgresql(stopped_on);
}

#[test]
fn an_owner_that_was_stopped_past_its_lease_admits_nothing_when_it_wakes_on_redis() {
    on_redis(stopped_on);
}

/// What it holds goes back, and nothing of it is lost: nobody waits for an answer then, so all that was admitted is known.
fn drained_on(store: &str) {
    let counted = hurt_on(store, async |owner, other, counted| {
        counted.pause().await;
        owner.stop();
        let elapsed = taken_over(other, counted).await;
        assert!(elapsed < TAKEOVER_MAX / 2, "nobody waits for its session to end, as for {elapsed:?}");
        counted.spend_up_to(u64::MAX);
    });
    let [admitted, by_owner] =
        [&counted.admitted, &counted.by_owner].map(|count| count.load(Ordering::SeqCst));
    assert_eq!(admitted, LIMIT, "exactly");
    assert!(by_owner > LIMIT / 8, "only {by_owner} were decided by an owner");
}

#[test]
fn an_owner_that_drains_burns_nothing_on_etcd() {
    on_etcd(drained_on);
}

#[test]
fn an_owner_that_drains_burns_nothing_on_postgresql() {
    on_postgresql(drained_on);
}

#[test]
fn an_owner_that_drains_burns_nothing_on_redis() {
    on_redis(drained_on);
}

#[test]
fn the_nodes_of_a_store_are_shown_with_what_they_own() {
    on_redis(|store| {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
        let mut servers: Vec<_> = (0..2).map(|_| Server::start_on_a_store(store)).collect();
        let clients = runtime.block_on(async {
            let clients = [connect(&servers[0]).await, connect(&servers[1]).await];
            know_each_other(&clients, 2).await;
            clients
        });
        let ring = runtime.block_on(clients[0].ring()).unwrap();
        assert_eq!((ring.partitions, ring.owners.len(), ring.nodes.len()), (256, 256, 2));
        assert_eq!(ring, runtime.block_on(clients[1].ring()).unwrap(), "both see the same");
        let addresses: Vec<_> =
            servers.iter().map(|server| server.url.trim_start_matches("http://").to_owned()).collect();
        let mut found: Vec<_> = ring.nodes.iter().flat_map(|node| node.address.clone()).collect();
        found.sort_by_key(|address| addresses.iter().position(|known| known == address));
        assert_eq!(found, addresses);

        let shown = servers[0].run(&["nodes"]);
        assert_eq!(shown.code, 0, "{}", shown.stderr);
        assert!(addresses.iter().all(|address| shown.stdout.contains(address)), "{}", shown.stdout);
        servers[1].stop();
        runtime.block_on(know_each_other(&clients[..1], 1));
        let shown = servers[0].run(&["nodes", "--output", "json"]);
        assert!(!shown.stdout.contains(&addresses[1]), "{}", shown.stdout);
    });
}
