//! Watchers get hints of what is put and deleted under their prefix; one that is too slow is told that it lost some.

use super::{Ground, Harness, put};
use crate::watch::{Change, WATCH_BACKLOG_MAX, Watch};
use baton_core::{Bytes, Write};
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// Hints may be late; not this late.
const PATIENCE: Duration = Duration::from_secs(30);

pub(super) async fn hints_or_says_that_it_lost_some<H: Harness>(harness: &H) {
    let ground = Ground::new(harness, "watch").await;
    let prefix = |name: &str| -> Bytes { ground.key(name).name };
    let mut watch = ground.store.watch(prefix("seen"));
    let mut slow = ground.store.watch(prefix("flood"));
    // Subscribing at a remote store takes a while: hints count from the first that arrives.
    let begun = Instant::now();
    loop {
        assert!(begun.elapsed() < PATIENCE, "no hint ever arrives");
        ground.put("seen-first", "").await;
        if tokio::time::timeout(Duration::from_millis(200), watch.next()).await.is_ok() {
            break;
        }
    }
    ground.put("elsewhere", "").await;
    let revision = ground.put("seen-a", "1").await;
    let key = ground.key("seen-a");
    let expected = Change::Put { key: key.clone(), value: b"1"[..].into(), revision };
    until(&mut watch, |change| *change == expected).await;
    let revision = ground.done(vec![], vec![Write::Delete { key: key.clone() }]).await.revision;
    until(&mut watch, |change| *change == Change::Deleted { key: key.clone(), revision }).await;

    for from in (0..WATCH_BACKLOG_MAX + 64).step_by(64) {
        let writes = (from..from + 64).map(|index| put(ground.key(&format!("flood-{index}")), ""));
        ground.done(vec![], writes.collect()).await;
    }
    hears_all_or_of_a_loss(&mut slow, WATCH_BACKLOG_MAX + 64).await;
}

/// A store whose hints take a while may not have overflown: then none is missing.
async fn hears_all_or_of_a_loss(watch: &mut Watch, count: usize) {
    let mut heard = BTreeSet::new();
    let complete = async {
        while heard.len() < count {
            match watch.next().await.expect("the store is there") {
                Change::Put { key, .. } => drop(heard.insert(key.name)),
                Change::Lost => return,
                Change::Deleted { .. } | Change::Expired { .. } => {}
            }
        }
    };
    let in_time = tokio::time::timeout(PATIENCE, complete).await;
    assert!(in_time.is_ok(), "only {} hints of {count}, and nothing says so", heard.len());
}

async fn until(watch: &mut Watch, wanted: impl Fn(&Change) -> bool) {
    let found = async {
        loop {
            let change = watch.next().await.expect("the store is there");
            if wanted(&change) {
                return;
            }
            let elsewhere = matches!(&change, Change::Put { key, .. } if key.name.ends_with(b"elsewhere"));
            assert!(!elsewhere, "a hint outside the prefix");
        }
    };
    tokio::time::timeout(PATIENCE, found).await.expect("the hint arrives");
}
