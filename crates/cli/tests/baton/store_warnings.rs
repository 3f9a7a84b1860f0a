//! What a store's settings don't allow to promise is in the server's log when it starts, and in its status.

use crate::http::get;
use crate::server::Server;
use baton_testkit::servers::{postgres::Postgres, redis::Redis};
use std::time::Duration;

/// Starts a server on a store, and gives what it warns of.
fn warnings(url: &str) -> Vec<String> {
    let server = Server::start_on_a_store(url);
    let status = get(&server.url, "/v1/status", Duration::from_secs(10)).unwrap();
    let promises = &status.body["store"]["guarantees"];
    assert!(promises["onPartition"].as_str().is_some_and(|text| !text.is_empty()), "{promises}");
    let warnings = promises["warnings"].as_array().unwrap();
    let warnings: Vec<_> = warnings.iter().map(|warning| warning.as_str().unwrap().to_owned()).collect();
    let log = server.log();
    for warning in &warnings {
        assert!(log.contains(&format!("weaker than its promises need: {warning}")), "{warning}: {log}");
    }
    assert_eq!(log.matches("weaker than its promises need").count(), warnings.len(), "{log}");
    let shown = server.run(&["status"]).stdout;
    assert!(shown.contains("on partition") && warnings.iter().all(|it| shown.contains(it)), "{shown}");
    warnings
}

#[tokio::test]
async fn a_redis_that_forgets_is_warned_of() {
    for (settings, expected) in [
        (&[][..], None),
        (&["--appendonly", "no"], Some("appendonly is off")),
        (&["--appendfsync", "everysec"], Some("appendfsync is not always")),
    ] {
        let redis = Redis::start(settings).await.unwrap();
        let warnings = warnings(&format!("redis://{}", redis.address));
        assert_eq!(warnings.len(), usize::from(expected.is_some()), "{settings:?}: {warnings:?}");
        assert!(warnings.iter().zip(expected).all(|(said, it)| said.contains(it)), "{warnings:?}");
    }
}

#[tokio::test]
async fn a_postgresql_that_forgets_is_warned_of() {
    for (settings, expected) in [
        (&[][..], None),
        (&["fsync=off"], Some("fsync is off")),
        (&["full_page_writes=off"], Some("full_page_writes is off")),
    ] {
        let mut server = Postgres::new().unwrap();
        server.start_with(settings).await.unwrap();
        let warnings = warnings(&server.url());
        assert_eq!(warnings.len(), usize::from(expected.is_some()), "{settings:?}: {warnings:?}");
        assert!(warnings.iter().zip(expected).all(|(said, it)| said.contains(it)), "{warnings:?}");
    }
}
