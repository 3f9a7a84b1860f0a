//! Stores that nodes share, each a real server.

use baton_testkit::servers::{etcd::Etcd, postgres::Postgres, redis::Redis};
use tokio::runtime::Runtime;

/// Runs something with a server that ends with this thread.
fn block_on<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(work)
}

/// A server of that kind, for as long as the test takes.
pub fn on_etcd(test: impl FnOnce(&str)) {
    let mut server = Etcd::new(1).unwrap();
    block_on(async { server.start().await.unwrap() });
    test(&server.url());
}

/// A server of that kind, for as long as the test takes.
pub fn on_postgresql(test: impl FnOnce(&str)) {
    let mut server = Postgres::new().unwrap();
    block_on(async { server.start().await.unwrap() });
    test(&server.url());
}

/// A server of that kind, for as long as the test takes.
pub fn on_redis(test: impl FnOnce(&str)) {
    let server = block_on(async { Redis::start(&[]).await.unwrap() });
    test(&format!("redis://{}", server.address));
}

/// A store's server that a test ends from one moment to the next, and starts again where it was.
pub struct Mortal {
    server: Kind,
    /// Its processes belong to it.
    runtime: Runtime,
}

enum Kind {
    Etcd(Etcd),
    Postgres(Postgres),
    Redis(Redis),
}

impl Mortal {
    pub fn etcd() -> Self {
        Self::start(async {
            let mut server = Etcd::new(1).unwrap();
            server.start().await.unwrap();
            Kind::Etcd(server)
        })
    }

    pub fn postgresql() -> Self {
        Self::start(async {
            let mut server = Postgres::new().unwrap();
            server.start().await.unwrap();
            Kind::Postgres(server)
        })
    }

    pub fn redis() -> Self {
        Self::start(async { Kind::Redis(Redis::start(&[]).await.unwrap()) })
    }

    fn start(start: impl Future<Output = Kind>) -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        Self { server: runtime.block_on(start), runtime }
    }

    pub fn url(&self) -> String {
        match &self.server {
            Kind::Etcd(server) => server.url(),
            Kind::Postgres(server) => server.url(),
            Kind::Redis(server) => format!("redis://{}", server.address),
        }
    }

    /// Without a word, and without writing anything more.
    pub fn die(&mut self) {
        let died = async {
            match &mut self.server {
                Kind::Etcd(server) => server.kill(0).await,
                Kind::Postgres(server) => server.crash().await,
                Kind::Redis(server) => server.end(true).await,
            }
        };
        self.runtime.block_on(died).unwrap();
    }

    /// On what is on its disk.
    pub fn rise(&mut self) {
        let risen = async {
            match &mut self.server {
                Kind::Etcd(server) => server.start().await,
                Kind::Postgres(server) => server.start().await,
                Kind::Redis(server) => server.start_again().await,
            }
        };
        self.runtime.block_on(risen).unwrap();
    }
}
