//! The floor of P11: as many requests as jobs would send, by a program that does nothing else, on connections that are open.

use super::jobs::now_us;
use crate::http::Connection;
use anyhow::{Context, ensure};
use baton_core::WallTime;
use baton_core::job::{RunId, RunPlace, Uid};
use std::net::SocketAddr;
use std::time::Duration;
use tokio::task::JoinSet;

/// As many as a server keeps open to one target.
const CONNECTIONS: usize = 32;
/// Until all is made that can be made before.
const PREPARED_WITHIN: Duration = Duration::from_secs(2);

/// What this program is started with to send them; nobody else needs it.
#[derive(clap::Args, Debug)]
pub struct RequestsOptions {
    #[arg(long)]
    to: SocketAddr,
    #[arg(long)]
    count: usize,
    /// When, in milliseconds since the Unix epoch
    #[arg(long)]
    at_ms: u64,
}

/// Lets a process of its own send so many to a sink at one moment, and waits for its end. That moment, in milliseconds.
pub async fn sent(to: SocketAddr, count: usize) -> anyhow::Result<u64> {
    let at_ms = now_us() / 1000 + PREPARED_WITHIN.as_millis() as u64;
    let arguments = ["requests", "--to", &to.to_string(), "--count", &count.to_string()].map(String::from);
    let program = std::env::current_exe()?;
    let mut command = tokio::process::Command::new(program);
    let status = command.args(arguments).args(["--at-ms", &at_ms.to_string()]).kill_on_drop(true).status();
    ensure!(status.await.context("it can't be started")?.success(), "requests can't be sent");
    Ok(at_ms)
}

/// Sends them: with one thread, as a server on two cores has.
pub fn send(options: &RequestsOptions) -> anyhow::Result<()> {
    let request = |number: usize| {
        let (uid, place) = (Uid(number as u128), RunPlace::scheduled(WallTime(options.at_ms)));
        let key = RunId { uid, place }.text();
        format!(
            "POST / HTTP/1.1\r\nuser-agent: baton/0.1.0\r\nhost: {}\r\nidempotency-key: {key}\r\n\
             x-baton-fencing-token: {number}\r\nx-baton-scheduled-at: {}\r\nx-baton-namespace: default\r\n\
             x-baton-job: due:{number:06}\r\nx-baton-attempt: 1\r\ncontent-length: 0\r\n\r\n",
            options.to, options.at_ms
        )
        .into_bytes()
    };
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
        let mut parts = JoinSet::new();
        for part in 0..CONNECTIONS {
            let mut connection = Connection::open(options.to).await?;
            let requests: Vec<_> = (part..options.count).step_by(CONNECTIONS).map(request).collect();
            let at_us = options.at_ms * 1000;
            parts.spawn(async move {
                tokio::time::sleep(Duration::from_micros(at_us.saturating_sub(now_us()))).await;
                for request in requests {
                    connection.exchange(&request).await?;
                }
                anyhow::Ok(())
            });
        }
        while let Some(part) = parts.join_next().await {
            part??;
        }
        Ok(())
    })
}
