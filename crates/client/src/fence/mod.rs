//! Fences: the check at the resource that stops a writer whose time is over (F2, F4, F7).
//!
//! A lock keeps others out while its holder is awake. A holder can be paused after it looked at its lease and before
//! it writes, and only the resource can stop that write: it remembers the highest fencing token that it has seen, and
//! refuses a lower one. The same token again is fine, a holder writes many times; two grants never have the same one.
//!
//! | the resource is | use |
//! |---|---|
//! | a value in this process | [`Fenced`], or [`Fence`] where you have a lock of your own |
//! | a file, or whoever takes a leader's orders | [`EpochGate`] |
//! | a row in PostgreSQL, MySQL, MariaDB or SQLite | [`SqlFence::update`] |
//! | several rows or tables | a transaction that begins with [`SqlFence::enter`] |
//! | messages whose effects go to a database | [`MessageFence`] |
//! | an object in a store with conditional puts | [`put_fenced`] |
//! | one that can't compare | [`Baton::fence`](crate::Baton::fence), a check *before* the write |
//!
//! Each of these but the last compares and writes in one step. A check that is made *before* the write, wherever it is made,
//! narrows the window and doesn't close it.
//!
//! They take a [`FencingToken`], not a number: only grants that exclude all others have one that a fence may compare.

mod gate;
mod memory;
mod message;
mod object;
#[cfg(feature = "object-store")]
mod object_store;
mod refusal;
mod registry;
mod sql;

pub use gate::EpochGate;
pub use memory::{Fence, Fenced};
pub use message::MessageFence;
pub use object::{Objects, PutError, put_fenced};
pub use refusal::{Refused, StaleToken, retry};
pub use registry::RegisteredFence;
pub(crate) use registry::list;
pub use sql::{Dialect, SqlFence, SqlWrite, Written};

#[doc(no_inline)]
pub use crate::FencingToken;
