//! A machine that sleeps: what was lent before isn't spent after (M2).

use super::counting::Counting;
use super::limits::{check, definition, name};
use baton_core::limit::{Definition, Mechanism};
use baton_core::meter::Algorithm;
use baton_engine::asleep::Asleep;
use baton_engine::limit::Source;
use baton_engine::{Config, Engine, Random};
use baton_testkit::store_url;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

#[tokio::test(flavor = "multi_thread")]
async fn what_was_leased_before_a_sleep_is_not_spent_after_it() {
    let directory = tempfile::tempdir().unwrap();
    let store = baton_store::open(&store_url(directory.path()), directory.path()).await.unwrap();
    let store = Arc::new(Counting::new(store));
    let slept_ms = Arc::new(AtomicU64::new(0));
    let config = Config { asleep: Asleep::Set(slept_ms.clone()), ..Config::default() };
    let engine = Engine::start(store.clone(), config, Random::system()).await.unwrap();
    let plain = definition(Algorithm::TokenBucket, 100_000, 60_000);
    engine.put_limit(&name("l"), Definition { mechanism: Mechanism::Leased, ..plain }).await.unwrap();
    while check(&engine, "l", "k", 1).await.checks[0].source != Source::Local {}
    let charged = async || {
        let before = store.charges();
        assert!(check(&engine, "l", "k", 1).await.allowed);
        store.charges() - before
    };
    assert_eq!(charged().await, 0, "there is a lease");
    slept_ms.fetch_add(3_600_000, Ordering::Relaxed);
    assert!(charged().await > 0, "it has long been over");
}
