//! P9: what leased limits ask of the store: 20 nodes on one Redis, 100,000 checks a second between them.

use crate::load::count;
use crate::peers::baton::Baton;
use crate::peers::limits::{LIMIT, define, leased};
use crate::peers::redis::commands_sent;
use crate::progress;
use crate::report::{Row, Target, Unit};
use crate::rows::Bench;
use baton_core::Name;
use baton_core::limit::Identity;
use baton_engine::limit::{CheckCall, Wanted};
use baton_engine::{Config, Engine, Random};
use baton_testkit::servers::redis::Redis;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

const NODES: usize = 20;
const OFFERED_PER_SECOND: u64 = 100_000;
const KEYS: u64 = 100;
/// Each node checks this often, as many as are due then.
const BEAT: Duration = Duration::from_millis(10);
/// Until leases have the size that is spent; and how long is counted. A lease lives 10 s.
const SETTLE: Duration = Duration::from_secs(25);
const COUNTED: Duration = Duration::from_secs(20);

pub async fn measure(bench: &mut Bench<'_>) -> anyhow::Result<()> {
    let (settle, counted) = match bench.options.quick {
        true => (Duration::from_secs(2), Duration::from_secs(2)),
        false => (SETTLE, COUNTED),
    };
    let mut store = Redis::start(&["--appendfsync", "everysec"]).await?;
    let url = format!("redis://{}", store.address);
    let author = Baton::start_with(bench.binary, bench.place, &url).await?;
    define(author.address(), &leased()).await?;
    author.stop().await?;
    let (is_over, checks) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    progress::say(&format!("P9: {NODES} nodes are started"));
    let directory = bench.place.directory()?;
    let (mut nodes, mut tasks) = (Vec::new(), Vec::new());
    for number in 0..NODES {
        let engine = Engine::start(
            baton_store::open(&url, directory.path()).await?,
            Config::default(),
            Random::system(),
        )
        .await?;
        nodes.push(engine.clone());
        tasks.push(tokio::spawn(check(engine, number as u64, is_over.clone(), checks.clone())));
    }
    progress::say(&format!("P9: {OFFERED_PER_SECOND} checks/s at {NODES} nodes, until leases have settled"));
    tokio::time::sleep(settle).await;
    store.say(&["CONFIG", "RESETSTAT"])?;
    let (before, began) = (checks.load(Ordering::Relaxed), Instant::now());
    progress::say(&format!("P9: commands of Redis for {counted:?}"));
    tokio::time::sleep(counted).await;
    let sent = commands_sent(&store)?;
    let checked = checks.load(Ordering::Relaxed) - before;
    let per_second = checked as f64 / began.elapsed().as_secs_f64();
    is_over.store(true, Ordering::Relaxed);
    for task in tasks {
        task.await??;
    }
    for node in &nodes {
        node.drain().await;
    }
    store.end(false).await?;
    bench.report.rows.push(Row {
        id: "P9",
        what: format!(
            "commands of Redis a check of a leased limit, {NODES} nodes, {} checks/s, {KEYS} keys at each",
            count(per_second)
        ),
        ours: format!("{sent} commands"),
        peer: format!("{} checks", count(checked as f64)),
        figure: sent as f64 / checked as f64,
        unit: Unit::Fraction,
        target: Some(Target::AtMost(0.01)),
    });
    bench.report.methods.push((
        "P9",
        format!(
            "{NODES} engines in this process, each with a connection of its own to one Redis, check {KEYS} keys in turn, {OFFERED_PER_SECOND} times a second \
             altogether, of a limit with the usual leases. The commands are `calls` in Redis's own `INFO commandstats` over {} s, after {} s, of all that nodes send: \
             sessions, hints, looks for what has expired and all else that they do is among them. A lease is renewed every third to half of its 10 s whoever spends, so the figure grows \
             with keys and nodes, not with checks.",
            counted.as_secs(),
            settle.as_secs()
        ),
    ));
    Ok(())
}

/// One node's share of the load, evenly over time.
async fn check(
    engine: Engine,
    number: u64,
    is_over: Arc<AtomicBool>,
    checks: Arc<AtomicU64>,
) -> anyhow::Result<()> {
    let wanted = Wanted { principal: "bench".into(), ..Wanted::default() };
    let limit = Name::new("default", LIMIT);
    let mut calls: Vec<_> = (0..KEYS)
        .map(|key| {
            [CheckCall {
                limit: limit.clone(),
                key: format!("customer:{key:06}"),
                cost: 1,
                identity: Identity::default(),
            }]
        })
        .collect();
    // Not all nodes come to the same key at once.
    calls.rotate_left((number * KEYS / NODES as u64) as usize);
    let (began, mut done) = (Instant::now(), 0);
    let mut beat = tokio::time::interval(BEAT);
    while !is_over.load(Ordering::Relaxed) {
        beat.tick().await;
        let due = (began.elapsed().as_secs_f64() * OFFERED_PER_SECOND as f64 / NODES as f64) as u64;
        while done < due {
            let answered = engine.check_limits(&calls[(done % KEYS) as usize], &wanted).await;
            let answered = answered.map_err(|error| anyhow::anyhow!("a check failed: {error:?}"))?;
            anyhow::ensure!(answered.allowed, "a check was refused");
            done += 1;
            checks.fetch_add(1, Ordering::Relaxed);
        }
    }
    Ok(())
}
