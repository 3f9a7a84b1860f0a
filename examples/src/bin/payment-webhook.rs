//! A payment provider delivers the same webhook four times: three times at once, and again because an answer got lost.
#![allow(clippy::print_stdout, reason = "an example speaks to whoever runs it")]

use baton_client::fence::{Fenced, StaleToken};
use baton_client::{Baton, secs};
use baton_examples::{copies, unique};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// What is done about a payment takes a moment.
async fn book() {
    tokio::time::sleep(Duration::from_millis(20)).await;
}

async fn without(account: Arc<AtomicU32>) -> anyhow::Result<()> {
    book().await;
    account.fetch_add(10, Ordering::SeqCst);
    Ok(())
}

/// One after the other, but each of them: a lock forgets when it is released.
async fn with_a_lock(baton: Baton, payment: String, account: Arc<AtomicU32>) -> anyhow::Result<()> {
    let lock = baton.lock(payment).ttl(secs(30)).acquire().await?;
    without(account).await?;
    Ok(lock.release().await?)
}

/// The first delivery books; the others wait for it, and get the same receipt.
async fn once(baton: Baton, payment: String, account: Arc<Fenced<u32>>) -> anyhow::Result<String> {
    let booked = baton.once(&payment).ttl(secs(30)).run(|held| async move {
        book().await;
        account.write(held.fencing_token(), |balance| *balance += 10)?;
        Ok::<_, StaleToken>(format!("receipt for {}", held.fencing_token()))
    });
    Ok(booked.await?)
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let account = Arc::<AtomicU32>::default();
    for deliveries in [3, 1] {
        copies(deliveries, |_| without(account.clone())).await?;
    }
    println!("without anything, 4 deliveries of a payment of 10 booked {}", account.load(Ordering::SeqCst));

    let (account, payment) = (Arc::<AtomicU32>::default(), unique("payment-lock"));
    for deliveries in [3, 1] {
        copies(deliveries, |baton| with_a_lock(baton, payment.clone(), account.clone())).await?;
    }
    println!("with a lock, 4 deliveries of a payment of 10 booked {}", account.load(Ordering::SeqCst));

    let (account, payment) = (Arc::<Fenced<u32>>::default(), unique("payment"));
    let mut receipts = Vec::new();
    for deliveries in [3, 1] {
        receipts.extend(copies(deliveries, |baton| once(baton, payment.clone(), account.clone())).await?);
    }
    let booked = account.read(|balance| *balance);
    receipts.dedup();
    println!(
        "with once, 4 deliveries of a payment of 10 booked {booked}, and got {} receipt",
        receipts.len()
    );
    anyhow::ensure!((booked, receipts.len()) == (10, 1), "{booked}, {receipts:?}");
    Ok(())
}
