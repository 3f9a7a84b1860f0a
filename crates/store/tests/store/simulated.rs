//! A store on a simulated disk, with a clock that is moved by hand.

use baton_core::{Commit, Group, Key, Outcome, Revision, Ttl, Write};
use baton_store::Store;
use baton_store::conformance::{Ending, Harness};
use baton_store::embedded::disk::simulated::SimulatedDisk;
use baton_store::embedded::time::ManualTime;
use baton_store::embedded::{Embedded, OpenError, Options};
use std::sync::Arc;
use std::time::Duration;

pub struct Simulated {
    pub disk: SimulatedDisk,
    pub time: Arc<ManualTime>,
    pub options: Options,
}

impl Simulated {
    pub fn new(seed: u64) -> Self {
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

    pub fn start(&self) -> Result<Embedded, OpenError> {
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

pub fn key(name: &str) -> Key {
    Key::new(Group(7), name.as_bytes())
}

pub fn put(name: &str, value: &str) -> Write {
    Write::Put { key: key(name), value: value.as_bytes().into(), ttl: Ttl::Forever }
}

pub fn put_for(name: &str, value: &str, seconds: u64) -> Write {
    let ttl = Ttl::Exactly(Duration::from_secs(seconds));
    Write::Put { key: key(name), value: value.as_bytes().into(), ttl }
}

pub fn touch(name: &str, seconds: u64) -> Write {
    Write::Touch { key: key(name), ttl: Duration::from_secs(seconds) }
}

pub fn delete(name: &str) -> Write {
    Write::Delete { key: key(name) }
}

pub fn commit(writes: impl Into<Vec<Write>>) -> Commit {
    Commit { checks: vec![], writes: writes.into() }
}

pub async fn committed(store: &dyn Store, writes: impl Into<Vec<Write>>) -> Revision {
    match store.commit(commit(writes)).await {
        Ok(Outcome::Committed { revision, .. }) => revision,
        other => panic!("{other:?}"),
    }
}
