//! The laws of the store contract, one a file. A store's tests adopt them all with a [`Harness`] and one line:
//!
//! ```ignore
//! conformance::all(&MyHarness::new()).await;
//! ```
//! A law that doesn't hold panics and says which. Every law works under names of its own, so that the data of
//! one store may be used for all of them, also at the same time as others use it.

mod atomic;
mod charge;
mod conflict;
mod expiry;
mod invalid;
mod resend;
mod revisions;
mod scan;
mod survival;
mod touch;
mod unlisted;
mod watch;
mod winner;
mod witness;

use crate::contract::{Range, Store};
use baton_core::{Bytes, Check, Commit, Group, Key, Outcome, Record, Revision, Ttl, Write};
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

/// How a store ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ending {
    /// It is closed.
    Graceful,
    /// Its process, or its machine, is gone from one moment to the next.
    Crash,
}

/// What the laws need to be able to do with a store.
pub trait Harness: Send + Sync {
    /// Opens the store.
    fn open(&self) -> impl Future<Output = Arc<dyn Store>> + Send;

    /// Ends the store, wherever it runs, and opens it again on the same data. `store` is what `open` gave.
    fn reopen(&self, store: Arc<dyn Store>, ending: Ending) -> impl Future<Output = Arc<dyn Store>> + Send;

    /// Lets time pass by the store's own clock: waits, or moves the clock.
    fn pass(&self, duration: Duration) -> impl Future<Output = ()> + Send;
}

/// Every law, one after the other.
pub async fn all<H: Harness>(harness: &H) {
    revisions::only_grow(harness).await;
    atomic::all_or_none(harness).await;
    conflict::shows_what_is_there(harness).await;
    witness::shows_what_was_touched_and_deleted(harness).await;
    touch::extends_and_counts(harness).await;
    expiry::makes_absent(harness).await;
    unlisted::is_a_record_all_the_same(harness).await;
    invalid::changes_nothing(harness).await;
    resend::takes_effect_once(harness).await;
    winner::is_one(harness).await;
    charge::is_the_function(harness).await;
    charge::takes_exactly_the_limit(harness).await;
    scan::pages_are_stable(harness).await;
    watch::hints_or_says_that_it_lost_some(harness).await;
    survival::of_what_was_acknowledged(harness).await;
}

/// A store, and names of one law's own.
struct Ground {
    store: Arc<dyn Store>,
    tag: String,
    group: Group,
}

impl Ground {
    async fn new<H: Harness>(harness: &H, law: &str) -> Self {
        let salt = getrandom::u64().expect("the system has randomness");
        let tag = format!("conformance/{law}/{salt:016x}");
        let group = Group::of(&[tag.as_bytes()]);
        Self { store: harness.open().await, tag, group }
    }

    async fn reopen<H: Harness>(&mut self, harness: &H, ending: Ending) {
        let nothing: Arc<dyn Store> = Arc::new(Nothing);
        let store = std::mem::replace(&mut self.store, nothing);
        self.store = harness.reopen(store, ending).await;
    }

    /// A time to live that this store can keep, and how long until it is surely over.
    fn ttl(&self) -> (Duration, Duration) {
        let guarantees = self.store.guarantees();
        let ttl = guarantees.ttl_min.max(Duration::from_secs(1));
        (ttl, ttl + guarantees.ttl_granularity)
    }

    fn key(&self, name: &str) -> Key {
        Key::new(self.group, format!("{}/{name}", self.tag).into_bytes())
    }

    fn range(&self, after: Option<Bytes>) -> Range {
        Range { group: self.group, prefix: format!("{}/", self.tag).into_bytes().into(), after }
    }

    async fn commit(&self, checks: Vec<Check>, writes: Vec<Write>) -> Outcome {
        self.store.commit(Commit { checks, writes }).await.expect("the store answers")
    }

    /// Commits what must hold.
    async fn done(&self, checks: Vec<Check>, writes: Vec<Write>) -> Done {
        match self.commit(checks, writes).await {
            Outcome::Committed { revision, witnessed, .. } => Done { revision, witnessed },
            Outcome::Conflict { found, .. } => panic!("a commit whose checks hold was refused: {found:?}"),
        }
    }

    /// Commits what must not hold.
    async fn refused(&self, checks: Vec<Check>, writes: Vec<Write>) -> Vec<(Key, Option<Record>)> {
        match self.commit(checks, writes).await {
            Outcome::Conflict { found, .. } => found,
            Outcome::Committed { .. } => panic!("a commit with a check that fails was applied"),
        }
    }

    async fn put(&self, name: &str, value: &str) -> Revision {
        self.done(vec![], vec![put(self.key(name), value)]).await.revision
    }

    async fn read(&self, name: &str) -> Option<Record> {
        let reading = self.store.read(vec![self.key(name)]).await.expect("the store answers");
        reading.records.into_iter().next().expect("one answer for one key")
    }
}

struct Done {
    revision: Revision,
    witnessed: Vec<Option<Record>>,
}

fn put(key: Key, value: &str) -> Write {
    Write::Put { key, value: value.as_bytes().into(), ttl: Ttl::Forever }
}

fn put_for(key: Key, value: &str, ttl: Duration) -> Write {
    Write::Put { key, value: value.as_bytes().into(), ttl: Ttl::Exactly(ttl) }
}

/// Stands in for a store that is being reopened, so that no handle is left.
struct Nothing;

impl Store for Nothing {
    fn commit(&self, _: Commit) -> crate::StoreFuture<'_, Outcome> {
        unreachable!("reopening")
    }
    fn read(&self, _: Vec<Key>) -> crate::StoreFuture<'_, crate::Reading> {
        unreachable!("reopening")
    }
    fn scan(&self, _: Range, _: usize) -> crate::StoreFuture<'_, crate::Page> {
        unreachable!("reopening")
    }
    fn watch(&self, _: Bytes) -> crate::watch::Watch {
        unreachable!("reopening")
    }
    fn expirations(&self, _: Bytes) -> crate::watch::Watch {
        unreachable!("reopening")
    }
    fn guarantees(&self) -> crate::Guarantees {
        unreachable!("reopening")
    }
    fn usage(&self) -> crate::Usage {
        unreachable!("reopening")
    }
}
