//! Meters: how much was used, and how much is promised. One pure function decides every charge.
//!
//! A meter is *counted* C plus *outstanding* O: rows that somebody holds and may spend without asking (leases), or that a
//! decision over several meters keeps for a moment (holds), or that are in use right now (places in flight). Nothing is taken
//! unless **C + O stays within the capacity**. O does not age when a window rolls; a report moves O to C when it
//! is made; giving back only lowers O; what expires is burned into C as of its expiry. Every bound that is stated about limits
//! follows from this and from nothing else, for every algorithm, over window changes, crashes and lost messages.
//!
//! A meter is a record whose value is text, and so is what is asked of it and what is answered, because the function exists
//! more than once: here, and in the language of each store that can run it beside its data. A test holds them
//! together, charge by charge.
//!
//! # Layout
//! - [`claim`]: what is asked of one meter
//! - [`state`]: what is stored
//! - `algorithm`: how each algorithm counts and forgets
//! - [`charge`](fn@charge): the function
//! - [`answer`]: what comes back
//! - `reading`: what a meter shows: what remains, when it is fresh again, when to try again

mod algorithm;
pub mod answer;
mod charge;
pub mod claim;
mod reading;
pub mod state;

#[cfg(test)]
mod tests;

pub use answer::{Charged, Verdict, encode_answer};
pub use charge::{Effect, Settled, charge, settle};
pub use claim::{Algorithm, Claim, Edges, Memo, Reclaim, RowClaim, RowKind, Rule, Take};
pub use state::{Meter, Row};

/// Numbers stay exact in every language that computes with them.
pub const NUMBER_MAX: u64 = (1 << 53) - 1;
/// Where an algorithm multiplies by the window's length, limit and capacity times that are at most this: so is every product.
pub const PRODUCT_MAX: u64 = 1 << 52;
/// Rows of one meter. At this bound nothing more is promised: leases are not granted, holds are refused.
pub const ROWS_MAX: usize = 1_000;
/// Pairs in a log. At this bound the newest pair takes what comes, so that it is forgotten late and never early.
pub const LOG_MAX: usize = 1_000;
/// Meters charged together.
pub const CLAIMS_MAX: usize = 16;
