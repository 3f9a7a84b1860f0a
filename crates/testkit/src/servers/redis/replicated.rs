//! A primary, its replica, and a Sentinel that puts the replica in the primary's place when that is gone.

use super::{Redis, agreed};
use anyhow::Context;
use std::time::Duration;

/// What Sentinel calls them.
const NAME: &str = "main";

/// Two servers and their Sentinel. Dropping it kills them.
pub struct Replicated {
    /// The first one was the primary at the start.
    pub servers: [Redis; 2],
    /// The one that decides.
    pub sentinel: Redis,
}

impl Replicated {
    /// Starts them, with further settings for both servers, and waits until the replica follows and Sentinel knows
    /// it. The primary is given up when it is silent for `down_after`.
    pub async fn start(down_after: Duration, settings: &[&str]) -> anyhow::Result<Self> {
        let primary = Redis::start(settings).await?;
        let port = primary.address.port().to_string();
        let replica = Redis::start(&[settings, &["--replicaof", "127.0.0.1", &port]].concat()).await?;
        let down_after = down_after.as_millis();
        let file = format!(
            "port\nsentinel monitor {NAME} 127.0.0.1 {port} 1\n\
             sentinel down-after-milliseconds {NAME} {down_after}\nsentinel failover-timeout {NAME} 5000\n"
        );
        let sentinel = Redis::start(&[&file]).await?;
        let replicated = Self { servers: [primary, replica], sentinel };
        replicated.settled().await?;
        Ok(replicated)
    }

    /// Waits until one of them follows the other, as Sentinel wants it, and Sentinel knows that.
    pub async fn settled(&self) -> anyhow::Result<()> {
        agreed("one follows the other, as Sentinel says", || {
            let Ok(primary) = self.primary() else { return Ok(false) };
            let replica = self.servers[1 - primary].address.port();
            let followed = self.servers[primary].say(&["INFO", "replication"])?;
            let known = self.sentinel.say(&["SENTINEL", "REPLICAS", NAME])?;
            Ok(followed.contains(&format!("port={replica},state=online"))
                && known.contains(&format!(":{replica}"))
                && !known.contains("_down"))
        })
        .await
    }

    /// Waits until Sentinel names another primary than this one.
    pub async fn failed_over(&self, from: usize) -> anyhow::Result<()> {
        agreed("Sentinel names another primary", || Ok(self.primary().is_ok_and(|primary| primary != from)))
            .await
    }

    /// Which one Sentinel says is the primary.
    pub fn primary(&self) -> anyhow::Result<usize> {
        let named = self.sentinel.say(&["SENTINEL", "get-master-addr-by-name", NAME])?;
        let port = named.lines().nth(1).context("Sentinel names nobody")?;
        let is_it = |server: &Redis| server.address.port().to_string() == port;
        self.servers.iter().position(is_it).context("Sentinel names a stranger")
    }

    /// The store's URL.
    pub fn url(&self) -> String {
        format!("redis-sentinel://{}/{NAME}", self.sentinel.address)
    }
}
