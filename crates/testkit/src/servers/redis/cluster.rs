//! A Redis Cluster of primaries alone: each has its part of the slots, and nobody takes over for another.

use super::{Redis, agreed};
use crate::process::free_address;
use anyhow::{bail, ensure};

const SLOTS: usize = 16_384;

/// Servers that share the slots. Dropping it kills them.
pub struct Cluster {
    /// The primaries, in the order of their slots.
    pub servers: Vec<Redis>,
}

impl Cluster {
    /// Starts `primaries` servers, gives each its share, and waits until all know of it.
    pub async fn start(primaries: usize) -> anyhow::Result<Self> {
        let (mut servers, mut buses) = (Vec::new(), Vec::new());
        for _ in 0..primaries {
            // The bus listens at a port of its own, which by default may be too large for one.
            let bus = free_address()?.port().to_string();
            let settings = ["--cluster-enabled", "yes", "--cluster-node-timeout", "2000", "--cluster-port"];
            servers.push(Redis::start(&[&settings[..], &[&bus]].concat()).await?);
            buses.push(bus);
        }
        let share = SLOTS.div_ceil(primaries);
        for (index, server) in servers.iter().enumerate() {
            let (from, to) = (index * share, ((index + 1) * share).min(SLOTS) - 1);
            let given = server.say(&["CLUSTER", "ADDSLOTSRANGE", &from.to_string(), &to.to_string()])?;
            ensure!(given == "OK", "slots {from} to {to}: {given}");
            let port = servers[0].address.port().to_string();
            let met = server.say(&["CLUSTER", "MEET", "127.0.0.1", &port, &buses[0]])?;
            ensure!(met == "OK", "meeting the first one: {met}");
        }
        let cluster = Self { servers };
        cluster.agreed().await?;
        Ok(cluster)
    }

    /// Waits until every server says that every slot has one.
    pub async fn agreed(&self) -> anyhow::Result<()> {
        for server in &self.servers {
            let is_so = || Ok(server.say(&["CLUSTER", "INFO"])?.contains("cluster_state:ok"));
            agreed("the cluster forms", is_so).await?;
        }
        Ok(())
    }

    /// The slot of a key, and who has it.
    pub fn slot(&self, key: &str) -> anyhow::Result<(String, usize)> {
        let slot = self.servers[0].say(&["CLUSTER", "KEYSLOT", key])?;
        for (index, server) in self.servers.iter().enumerate() {
            // Only who has a slot tells what is in it instead of who has it.
            if !server.say(&["GET", key])?.starts_with("MOVED") {
                return Ok((slot, index));
            }
        }
        bail!("nobody has slot {slot}")
    }

    /// Moves a slot to another server as operators' tools do, one key at a time, with something in between.
    pub async fn move_slot(
        &self,
        (slot, from): (&str, usize),
        to: usize,
        mut between: impl AsyncFnMut(),
    ) -> anyhow::Result<()> {
        let say = |at: usize, words: &[&str]| {
            let answer = self.servers[at].say(words)?;
            ensure!(answer == "OK", "{words:?}: {answer}");
            Ok(())
        };
        let id = |at: usize| self.servers[at].say(&["CLUSTER", "MYID"]);
        let (source, target) = (id(from)?, id(to)?);
        say(to, &["CLUSTER", "SETSLOT", slot, "IMPORTING", &source])?;
        say(from, &["CLUSTER", "SETSLOT", slot, "MIGRATING", &target])?;
        let port = self.servers[to].address.port().to_string();
        loop {
            between().await;
            let key = self.servers[from].say(&["CLUSTER", "GETKEYSINSLOT", slot, "1"])?;
            if key.is_empty() {
                break;
            }
            say(from, &["MIGRATE", "127.0.0.1", &port, &key, "0", "5000"])?;
        }
        for at in [to, from] {
            say(at, &["CLUSTER", "SETSLOT", slot, "NODE", &target])?;
        }
        Ok(())
    }

    /// The store's URL. Not all of them: the others are found.
    pub fn url(&self) -> String {
        let named: Vec<_> = self.servers.iter().take(2).map(|server| server.address.to_string()).collect();
        format!("redis-cluster://{}", named.join(","))
    }
}
