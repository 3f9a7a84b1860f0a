//! The lock service.
//!
//! # Layout
//! - [`calls`]: what callers say and hear
//! - [`desk`]: one lock's desk: takes commands together, commits them once, parks waiters

pub mod calls;

pub use calls::{
    AcquireCall, Failure, Forced, Granted, HeldBy, HistoryEvent, HistoryKind, ListPage, LockError, LockState,
    QueueEntry, Refusal, ReleaseCall, RenewCall, Renewed, Summary, Wait,
};
