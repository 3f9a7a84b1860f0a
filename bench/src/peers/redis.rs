//! Redis with the lock that everybody writes: SET NX PX, and a script that deletes what is ours. Durable by
//! `appendfsync always`.

use crate::load::Client;
use anyhow::{Context, ensure};
use baton_testkit::servers::redis::Redis;
use redis::Script;
use redis::aio::MultiplexedConnection;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

const TTL_MS: u64 = 3_600_000;

/// One connection that all clients of a process share.
pub async fn connect(address: SocketAddr) -> anyhow::Result<MultiplexedConnection> {
    let client = redis::Client::open(format!("redis://{address}"))?;
    Ok(client.get_multiplexed_async_connection().await?)
}

/// What has a script run.
const SCRIPTS: [&str; 3] = ["eval", "evalsha", "fcall"];
/// What else a node sends. Redis counts the commands of scripts too, and nobody sent those.
const OTHERS: [&str; 9] =
    ["config", "info", "ping", "publish", "role", "subscribe", "wait", "zrange", "zrangebylex"];

/// Scripts that clients have had run since the last `CONFIG RESETSTAT`, as Redis itself counts.
pub fn scripts_run(redis: &Redis) -> anyhow::Result<u64> {
    calls(redis, &SCRIPTS)
}

/// Commands that nodes have sent since then, scripts among them; and, if a script sends one of those too, more than that.
pub fn commands_sent(redis: &Redis) -> anyhow::Result<u64> {
    calls(redis, &[&SCRIPTS[..], &OTHERS].concat())
}

fn calls(redis: &Redis, commands: &[&str]) -> anyhow::Result<u64> {
    let statistics = redis.say(&["INFO", "commandstats"])?;
    let calls = statistics.lines().filter_map(|line| {
        let (command, rest) = line.strip_prefix("cmdstat_")?.split_once(":calls=")?;
        commands.contains(&command).then(|| rest.split(',').next()?.parse::<u64>().ok())?
    });
    Ok(calls.sum())
}

/// How the lock is taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Recipe {
    /// SET NX PX: mutual exclusion only.
    Plain,
    /// The same, and a fencing token is counted up: what Baton's grant carries.
    Fenced,
}

/// The lock that everybody writes, as scripts.
pub struct Lock {
    recipe: Recipe,
    take: Script,
    give_up: Script,
}

impl Lock {
    /// Says how.
    pub fn new(recipe: Recipe) -> Self {
        let plain = "if redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then return 1 end
                     return 0";
        let fenced = "if redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then
                        return redis.call('INCR', KEYS[2])
                      end
                      return 0";
        Self {
            recipe,
            take: Script::new(if recipe == Recipe::Fenced { fenced } else { plain }),
            give_up: Script::new(
                "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end
                 return 0",
            ),
        }
    }

    /// The fencing token, or 1 if there is none; 0 if the lock is held.
    pub async fn take(
        &self,
        connection: &mut MultiplexedConnection,
        key: &str,
        token: &str,
        ttl_ms: u64,
    ) -> redis::RedisResult<u64> {
        let mut take = self.take.key(key);
        if self.recipe == Recipe::Fenced {
            take.key(format!("{key}:fence"));
        }
        take.arg(token).arg(ttl_ms).invoke_async(connection).await
    }

    /// Whether it was ours.
    pub async fn give_up(
        &self,
        connection: &mut MultiplexedConnection,
        key: &str,
        token: &str,
    ) -> redis::RedisResult<bool> {
        self.give_up.key(key).arg(token).invoke_async(connection).await
    }
}

/// Lock and unlock over a shared connection, over and over.
pub struct Pairs {
    connection: MultiplexedConnection,
    lock: Lock,
    key: String,
    token: String,
}

impl Pairs {
    /// A user of one lock.
    pub fn new(connection: MultiplexedConnection, recipe: Recipe, key: &str) -> Self {
        // As random as it has to be here: nobody else has it.
        let token = format!("{key}-5f1d6c2e9a7b4830");
        Self { connection, lock: Lock::new(recipe), key: key.into(), token }
    }
}

impl Client for Pairs {
    async fn operate(&mut self) -> anyhow::Result<Duration> {
        let began = Instant::now();
        match self.lock.recipe {
            // It needs no script, and is quicker without.
            Recipe::Plain => {
                let mut set = redis::cmd("SET");
                set.arg(&self.key).arg(&self.token).arg("NX").arg("PX").arg(TTL_MS);
                let set: Option<String> = set.query_async(&mut self.connection).await?;
                set.context("the lock was held")?;
            }
            Recipe::Fenced => {
                let fence = self.lock.take(&mut self.connection, &self.key, &self.token, TTL_MS).await?;
                ensure!(fence > 0, "the lock was held");
            }
        }
        let was_ours = self.lock.give_up(&mut self.connection, &self.key, &self.token).await?;
        ensure!(was_ours, "the lock was lost");
        Ok(began.elapsed())
    }
}
