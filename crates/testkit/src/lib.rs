//! What tests of several crates share.
//!
//! # Layout
//! - [`dice`]: the one source of chance: the same seed throws the same numbers
//! - [`simulated`]: a store on Tokio's clock, with seeded faults and a history of all that happened in it

pub mod dice;
pub mod simulated;

pub use dice::Dice;
