//! What was missed of one other replica, asked for about once in a while.
//!
//! The pause doesn't grow while the other is away, and is a short one at most: one refused connection a round costs little, and after a partition
//! everybody is up to date within two rounds. It does after an answer that makes no sense, and when this replica can't write.

use super::link::Link;
use super::{Lane, NoAnswer, Shared};
use baton_core::crdt::sync::{Next, Repair};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// How many rounds are left out at most after one that failed for another reason than that nobody answered.
const PAUSE_ROUNDS_MAX: u32 = 16;

/// The longest pause while the other is away, however seldom it is asked else: nothing is told to it until it answers.
const AWAY_PAUSE_MAX: Duration = Duration::from_secs(2);

/// Why a round didn't come to its end.
enum Failed {
    /// It is away, or began anew.
    Away(NoAnswer),
    /// Something is wrong that the next round will hardly put right.
    Wrong(String),
}

pub(super) async fn run(shared: Arc<Shared>, link: Arc<Link>) {
    let mut rounds = 1;
    loop {
        let mut pause = shared.options.sync;
        match round(&shared, &link).await {
            Ok(()) => {
                rounds = 1;
                shared.options.metrics.repaired("complete");
                let mut state = link.state();
                state.rounds += 1;
                state.last_round = Some(Instant::now());
                drop(state);
                if !link.up.send_replace(true) {
                    tracing::info!(peer = %link.address, "another replica is there again");
                }
            }
            Err(Failed::Away(error)) => {
                rounds = 1;
                pause = pause.min(AWAY_PAUSE_MAX);
                shared.options.metrics.repaired("away");
                link.state().failures += 1;
                if link.up.send_replace(false) {
                    tracing::warn!(peer = %link.address, %error, "another replica can't be asked");
                }
            }
            Err(Failed::Wrong(error)) => {
                rounds = (rounds * 2).min(PAUSE_ROUNDS_MAX);
                shared.options.metrics.repaired("wrong");
                link.state().failures += 1;
                tracing::error!(peer = %link.address, error, "what another replica has can't be taken in");
            }
        }
        sleep(shared.options.random.jittered(pause * rounds)).await;
    }
}

async fn round(shared: &Shared, link: &Link) -> Result<(), Failed> {
    let replica = &shared.replica;
    // What is written from here on, the other isn't known to have, even if it answers that it has the same.
    let (before, began) = (replica.context(), Instant::now());
    let (mut repair, mut ask) = replica.begin_repair();
    let (mut run, mut is_complete) = (None, true);
    loop {
        let reply = link.ask(shared, Lane::Pull, run, ask).await.map_err(Failed::Away)?;
        run = Some(reply.from);
        if reply.from == replica.actor() {
            return Ok(());
        }
        let wrong = |_| Failed::Wrong("an answer doesn't fit its question".into());
        let (shown, next) = replica.take_answer(&mut repair, reply.answer).map_err(wrong)?;
        is_complete &= compare(shared, &repair, shown).await?;
        match next {
            Next::Ask(next) => ask = next,
            Next::Same => {
                link.has_seen(&before, &replica.context());
                link.caught_up(began);
                return Ok(());
            }
            Next::Adopt(adoption) => {
                let context = adoption.context.clone();
                if is_complete && replica.adopt(adoption).await.map_err(cannot)? {
                    link.caught_up(began);
                }
                link.has_seen(&context, &replica.context());
                return Ok(());
            }
        }
    }
}

/// Whether all of it could be taken in.
async fn compare(
    shared: &Shared,
    repair: &Repair,
    shown: Vec<baton_core::crdt::sync::Shown>,
) -> Result<bool, Failed> {
    let mut is_complete = true;
    for shown in shown {
        let Some(context) = repair.context() else { break };
        let merged = shared.replica.compare(&shown, context).await.map_err(cannot)?;
        shared.options.metrics.repaired_changes.inc_by(merged.taken as u64);
        is_complete &= merged.is_complete();
    }
    Ok(is_complete)
}

fn cannot(failure: crate::replica::Failure) -> Failed {
    Failed::Wrong(failure.to_string())
}
