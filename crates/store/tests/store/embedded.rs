//! The embedded store: the laws, and what is its own.

use baton_core::{Check, Commit, Group, Key, Outcome, Ttl, Write};
use baton_store::conformance::{self, Ending, Harness};
use baton_store::embedded::disk::simulated::SimulatedDisk;
use baton_store::embedded::time::ManualTime;
use baton_store::embedded::{Embedded, OpenError, Options};
use baton_store::{Reason, Store, StoreError, open};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// A store on a simulated disk, with a clock that is moved by hand.
struct Simulated {
    disk: SimulatedDisk,
    time: Arc<ManualTime>,
    options: Options,
}

impl Simulated {
    fn new(seed: u64) -> Self {
        let time = Arc::new(ManualTime::new(Duration::from_secs(1_700_000_000)));
        let options = Options {
            segment_bytes: 2 << 20,
            snapshot_bytes: 1 << 20,
            on_fatal: Arc::new(|_| {}),
            time: time.clone(),
            ..Options::default()
        };
        Self { disk: SimulatedDisk::new(seed), time, options }
    }

    fn start(&self) -> Result<Embedded, OpenError> {
        Embedded::open_on(Arc::new(self.disk.clone()), self.options.clone())
    }
}

impl Harness for Simulated {
    async fn open(&self) -> Arc<dyn Store> {
        Arc::new(self.start().unwrap())
    }

    async fn reopen(&self, store: Arc<dyn Store>, ending: Ending) -> Arc<dyn Store> {
        if ending == Ending::Crash {
            self.disk.crash_at(Some(0));
        }
        drop(store);
        self.disk.restart();
        self.open().await
    }

    async fn pass(&self, duration: Duration) {
        self.time.advance(duration);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keeps_the_laws() {
    conformance::all(&Simulated::new(1)).await;
}
