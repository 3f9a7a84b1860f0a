//! Baton's rules: a primitive is a pure decision over a few versioned records.
//!
//! No clock, no I/O, no threads, no randomness: `no_std` makes the compiler check it.
//!
//! # Layout
//! - [`record`], [`commit`]: what stores hold and are asked to do
//! - [`view`], `draft`: what a decision sees, and the commit it drafts
//! - [`cluster`]: nodes that share a store, and which of them serves what
//! - [`codec`]: how records are written
//! - [`name`]: what things are called, and the store keys made of it
//! - [`crdt`]: what needs no agreement: counters, sets, registers, maps
//! - [`limit`]: how much of something a key may use
//! - [`lock`]: the lock
//! - [`meter`]: what is used of something, and what is promised; limits rest on it
//! - [`bundle`]: several locks at once, all or none
//! - [`once`]: the first caller does the work, all others get its result
//! - [`fence`]: the highest token that a resource was used with
//! - [`cron`]: schedules: when a job is due
//! - [`job`]: what has to run, when, and how often really
#![no_std]

extern crate alloc;

pub mod bundle;
pub mod cluster;
pub mod codec;
pub mod commit;
pub mod crdt;
pub mod cron;
mod draft;
pub mod fence;
pub mod job;
pub mod limit;
pub mod lock;
pub mod meter;
pub mod name;
pub mod once;
pub mod record;
#[cfg(test)]
mod trial;
pub mod view;

pub use commit::{COMMIT_BYTES_MAX, COMMIT_OPERATIONS_MAX, Check, Commit, Outcome, Ttl, Write};
pub use name::Name;
pub use record::{Bytes, Group, Key, Record, Revision, WallTime};
pub use view::{Pause, Seen, Stamp, View};
