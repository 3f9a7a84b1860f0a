//! P12: what a limiter's key takes, in a process that decides for itself and at a node.

use crate::http::post;
use crate::load::count;
use crate::peers::baton::Baton;
use crate::peers::limits::{LIMIT, define, leased_long};
use crate::progress;
use crate::report::{Row, Target, Unit};
use crate::rows::Bench;
use anyhow::{Context, ensure};
use baton_testkit::servers::redis::Redis;
use std::net::SocketAddr;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

const KEYS: usize = 1_000_000;
const CALLERS: usize = 64;
/// Keys checked in one request.
const TOGETHER: usize = 16;
/// Keys checked before memory is looked at, so that what is needed once is there.
const BEFORE: usize = 1_000;
const SETTLE: Duration = Duration::from_secs(3);
/// The process that leases them all is given up on after this.
const LEASED_MAX: Duration = Duration::from_secs(15 * 60);

/// What this program is started with to be such a process; nobody else needs it.
#[derive(clap::Args, Debug)]
pub struct HolderOptions {
    #[arg(long)]
    server: SocketAddr,
    #[arg(long)]
    keys: usize,
}

pub async fn measure(bench: &mut Bench<'_>) -> anyhow::Result<()> {
    for keys in [KEYS / 10, KEYS].map(|keys| bench.options.size(keys)) {
        in_process(bench, keys).await?;
    }
    at_node(bench, bench.options.size(KEYS)).await?;
    bench.report.methods.push((
        "P12, limits",
        format!(
            "keys like `customer:123456`. In the SDK: growth of a process's resident memory, with this program's allocator, when every key has been checked and has a lease. At \
             the node: growth of `baton serve --store redis://…`, whose meters are in Redis, when every key was checked twice over {CALLERS} \
             connections, {TOGETHER} keys a request, and has a lease: the first check makes a key known, the second leases. That many were granted, by \
             the node's own count, and they live for an hour. A node gives leases to 1,048,576 keys at a time and asks the store for the others."
        ),
    ));
    Ok(())
}

async fn in_process(bench: &mut Bench<'_>, keys: usize) -> anyhow::Result<()> {
    progress::say(&format!("P12: memory of {keys} keys in the SDK's limiter"));
    let baton = Baton::start(bench.binary, bench.place).await?;
    define(baton.address(), &leased_long()).await?;
    let mut holder = tokio::process::Command::new(std::env::current_exe()?);
    let (server, number) = (baton.address().to_string(), keys.to_string());
    holder.args(["holder", "--server", &server, "--keys", &number]).kill_on_drop(true);
    let output = tokio::time::timeout(LEASED_MAX, holder.output()).await.context("it takes too long")??;
    let said = String::from_utf8_lossy(&output.stdout);
    let grown: u64 = said.trim().parse().with_context(|| {
        format!("the process that holds leases failed: {}", String::from_utf8_lossy(&output.stderr))
    })?;
    baton.stop().await?;
    // A million take a while, and the node's come after them.
    progress::say(&format!("P12: {} bytes a key of {keys} in the SDK's limiter", grown / keys as u64));
    bench.report.rows.push(row("resident memory a leased key in the SDK's limiter", grown, keys));
    Ok(())
}

async fn at_node(bench: &mut Bench<'_>, keys: usize) -> anyhow::Result<()> {
    progress::say(&format!("P12: memory of {keys} keys of a leased limit at a node"));
    let mut store = Redis::start(&["--appendfsync", "no"]).await?;
    let node = Baton::start_with(bench.binary, bench.place, &format!("redis://{}", store.address)).await?;
    define(node.address(), &leased_long()).await?;
    check_twice(node.address(), 0..BEFORE).await?;
    tokio::time::sleep(SETTLE).await;
    let before = node.process.resident_bytes()?;
    let checking = check_twice(node.address(), BEFORE..keys);
    tokio::time::timeout(LEASED_MAX, checking).await.context("it takes too long")??;
    tokio::time::sleep(SETTLE).await;
    let leased = leases_granted(node.address()).await?;
    ensure!(leased >= keys, "only {leased} of {keys} keys have a lease");
    let grown = node.process.resident_bytes()?.saturating_sub(before);
    node.stop().await?;
    store.end(false).await?;
    bench.report.rows.push(row("resident memory a key of a leased limit at a node", grown, keys - BEFORE));
    Ok(())
}

fn row(what: &str, grown: u64, keys: usize) -> Row {
    Row {
        id: "P12",
        what: what.into(),
        ours: format!("{:.1} MiB for {}", grown as f64 / f64::from(1 << 20), count(keys as f64)),
        peer: String::new(),
        figure: grown as f64 / keys as f64,
        unit: Unit::Bytes,
        target: Some(Target::AtMost(200.0)),
    }
}

/// Checks keys, each twice.
async fn check_twice(address: SocketAddr, keys: Range<usize>) -> anyhow::Result<()> {
    let next = Arc::new(AtomicUsize::new(keys.start));
    let callers: Vec<_> =
        (0..CALLERS).map(|_| tokio::spawn(check_each(address, next.clone(), keys.end))).collect();
    for caller in callers {
        caller.await??;
    }
    Ok(())
}

/// Checks keys from the next on, some at a time, until there are no more. Those again at once, as a key that comes once is soon forgotten.
async fn check_each(address: SocketAddr, next: Arc<AtomicUsize>, end: usize) -> anyhow::Result<()> {
    let mut connection = crate::http::Connection::open(address).await?;
    loop {
        let first = next.fetch_add(TOGETHER, Ordering::Relaxed);
        if first >= end {
            return Ok(());
        }
        let keys = first..(first + TOGETHER).min(end);
        let checks: Vec<_> =
            keys.map(|key| format!(r#"{{"limit":"{LIMIT}","key":"customer:{key:06}"}}"#)).collect();
        let body = format!(r#"{{"checks":[{}]}}"#, checks.join(","));
        for _ in 0..2 {
            connection.exchange(&post("/v1/limits:check", &body)).await?;
        }
    }
}

/// How many leases the node was granted, as it counts them itself.
async fn leases_granted(address: SocketAddr) -> anyhow::Result<usize> {
    let mut connection = crate::http::Connection::open(address).await?;
    let metrics = connection.exchange(b"GET /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n").await?;
    let metrics = std::str::from_utf8(metrics)?;
    let line = metrics.lines().find(|line| line.contains("lease_renewals") && line.contains("\"granted\""));
    let count = line.and_then(|line| line.rsplit(' ').next()).context("no leases were granted")?;
    Ok(count.parse()?)
}

/// Leases so many keys, says on standard output by how much its memory has grown, and ends.
pub fn hold(options: &HolderOptions) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let baton = baton_client::Baton::connect(format!("http://{}", options.server)).await?;
        // What is needed once is there before it is looked at.
        super::sdk::lease_all(&baton.limiter(LIMIT), 1_000, |key| format!("before:{key:06}")).await?;
        let limiter = baton.limiter(LIMIT);
        let before = resident_bytes()?;
        super::sdk::lease_all(&limiter, options.keys, |key| format!("customer:{key:06}")).await?;
        tokio::time::sleep(SETTLE).await;
        println!("{}", resident_bytes()?.saturating_sub(before));
        for key in [0, options.keys - 1] {
            ensure!(limiter.check_now(format!("customer:{key:06}"), 1) == Some(true), "a lease is gone");
        }
        Ok(())
    })
}

fn resident_bytes() -> anyhow::Result<u64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("no VmRSS")?;
    let kib: u64 = line.trim().trim_end_matches("kB").trim().parse()?;
    Ok(kib * 1024)
}
