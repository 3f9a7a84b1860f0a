//! Stores that nodes share, each a real server.

use baton_testkit::servers::{etcd::Etcd, postgres::Postgres, redis::Redis};

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
