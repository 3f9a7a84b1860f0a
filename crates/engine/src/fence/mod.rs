//! The fence registry (F3): the highest token that a resource was used with.
//!
//! # Layout
//! - [`service`]: check, look, list, forget
//! - `tallies`: checks that were counted and not written

pub mod service;
pub(crate) mod tallies;

pub use service::{CheckCall, FenceError, FencePage, FenceState};
