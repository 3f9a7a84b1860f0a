//! A store that counts the commits which change locks and elections, and those which write logs of limits; and loses answers on demand.

use baton_core::meter::Charged;
use baton_core::{Bytes, Commit, Key, Outcome};
use baton_store::watch::Watch;
use baton_store::{Charge, Guarantees, Page, Range, Reading, Store, StoreError, StoreFuture, Usage};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

pub struct Counting {
    pub inner: Arc<dyn Store>,
    commits: AtomicU64,
    calls: AtomicU64,
    charges: AtomicU64,
    forgets: AtomicBool,
    logs: AtomicU64,
    entries: Arc<AtomicU64>,
}

impl Counting {
    pub fn new(inner: Arc<dyn Store>) -> Self {
        let zero = || AtomicU64::new(0);
        let forgets = AtomicBool::new(false);
        let entries = Arc::default();
        Self { inner, commits: zero(), calls: zero(), charges: zero(), forgets, logs: zero(), entries }
    }

    /// Commits that changed a roster or a grant: histories are written by others.
    pub fn commits(&self) -> u64 {
        self.commits.load(Ordering::SeqCst)
    }

    /// All of those, also refused ones, and reads and scans of locks: that nodes look for each other is beside it.
    pub fn calls(&self) -> u64 {
        self.calls.load(Ordering::SeqCst)
    }

    /// Charges of meters.
    pub fn charges(&self) -> u64 {
        self.charges.load(Ordering::SeqCst)
    }

    /// Whether answers to charges that are remembered get lost.
    pub fn forget(&self, forgets: bool) {
        self.forgets.store(forgets, Ordering::SeqCst);
    }

    /// Commits to logs of decisions, also refused ones.
    pub fn logs(&self) -> u64 {
        self.logs.load(Ordering::SeqCst)
    }

    /// Entries of the index of jobs that were read.
    pub fn entries(&self) -> u64 {
        self.entries.load(Ordering::SeqCst)
    }

    fn looks(&self, at_locks: bool) {
        self.calls.fetch_add(u64::from(at_locks), Ordering::SeqCst);
    }
}

impl Store for Counting {
    fn commit(&self, commit: Commit) -> StoreFuture<'_, Outcome> {
        let names = commit.writes.iter().map(|write| &write.key().name);
        let is_log = names.clone().any(|name| name.starts_with(b"Qa"));
        self.logs.fetch_add(u64::from(is_log), Ordering::SeqCst);
        let counts = names.into_iter().any(|name| matches!(name[..], [b'L' | b'E', b'r' | b'g', ..]));
        if counts {
            self.calls.fetch_add(1, Ordering::SeqCst);
        }
        let committing = self.inner.commit(commit);
        Box::pin(async move {
            let outcome = committing.await;
            if counts && matches!(outcome, Ok(Outcome::Committed { .. })) {
                self.commits.fetch_add(1, Ordering::SeqCst);
            }
            outcome
        })
    }

    fn charge(&self, charge: Charge) -> StoreFuture<'_, Charged> {
        self.charges.fetch_add(1, Ordering::SeqCst);
        let is_lost = charge.memo.is_some() && self.forgets.load(Ordering::SeqCst);
        let charging = self.inner.charge(charge);
        Box::pin(async move {
            let charged = charging.await;
            if is_lost { Err(StoreError::Unknown { detail: "lost".into() }) } else { charged }
        })
    }

    fn read(&self, keys: Vec<Key>) -> StoreFuture<'_, Reading> {
        self.looks(keys.iter().any(|key| key.name.starts_with(b"L")));
        self.inner.read(keys)
    }

    fn scan(&self, range: Range, limit: usize) -> StoreFuture<'_, Page> {
        self.looks(range.prefix.starts_with(b"L"));
        let entries = range.prefix.starts_with(b"Ji").then(|| self.entries.clone());
        let scanning = self.inner.scan(range, limit);
        Box::pin(async move {
            let page = scanning.await?;
            if let Some(entries) = entries {
                entries.fetch_add(page.records.len() as u64, Ordering::SeqCst);
            }
            Ok(page)
        })
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
