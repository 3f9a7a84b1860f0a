//! The lock's rules, run against a small store as the engine runs them.
//!
//! # Layout
//! - [`store`], [`world`]: what the rules run on
//! - one file a topic, each test a sentence about behaviour
//! - [`random`]: any sequence of calls, nodes and faults; [`invariants`] is what must hold at every step of it

mod batches;
mod electing;
mod expiry;
mod forced;
mod guesses;
mod idempotency;
mod invariants;
mod modes;
mod nesting;
mod queueing;
mod random;
mod releasing;
pub(crate) mod store;
mod taking;
mod undoing;
mod withdrawing;
mod world;
mod worst;
