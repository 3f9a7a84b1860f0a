//! A breaker around a store that is a server (O10): while the server is gone, calls are refused at once instead of
//! each waiting for its own time-out, and one probe at a time finds out when it is back.
//!
//! A refused call never reaches the store, so "not applied" is true of it. Of a commit sent *earlier* whose outcome is
//! unknown it says nothing: who resolves that has to go on until the store itself answers.

mod circuit;

use crate::charge::Charge;
use crate::contract::{
    BreakerState, Guarantees, Page, Range, Reading, Reason, Store, StoreError, StoreFuture, Usage,
};
use crate::watch::Watch;
use baton_core::meter::Charged;
use baton_core::{Bytes, Commit, Group, Key, Outcome};
use circuit::{Change, Circuit, GIVEN_UP_MIN, Phase, Verdict};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until, timeout};

/// How long a probe may take.
const PROBE_MAX: Duration = Duration::from_secs(1);

/// A store that refuses calls while the one it wraps is gone.
pub struct Breaker {
    store: Arc<dyn Store>,
    shared: Arc<Shared>,
    probing: JoinHandle<()>,
}

struct Shared {
    circuit: Mutex<Circuit>,
    opened: Notify,
    /// For the log.
    name: &'static str,
}

impl Breaker {
    /// Around a store. Must be called within a Tokio runtime, which the probes run on.
    pub fn new(store: Arc<dyn Store>) -> Arc<Self> {
        let name = store.guarantees().store;
        let circuit = Mutex::new(Circuit::new(Instant::now()));
        let shared = Arc::new(Shared { circuit, opened: Notify::new(), name });
        let probing = tokio::spawn(probe(store.clone(), shared.clone()));
        Arc::new(Self { store, shared, probing })
    }

    /// Whether calls are refused now.
    pub fn is_open(&self) -> bool {
        self.shared.lock().admit().is_none()
    }

    /// Makes a call, if the circuit lets it through, and learns from how it ends.
    async fn through<T>(&self, call: impl Future<Output = Result<T, StoreError>>) -> Result<T, StoreError> {
        let Some(phase) = self.shared.lock().admit() else {
            let detail = "not sent: the store has failed, and has not answered a probe since".into();
            return Err(StoreError::NotApplied { reason: Reason::Unavailable, detail });
        };
        let mut pending = Pending { shared: &self.shared, phase, started: Instant::now(), verdict: None };
        let result = call.await;
        pending.verdict = Some(verdict(&result));
        result
    }
}

impl Drop for Breaker {
    fn drop(&mut self) {
        self.probing.abort();
    }
}

impl Store for Breaker {
    // The store's own calls are made inside futures, so that a refused call isn't even begun.
    fn commit(&self, commit: Commit) -> StoreFuture<'_, Outcome> {
        Box::pin(self.through(async move { self.store.commit(commit).await }))
    }

    fn read(&self, keys: Vec<Key>) -> StoreFuture<'_, Reading> {
        Box::pin(self.through(async move { self.store.read(keys).await }))
    }

    fn scan(&self, range: Range, limit: usize) -> StoreFuture<'_, Page> {
        Box::pin(self.through(async move { self.store.scan(range, limit).await }))
    }

    fn charge(&self, charge: Charge) -> StoreFuture<'_, Charged> {
        Box::pin(self.through(async move { self.store.charge(charge).await }))
    }

    fn watch(&self, prefix: Bytes) -> Watch {
        self.store.watch(prefix)
    }

    fn expirations(&self, prefix: Bytes) -> Watch {
        self.store.expirations(prefix)
    }

    fn guarantees(&self) -> Guarantees {
        self.store.guarantees()
    }

    fn usage(&self) -> Usage {
        self.store.usage()
    }

    fn breaker(&self) -> Option<(BreakerState, Duration)> {
        let circuit = self.shared.lock();
        Some((circuit.state(), circuit.changed_at().elapsed()))
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Circuit> {
        self.circuit.lock().expect("no panic while held")
    }

    fn tell(&self, change: Change) {
        match change {
            Change::None => {}
            Change::Opened => {
                tracing::warn!(
                    store = self.name,
                    "the store keeps failing: calls are refused until it answers"
                );
                self.opened.notify_one();
            }
            Change::Closed => tracing::info!(store = self.name, "the store answers again"),
        }
    }
}

/// A conflict, a full store or a call that breaks the contract are answers of a store that is well. Of one that wasn't asked,
/// because too much is on its way to it, nothing is known: many callers alone must not open the circuit, nor close it.
fn verdict<T>(result: &Result<T, StoreError>) -> Verdict {
    match result {
        Err(StoreError::NotApplied { reason: Reason::Busy, .. }) => Verdict::Unasked,
        Err(StoreError::Unknown { .. } | StoreError::NotApplied { reason: Reason::Unavailable, .. }) => {
            Verdict::Failed
        }
        Ok(_) | Err(StoreError::NotApplied { reason: Reason::Full | Reason::Invalid, .. }) => {
            Verdict::Answered
        }
    }
}

/// A call under way. Dropped without a verdict, it was given up by its caller, which after some time means that the
/// store didn't answer.
struct Pending<'a> {
    shared: &'a Shared,
    phase: Phase,
    started: Instant,
    verdict: Option<Verdict>,
}

impl Drop for Pending<'_> {
    fn drop(&mut self) {
        let now = Instant::now();
        let was_given_up = now.saturating_duration_since(self.started) >= GIVEN_UP_MIN;
        let Some(verdict) = self.verdict.or(was_given_up.then_some(Verdict::Failed)) else { return };
        let chance = if verdict == Verdict::Failed { chance() } else { 0 };
        let change = self.shared.lock().ended(self.phase, verdict, now, chance);
        self.shared.tell(change);
    }
}

/// Probes while the circuit is open, one at a time.
async fn probe(store: Arc<dyn Store>, shared: Arc<Shared>) {
    // Any key will do: whether it is there doesn't matter.
    let key = Key::new(Group(0), b"Nprobe".as_slice());
    loop {
        let Some(probe_at) = shared.lock().probe_at() else {
            shared.opened.notified().await;
            continue;
        };
        sleep_until(probe_at).await;
        shared.lock().begin_probe();
        let answer = timeout(PROBE_MAX, store.read(vec![key.clone()])).await;
        let verdict = answer.as_ref().map_or(Verdict::Failed, verdict);
        let change = shared.lock().probed(verdict, Instant::now(), chance());
        shared.tell(change);
    }
}

/// Only spreads probes: without randomness they'd be less spread, and that is all.
fn chance() -> u32 {
    getrandom::u32().unwrap_or_default()
}
