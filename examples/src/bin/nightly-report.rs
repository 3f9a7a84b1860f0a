//! A job's worker sends the nightly report and dies before it can say so. The job promises that it is done, so another does it
//! again: with the same run id, and a higher token.
#![allow(clippy::print_stdout, reason = "an example speaks to whoever runs it")]

use anyhow::Context;
use baton_client::fence::Fenced;
use baton_client::wire_job::{Guarantee, JobDefinition, JobTarget, Retry, WorkerTarget};
use baton_client::worker::WorkerRun;
use baton_client::{Baton, secs};
use baton_examples::{server, unique};
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Duration;

/// Reports that were sent, by the run that sent them.
type Sent = Fenced<BTreeMap<String, String>>;

/// Has the job run once. Its first worker does the work and is never heard of again; a second one finishes it.
async fn night(baton: &Baton, mut work: impl FnMut(&WorkerRun) -> anyhow::Result<()>) -> anyhow::Result<()> {
    let name = unique("nightly-report");
    let target = JobTarget::Worker(WorkerTarget { queue: name.clone(), payload: None });
    let job = JobDefinition {
        guarantee: Some(Guarantee::EffectivelyOnce),
        retry: Some(Retry { backoff_millis: Some(10), ..Retry::default() }),
        ..JobDefinition::new(target)
    };
    baton.jobs().put(&name, &job).await?;
    let id = baton.job(&name).run().await?;

    let first = baton.worker(name.as_str()).lease(Duration::from_millis(500));
    let first = first.claim(secs(20)).await?.context("there is a run")?;
    let late = first.handle();
    work(&late)?;
    first.abandon();

    let second = baton.worker(name.as_str()).claim(secs(20)).await?.context("the run is free again")?;
    work(&second.handle())?;
    second.complete("sent").await?;
    // The first one wasn't dead after all, only slow.
    work(&late).ok();
    let run = baton.jobs().wait(&id).await?;
    anyhow::ensure!(run.outcome.as_deref() == Some("succeeded") && run.attempt == 2, "{run:?}");
    baton.jobs().remove(&name).await?;
    Ok(())
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let baton = Baton::connect(server()).await?;

    let sent = Mutex::new(Vec::new());
    night(&baton, |run| {
        sent.lock().expect("nobody panics").push(format!("report for {}", run.scheduled_at()));
        Ok(())
    })
    .await?;
    let count = sent.lock().expect("nobody panics").len();
    println!("without a look at the run's id, 1 night had {count} reports");

    let sent = Sent::new(BTreeMap::new());
    night(&baton, |run| {
        let report = format!("report for {}", run.scheduled_at());
        // Whoever did it before did the same run; and whoever is late has a lower token.
        sent.write(run.fencing_token(), |sent| {
            sent.entry(run.id().to_owned()).or_insert(report);
        })?;
        Ok(())
    })
    .await?;
    let count = sent.read(BTreeMap::len);
    println!("with the run's id and its token, 1 night had {count} reports");
    anyhow::ensure!(count == 1, "{count} reports were sent");
    Ok(())
}
