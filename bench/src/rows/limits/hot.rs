//! How long checks of quiet keys take beside one that is hot (M3).
//!
//! Two nodes, each on a core of its own, as they would be on machines of their own. The storm enters at one of them, and is as many checks as that core
//! gives for both the node and who asks. The hot key and its quiet neighbours belong to the other node, which shares its core with the store and those who
//! ask for the quiet keys. So what shows is what a hot key does to the node that owns it, and not that threads wait for a core.

use crate::cores::{self, Pinned};
use crate::http::{Connection, post};
use crate::load::{self, Client, Sample};
use crate::peers::baton::Baton;
use crate::peers::limits::{Handler, LIMIT, central};
use crate::progress;
use crate::report::{Row, Target, Unit};
use crate::rows::Bench;
use anyhow::{Context, ensure};
use baton_client::LimitDefinition;
use baton_client::wire_limit::{HotKey, Mechanism};
use baton_core::Name;
use baton_core::limit::meter_group;
use baton_testkit::servers::redis::Redis;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

const STORM_CORE: usize = 0;
const OWNER_CORE: usize = 1;
const QUIET: usize = 1_000;
/// Each of these checks a quiet key every so often: 2,000 checks a second, two of each key.
const QUIET_CLIENTS: usize = 8;
const QUIET_EVERY: Duration = Duration::from_millis(4);
const STORM_CLIENTS: usize = 32;
/// A storm blows for so long before it is looked at what it does: by then its key is known to be hot.
const LEAD: Duration = Duration::from_secs(2);
/// Nodes know each other within this time, and list a key that is hot.
const KNOWN_MAX: Duration = Duration::from_secs(30);
/// More checks a second than there are: a cap that does nothing, and leaves a hot key with its owner.
const CAP_NEVER: u64 = 1_000_000;
/// The limits of the two hot keys, beside that of the quiet ones.
const DELEGATED: &str = "delegated";
const LEFT: &str = "left";

/// Checks keys in turn, at a pace or as fast as it gets answers.
struct Turns {
    connection: Connection,
    requests: Vec<Vec<u8>>,
    next: usize,
    pace: Option<(Instant, Duration)>,
}

impl Client for Turns {
    async fn operate(&mut self) -> anyhow::Result<Duration> {
        if let Some((at, every)) = &mut self.pace {
            tokio::time::sleep_until((*at).into()).await;
            // Who is late doesn't catch up: nobody asks for quiet keys in bursts.
            *at = Instant::now().max(*at) + *every;
        }
        let began = Instant::now();
        self.connection.exchange(&self.requests[self.next]).await?;
        self.next = (self.next + 1) % self.requests.len();
        Ok(began.elapsed())
    }
}

fn check(limit: &str, key: &str) -> Vec<u8> {
    post(&format!("/v1/limits/{limit}/check"), &format!(r#"{{"key":"{key}"}}"#))
}

/// Those who check the quiet keys, each beginning elsewhere among them.
async fn quiet_clients(node: SocketAddr, keys: &[String]) -> anyhow::Result<Vec<Turns>> {
    let mut clients = Vec::with_capacity(QUIET_CLIENTS);
    for client in 0..QUIET_CLIENTS {
        let connection = Connection::open(node).await?;
        let requests = keys.iter().map(|key| check(LIMIT, key)).collect();
        let first = Instant::now() + QUIET_EVERY * client as u32 / QUIET_CLIENTS as u32;
        let next = client * keys.len() / QUIET_CLIENTS;
        clients.push(Turns { connection, requests, next, pace: Some((first, QUIET_EVERY)) });
    }
    Ok(clients)
}

/// A storm of checks of one key for so long, on a thread and a core of its own.
async fn storm(node: SocketAddr, limit: &'static str, key: &str, length: Duration) -> anyhow::Result<Sample> {
    let (request, (said, heard)) = (check(limit, key), tokio::sync::oneshot::channel());
    let blow = move || {
        let _pinned = Pinned::to(STORM_CORE)?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            let mut clients = Vec::with_capacity(STORM_CLIENTS);
            for _ in 0..STORM_CLIENTS {
                let connection = Connection::open(node).await?;
                clients.push(Turns { connection, requests: vec![request.clone()], next: 0, pace: None });
            }
            Ok(load::run(clients, length).await?.1)
        })
    };
    // Who doesn't wait for it any more needs no answer.
    std::thread::spawn(move || drop(said.send(blow())));
    heard.await.context("a storm failed")?
}

