//! Owned limits: one node decides a key, the others forward to it (M3).

use super::limits::{DAY_MS, call, check, definition, name};
use baton_core::limit::{Definition, Identity, Mechanism};
use baton_core::lock::NodeId;
use baton_core::meter::Algorithm;
use baton_engine::limit::{CheckCall, Source, Wanted};
use baton_engine::metrics::OutcomeLabel;
use baton_engine::peers::{NoAnswer, Peer, PeerVerdict, Peers, Verdicts};
use baton_engine::{Config, Engine, Random};
use baton_testkit::simulated::{self, Faults, Simulated};
use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

pub const LIMIT: u64 = 1_000;
/// No lease is larger.
pub const CHUNK: u64 = LIMIT / 20;
/// How long a node that has vanished is taken to live, a look of the others later.
const SESSION: Duration = Duration::from_secs(13);

/// Calls go straight to the other engine, as long as it isn't taken away.
#[derive(Default)]
pub struct Wires {
    engines: Mutex<HashMap<String, Engine>>,
    batches: AtomicUsize,
}

impl Peers for Wires {
    fn check<'a>(&'a self, peer: &'a Peer, ring: u64, calls: &'a [CheckCall]) -> Verdicts<'a> {
        self.batches.fetch_add(1, Ordering::Relaxed);
        let engine = self.engines.lock().unwrap().get(&*peer.address).cloned();
        Box::pin(async move {
            let engine = engine.ok_or(NoAnswer)?;
            assert!(engine.is_peer(&peer.proof), "the proof is for the node that is called");
            Ok(engine.check_for_peer(Some(ring), calls).await)
        })
    }
}

pub struct Ground {
    store: Simulated,
    wires: Arc<Wires>,
    pub nodes: Vec<(Engine, Arc<simulated::Node>)>,
}

impl Ground {
    pub async fn start(count: usize) -> Self {
        let mut ground = Self { store: Simulated::for_many(7), wires: Arc::default(), nodes: Vec::new() };
        for _ in 0..count {
            ground.join().await;
        }
        let definition = Definition {
            mechanism: Mechanism::Owned,
            lease_ttl_ms: Some(2_000),
            ..definition(Algorithm::FixedWindow, LIMIT, DAY_MS)
        };
        ground.nodes[0].0.put_limit(&name("l"), definition).await.unwrap();
        // Until everybody has looked at everybody's session.
        tokio::time::sleep(Duration::from_secs(6)).await;
        ground
    }

    async fn join(&mut self) {
        self.join_as(false).await;
    }

    /// Another node comes, perhaps to be kept for hot keys.
    pub async fn join_as(&mut self, is_dedicated: bool) {
        let number = self.nodes.len();
        let address = format!("node-{number}");
        let handle = self.store.node(Faults::none());
        let config = Config { address: Some(address.as_str().into()), is_dedicated, ..Config::default() };
        let engine = Engine::start(handle.clone(), config, Random::seeded(number as u64 + 1)).await.unwrap();
        engine.connect_peers(self.wires.clone());
        self.wires.engines.lock().unwrap().insert(address, engine.clone());
        self.nodes.push((engine, handle));
    }

    /// Which node owns a key, as all of them say.
    pub fn owner(&self, key: &str) -> usize {
        let place = baton_core::limit::meter_key(&name("l"), key);
        let owners: Vec<_> =
            self.nodes.iter().map(|(engine, _)| engine.ring().owner(place.group).unwrap()).collect();
        assert!(owners.iter().all(|owner| *owner == owners[0]), "{owners:?}");
        self.nodes.iter().position(|(engine, _)| engine.node() == owners[0]).unwrap()
    }

    pub fn others(&self, owner: usize) -> Vec<&Engine> {
        let others = self.nodes.iter().enumerate().filter(|(node, _)| *node != owner);
        others.map(|(_, (engine, _))| engine).collect()
    }

