//! Between the rules and the store: guess, decide, commit, decide again; park, wake, evict.
//!
//! # Layout
//! - [`engine`]: starting, readiness, draining
//! - [`lock`]: the lock service, one call a method
//! - [`metrics`]: what is counted
//! - [`random`]: where ids and secrets come from, so that a simulation can decide it
//! - [`signal`]: a flag that is raised once

pub mod engine;
pub mod lock;
pub mod metrics;
pub mod random;
pub mod signal;

pub use engine::{Config, Engine};
pub use random::Random;