/// The nodes: where the storm enters, and where the keys belong.
struct Ground {
    storm: Baton,
    owner: Baton,
    store: Redis,
    /// As the ring has it.
    owned: Vec<bool>,
}

impl Ground {
    async fn start(bench: &Bench<'_>) -> anyhow::Result<Self> {
        let (owner, store) = {
            let _pinned = Pinned::to(OWNER_CORE)?;
            let store = Redis::start(&[]).await?;
            let url = format!("redis://{}", store.address);
            (Baton::start_with(bench.binary, bench.place, &url).await?, store)
        };
        let storm = {
            let _pinned = Pinned::to(STORM_CORE)?;
            Baton::start_with(bench.binary, bench.place, &format!("redis://{}", store.address)).await?
        };
        let mut ground = Self { storm, owner, store, owned: Vec::new() };
        ground.know_each_other().await?;
        Ok(ground)
    }

    async fn know_each_other(&mut self) -> anyhow::Result<()> {
        let until = Instant::now() + KNOWN_MAX;
        for node in [self.storm.address(), self.owner.address()] {
            let baton = baton_client::Baton::connect(format!("http://{node}")).await?;
            let mut ring = baton.ring().await?;
            while ring.nodes.len() < 2 {
                ensure!(Instant::now() < until, "the nodes don't know each other");
                tokio::time::sleep(Duration::from_millis(100)).await;
                ring = baton.ring().await?;
            }
            let address = self.owner.address().to_string();
            let is_owner = |place: &u64| {
                ring.nodes
                    .get(*place as usize)
                    .is_some_and(|node| node.address.as_deref() == Some(address.as_str()))
            };
            self.owned = ring.owners.iter().map(is_owner).collect();
        }
        Ok(())
    }

    /// The first keys of a limit that belong to the owner.
    fn keys(&self, limit: &str, count: usize) -> Vec<String> {
        let name = Name::new("default", limit);
        let keys = (0_u64..).map(|number| format!("key:{number:06}"));
        keys.filter(|key| self.owned[usize::from(meter_group(&name, key).0)]).take(count).collect()
    }
}

/// What the quiet keys' checks took: without a storm, with one whose key is delegated, with one whose key is left at its owner, and with one that has
/// nothing to do with them: a bare handler's, on the storm's core.
#[derive(Default)]
struct Beside {
    nothing: Vec<Sample>,
    delegated: Vec<Sample>,
    left: Vec<Sample>,
    unrelated: Vec<Sample>,
}