    /// How everybody's way to the store is from now on.
    pub fn set_faults(&self, faults: &Faults) {
        self.nodes.iter().for_each(|(_, handle)| handle.set_faults(faults.clone()));
    }

    /// Gone from one moment to the next.
    fn kill(&self, node: usize) {
        self.wires.engines.lock().unwrap().remove(&format!("node-{node}"));
        self.nodes[node].1.kill();
    }
}

/// How many of these checks, one after the other, are admitted; and how many of them the owner decided.
pub async fn admitted(engine: &Engine, checks: u64) -> (u64, u64) {
    let (mut admitted, mut owners) = (0, 0);
    for _ in 0..checks {
        let answered = check(engine, "l", "k", 1).await;
        admitted += u64::from(answered.allowed);
        owners += u64::from(answered.checks[0].source == Source::Owner);
    }
    (admitted, owners)
}

#[tokio::test(start_paused = true)]
async fn a_key_is_decided_by_its_owner_wherever_it_is_checked_and_exactly() {
    let ground = Ground::start(3).await;
    let (mut in_all, mut by_owner) = (0, 0);
    for _ in 0..50 {
        for (engine, _) in &ground.nodes {
            let (admitted, owner) = admitted(engine, 10).await;
            (in_all, by_owner) = (in_all + admitted, by_owner + owner);
        }
    }
    assert_eq!(in_all, LIMIT);
    assert!(by_owner > LIMIT * 9 / 10, "of {LIMIT} the owner decided {by_owner}");
    let (leases, _) = ground.nodes[0].0.leases(&name("l"), 10).await.unwrap();
    assert!(leases.len() <= 1, "only the owner holds any: {leases:?}");
}

/// Who decides the last of three checks at a node that doesn't own the key: the first two find out whether there is anything to spend.
async fn decides(ground: &Ground, mechanism: Mechanism, anonymous: Mechanism, identity: Identity) -> Source {
    let definition = Definition {
        mechanism,
        anonymous: Some(anonymous),
        ..definition(Algorithm::FixedWindow, LIMIT, DAY_MS)
    };
    ground.nodes[0].0.put_limit(&name("l"), definition).await.unwrap();
    // Until everybody has heard of it.
    tokio::time::sleep(Duration::from_secs(6)).await;
    let engine = ground.others(ground.owner("k"))[0];
    let mut source = Source::Fallback;
    for _ in 0..3 {
        let calls = [CheckCall { identity, ..call("l", "k", 1) }];
        source = engine.check_limits(&calls, &Wanted::default()).await.unwrap().checks[0].source;
    }
    source
}

