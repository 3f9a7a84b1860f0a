//! Three copies of a scheduler, of which one is to dispatch tasks, and another when that one goes.
#![allow(clippy::print_stdout, reason = "an example speaks to whoever runs it")]

use baton_client::fence::{Fenced, FencingToken};
use baton_client::{Baton, secs};
use baton_examples::{copies, unique};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const TASKS: u32 = 12;
/// Each scheduler is replaced by a new build after so many.
const TASKS_OF_A_TERM: u32 = 4;

/// The time between a task and the next.
async fn tick() {
    tokio::time::sleep(Duration::from_millis(10)).await;
}

async fn without(queue: Arc<Mutex<Vec<u32>>>) -> anyhow::Result<()> {
    for task in 1..=TASKS {
        tick().await;
        queue.lock().iter_mut().for_each(|queue| queue.push(task));
    }
    Ok(())
}

/// Stands by until it leads, and goes on where the leader before it stopped.
async fn with(baton: Baton, election: String, queue: Arc<Fenced<Vec<u32>>>) -> anyhow::Result<FencingToken> {
    let led = baton.election(election).ttl(secs(5)).lead(|leader| async move {
        for _ in 0..TASKS_OF_A_TERM {
            let next = queue.read(|queue| queue.last().map_or(1, |last| last + 1));
            tick().await;
            // The queue refuses what comes from a leader that was replaced.
            queue.write(leader.fencing_token(), |queue| queue.push(next))?;
        }
        anyhow::Ok(leader.fencing_token())
    });
    led.await?
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let queue = Arc::<Mutex<Vec<u32>>>::default();
    copies(3, |_| without(queue.clone())).await?;
    let dispatched = queue.lock().map_or(0, |queue| queue.len());
    println!("without an election, 3 schedulers dispatched {TASKS} tasks {dispatched} times");

    let (queue, election) = (Arc::<Fenced<Vec<u32>>>::default(), unique("scheduler"));
    let mut epochs = copies(3, |baton| with(baton, election.clone(), queue.clone())).await?;
    let dispatched = queue.read(Vec::len);
    println!(
        "with an election, 3 schedulers dispatched {TASKS} tasks {dispatched} times, one after the other"
    );
    anyhow::ensure!(queue.read(|queue| queue.iter().copied().eq(1..=TASKS)), "{queue:?}");

    epochs.sort();
    let late = queue.write(epochs[0], |queue| queue.push(TASKS + 1));
    anyhow::ensure!(late.is_err(), "the first leader's late task was taken");
    println!("what the first leader still wanted to dispatch was refused");
    Ok(())
}
