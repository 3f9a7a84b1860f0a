//! Writing a row's old dots again under a new one, so that runs of a replica that are over leave nothing behind in rows.
//!
//! What the row says stays the same: a counter's slots keep their own names, so two replicas that do this at once (a clone and
//! its original) don't count anything twice.

use super::delta::Change;
use super::dot::{Actor, Dot};
use super::kind::RowKey;
use super::row::{Entry, Row};
use alloc::vec::Vec;

/// The change that puts the entries whose dots are of `old` actors under new dots, which `mint` gives. A dot is used once, so
/// each entry gets its own; elements of sets need only one.
pub fn renew(
    row: &Row,
    key: &RowKey,
    old: impl Fn(Actor) -> bool,
    mut mint: impl FnMut() -> Dot,
) -> Option<Change> {
    let (removed, entries): (Vec<_>, Vec<_>) =
        row.entries().iter().filter(|(dot, _)| old(dot.actor)).cloned().unzip();
    let first = entries.first()?;
    let added = match first {
        Entry::Member => alloc::vec![(mint(), Entry::Member)],
        Entry::Value { .. } | Entry::Tally { .. } => {
            entries.into_iter().map(|entry| (mint(), entry)).collect()
        }
    };
    Some(Change { key: key.clone(), added, removed })
}
