//! Fences: the highest token that a resource was used with, for resources that can't compare themselves (F3).
//!
//! One record for each resource, rewritten when the highest token grows and at no other time: a holder that checks its
//! token again and again reads, and nothing more. It never expires, since a fence that forgets would let a stale token
//! in.

pub mod check;
pub mod record;

#[cfg(test)]
mod tests;

pub use check::{Check, Checked, check, check_id, forget};
pub use record::{Fence, Tally};

use crate::name::{Kind, Name};
use crate::record::Key;

/// The kind of a fence's record.
pub const FENCE: Kind = *b"Ff";

/// Where a fence is.
pub fn fence_key(name: &Name) -> Key {
    name.record(FENCE, &[])
}
