//! `with-store STORE COMMAND…`: runs a command while a server of that kind is up on loopback, on a free port, with a
//! temporary directory. The command finds it in `BATON_TEST_STORE`; its exit code is passed on. The server ends with it.

#![allow(clippy::print_stderr, reason = "it talks to whoever runs the tests")]

use anyhow::{Context, bail};
use baton_testkit::servers::etcd::Etcd;
use baton_testkit::servers::postgres::Postgres;
use baton_testkit::servers::redis::{Cluster, Redis, Replicated};
use baton_testkit::store_url::VARIABLE;
use std::process::{Command, ExitCode};
use std::time::Duration;

const STORES: &str = "etcd|etcd-cluster|postgres|redis|redis-cluster|redis-sentinel";
/// Long enough that a busy machine isn't taken for a dead server: nothing is to fail over here.
const DOWN_AFTER: Duration = Duration::from_secs(60);

fn main() -> ExitCode {
    match run() {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            eprintln!("with-store: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// One thread: the server is told by the kernel to end when the thread that started it does.
#[tokio::main(flavor = "current_thread")]
async fn run() -> anyhow::Result<u8> {
    let mut arguments = std::env::args_os().skip(1);
    let store = arguments.next().and_then(|store| store.into_string().ok());
    let program = arguments.next().with_context(|| format!("usage: with-store {STORES} COMMAND…"))?;
    let servers = Servers::start(store.as_deref().unwrap_or_default()).await?;
    let mut command = Command::new(program);
    let code = tried(command.args(arguments).env(VARIABLE, servers.url()));
    servers.stop().await?;
    code
}

/// What runs meanwhile.
enum Servers {
    Etcd(Etcd),
    Postgres(Postgres),
    Redis(Redis),
    RedisCluster(Cluster),
    RedisSentinel(Box<Replicated>),
}

impl Servers {
    async fn start(store: &str) -> anyhow::Result<Self> {
        Ok(match store {
            "etcd" | "etcd-cluster" => {
                let mut server = Etcd::new(if store == "etcd" { 1 } else { 3 })?;
                server.start().await?;
                Self::Etcd(server)
            }
            "postgres" => {
                let mut server = Postgres::new()?;
                server.start().await?;
                Self::Postgres(server)
            }
            "redis" => Self::Redis(Redis::start(&[]).await?),
            "redis-cluster" => Self::RedisCluster(Cluster::start(3).await?),
            "redis-sentinel" => Self::RedisSentinel(Box::new(Replicated::start(DOWN_AFTER, &[]).await?)),
            _ => bail!("no such store: {store:?}; there are {STORES}"),
        })
    }

    /// Where they are; `{}` stands for a test's own part of them.
    fn url(&self) -> String {
        match self {
            Self::Etcd(server) => format!("{}/{{}}", server.url()),
            Self::Postgres(server) => format!("{}?schema={{}}", server.url()),
            Self::Redis(server) => format!("redis://{}/?prefix={{}}", server.address),
            Self::RedisCluster(cluster) => format!("{}?prefix={{}}", cluster.url()),
            Self::RedisSentinel(servers) => format!("{}?wait=1&prefix={{}}", servers.url()),
        }
    }

    /// In good order where something would be left behind; the others are killed.
    async fn stop(self) -> anyhow::Result<()> {
        match self {
            Self::Etcd(mut server) => server.stop().await,
            Self::Postgres(mut server) => server.stop().await,
            Self::Redis(_) | Self::RedisCluster(_) | Self::RedisSentinel(_) => Ok(()),
        }
    }
}

fn tried(command: &mut Command) -> anyhow::Result<u8> {
    let status = command.status().with_context(|| format!("can't run {command:?}"))?;
    Ok(status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1))
}