#[tokio::test(start_paused = true)]
async fn who_is_known_goes_to_the_owner_and_who_is_not_is_decided_where_they_come_or_the_other_way_round() {
    let ground = Ground::start(3).await;
    for (identity, other) in
        [(Identity::Authenticated, Identity::Anonymous), (Identity::Anonymous, Identity::Authenticated)]
    {
        let (known, unknown) = match identity {
            Identity::Authenticated => (Mechanism::Owned, Mechanism::Leased),
            Identity::Anonymous => (Mechanism::Leased, Mechanism::Owned),
        };
        assert_eq!(decides(&ground, known, unknown, identity).await, Source::Owner, "{identity:?}");
        assert_eq!(decides(&ground, known, unknown, other).await, Source::Local, "{identity:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn checks_for_the_same_owner_that_come_together_go_together() {
    let ground = Ground::start(2).await;
    let owner = ground.owner("k");
    let engine = ground.others(owner)[0].clone();
    admitted(&engine, 10).await;
    let before = ground.wires.batches.load(Ordering::Relaxed);
    let callers: Vec<_> = (0..500)
        .map(|_| {
            let engine = engine.clone();
            tokio::spawn(async move { check(&engine, "l", "k", 1).await.allowed })
        })
        .collect();
    for caller in callers {
        assert!(caller.await.unwrap());
    }
    let batches = ground.wires.batches.load(Ordering::Relaxed) - before;
    assert!(batches < 50, "{batches} batches for 500 checks");
}

#[tokio::test(start_paused = true)]
async fn an_owner_that_dies_burns_at_most_a_chunk_and_admits_nothing_twice() {
    let ground = Ground::start(3).await;
    let owner = ground.owner("k");
    let (before, _) = admitted(ground.others(owner)[0], 300).await;
    assert_eq!(before, 300);
    ground.kill(owner);
    // Nobody knows yet: whoever can't reach the owner asks the store.
    let (meanwhile, by_owner) = admitted(ground.others(owner)[1], 100).await;
    assert_eq!((meanwhile, by_owner), (100, 0));
    tokio::time::sleep(SESSION).await;
    let (after, by_owner) = admitted(ground.others(owner)[0], LIMIT).await;
    assert!(by_owner > 100, "there is a new owner: it decided {by_owner}");
    let in_all = before + meanwhile + after;
    assert!((LIMIT - CHUNK..=LIMIT).contains(&in_all), "{in_all} of {LIMIT}, with chunks of {CHUNK}");
}

#[tokio::test(start_paused = true)]
async fn an_owner_that_drains_burns_nothing() {
    let ground = Ground::start(3).await;
    let owner = ground.owner("k");
    let (before, _) = admitted(ground.others(owner)[0], 300).await;
    ground.nodes[owner].0.drain().await;
    let (after, _) = admitted(ground.others(owner)[0], LIMIT).await;
    assert_eq!(before + after, LIMIT);
}

#[tokio::test(start_paused = true)]
async fn an_owner_that_was_stopped_admits_nothing_beyond_what_it_had() {
    let ground = Ground::start(3).await;
    let owner = ground.owner("k");
    let (before, _) = admitted(&ground.nodes[owner].0, 300).await;
    // Nothing reaches the store any more, and nobody reaches it.
    ground.wires.engines.lock().unwrap().remove(&format!("node-{owner}"));
    ground.nodes[owner].1.set_faults(Faults { lost: 1_000, ..Faults::none() });
    tokio::time::sleep(SESSION).await;
    let (after, _) = admitted(ground.others(owner)[0], LIMIT).await;
    let mut late = 0;
    for _ in 0..5 {
        let calls = [call("l", "k", 1)];
        let wanted = Wanted::default();
        let checking = ground.nodes[owner].0.check_limits(&calls, &wanted);
        let answered = tokio::time::timeout(Duration::from_secs(5), checking).await;
        late += u64::from(matches!(answered, Ok(Ok(answered)) if answered.allowed));
    }
    assert_eq!(late, 0, "its purse is closed");
    assert!(before + after <= LIMIT && before + after >= LIMIT - CHUNK, "{before} and {after}");
}

#[tokio::test(start_paused = true)]
async fn what_an_owner_holds_goes_back_when_another_node_comes_to_own_it() {
    let mut ground = Ground::start(1).await;
    let keys: Vec<_> = (0..40).map(|key| format!("k{key}")).collect();
    for key in &keys {
        for _ in 0..5 {
            assert!(check(&ground.nodes[0].0, "l", key, 1).await.allowed);
        }
    }
    let held = |leases: Vec<baton_engine::limit::LeaseState>, owner: NodeId| {
        let owner = format!("{:016x}", owner.0);
        leases.into_iter().filter(|lease| lease.row.owner == owner && lease.row.amount > 0).count()
    };
    let (leases, _) = ground.nodes[0].0.leases(&name("l"), 100).await.unwrap();
    assert_eq!(held(leases, ground.nodes[0].0.node()), keys.len());
    ground.join().await;
    // A look of the first node's, and one at its purses; well before they would be idle or over.
    tokio::time::sleep(Duration::from_millis(600)).await;
    let moved = keys.iter().filter(|key| ground.owner(key) == 1).count();
    let (leases, _) = ground.nodes[0].0.leases(&name("l"), 100).await.unwrap();
    assert!(moved > 0 && moved < keys.len(), "{moved}");
    assert_eq!(held(leases, ground.nodes[0].0.node()), keys.len() - moved);
}

#[tokio::test(start_paused = true)]
async fn a_hot_key_is_found_and_decided_where_it_is_asked_and_still_exactly() {
    const QUIET: u64 = 1_000;
    let ground = Ground::start(3).await;
    let large = Definition {
        mechanism: Mechanism::Owned,
        lease_ttl_ms: Some(2_000),
        ..definition(Algorithm::FixedWindow, 40_000, DAY_MS)
    };
    ground.nodes[0].0.put_limit(&name("l"), large).await.unwrap();
    let owner = ground.owner("k");
    let other = ground.others(owner)[0];
    let (mut admitted, mut local) = (0, 0);
    let mut forwarded_late = 0;
    for round in 0..3_000_u64 {
        for _ in 0..10 {
            let answered = check(other, "l", "k", 1).await;
            admitted += u64::from(answered.allowed);
            match answered.checks[0].source {
                Source::Owner if round > 2_000 => forwarded_late += 1,
                Source::Local => local += 1,
                _ => {}
            }
        }
        check(other, "l", &format!("quiet-{}", round % QUIET), 1).await;
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let hot: Vec<_> = other.hot_keys().into_iter().map(|found| found.label.1).collect();
    assert_eq!(hot, ["k"]);
    assert!(
        local > 20_000 && forwarded_late == 0,
        "{local} decided here, {forwarded_late} forwarded at the end"
    );
    assert_eq!(admitted, 30_000, "below the limit all pass");
    let mut rest = 0;
    for _ in 0..11_000 {
        for (engine, _) in &ground.nodes {
            rest += u64::from(check(engine, "l", "k", 1).await.allowed);
        }
        if rest >= 10_000 {
            break;
        }
    }
    assert!(rest <= 10_000, "{rest} beside the 30000 before, of 40000");
}

/// Says of every key that the other one owns it.
struct Passing {
    nodes: [NodeId; 2],
    asked: AtomicUsize,
}

impl Peers for Passing {
    fn check<'a>(&'a self, peer: &'a Peer, _ring: u64, calls: &'a [CheckCall]) -> Verdicts<'a> {
        self.asked.fetch_add(calls.len(), Ordering::Relaxed);
        let owner = self.nodes.iter().copied().find(|node| *node != peer.id);
        let verdicts = calls.iter().map(|_| PeerVerdict::NotOwner { owner, ring: None }).collect();
        Box::pin(std::future::ready(Ok(verdicts)))
    }
}

#[tokio::test(start_paused = true)]
async fn who_is_sent_on_asks_once_more_and_then_the_store() {
    let ground = Ground::start(3).await;
    let owner = ground.owner("k");
    let others: Vec<_> = ground.others(owner).into_iter().map(Engine::node).collect();
    let passing =
        Arc::new(Passing { nodes: [ground.nodes[owner].0.node(), others[1]], asked: AtomicUsize::new(0) });
    let handle = ground.store.node(Faults::none());
    let engine = Engine::start(handle, Config::default(), Random::seeded(99)).await.unwrap();
    engine.connect_peers(passing.clone());
    tokio::time::sleep(Duration::from_secs(6)).await;
    let answered = check(&engine, "l", "k", 1).await;
    assert_eq!((answered.allowed, answered.checks[0].source), (true, Source::Central));
    assert_eq!(passing.asked.load(Ordering::Relaxed), 2);
}

#[tokio::test(start_paused = true)]
async fn what_was_forwarded_is_not_forwarded_again_and_strangers_are_known() {
    let ground = Ground::start(3).await;
    let owner = ground.owner("k");
    let other = ground.others(owner)[0];
    let before = ground.wires.batches.load(Ordering::Relaxed);
    let verdicts = other.check_for_peer(None, &[call("l", "k", 1), call("nothing", "k", 1)]).await;
    let owner = Some(ground.nodes[owner].0.node());
    let ring = Some(other.ring().revision());
    assert_eq!(verdicts, [PeerVerdict::NotOwner { owner, ring }, PeerVerdict::Undecided]);
    assert_eq!(ground.wires.batches.load(Ordering::Relaxed), before);
    assert!(!other.is_peer("") && !other.is_peer("c3RyYW5nZXI"));
}

/// A node comes of which the first one doesn't hear, and owns a key that it didn't before.
async fn one_is_behind() -> (Ground, String) {
    let mut ground = Ground::start(2).await;
    // It hears nothing, and when it hears that it has missed something it can't look.
    ground.nodes[0].1.set_faults(Faults { hints_lost: 1_000, refused: 1_000, ..Faults::none() });
    ground.join().await;
    let began = tokio::time::Instant::now();
    let revision = |node: usize| ground.nodes[node].0.ring().revision();
    while revision(1) != revision(2) {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert_ne!(revision(0), revision(2), "the first one knows of it after {:?}", began.elapsed());
    ground.nodes[0].1.set_faults(Faults { hints_lost: 1_000, ..Faults::none() });
    let (behind, second) = (ground.nodes[0].0.ring(), ground.nodes[1].0.ring());
    let third = ground.nodes[2].0.node();
    let owner = |ring: &baton_core::cluster::Ring, key: &str| {
        ring.owner(baton_core::limit::meter_key(&name("l"), key).group)
    };
    let is_it = |key: &String| {
        owner(&behind, key) == Some(ground.nodes[1].0.node()) && owner(&second, key) == Some(third)
    };
    let key = (0..10_000).map(|number| format!("k{number}")).find(is_it).unwrap();
    (ground, key)
}

/// Well before it is time to look at the sessions again.
const SOON: Duration = Duration::from_millis(100);

#[tokio::test(start_paused = true)]
async fn who_is_told_of_another_ring_looks_again_and_asks_an_owner_that_it_didnt_know() {
    let (ground, key) = one_is_behind().await;
    let (first, third) = (&ground.nodes[0].0, &ground.nodes[2].0);
    let began = tokio::time::Instant::now();
    let before = ground.wires.batches.load(Ordering::Relaxed);
    check(first, "l", &key, 1).await;
    assert_eq!(
        ground.wires.batches.load(Ordering::Relaxed),
        before + 2,
        "who it took for the owner, and the owner"
    );
    assert!(began.elapsed() < SOON, "{:?}", began.elapsed());
    assert_eq!(first.ring().revision(), third.ring().revision());
    let behind = OutcomeLabel { outcome: "behind" };
    assert_eq!(first.metrics().other_rings.get_or_create(&behind).get(), 1, "it was the one that was behind");
    check(first, "l", &key, 1).await;
    assert_eq!(ground.wires.batches.load(Ordering::Relaxed), before + 3, "the owner at once");
}

#[tokio::test(start_paused = true)]
async fn who_is_sent_a_check_by_another_ring_looks_whether_it_is_behind() {
    let (ground, key) = one_is_behind().await;
    let (first, third) = (&ground.nodes[0].0, &ground.nodes[2].0);
    first.check_for_peer(Some(first.ring().revision()), &[call("l", &key, 1)]).await;
    tokio::time::sleep(SOON).await;
    assert_ne!(first.ring().revision(), third.ring().revision(), "there was no reason to look");
    first.check_for_peer(Some(third.ring().revision()), &[call("l", &key, 1)]).await;
    tokio::time::sleep(SOON).await;
    assert_eq!(first.ring().revision(), third.ring().revision());
}
