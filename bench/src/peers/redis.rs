//! Redis with the lock that everybody writes: SET NX PX, and a script that deletes what is ours. Durable by
//! `appendfsync always`.

use crate::load::Client;
use crate::machine::Place;
use crate::process::{Process, free_address};
use anyhow::{Context, ensure};
use redis::Script;
use redis::aio::MultiplexedConnection;
use std::path::Path;
use std::time::{Duration, Instant};

const TTL_MS: u64 = 3_600_000;

/// A Redis that syncs before it answers.
pub struct Redis {
    /// The process.
    pub process: Process,
    _directory: tempfile::TempDir,
}

impl Redis {
    /// Starts one on an empty directory.
    pub async fn start(place: &Place) -> anyhow::Result<Self> {
        let directory = place.directory()?;
        let address = free_address()?;
        let port = address.port().to_string();
        let settings =
            ["--appendonly", "yes", "--appendfsync", "always", "--save", "", "--bind", "127.0.0.1"];
        let arguments = settings.into_iter().chain(["--port", &port, "--dir"]).map(AsRef::as_ref);
        let arguments = arguments.chain([directory.path().as_os_str()]);
        let process =
            Process::start("redis", Path::new("redis-server"), arguments, address, directory.path())?;
        let process = process.listening(directory.path()).await?;
        Ok(Self { process, _directory: directory })
    }

    /// One connection that all clients of a process share.
    pub async fn connect(&self) -> anyhow::Result<MultiplexedConnection> {
        let client = redis::Client::open(format!("redis://{}", self.process.address))?;
        Ok(client.get_multiplexed_async_connection().await?)
    }
}

/// How the lock is taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Recipe {
    /// SET NX PX: mutual exclusion only.
    Plain,
    /// A script that also counts a fencing token up: what Baton's grant carries.
    Fenced,
}

/// Lock and unlock over a shared connection, over and over.
pub struct Pairs {
    connection: MultiplexedConnection,
    recipe: Recipe,
    key: String,
    counter: String,
    token: String,
    lock: Script,
    unlock: Script,
}

impl Pairs {
    /// A user of one lock.
    pub fn new(connection: MultiplexedConnection, recipe: Recipe, key: &str) -> Self {
        Self {
            connection,
            recipe,
            key: key.into(),
            counter: format!("{key}:fence"),
            // As random as it has to be here: nobody else has it.
            token: format!("{key}-5f1d6c2e9a7b4830"),
            lock: Script::new(
                "if redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then
                   return redis.call('INCR', KEYS[2])
                 end
                 return 0",
            ),
            unlock: Script::new(
                "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end
                 return 0",
            ),
        }
    }
}

impl Client for Pairs {
    async fn operate(&mut self) -> anyhow::Result<Duration> {
        let began = Instant::now();
        match self.recipe {
            Recipe::Plain => {
                let mut set = redis::cmd("SET");
                set.arg(&self.key).arg(&self.token).arg("NX").arg("PX").arg(TTL_MS);
                let set: Option<String> = set.query_async(&mut self.connection).await?;
                set.context("the lock was held")?;
            }
            Recipe::Fenced => {
                let mut lock = self.lock.key(&self.key);
                lock.key(&self.counter).arg(&self.token).arg(TTL_MS);
                let fence: u64 = lock.invoke_async(&mut self.connection).await?;
                ensure!(fence > 0, "the lock was held");
            }
        }
        let mut unlock = self.unlock.key(&self.key);
        unlock.arg(&self.token);
        let deleted: u64 = unlock.invoke_async(&mut self.connection).await?;
        ensure!(deleted == 1, "the lock was lost");
        Ok(began.elapsed())
    }
}
