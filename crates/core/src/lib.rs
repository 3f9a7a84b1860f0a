//! Baton's rules: a primitive is a pure decision over a few versioned records.
//!
//! No clock, no I/O, no threads, no randomness: `no_std` makes the compiler check it.
//!
//! # Layout
//! - [`record`], [`commit`]: what stores hold and are asked to do
//! - [`view`]: what a decision sees, and the commit it drafts
//! - [`codec`]: how records are written
//! - [`lock`]: the lock
#![no_std]

extern crate alloc;

pub mod codec;
pub mod commit;
pub mod lock;
pub mod record;
pub mod view;

pub use commit::{COMMIT_BYTES_MAX, COMMIT_OPERATIONS_MAX, Check, Commit, Outcome, Ttl, Write};
pub use record::{Bytes, Group, Key, Record, Revision, WallTime};
pub use view::{Pause, Seen, Stamp, View};
