//! Locks: leases with a FIFO queue, a fencing token and an idempotent memory of what was done.
//!
//! # The records of a lock
//! | record | under | lives | says |
//! |---|---|---|---|
//! | [`roster`] | the lock | while held or waited for | who holds it, how many wait |
//! | [`grant`] | the lock and the grant's id | the lease | that the grant holds; its creation **is** the fencing token |
//! | [`memo`] | the lock and a request's id | 10 minutes | what became of the request |
//! | [`waiting`] | the lock and the grant's id | while queued | who waits, and where its call is parked |
//! | order | the lock and a number | while queued | whose turn comes when |
//! | delay | the lock and the grant's id | the lease and a while after | that its place stays closed (L14) |
//! | [`audit`] | the lock and the grant's id | 30 days | who forced it free, and why |
//!
//! Every change of holders or queue rewrites the roster, so **the roster's revision vouches for the queue**: a
//! decision that checks it may read the queue without further checks. Grants and memos may also go by themselves
//! (they expire, and a memo may be written to poison a lost commit), so they are always checked.
//!
//! # The rules
//! One file a command: [`acquire`], [`release`], [`force`], [`queue`] (leave, detach, settle, prune), [`withdraw`] (of a bundle).
//! [`election`] is what elections add. [`state`] is what they share: the lock as a view shows it. [`front`] is what the
//! roster shows of the queue where nodes share a store.

pub mod acquire;
pub mod audit;
pub mod command;
pub mod election;
pub mod force;
pub mod front;
pub mod grant;
pub mod memo;
pub mod mode;
pub mod name;
pub mod queue;
pub mod release;
pub mod roster;
pub mod state;
pub mod token;
pub mod waiting;
pub mod withdraw;

#[cfg(test)]
pub(crate) mod tests;

pub use command::{Command, Context, Decided, Effect, Granted, Liveness, NodeId, Reply, decide};
pub use mode::{Hold, Mode};
pub use name::{Family, GrantId, LockName, Principal};
pub use token::{ClusterKey, FencingToken, LockToken};
