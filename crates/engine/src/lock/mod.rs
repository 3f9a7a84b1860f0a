//! The lock service.
//!
//! # Layout
//! - [`calls`]: what callers say and hear
//! - [`service`]: acquire, renew, release, force, with the caller's side of waiting
//! - `desks`: where commands are put down, and who runs the desk that takes them up
//! - `desk`: one lock's desk: decides what has arrived together, commits it once, answers
//! - `parking`: who waits at a desk
//! - `commit`: the loop of draft, commit, conflict and unknown
//! - `hints`: what other nodes did to locks that somebody waits for here, and what they failed to do
//! - `rosters`: what is guessed of locks with a queue, from such hints
//! - `sweep`: locks whose holders vanished while nobody waited
//! - `history`: what happened to a lock, written behind the answers
//! - [`inspect`]: status, lists, queues
//! - [`watch`]: what happens to locks, as it happens

pub mod calls;
pub(crate) mod commit;
pub(crate) mod desk;
pub(crate) mod desks;
pub(crate) mod hints;
pub(crate) mod history;
pub mod inspect;
pub(crate) mod parking;
pub(crate) mod rosters;
pub mod service;
pub(crate) mod sweep;
pub mod watch;

pub use calls::{
    AcquireCall, Failure, ForceCall, Forced, Granted, HeldBy, HistoryEvent, HistoryKind, HolderState,
    ListPage, LockError, LockState, QueueEntry, Refusal, ReleaseCall, RenewCall, Renewed, Summary, Wait,
};
pub use watch::{LockWatch, WatchKey, Watched};
