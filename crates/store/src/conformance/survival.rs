//! What was acknowledged survives, however the store ends; what was in flight is there as a whole or not at all.

use super::{Ending, Ground, Harness, put};
use baton_core::{Check, Commit, Outcome};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// After a commit without an answer.
const PAUSE: Duration = Duration::from_millis(20);

pub(super) async fn of_what_was_acknowledged<H: Harness>(harness: &H) {
    let mut ground = Ground::new(harness, "survival").await;
    for (round, ending) in [Ending::Crash, Ending::Graceful, Ending::Crash].into_iter().enumerate() {
        let acknowledged = Arc::new(Mutex::new(Vec::new()));
        let clients: Vec<_> = (0..4)
            .map(|client| {
                let (store, acknowledged) = (ground.store.clone(), acknowledged.clone());
                let keys: Vec<_> = (0..200)
                    .map(|index| ground.key(&format!("{round}-{client}-{index}")))
                    .map(|key| (key.clone(), baton_core::Key::new(key.group, [&key.name[..], b"+"].concat())))
                    .collect();
                tokio::spawn(async move {
                    for (left, right) in keys {
                        let checks = vec![Check::Absent(left.clone())];
                        let writes = vec![put(left.clone(), "1"), put(right.clone(), "1")];
                        let Ok(Outcome::Committed { revision, .. }) =
                            store.commit(Commit { checks, writes }).await
                        else {
                            // Unknown on a busy machine, perhaps: as good as one in flight.
                            tokio::time::sleep(PAUSE).await;
                            continue;
                        };
                        acknowledged.lock().expect("no panic while held").push((left, right, revision));
                    }
                })
            })
            .collect();
        while acknowledged.lock().expect("no panic while held").len() < 100 {
            assert!(
                !clients.iter().all(tokio::task::JoinHandle::is_finished),
                "most commits aren't answered"
            );
            tokio::task::yield_now().await;
        }
        clients.iter().for_each(tokio::task::JoinHandle::abort);
        for client in clients {
            // Aborted, or done.
            client.await.ok();
        }
        ground.reopen(harness, ending).await;
        let acknowledged = acknowledged.lock().expect("no panic while held").clone();
        for (left, right, revision) in &acknowledged {
            let keys = vec![left.clone(), right.clone()];
            let records = ground.store.read(keys).await.expect("the store answers").records;
            for record in records {
                let record =
                    record.unwrap_or_else(|| panic!("{ending:?} lost {left:?}, which was acknowledged"));
                assert_eq!((record.created, record.revision), (*revision, *revision));
            }
        }
        let page = ground.store.scan(ground.range(None), 10_000).await.expect("the store answers");
        let halves = page.records.iter().filter(|record| record.key.name.ends_with(b"+")).count();
        assert_eq!(halves * 2, page.records.len(), "{ending:?} left half a commit");
    }
}
