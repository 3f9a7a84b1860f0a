//! Between the rules and the store: guess, decide, commit, decide again; park, wake, evict.
//!
//! # Layout
//! - [`asleep`]: how long the machine has slept, which timers don't see
//! - [`bundle`]: several locks at once, all or none
//! - [`election`]: what elections add to locks
//! - [`engine`]: starting, readiness, draining
//! - `decide`: the loop of draft, commit, conflict and unknown
//! - [`failure`]: what can go wrong with any call
//! - `late`: starting without the store
//! - [`limit`]: how much of something a key may use
//! - [`lock`]: the lock service, one call a method
//! - [`once`]: the first caller does the work, all others get its result
//! - [`fence`]: the highest token that a resource was used with
//! - [`job`]: what has to run, when, and how often really
//! - `cursor`: where a list goes on
//! - `members`: which nodes live, where several share a store
//! - [`metrics`]: what is counted
//! - [`peers`]: how nodes speak with each other
//! - [`presence`]: who is there, as this node's replica hears of it
//! - [`random`]: where ids and secrets come from, so that a simulation can decide it
//! - [`replica`]: this node's own copy of what needs no agreement
//! - [`replication`]: replicas tell each other what changed, and find out what they missed
//! - [`signal`]: a flag that is raised once
//! - [`state`]: what a node keeps on a disk of its own

pub mod asleep;
pub mod bundle;
mod cursor;
mod decide;
pub mod election;
pub mod engine;
pub mod failure;
pub mod fence;
pub mod job;
mod late;
pub mod limit;
pub mod lock;
mod members;
pub mod metrics;
pub mod once;
pub mod peers;
pub mod presence;
pub mod random;
pub mod replica;
pub mod replication;
pub mod signal;
pub mod state;

pub use engine::{Config, Engine};
pub use failure::Failure;
pub use random::Random;
