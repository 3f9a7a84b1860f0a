//! A store that counts the commits which change locks.

use baton_core::{Bytes, Commit, Key, Outcome};
use baton_store::watch::Watch;
use baton_store::{Guarantees, Page, Range, Reading, Store, StoreFuture, Usage};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

pub struct Counting {
    pub inner: Arc<dyn Store>,
    commits: AtomicU64,
    calls: AtomicU64,
}

impl Counting {
    pub fn new(inner: Arc<dyn Store>) -> Self {
        Self { inner, commits: AtomicU64::new(0), calls: AtomicU64::new(0) }
    }

    /// Commits that touch a roster or a grant: histories are written by others.
    pub fn commits(&self) -> u64 {
        self.commits.load(Ordering::SeqCst)
    }

    /// All of those, and reads and scans.
    pub fn calls(&self) -> u64 {
        self.calls.load(Ordering::SeqCst)
    }
}

impl Store for Counting {
    fn commit(&self, commit: Commit) -> StoreFuture<'_, Outcome> {
        let names = commit.writes.iter().map(|write| &write.key().name);
        if names.into_iter().any(|name| name.starts_with(b"Lr") || name.starts_with(b"Lg")) {
            self.commits.fetch_add(1, Ordering::SeqCst);
            self.calls.fetch_add(1, Ordering::SeqCst);
        }
        self.inner.commit(commit)
    }

    fn read(&self, keys: Vec<Key>) -> StoreFuture<'_, Reading> {
        self.calls.fetch_add(1, Ordering::SeqCst);
        self.inner.read(keys)
    }

    fn scan(&self, range: Range, limit: usize) -> StoreFuture<'_, Page> {
        self.calls.fetch_add(1, Ordering::SeqCst);
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
