//! A node's session at a store that loses answers: made once, and from then on only renewed (L3).

use baton_core::cluster::{SESSION, session_key};
use baton_core::{Bytes, Commit, Key, Outcome, Write};
use baton_engine::{Config, Engine, Random};
use baton_store::watch::Watch;
use baton_store::{Guarantees, Page, Range, Reading, Store, StoreError, StoreFuture, Usage};
use baton_testkit::simulated::{Faults, Node, Simulated};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

/// Counts how often a session was put, and loses the answer to that on demand.
struct Forgetful {
    inner: Arc<Node>,
    puts: AtomicU32,
    loses: AtomicBool,
}

impl Store for Forgetful {
    fn commit(&self, commit: Commit) -> StoreFuture<'_, Outcome> {
        let is_put = |write: &Write| matches!(write, Write::Put { key, .. } if key.name.starts_with(SESSION));
        if !commit.writes.iter().any(is_put) {
            return self.inner.commit(commit);
        }
        Box::pin(async move {
            let outcome = self.inner.commit(commit).await?;
            self.puts.fetch_add(1, Ordering::SeqCst);
            match self.loses.swap(false, Ordering::SeqCst) {
                true => Err(StoreError::Unknown { detail: "lost".into() }),
                false => Ok(outcome),
            }
        })
    }

    fn read(&self, keys: Vec<Key>) -> StoreFuture<'_, Reading> {
        self.inner.read(keys)
    }

    fn scan(&self, range: Range, limit: usize) -> StoreFuture<'_, Page> {
        self.inner.scan(range, limit)
    }

    fn watch(&self, prefix: Bytes) -> Watch {
        self.inner.watch(prefix)
    }

    fn expirations(&self, prefix: Bytes) -> Watch {
        self.inner.expirations(prefix)
    }

    fn guarantees(&self) -> Guarantees {
        self.inner.guarantees()
    }

    fn usage(&self) -> Usage {
        self.inner.usage()
    }
}

#[tokio::test(start_paused = true)]
async fn a_session_whose_makers_answer_was_lost_is_found_and_renewed_and_not_made_again() {
    let simulated = Simulated::for_many(61);
    let inner = simulated.node(Faults::none());
    let store = Arc::new(Forgetful { inner, puts: AtomicU32::new(0), loses: AtomicBool::new(false) });
    let puts = || store.puts.load(Ordering::SeqCst);
    let engine = Engine::start(store.clone(), Config::default(), Random::seeded(1)).await.unwrap();
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!(puts(), 1);

    // Its session is gone, as after an outage; the answer to the one that makes another is lost.
    store.loses.store(true, Ordering::SeqCst);
    let key = session_key(engine.node());
    let delete = Commit { checks: Vec::new(), writes: vec![Write::Delete { key: key.clone() }] };
    simulated.node(Faults::none()).commit(delete).await.unwrap();
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(puts(), 2, "it was there all the time");
    let session = store.read(vec![key]).await.unwrap().records.remove(0).unwrap();
    assert!(session.touches > 10, "it was renewed {} times", session.touches);
}
