//! What a limit would admit and cost with some number of nodes, before anybody depends on it: `baton simulate`.
//!
//! A discrete-event simulation: time is a number, chance comes from a seed, and the same plan gives the same bytes. What is simulated is
//! traffic, latency and what goes wrong; every decision is made by the rules in `baton-core` that nodes and stores run.
//!
//! # Layout
//! - [`plan`]: what is simulated, and what is refused
//! - [`traffic`]: who checks when; `chance`: dice from a seed
//! - `store`: the meters, at the store's clock
//! - `node`: what a node holds and knows
//! - `mishaps`: crashes, joins, partitions, other definitions
//! - [`world`]: what happens, in its order; `event`: what is to happen
//! - [`tally`]: what was admitted when, and the most in any interval; [`sharp`]: what the algorithm itself allows of it
//! - [`outcome`]: what came of it
//! - [`svg`]: a plot of it
//! - [`advice`]: which mechanism to choose, with figures from here where they can't be reckoned
//!
//! A check is decided when a node spends for it, or when the store does: that is the moment at which it is counted here. Stores are
//! taken to keep up with whatever they are asked.

pub mod advice;
mod chance;
mod event;
mod mishaps;
mod node;
pub mod outcome;
pub mod plan;
pub mod sharp;
mod store;
pub mod svg;
pub mod tally;
pub mod traffic;
pub mod world;

pub use advice::advise;
pub use baton_core::limit::Mechanism;

/// What is simulated: all that ask a store.
pub const SIMULATED: [Mechanism; 4] =
    [Mechanism::Central, Mechanism::Leased, Mechanism::Owned, Mechanism::Approximate];
pub use outcome::{Outcome, Second};
pub use plan::{Pattern, Plan, Unfit};
pub use sharp::Closest;
pub use world::{allowed, run, run_on};
