//! Five copies of a web server count the views of a page. Who reads the count and writes it back one higher loses what the others count
//! meanwhile; a counter that merges loses nothing, and nobody has to wait for anybody.
#![allow(clippy::print_stdout, reason = "an example speaks to whoever runs it")]

use anyhow::ensure;
use baton_client::Baton;
use baton_examples::{copies, server, unique};
use std::sync::Arc;
use tokio::sync::Barrier;

const COPIES: usize = 5;
/// What a load balancer sends to each copy.
const VIEWS: usize = 20;

/// Each copy reads the count and writes it back one higher. The barrier makes sure that they do it at the same time.
async fn written_back(baton: Baton, page: Arc<str>, together: Arc<Barrier>) -> anyhow::Result<()> {
    let count = baton.register(page);
    for _ in 0..VIEWS {
        let views: u64 = count.get().await?.unwrap_or(0);
        together.wait().await;
        count.put(&(views + 1)).await?;
        together.wait().await;
    }
    Ok(())
}

/// Each copy says what it adds, and not what it should come to.
async fn counted(baton: Baton, page: Arc<str>) -> anyhow::Result<()> {
    for _ in 0..VIEWS {
        baton.counter(page.clone()).add(1).await?;
    }
    Ok(())
}

/// A removal says what it has seen, so an add that it hasn't seen stays.
async fn tagged(baton: &Baton, page: &str) -> anyhow::Result<()> {
    let tags = baton.set(format!("{page}:tags"));
    tags.add(["sale", "new"]).await?;
    let seen = tags.page(100, None).await?;
    // Meanwhile somebody says that there is a sale again.
    tags.add(["sale"]).await?;
    tags.clone().seen(seen.context).remove(["sale", "new"]).await?;
    ensure!(tags.members().await? == ["sale"], "an add wins over a removal that hasn't seen it");
    Ok(())
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let (baton, all) = (Baton::connect(server()).await?, COPIES * VIEWS);
    let page: Arc<str> = unique("page").into();
    let together = Arc::new(Barrier::new(COPIES));
    copies(COPIES, |baton| written_back(baton, page.clone(), together.clone())).await?;
    let views: u64 = baton.register(page.clone()).get().await?.unwrap_or(0);
    println!("reading and writing back, {COPIES} copies counted {views} of {all} views");

    copies(COPIES, |baton| counted(baton, page.clone())).await?;
    let views = baton.counter(page.clone()).value().await?;
    println!("with a counter, {COPIES} copies counted {views} of {all} views");
    ensure!(views == all as i128, "a counter loses nothing");

    tagged(&baton, &page).await?;
    println!("a removal took the tag that it had seen, and left the one that was added again");
    Ok(())
}
