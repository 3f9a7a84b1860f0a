//! A store that fails on demand, around one that doesn't.
//!
//! It is a handle: whoever keeps a clone decides how the store behaves that others were given. Nothing is retried or
//! repaired here, and hints pass through whatever is wrong.

use baton_core::meter::Charged;
use baton_core::{Bytes, Commit, Key, Outcome, Write};
use baton_store::watch::Watch;
use baton_store::{Charge, Guarantees, Page, Range, Reading, Reason, Store, StoreError, StoreFuture, Usage};
use std::sync::Arc;
use tokio::sync::watch;

/// What its errors say, to be looked for where it must not show.
pub const DETAIL: &str = "faulty-store-detail";

/// How the store behaves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// As the store it wraps does.
    None,
    /// Every call is refused: not applied, unavailable.
    Unavailable,
    /// Commits that only make something new are refused: not applied, full. What touches, deletes or reads goes on.
    Full,
    /// Every commit is refused as one that breaks the contract.
    Invalid,
    /// No call arrives, and nobody learns that.
    Lost,
    /// Every call arrives, and its answer is lost.
    AnswerLost,
    /// No call arrives or is answered, until the fault is another one.
    Silent,
}

/// A store around another one. Clones share their fault.
#[derive(Clone)]
pub struct Faulty {
    store: Arc<dyn Store>,
    state: Arc<watch::Sender<State>>,
}

#[derive(Clone, Copy)]
struct State {
    fault: Fault,
    calls: u64,
    charges: u64,
}

/// What a call wants.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// A commit that only puts.
    Creation,
    /// Any other commit.
    Change,
    /// To know.
    Look,
}

impl Faulty {
    /// Around a store, without a fault for now.
    pub fn new(store: Arc<dyn Store>) -> Self {
        Self {
            store,
            state: Arc::new(watch::Sender::new(State { fault: Fault::None, calls: 0, charges: 0 })),
        }
    }

    /// From now on it behaves like this; calls that a [`Fault::Silent`] store has swallowed go on.
    pub fn set(&self, fault: Fault) {
        self.state.send_modify(|state| state.fault = fault);
    }

    /// How many calls it has been sent.
    pub fn calls(&self) -> u64 {
        self.state.borrow().calls
    }

    /// How many of them were charges of meters, which nobody makes but checks of limits.
    pub fn charges(&self) -> u64 {
        self.state.borrow().charges
    }

    /// Returns when it has been sent so many calls.
    pub async fn called(&self, times: u64) {
        let mut states = self.state.subscribe();
        states.wait_for(|state| state.calls >= times).await.expect("the sender is in self");
    }

    async fn call<T>(
        &self,
        kind: Kind,
        call: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        self.state.send_modify(|state| state.calls += 1);
        let mut states = self.state.subscribe();
        let fault = {
            let heard = states.wait_for(|state| state.fault != Fault::Silent).await;
            heard.expect("the sender is in self").fault
        };
        let refused = |reason| Err(StoreError::NotApplied { reason, detail: DETAIL.into() });
        let unknown = || Err(StoreError::Unknown { detail: DETAIL.into() });
        match fault {
            Fault::Unavailable => refused(Reason::Unavailable),
            Fault::Full if kind == Kind::Creation => refused(Reason::Full),
            Fault::Invalid if kind != Kind::Look => refused(Reason::Invalid),
            Fault::Lost => unknown(),
            Fault::AnswerLost => call.await.and_then(|_| unknown()),
            Fault::None | Fault::Full | Fault::Invalid | Fault::Silent => call.await,
        }
    }
}

impl Store for Faulty {
    // The store's own calls are made inside futures, so that a call which doesn't arrive isn't even begun.
    fn commit(&self, commit: Commit) -> StoreFuture<'_, Outcome> {
        let is_new = commit.writes.iter().all(|write| matches!(write, Write::Put { .. }));
        let kind = if is_new { Kind::Creation } else { Kind::Change };
        Box::pin(self.call(kind, async move { self.store.commit(commit).await }))
    }

    fn read(&self, keys: Vec<Key>) -> StoreFuture<'_, Reading> {
        Box::pin(self.call(Kind::Look, async move { self.store.read(keys).await }))
    }

    fn scan(&self, range: Range, limit: usize) -> StoreFuture<'_, Page> {
        Box::pin(self.call(Kind::Look, async move { self.store.scan(range, limit).await }))
    }

    fn charge(&self, charge: Charge) -> StoreFuture<'_, Charged> {
        self.state.send_modify(|state| state.charges += 1);
        Box::pin(self.call(Kind::Change, async move { self.store.charge(charge).await }))
    }

    fn watch(&self, prefix: Bytes) -> Watch {
        self.store.watch(prefix)
    }

    fn expirations(&self, prefix: Bytes) -> Watch {
        self.store.expirations(prefix)
    }

    fn guarantees(&self) -> Guarantees {
        Guarantees { answers_always: false, ..self.store.guarantees() }
    }

    fn usage(&self) -> Usage {
        self.store.usage()
    }
}
