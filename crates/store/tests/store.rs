//! The stores, from the outside.

#[path = "store/crash.rs"]
mod crash;
#[path = "store/embedded.rs"]
mod embedded;
#[path = "store/kill.rs"]
mod kill;
