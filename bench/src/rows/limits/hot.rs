//! How long checks of quiet keys take beside one that is hot (M3).
//!
//! What is compared is two storms of as many clients: all of one is for one key, and the other is spread over many. So what shows is that a key is hot,
//! and not that the machine is busy: storm, nodes and store share its processors, and whoever takes all of them slows everybody down by the
//! scheduler alone. How it is without any storm, and with one key that nothing is done about, is said beside it.

use crate::http::Connection;
use crate::load::{self, Client, Sample};
use crate::peers::baton::Baton;
use crate::peers::limits::{central, check, define};
use crate::progress;
use crate::report::{Row, Target, Unit};
use crate::rows::Bench;
use anyhow::ensure;
use baton_client::LimitDefinition;
use baton_client::wire_limit::{HotKey, Mechanism};
use baton_testkit::servers::redis::Redis;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

const NODES: usize = 3;
const QUIET: usize = 1_000;
const QUIET_CLIENTS: usize = 6;
const STORM_CLIENTS: usize = 30;
/// Nodes know each other within this time, and list a key that is hot.
const KNOWN_MAX: Duration = Duration::from_secs(30);
/// More checks a second than there are: a cap that does nothing, and leaves a hot key with its owner.
const CAP_NEVER: u64 = 1_000_000;

/// Checks keys in turn.
struct Turns {
    connection: Connection,
    requests: Vec<Vec<u8>>,
    next: usize,
}

impl Client for Turns {
    async fn operate(&mut self) -> anyhow::Result<Duration> {
        let began = Instant::now();
        self.connection.exchange(&self.requests[self.next]).await?;
        self.next = (self.next + 1) % self.requests.len();
        Ok(began.elapsed())
    }
}

/// Clients spread over the nodes, each beginning elsewhere among the keys.
async fn clients(nodes: &[SocketAddr], count: usize, keys: &[String]) -> anyhow::Result<Vec<Turns>> {
    let mut clients = Vec::with_capacity(count);
    for client in 0..count {
        let connection = Connection::open(nodes[client % nodes.len()]).await?;
        let requests = keys.iter().map(|key| check(key)).collect();
        clients.push(Turns { connection, requests, next: client * keys.len() / count });
    }
    Ok(clients)
}

pub async fn measure(bench: &mut Bench<'_>) -> anyhow::Result<()> {
    let (length, turns) = (bench.options.length(), bench.options.turns());
    let mut store = Redis::start(&[]).await?;
    let mut nodes = Vec::new();
    for _ in 0..NODES {
        nodes
            .push(Baton::start_with(bench.binary, bench.place, &format!("redis://{}", store.address)).await?);
    }
    let addresses: Vec<_> = nodes.iter().map(Baton::address).collect();
    let owned =
        LimitDefinition { mechanism: Some(Mechanism::Owned), hot_key: Some(HotKey::Delegate), ..central() };
    let unmitigated =
        LimitDefinition { hot_key: Some(HotKey::Cap), hot_key_cap: Some(CAP_NEVER), ..owned.clone() };
    let baton = define(addresses[0], &owned).await?;
    let until = Instant::now() + KNOWN_MAX;
    while baton.ring().await?.nodes.len() < NODES {
        ensure!(Instant::now() < until, "the nodes don't know each other");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let quiet_keys: Vec<_> = (0..QUIET).map(|key| format!("quiet:{key:06}")).collect();
    let many_keys: Vec<_> = (0..QUIET).map(|key| format!("many:{key:06}")).collect();
    let mut quiet = clients(&addresses, QUIET_CLIENTS, &quiet_keys).await?;
    let mut even = clients(&addresses, STORM_CLIENTS, &many_keys).await?;
    let mut hot = clients(&addresses, STORM_CLIENTS, &["hot".to_owned()]).await?;
    let (mut alone, mut beside_hot, mut beside_even) = (Vec::new(), Vec::new(), Vec::new());
    let (mut storms, mut beside_unmitigated) = (Vec::new(), Vec::new());
    // Until every key has been seen, and the one is hot everywhere.
    (quiet, _) = load::run(quiet, length).await?;
    let mut listed_s = None;
    let began = Instant::now();
    while listed_s.is_none() {
        (hot, _) = load::run(hot, Duration::from_millis(250)).await?;
        let is_listed = baton.hot_keys().await?.hot_keys.iter().any(|found| found.key == "hot");
        listed_s = is_listed.then(|| began.elapsed().as_secs_f64());
        ensure!(began.elapsed() < KNOWN_MAX, "the hot key isn't listed");
    }
    for turn in 1..=turns {
        progress::say(&format!("hot key: quiet keys beside a storm, round {turn} of {turns}"));
        let (a, b) = tokio::try_join!(load::run(quiet, length), load::run(hot, length))?;
        (quiet, hot) = (a.0, b.0);
        beside_hot.push(a.1);
        storms.push(b.1);
        let a = load::run(quiet, length).await?;
        quiet = a.0;
        alone.push(a.1);
        let (a, b) = tokio::try_join!(load::run(quiet, length), load::run(even, length))?;
        (quiet, even) = (a.0, b.0);
        beside_even.push(a.1);
    }
    define(addresses[0], &unmitigated).await?;
    for turn in 1..=turns {
        progress::say(&format!("hot key: the same with nothing done about it, round {turn} of {turns}"));
        let (a, b) = tokio::try_join!(load::run(quiet, length), load::run(hot, length))?;
        (quiet, hot) = (a.0, b.0);
        beside_unmitigated.push(a.1);
    }
    let (ours, theirs) = (Sample::median(&beside_hot), Sample::median(&beside_even));
    let (alone, unmitigated) = (Sample::median(&alone), Sample::median(&beside_unmitigated));
    let storm = load::count(Sample::median(&storms).per_second);
    bench.report.rows.push(Row {
        id: "hot key",
        what: format!("p99 of checks of {QUIET} quiet keys beside {storm} checks/s of one key, against as many clients spread over {QUIET}"),
        ours: ours.show(),
        peer: theirs.show(),
        figure: ours.p99_ms / theirs.p99_ms,
        unit: Unit::Times,
        target: Some(Target::AtMost(2.0)),
    });
    bench.report.methods.push((
        "hot key",
        format!(
            "{NODES} `baton serve` on one Redis and an owned limit with `hotKey: delegate`. {QUIET_CLIENTS} clients check {QUIET} keys in turn, at all nodes, beside \
             {STORM_CLIENTS} clients that check one key, and, in turns with that, beside as many that check {QUIET} others. The key was listed by `/v1/hotkeys` {:.1} s after its first check. \
             Without any storm the quiet keys' checks are {} ({:.1} times as slow beside the hot key): most of that is the machine, whose processors the storm takes, so it is no \
             figure of what a hot key does to its neighbours; beside a hot key that stays with its owner they are {}.",
            listed_s.unwrap_or_default(),
            alone.show(),
            ours.p99_ms / alone.p99_ms,
            unmitigated.show(),
        ),
    ));
    for node in nodes {
        node.stop().await?;
    }
    store.end(false).await
}
