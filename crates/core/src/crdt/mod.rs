//! What needs no agreement: counters, sets, registers and maps of these, that every replica may change by itself and that end up the
//! same everywhere.
//!
//! # Layout
//! - [`dot`], [`context`]: which changes there are, and which were seen
//! - [`seen`]: which of them a replica tells of, and which only its rows speak for
//! - [`kind`]: what rows are called
//! - [`row`]: one counter, element or register; how two replicas' rows are joined
//! - [`delta`]: what a write changed, to be told to others
//! - [`counter`], [`set`], [`register`], [`removal`]: writing and reading them
//! - [`edit`]: what a caller may ask for
//! - [`opaque`]: contexts and places in lists, as text that callers hand back unread
//! - [`renewal`]: old dots written again under new ones, old totals moved to their heir's
//! - [`heirs`]: who that is
//! - [`sync`]: how two replicas find out what one of them has missed
//! - [`clock`]: the time that orders writes of registers
//! - [`presence`]: who is there, without a common clock
//!
//! # How it merges
//! A replica is some rows and *one* context for all of them. A dot in the context is in its row, or it was removed. That is the one
//! invariant, and why nothing has to be kept of what was removed. It is kept by two rules:
//! - A delta explains every dot it tells of, so its dots may go into the context one by one, gaps or not.
//! - Another replica's whole context may be joined only when all rows that it covers have been compared
//!   ([`row::Row::difference`]): it must be a copy that is not younger than any of those rows.

pub mod clock;
pub mod context;
pub mod counter;
pub mod delta;
pub mod dot;
pub mod edit;
pub mod heirs;
pub mod kind;
pub mod opaque;
pub mod presence;
pub mod register;
pub mod removal;
pub mod renewal;
pub mod row;
pub mod seen;
pub mod set;
pub mod sync;
#[cfg(test)]
mod tests;

pub use clock::{Clock, Hlc};
pub use context::Context;
pub use delta::{Change, Delta};
pub use dot::{Actor, Dot};
pub use edit::{Act, Edit, EditRefused, RequestId, slot_of};
pub use kind::{Kind, Object, RowKey};
pub use row::{Entry, Row};
pub use seen::{Knows, Seen};

/// The most bytes of a register's value.
pub const VALUE_BYTES_MAX: usize = 16 * 1024;
/// The most bytes of a set's element.
pub const ELEMENT_BYTES_MAX: usize = 1024;
/// The most bytes of a row's name: namespace, name, field and element together.
pub const ROW_NAME_BYTES_MAX: usize = 4 * 1024;
/// The most slots in a counter that a local write may make; beyond it the write is refused.
pub const ROW_SLOTS_MAX: usize = 1024;
/// The most entries of a row that are taken from outside: slots that were made concurrently may be more than one replica allows. What is
/// beyond it isn't taken in, since nobody could read it.
pub const ROW_ENTRIES_MAX: usize = 4 * ROW_SLOTS_MAX;
/// The most concurrent values of a register that a local write may leave; beyond it the write is refused.
pub const CONCURRENT_VALUES_MAX: usize = 64;
/// The most changes in one delta.
pub const DELTA_CHANGES_MAX: usize = 1024;
