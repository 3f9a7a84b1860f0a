//! A file of limits while the store is away: the server serves, and the file comes into force when the store is back.

use crate::harness::Baton;
use baton_store::embedded::{Embedded, Options};
use baton_testkit::faulty::{Fault, Faulty};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(20);
/// Calls to the store that only somebody makes who puts them all: it is quiet otherwise.
const TRIED: u64 = 16;

fn write(path: &Path, limits: &[(&str, u64)]) {
    let lines =
        limits.iter().map(|(name, limit)| format!("  {name}: {{ limit: {limit}, windowMillis: 1000 }}\n"));
    let next = path.with_extension("next");
    std::fs::write(&next, format!("limits:\n{}", lines.collect::<String>())).unwrap();
    std::fs::rename(next, path).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_while_the_store_is_away_comes_into_force_when_it_is_back() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("limits.yaml");
    // More than are put at once, which are as many as `TRIED`.
    let names: Vec<_> = (0..40).map(|index| format!("l{index}")).collect();
    let all = |limit| names.iter().map(|name| (name.as_str(), limit)).collect::<Vec<_>>();
    write(&path, &all(1));
    let embedded = Embedded::open(&directory.path().join("data"), Options::default()).unwrap();
    let store = Faulty::new(Arc::new(embedded));
    let handle = Arc::new(store.clone());
    let baton = Baton::on(handle.clone(), |config| config.limits = Some(path.clone())).await;
    let limit =
        async |name: &str| baton.get(&format!("/v1/limits/{name}")).await.ok()["definition"]["limit"].clone();
    assert_eq!(limit("l39").await, 1);

    store.set(Fault::Unavailable);
    let before = store.calls();
    write(&path, &all(2));
    tokio::time::timeout(PATIENCE, store.called(before + TRIED)).await.expect("it is tried");
    baton.get("/healthz").await.ok();
    store.set(Fault::None);
    let began = Instant::now();
    for name in &names {
        while limit(name).await != 2 {
            assert!(began.elapsed() < PATIENCE, "{name} never came into force");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    // And one that is still trying doesn't keep the server from stopping, nor the store.
    store.set(Fault::Unavailable);
    let before = store.calls();
    write(&path, &all(3));
    tokio::time::timeout(PATIENCE, store.called(before + TRIED)).await.expect("it is tried");
    store.set(Fault::None);
    baton.stopped().await;
    assert_eq!(Arc::strong_count(&handle), 1, "it let go of the store");
}
