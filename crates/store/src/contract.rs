//! The store contract: compare-and-commit on versioned records, with time to live, a clock and hints.

use crate::charge::{self, Charge};
use crate::watch::Watch;
use baton_core::meter::Charged;
use baton_core::{Bytes, Commit, Group, Key, Outcome, Record, WallTime};
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

/// What a store's calls return: boxed, so that a store is one object whatever it is made of.
pub type StoreFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, StoreError>> + Send + 'a>>;

/// Where decisions become true. What each call promises is in the laws of `conformance`.
pub trait Store: Send + Sync + 'static {
    /// All writes happen if all checks hold, else none. Durable when it answers.
    fn commit(&self, commit: Commit) -> StoreFuture<'_, Outcome>;

    /// The records under `keys`, in their order, as of one moment.
    fn read(&self, keys: Vec<Key>) -> StoreFuture<'_, Reading>;

    /// The records of one group whose names begin with `range.prefix`, in order, from after `range.after`. It may leave out
    /// those that are not [listed](baton_core::name::is_listed).
    fn scan(&self, range: Range, limit: usize) -> StoreFuture<'_, Page>;

    /// Hints of changes to records, of any group, whose names begin with `prefix`: they may repeat, and a gap
    /// shows as [`crate::watch::Change::Lost`]. Never needed for safety. A record that expires gives no hint here.
    fn watch(&self, prefix: Bytes) -> Watch;

    /// Hints of records, of any group, whose names begin with `prefix`, that have expired and were collected: some
    /// seconds late, and as incomplete as any hint. What isn't listed and lives [at least](baton_core::Ttl::AtLeast) so long
    /// may go without one.
    fn expirations(&self, prefix: Bytes) -> Watch;

    /// All claims are charged on their meters if all find room, else none. Meters are records: durable when it answers, read
    /// like any other, without hints. Whatever language it is done in, it is what `baton_core::meter::settle` says.
    fn charge(&self, charge: Charge) -> StoreFuture<'_, Charged> {
        Box::pin(async move {
            charge.validate(self.guarantees().charge_spans_groups)?;
            charge::by_commit(charge, |keys| self.read(keys), |commit| self.commit(commit)).await
        })
    }

    /// What holds on crash, failover, partition and clock step.
    fn guarantees(&self) -> Guarantees;

    /// How full it is.
    fn usage(&self) -> Usage;

    /// How the breaker in front of it stands, and for how long; nothing where there is none.
    fn breaker(&self) -> Option<(BreakerState, Duration)> {
        None
    }
}

/// What a read found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Reading {
    /// One for each key asked for.
    pub records: Vec<Option<Record>>,
    /// The store's wall clock.
    pub now: WallTime,
}

/// Some records of one group.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Range {
    /// The partition.
    pub group: Group,
    /// What the names begin with.
    pub prefix: Bytes,
    /// Only names after this one.
    pub after: Option<Bytes>,
}

/// What a scan found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Page {
    /// At most as many as asked for.
    pub records: Vec<Record>,
    /// Whether the range has more after the last of them.
    pub more: bool,
    /// The store's wall clock.
    pub now: WallTime,
}

/// Why a store didn't answer, and whether anything may have happened.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum StoreError {
    /// Nothing was written and nothing will be.
    #[error("not applied, {reason}: {detail}")]
    NotApplied {
        /// What kind of trouble.
        reason: Reason,
        /// For the log.
        detail: String,
    },
    /// It may have been written, or may still be. A read can't tell: see ARCHITECTURE.md, "Unknown".
    #[error("outcome unknown: {detail}")]
    Unknown {
        /// For the log.
        detail: String,
    },
}

/// Why nothing was written.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Reason {
    /// The store can't be reached, or is stopping.
    #[error("unavailable")]
    Unavailable,
    /// So much is on its way to the store from here already that it wasn't asked: that says nothing about the store.
    #[error("busy")]
    Busy,
    /// The store has no room; deletes still work.
    #[error("full")]
    Full,
    /// The call breaks the contract: too large, several groups, two writes for a key.
    #[error("invalid")]
    Invalid,
}

/// What a store promises, for `/v1/status` and for the engine's decisions about other nodes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Guarantees {
    /// The store's name, as in its URL.
    pub store: &'static str,
    /// Whether other nodes may be using the same store.
    pub shared: bool,
    /// Whether a call is answered as long as this process lives: then nobody needs a time limit for it.
    pub answers_always: bool,
    /// Whether meters of several groups can be charged together.
    pub charge_spans_groups: bool,
    /// The shortest time to live it can keep.
    pub ttl_min: Duration,
    /// Expiry happens at most this much after the exact moment.
    pub ttl_granularity: Duration,
    /// What holds when a node or the store crashes.
    pub on_crash: &'static str,
    /// What holds when the store fails over to a replica.
    pub on_failover: &'static str,
    /// What holds when a part of the network is cut off from the rest.
    pub on_partition: &'static str,
    /// What holds when a clock steps.
    pub on_clock_step: &'static str,
    /// Settings found at the server that these promises need otherwise: one sentence each.
    pub warnings: Vec<String>,
}

/// Whether calls go through to a store that is a server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BreakerState {
    /// They do.
    Closed,
    /// They are refused; the server is being asked whether it is back.
    HalfOpen,
    /// They are refused.
    Open,
}

impl BreakerState {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Closed, Self::HalfOpen, Self::Open];

    /// In a word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::HalfOpen => "half-open",
            Self::Open => "open",
        }
    }
}

/// How much of its memory budget a store uses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Usage {
    /// Records held, expired ones included until they are collected.
    pub records: u64,
    /// Bytes of memory they take, estimated.
    pub used_bytes: u64,
    /// Above this, what is only remembered is remembered for a shorter time.
    pub budget_bytes: u64,
}

impl Usage {
    /// Whether memory is over its budget.
    pub fn is_tight(&self) -> bool {
        self.used_bytes > self.budget_bytes
    }
}
