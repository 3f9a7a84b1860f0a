//! The once service (L18): the first caller of a key does the work, all others get its result.
//!
//! # Layout
//! - [`calls`]: what callers say and hear
//! - [`service`]: claim, complete, renew, fail, and looking
//! - `waiting`: how those who wait for a key hear that something happened to it

pub mod calls;
pub mod service;
pub(crate) mod waiting;

pub use calls::{ClaimCall, Claimed, Done, First, OnceError, Refusal, Renewed, Running, Seen};
