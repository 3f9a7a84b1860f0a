//! The stores, from the outside.
#![allow(clippy::unwrap_used, reason = "a test that can't go on fails")]

#[path = "store/crash.rs"]
mod crash;
#[path = "store/embedded.rs"]
mod embedded;
#[path = "store/kill.rs"]
mod kill;
#[path = "store/simulated.rs"]
mod simulated;
