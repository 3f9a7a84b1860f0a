//! What the examples share: a client for each copy of a program, and copies that start together.
//!
//! # Layout
//! One program a file, in `src/bin`. Each runs what it is about twice, first without coordination, and ends with an error
//! if it doesn't hold with it. They take the server from `BATON_SERVER`, and without it from `http://127.0.0.1:7117`.
//! `nginx` is no program but a configuration: CI runs that, too.

use anyhow::Context;
use baton_client::Baton;
use std::sync::Arc;
use tokio::sync::Barrier;

/// Where the server is.
pub fn server() -> String {
    std::env::var("BATON_SERVER").unwrap_or_else(|_| "http://127.0.0.1:7117".into())
}

/// A name that no other run of the example uses.
pub fn unique(name: &str) -> String {
    format!(
        "example:{name}:{}-{}",
        std::process::id(),
        rustix::time::clock_gettime(rustix::time::ClockId::Boottime).tv_nsec
    )
}

/// Runs several copies of a program at once, each with a client of its own, as if they were processes; gives what each of
/// them gave.
pub async fn copies<T, Running>(count: usize, program: impl Fn(Baton) -> Running) -> anyhow::Result<Vec<T>>
where
    T: Send + 'static,
    Running: Future<Output = anyhow::Result<T>> + Send + 'static,
{
    let start = Arc::new(Barrier::new(count));
    let mut running = Vec::new();
    for copy in 1..=count {
        let baton = Baton::builder().owner(format!("copy-{copy}")).connect(server()).await?;
        let (start, program) = (start.clone(), program(baton));
        running.push(tokio::spawn(async move {
            start.wait().await;
            program.await
        }));
    }
    let mut all = Vec::new();
    for copy in running {
        all.push(copy.await.context("a copy panicked")??);
    }
    Ok(all)
}
