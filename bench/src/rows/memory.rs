//! P12: what a held lock and a waiter take of the server's memory.

use super::Bench;
use crate::http::Lines;
use crate::load::count;
use crate::peers::baton::{Baton, LockUser};
use crate::progress;
use crate::report::{Row, Target, Unit};
use std::time::Duration;

const LOCKS: usize = 200_000;
const WAITERS: usize = 5_000;
/// Histories are written, and memory settles.
const SETTLE: Duration = Duration::from_secs(3);

/// Who waits for what.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Waiters {
    /// Each on a connection of its own, all for one lock.
    OneLock,
    /// Each on a connection of its own, each for a lock of its own.
    ManyLocks,
    /// 256 in a request, all for one lock.
    Batched,
}

impl Waiters {
    fn describe(self) -> &'static str {
        match self {
            Self::OneLock => "one lock, a connection each",
            Self::ManyLocks => "a lock each, a connection each",
            Self::Batched => "one lock, 256 in a request: the waiter itself",
        }
    }
}

pub async fn measure(bench: &mut Bench<'_>) -> anyhow::Result<()> {
    let locks = bench.options.size(LOCKS);
    progress::say(&format!("P12: memory of {locks} held locks"));
    let baton = started(bench).await?;
    let before = baton.process.resident_bytes()?;
    baton.hold("inventory:sku:", locks).await?;
    tokio::time::sleep(SETTLE).await;
    let grown = baton.process.resident_bytes()?.saturating_sub(before);
    baton.stop().await?;
    bench.report.rows.push(row("resident memory a held lock".into(), grown, locks, Some(600.0)));
    let waiters = bench.options.size(WAITERS);
    for kind in [Waiters::Batched, Waiters::OneLock, Waiters::ManyLocks] {
        progress::say(&format!("P12: memory of {waiters} waiters, {}", kind.describe()));
        let baton = started(bench).await?;
        let grown = waiting(&baton, kind, waiters).await?;
        baton.stop().await?;
        let what = format!("resident memory a waiter, {}", kind.describe());
        let target = (kind == Waiters::Batched).then_some(1024.0);
        bench.report.rows.push(row(what, grown, waiters, target));
    }
    bench.report.methods.push((
        "P12",
        "growth of the server's resident memory (VmRSS), divided; keys like `inventory:sku:123456`, owners like \
         `order-service-pod-7f9c`; 3 s later, so that histories are written. Waiters with a connection each include what \
         the HTTP server keeps for a connection; waiters that share requests show what waiting itself takes."
            .into(),
    ));
    Ok(())
}

fn row(what: String, grown: u64, things: usize, target: Option<f64>) -> Row {
    Row {
        id: "P12",
        what,
        ours: format!("{:.1} MiB for {}", grown as f64 / f64::from(1 << 20), count(things as f64)),
        peer: String::new(),
        figure: grown as f64 / things as f64,
        unit: Unit::Bytes,
        target: target.map(Target::AtMost),
    }
}

/// A server that has done a bit of everything, so that what is needed once has been allocated.
async fn started(bench: &Bench<'_>) -> anyhow::Result<Baton> {
    let baton = Baton::start(bench.binary, bench.place).await?;
    baton.hold("first:", 2_000).await?;
    tokio::time::sleep(SETTLE).await;
    Ok(baton)
}

/// Growth by so many waiters.
async fn waiting(baton: &Baton, kind: Waiters, waiters: usize) -> anyhow::Result<u64> {
    let locks = if kind == Waiters::ManyLocks { waiters } else { 1 };
    baton.hold("wanted:", locks).await?;
    tokio::time::sleep(SETTLE).await;
    let before = baton.process.resident_bytes()?;
    let mut open: Vec<Lines> = Vec::new();
    if kind == Waiters::Batched {
        open = baton.queue("wanted:000000", waiters).await?;
    } else {
        for waiter in 0..waiters {
            let key = format!("wanted:{:06}", waiter % locks);
            let user = LockUser::connect(baton.address(), &key, true).await?;
            open.push(user.begin_acquire().await?);
        }
        let last = format!("wanted:{:06}", locks - 1);
        baton.queued(&last, waiters / locks).await?;
    }
    tokio::time::sleep(SETTLE).await;
    let after = baton.process.resident_bytes()?;
    drop(open);
    Ok(after.saturating_sub(before))
}
