//! What tests of several crates share.
//!
//! # Layout
//! - [`admitted`]: what a limit admitted at worst, judged by its algorithm's own bound
//! - [`certificates`]: an authority and what it signs, for one test
//! - [`dice`]: the one source of chance: the same seed throws the same numbers
//! - [`faulty`]: a store that fails on demand, around one that doesn't
//! - [`process`]: servers of others that end with the test that started them
//! - [`proxy`]: a TCP proxy that refuses, cuts and holds on demand
//! - [`servers`]: which ones, and how they are started
//! - [`simulated`]: a store on Tokio's clock, with seeded faults and a history of all that happened in it
//! - [`mod@store_url`]: which store a test runs on

pub mod admitted;
pub mod certificates;
pub mod dice;
pub mod faulty;
pub mod process;
pub mod proxy;
pub mod servers;
pub mod simulated;
pub mod store_url;

pub use dice::Dice;
pub use store_url::store_url;
