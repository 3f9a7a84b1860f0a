//! One item is left, and ten orders come in at the same moment.
#![allow(clippy::print_stdout, reason = "an example speaks to whoever runs it")]

use baton_client::fence::Fenced;
use baton_client::{Baton, secs};
use baton_examples::{copies, unique};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

/// Asking the payment service is what takes time between "is there one left?" and "it is sold".
async fn charge_card() {
    tokio::time::sleep(Duration::from_millis(20)).await;
}

async fn without(stock: Arc<AtomicI64>) -> anyhow::Result<bool> {
    if stock.load(Ordering::SeqCst) < 1 {
        return Ok(false);
    }
    charge_card().await;
    stock.fetch_sub(1, Ordering::SeqCst);
    Ok(true)
}

async fn with(baton: Baton, key: String, stock: Arc<Fenced<i64>>) -> anyhow::Result<bool> {
    let lock = baton.lock(key).ttl(secs(30)).acquire().await?;
    let is_left = stock.read(|stock| *stock > 0);
    if is_left {
        charge_card().await;
        // If the lease was over while the card was charged, the stock refuses this: undo the charge.
        stock.write(lock.fencing_token(), |stock| *stock -= 1)?;
    }
    lock.release().await?;
    Ok(is_left)
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let stock = Arc::new(AtomicI64::new(1));
    let sold = copies(10, |_| without(stock.clone())).await?.into_iter().filter(|sold| *sold).count();
    println!("without a lock, 10 orders got {sold} of the 1 item: stock is {}", stock.load(Ordering::SeqCst));

    let (stock, key) = (Arc::new(Fenced::new(1)), unique("stock"));
    let sold = copies(10, |baton| with(baton, key.clone(), stock.clone())).await?;
    let sold = sold.into_iter().filter(|sold| *sold).count();
    let left = stock.read(|stock| *stock);
    println!("with a lock, 10 orders got {sold} of the 1 item: stock is {left}");
    anyhow::ensure!((sold, left) == (1, 0), "{sold} were sold, {left} are left");
    Ok(())
}
