//! When this run may take over what earlier ones of its directory counted: once every other replica has all that this one has, the
//! claim too, and this one all that they have (see `baton_core::crdt::heirs`).
//!
//! While one of them is away, it waits. Without any others it needn't, if there never were any: else somebody who is not in sight may know more.

use super::Shared;
use super::link::Link;
use crate::replica::Failure;
use baton_core::crdt::Actor;
use std::sync::Weak;
use tokio::time::{Instant, sleep};

/// Rounds with every other replica that have to be through after all of them have heard of a claim.
pub(super) const ROUNDS: usize = 2;

pub(super) async fn run(shared: Weak<Shared>) {
    loop {
        let Some(strong) = shared.upgrade() else { return };
        let (pause, runs) =
            (strong.options.random.jittered(strong.options.sync), strong.replica.inheritance());
        drop(strong);
        if runs.is_empty() {
            // A run has no more of them later on.
            return;
        }
        // First of all: who the others are may take a moment to be found.
        sleep(pause).await;
        match take_over(&shared, &runs).await {
            Some(Ok(rows)) => {
                tracing::info!(runs = runs.len(), rows, "what earlier runs counted is this one's now");
                return;
            }
            Some(Err(failure)) => tracing::warn!(%failure, "what earlier runs counted stays theirs for now"),
            None => return,
        }
    }
}

/// Nothing if replication has ended.
async fn take_over(shared: &Weak<Shared>, runs: &[Actor]) -> Option<Result<usize, Failure>> {
    let replica = shared.upgrade()?.replica.clone();
    wait(shared, |shared| shared.all_others(|_| true)).await?;
    if let Err(failure) = replica.claim(runs).await {
        return Some(Err(failure));
    }
    let claimed = replica.context();
    wait(shared, |shared| shared.all_others(|link| link.has(&claimed))).await?;
    let heard = Instant::now();
    wait(shared, |shared| shared.all_others(|link| link.was_asked_since(heard))).await?;
    let rows = match replica.inherit(runs).await {
        Ok(rows) => rows,
        Err(failure) => return Some(Err(failure)),
    };
    let done = replica.context();
    wait(shared, |shared| shared.all_others(|link| link.has(&done))).await?;
    Some(replica.settle_claims(runs).await.map(|()| rows))
}

/// Looks again and again, as often as others are asked.
async fn wait(shared: &Weak<Shared>, is_so: impl Fn(&Shared) -> bool) -> Option<()> {
    loop {
        let strong = shared.upgrade()?;
        if is_so(&strong) {
            return Some(());
        }
        let pause = strong.options.random.jittered(strong.options.sync);
        drop(strong);
        sleep(pause).await;
    }
}

impl Shared {
    /// Whether it is so of every other replica. If none is in sight, whether there never was one.
    fn all_others(&self, is_so: impl Fn(&Link) -> bool) -> bool {
        let links = self.links();
        let mut others = links.values().filter(|running| !running.link.state().is_self).peekable();
        if others.peek().is_none() {
            return self.replica.was_always_alone();
        }
        others.all(|running| is_so(&running.link))
    }
}
