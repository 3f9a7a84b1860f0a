//! A store that hasn't been reached yet: until it is, every call is refused at once, and nothing was applied.

use crate::charge::Charge;
use crate::contract::{
    BreakerState, Guarantees, Page, Range, Reading, Reason, Store, StoreError, StoreFuture, Usage,
};
use crate::open::{Kind, OpenStoreError};
use crate::watch::{Hub, Watch};
use baton_core::meter::Charged;
use baton_core::{Bytes, Commit, Key, Outcome};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

/// What is said of a store that nobody has asked yet.
const NOT_KNOWN: &str = "not known yet: the store has not been reached";

/// A store that will come. Once it has, this is that store.
pub struct Late {
    store: OnceLock<Arc<dyn Store>>,
    promised: Guarantees,
    /// Of those who watch before it has come. They hear that the store has gone when it comes, and watch again.
    early: Mutex<Option<Hub>>,
    started: std::time::Instant,
}

impl Late {
    /// In the place of what `url` names, which must be a server.
    pub fn new(url: &str) -> Result<Self, OpenStoreError> {
        let kind = Kind::of_server(url)?;
        let promised = Guarantees {
            store: kind.name(),
            shared: true,
            answers_always: false,
            charge_spans_groups: kind.charge_spans_groups(),
            ttl_min: Duration::ZERO,
            ttl_granularity: Duration::ZERO,
            on_crash: NOT_KNOWN,
            on_failover: NOT_KNOWN,
            on_partition: NOT_KNOWN,
            on_clock_step: NOT_KNOWN,
            warnings: Vec::new(),
        };
        let (early, started) = (Mutex::new(Some(Hub::default())), std::time::Instant::now());
        Ok(Self { store: OnceLock::new(), promised, early, started })
    }

    /// It has come. Only the first one is taken.
    pub fn arrived(&self, store: Arc<dyn Store>) {
        if self.store.set(store).is_ok() {
            self.early.lock().expect("no panic while held").take();
        }
    }

    fn get(&self) -> Result<&Arc<dyn Store>, StoreError> {
        let absent = || StoreError::NotApplied { reason: Reason::Unavailable, detail: NOT_KNOWN.into() };
        self.store.get().ok_or_else(absent)
    }

    fn early(&self, prefix: Bytes) -> Option<Watch> {
        self.early.lock().expect("no panic while held").as_ref().map(|hub| hub.subscribe(prefix))
    }
}

impl Store for Late {
    fn commit(&self, commit: Commit) -> StoreFuture<'_, Outcome> {
        Box::pin(async move { self.get()?.commit(commit).await })
    }

    fn read(&self, keys: Vec<Key>) -> StoreFuture<'_, Reading> {
        Box::pin(async move { self.get()?.read(keys).await })
    }

    fn scan(&self, range: Range, limit: usize) -> StoreFuture<'_, Page> {
        Box::pin(async move { self.get()?.scan(range, limit).await })
    }

    fn charge(&self, charge: Charge) -> StoreFuture<'_, Charged> {
        Box::pin(async move { self.get()?.charge(charge).await })
    }

    fn watch(&self, prefix: Bytes) -> Watch {
        match self.store.get() {
            Some(store) => store.watch(prefix),
            // If it comes just now there is nobody to hear from, and that is heard.
            None => self.early(prefix.clone()).unwrap_or_else(|| Hub::default().subscribe(prefix)),
        }
    }

    fn expirations(&self, prefix: Bytes) -> Watch {
        match self.store.get() {
            Some(store) => store.expirations(prefix),
            None => self.early(prefix.clone()).unwrap_or_else(|| Hub::default().subscribe(prefix)),
        }
    }

    fn guarantees(&self) -> Guarantees {
        self.store.get().map_or_else(|| self.promised.clone(), |store| store.guarantees())
    }

    fn usage(&self) -> Usage {
        let nothing = Usage { records: 0, used_bytes: 0, budget_bytes: u64::MAX };
        self.store.get().map_or(nothing, |store| store.usage())
    }

    fn breaker(&self) -> Option<(BreakerState, Duration)> {
        match self.store.get() {
            Some(store) => store.breaker(),
            None => Some((BreakerState::Open, self.started.elapsed())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::embedded::{Embedded, Options};

    #[tokio::test]
    async fn it_refuses_everything_until_the_store_has_come_and_then_is_that_store() {
        let late = Late::new("redis-cluster://nowhere").unwrap();
        assert!(Late::new("embedded:").is_err());
        assert!(!late.guarantees().charge_spans_groups && late.guarantees().shared);
        let refused = late.read(Vec::new()).await;
        assert!(matches!(refused, Err(StoreError::NotApplied { reason: Reason::Unavailable, .. })));
        assert!(matches!(late.breaker(), Some((BreakerState::Open, _))));
        let mut early = late.watch(Bytes::from([]));
        let directory = tempfile::tempdir().unwrap();
        late.arrived(Arc::new(Embedded::open(directory.path(), Options::default()).unwrap()));
        assert_eq!(early.next().await, None, "whoever watched before watches again");
        assert!(late.read(Vec::new()).await.is_ok());
        assert_eq!((late.guarantees().store, late.breaker()), ("embedded", None));
    }
}