pub async fn measure(bench: &mut Bench<'_>) -> anyhow::Result<()> {
    cores::need(2)?;
    let (length, turns) = (bench.options.length(), bench.options.turns());
    let ground = Ground::start(bench).await?;
    let _pinned = Pinned::to(OWNER_CORE)?;
    let delegate =
        LimitDefinition { mechanism: Some(Mechanism::Owned), hot_key: Some(HotKey::Delegate), ..central() };
    let leave =
        LimitDefinition { hot_key: Some(HotKey::Cap), hot_key_cap: Some(CAP_NEVER), ..delegate.clone() };
    let baton = baton_client::Baton::connect(format!("http://{}", ground.owner.address())).await?;
    for (limit, definition) in [(LIMIT, &delegate), (DELEGATED, &delegate), (LEFT, &leave)] {
        baton.limits().put(limit, definition).await?;
    }
    let quiet_keys = ground.keys(LIMIT, QUIET);
    let hot_keys = [DELEGATED, LEFT].map(|limit| ground.keys(limit, 1).remove(0));
    let entry = ground.storm.address();
    let handler = {
        let _pinned = Pinned::to(STORM_CORE)?;
        Handler::start(false).await?
    };
    let unrelated = handler.process.address;
    let mut sides = Vec::new();
    for node in [ground.owner.address(), entry] {
        // Until every key has been seen, and has what its owner spends of it.
        let quiet = quiet_clients(node, &quiet_keys).await?;
        let (quiet, _) = load::run(quiet, Duration::from_secs(2)).await?;
        sides.push((quiet, Beside::default()));
    }
    let listed_s = {
        let key = hot_keys[0].clone();
        let blowing = tokio::spawn(async move { storm(entry, DELEGATED, &key, 2 * LEAD).await });
        let began = Instant::now();
        while !baton.hot_keys().await?.hot_keys.iter().any(|found| found.limit == DELEGATED) {
            ensure!(began.elapsed() < KNOWN_MAX, "the hot key isn't listed");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let listed_s = began.elapsed().as_secs_f64();
        blowing.await??;
        listed_s
    };
    let (mut delegated, mut left, mut others) = (Vec::new(), Vec::new(), Vec::new());
    for turn in 1..=turns {
        progress::say(&format!("hot key: quiet keys beside a storm, round {turn} of {turns}"));
        for (quiet, beside) in &mut sides {
            let (back, sample) = load::run(std::mem::take(quiet), length).await?;
            beside.nothing.push(sample);
            *quiet = back;
            for (at, limit, key, samples, storms) in [
                (entry, DELEGATED, &hot_keys[0], &mut beside.delegated, &mut delegated),
                (entry, LEFT, &hot_keys[1], &mut beside.left, &mut left),
                (unrelated, DELEGATED, &hot_keys[0], &mut beside.unrelated, &mut others),
            ] {
                let blowing = storm(at, limit, key, LEAD + length);
                let asking = async {
                    tokio::time::sleep(LEAD).await;
                    load::run(std::mem::take(quiet), length).await
                };
                let (blown, asked) = tokio::try_join!(blowing, asking)?;
                storms.push(blown);
                samples.push(asked.1);
                *quiet = asked.0;
            }
        }
    }
    let storms = [&delegated, &left, &others].map(|storms| load::count(Sample::median(storms).per_second));
    for ((_, beside), (at, target)) in
        sides.iter().zip([("their owner", Some(Target::AtMost(2.0))), ("the storm's node", None)])
    {
        let ours = Sample::median(&beside.delegated);
        let nothing = format!(
            "p99 of checks of {QUIET} quiet keys at {at}, beside {} checks/s of a delegated hot key against no storm",
            storms[0]
        );
        let unrelated = format!(
            "the same, against {} requests/s to a bare handler on the storm's core, which are no checks at all",
            storms[2]
        );
        for (what, peer, target) in [(nothing, &beside.nothing, target), (unrelated, &beside.unrelated, None)]
        {
            let peer = Sample::median(peer);
            bench.report.rows.push(Row {
                id: "hot key",
                what,
                ours: ours.show(),
                peer: peer.show(),
                figure: ours.p99_ms / peer.p99_ms,
                unit: Unit::Times,
                target,
            });
        }
    }
    let left = sides.iter().map(|(_, beside)| {
        let (left, alone) = (Sample::median(&beside.left), Sample::median(&beside.nothing));
        format!("{} ({:.2} times)", left.show(), left.p99_ms / alone.p99_ms)
    });
    bench.report.methods.push((
        "hot key",
        format!(
            "two `baton serve`, each kept on a core of its own as on a machine of its own, on one Redis, and owned limits. The storm's node shares its core with the storm: {STORM_CLIENTS} \
             clients that check one key as fast as they are answered. The hot key and the {QUIET} quiet ones belong to the other node, which shares its core with Redis and the \
             {QUIET_CLIENTS} clients of the quiet keys, {:.0} checks/s in all. The key was listed at its owner by `/v1/hotkeys` {listed_s:.1} s after its first check. Beside a hot key that is \
             left at its owner ({} checks/s, `cap` with a number that is never reached) the quiet keys' checks are, at their owner and at the storm's node, {}.",
            QUIET_CLIENTS as f64 / QUIET_EVERY.as_secs_f64(),
            storms[1],
            left.collect::<Vec<_>>().join(" and "),
        ),
    ));
    let Ground { storm, owner, mut store, .. } = ground;
    handler.process.stop().await?;
    storm.stop().await?;
    owner.stop().await?;
    store.end(false).await
}
