//! Several locks at once, all or none (L16).
//!
//! # Layout
//! - [`calls`]: what callers say and hear
//! - [`service`]: a call from its beginning to its answer, and what is left to do behind it
//! - `delivery`: an answer on its way to its caller
//! - `attempt`: taking the locks, with nothing held while it waits
//! - `grants`: what is done to all of a bundle's grants: withdraw, renew, find again

mod attempt;
pub mod calls;
mod delivery;
mod grants;
pub mod service;

pub use calls::{BundleCall, BundleError};
