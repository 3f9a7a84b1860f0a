//! A store by itself, without a server of ours above it; and the servers that stores are on, as durable as they come.

use super::{etcd, postgres};
use crate::load::Client;
use baton_core::{Bytes, Check, Commit, Group, Key, Outcome, Ttl, Write};
use baton_store::Store;
use baton_testkit::servers::etcd::Etcd;
use baton_testkit::servers::postgres::Postgres;
use baton_testkit::servers::redis::Redis;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A kind of server that nodes can share.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// With `appendfsync always`.
    Redis,
    /// With its defaults.
    Postgres,
    /// One member, with its defaults.
    Etcd,
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Redis, Self::Postgres, Self::Etcd];

    /// As people call it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Redis => "Redis",
            Self::Postgres => "PostgreSQL",
            Self::Etcd => "etcd",
        }
    }
}

/// One that runs.
pub enum Server {
    /// See [`Kind::Redis`].
    Redis(Redis),
    /// See [`Kind::Postgres`].
    Postgres(Postgres),
    /// See [`Kind::Etcd`].
    Etcd(Etcd),
}

impl Server {
    /// Starts one on an empty directory.
    pub async fn start(kind: Kind) -> anyhow::Result<Self> {
        Ok(match kind {
            Kind::Redis => Self::Redis(Redis::start(&[]).await?),
            Kind::Postgres => Self::Postgres(postgres::start().await?),
            Kind::Etcd => Self::Etcd(etcd::start().await?),
        })
    }

    /// Which one.
    pub fn kind(&self) -> Kind {
        match self {
            Self::Redis(_) => Kind::Redis,
            Self::Postgres(_) => Kind::Postgres,
            Self::Etcd(_) => Kind::Etcd,
        }
    }

    /// For `baton serve --store`.
    pub fn url(&self) -> String {
        match self {
            Self::Redis(redis) => format!("redis://{}", redis.address),
            Self::Postgres(postgres) => postgres.url(),
            Self::Etcd(etcd) => etcd.url(),
        }
    }

    /// Asks it to stop.
    pub async fn stop(self) -> anyhow::Result<()> {
        match self {
            Self::Redis(mut redis) => redis.end(false).await,
            Self::Postgres(mut postgres) => postgres.stop().await,
            Self::Etcd(mut etcd) => etcd.stop().await,
        }
    }
}

/// Replaces one record, over and over, if it is still as it was.
pub struct Committer {
    store: Arc<dyn Store>,
    key: Key,
    value: Bytes,
    check: Check,
}

impl Committer {
    /// Has a record of its own.
    pub fn new(store: Arc<dyn Store>, client: usize, value_bytes: usize) -> Self {
        let name = format!("client-{client:03}");
        let key = Key::new(Group::of(&[name.as_bytes()]), name.as_bytes());
        Self { store, check: Check::Absent(key.clone()), key, value: vec![7; value_bytes].into() }
    }
}

impl Client for Committer {
    async fn operate(&mut self) -> anyhow::Result<Duration> {
        let began = Instant::now();
        let write = Write::Put { key: self.key.clone(), value: self.value.clone(), ttl: Ttl::Forever };
        let commit = Commit { checks: vec![self.check.clone()], writes: vec![write] };
        let Outcome::Committed { revision, .. } = self.store.commit(commit).await? else {
            anyhow::bail!("a conflict without a rival")
        };
        self.check = Check::At(self.key.clone(), revision);
        Ok(began.elapsed())
    }
}
