//! The one place where a decision becomes true.
//!
//! # Layout
//! - [`contract`]: what a store must do, small enough to remember
//! - [`watch`]: change hints
//! - `charge`: meters, and how a store charges them that can't do it by itself
//! - [`open()`]: from a URL to a store
//! - `backoff`: pauses between attempts at a server
//! - [`breaker`]: refuses at once while a server is gone
//! - [`late`]: in the place of a server that hasn't been reached yet
//! - `valid`: what is refused whatever the store
//! - [`embedded`]: state in memory, a checksummed log on disk, group commit
//! - `conformance`: the laws of the contract, one a file, for every store's tests
//!
//! Nothing here knows what the records mean.

#[cfg(any(feature = "etcd", feature = "postgres", feature = "redis"))]
mod backoff;
pub mod breaker;
mod charge;
#[cfg(feature = "conformance")]
pub mod conformance;
pub mod contract;
pub mod embedded;
pub mod late;
mod open;
mod valid;
pub mod watch;

pub use breaker::Breaker;
pub use charge::Charge;
pub use contract::{
    BreakerState, Guarantees, Page, Range, Reading, Reason, Store, StoreError, StoreFuture, Usage,
};
pub use late::Late;
pub use open::{OpenStoreError, SUPPORTED, has_own_thread, open};
