//! Three copies of a service have the same entry in their crontab. The report is to be sent once a night.
#![allow(clippy::print_stdout, reason = "an example speaks to whoever runs it")]

use baton_client::fence::Fenced;
use baton_client::{Baton, secs};
use baton_examples::{copies, unique};
use std::sync::Arc;
use std::time::Duration;

/// What was done: the last night that a report was sent for, and how many went out.
#[derive(Default)]
struct Reports {
    night: u32,
    sent: u32,
}

async fn send_report() {
    tokio::time::sleep(Duration::from_millis(20)).await;
}

/// Each copy's timer fires, some a little later than others.
async fn fires(copy: &str) {
    let late = copy.bytes().last().map_or(0, |digit| u64::from(digit - b'1') * 60);
    tokio::time::sleep(Duration::from_millis(late)).await;
}

/// The lock alone isn't enough: it is free again when the copy that is late comes. So what was done is written down,
/// and looked at under the lock.
async fn with(baton: Baton, key: String, reports: Arc<Fenced<Reports>>) -> anyhow::Result<()> {
    for night in 1..=3 {
        fires(baton.owner()).await;
        // Who comes second waits for the first, in case that one fails, and finds it done.
        let lock = baton.lock(&key).ttl(secs(30)).acquire().await?;
        if reports.read(|reports| reports.night) < night {
            send_report().await;
            reports.write(lock.fencing_token(), |reports| {
                reports.night = night;
                reports.sent += 1;
            })?;
        }
        lock.release().await?;
    }
    Ok(())
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let sent = copies(3, |baton| async move {
        for _night in 1..=3 {
            fires(baton.owner()).await;
            send_report().await;
        }
        Ok(3)
    });
    println!("without a lock, 3 copies sent {} reports in 3 nights", sent.await?.iter().sum::<u32>());

    let (reports, key) = (Arc::<Fenced<Reports>>::default(), unique("cron"));
    copies(3, |baton| with(baton, key.clone(), reports.clone())).await?;
    let sent = reports.read(|reports| reports.sent);
    println!("with a lock, 3 copies sent {sent} reports in 3 nights");
    anyhow::ensure!(sent == 3, "{sent} reports");
    Ok(())
}
