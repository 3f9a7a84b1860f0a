//! A cached page has expired, and twenty requests for it come in at once. Rebuilding it is expensive.
#![allow(clippy::print_stdout, reason = "an example speaks to whoever runs it")]

use baton_client::{Baton, secs};
use baton_examples::{copies, unique};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// A page: which version the cache has, and how often the origin was asked for a new one.
#[derive(Default)]
struct Page {
    version: AtomicU32,
    rebuilt: AtomicU32,
}

impl Page {
    /// The origin takes a while, and suffers.
    async fn rebuild(&self) {
        self.rebuilt.fetch_add(1, Ordering::SeqCst);
        tokio::time::sleep(Duration::from_millis(200)).await;
        self.version.store(1, Ordering::SeqCst);
    }

    fn is_stale(&self) -> bool {
        self.version.load(Ordering::SeqCst) == 0
    }
}

/// Who gets the lock rebuilds. The others don't wait: they serve what is there. This only saves work, so there is no fence:
/// if the lease is lost, the page is rebuilt twice, and nothing breaks.
async fn with(baton: Baton, key: String, page: Arc<Page>) -> anyhow::Result<bool> {
    let served_stale = page.is_stale();
    if served_stale && let Some(lock) = baton.lock(key).ttl(secs(10)).try_acquire().await?.acquired() {
        if page.is_stale() {
            page.rebuild().await;
        }
        lock.release().await?;
        return Ok(false);
    }
    Ok(served_stale)
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let page = Arc::<Page>::default();
    let without = |page: Arc<Page>| async move {
        if page.is_stale() {
            page.rebuild().await;
        }
        Ok(())
    };
    copies(20, |_| without(page.clone())).await?;
    println!("without a lock, 20 requests rebuilt the page {} times", page.rebuilt.load(Ordering::SeqCst));

    let (page, key) = (Arc::<Page>::default(), unique("cache"));
    let served = copies(20, |baton| with(baton, key.clone(), page.clone())).await?;
    let (rebuilt, stale) =
        (page.rebuilt.load(Ordering::SeqCst), served.into_iter().filter(|stale| *stale).count());
    println!(
        "with a lock, 20 requests rebuilt the page {rebuilt} times; {stale} were served the stale one at once"
    );
    anyhow::ensure!(rebuilt == 1 && stale > 0, "rebuilt {rebuilt} times, {stale} served");
    Ok(())
}
