//! The one place where a decision becomes true.
//!
//! # Layout
//! - [`contract`]: what a store must do, small enough to remember
//! - [`watch`]: change hints
//! - [`open()`]: from a URL to a store
//! - [`embedded`]: state in memory, a checksummed log on disk, group commit
//! - `conformance`: the laws of the contract, one a file, for every store's tests
//!
//! Nothing here knows what the records mean.

#[cfg(feature = "conformance")]
pub mod conformance;
pub mod contract;
pub mod embedded;
mod open;
pub mod watch;

pub use contract::{Guarantees, Page, Range, Reading, Reason, Store, StoreError, StoreFuture, Usage};
pub use open::{OpenStoreError, SUPPORTED, open};
