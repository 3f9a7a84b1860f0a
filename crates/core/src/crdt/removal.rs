//! Removing: of any row, whatever its kind, what was seen of it and no more.

use super::delta::Change;
use super::dot::Dot;
use super::kind::RowKey;
use super::row::Row;
use super::seen::Knows;
use alloc::vec::Vec;

/// Removes what was seen of any row, whatever its kind; nothing if nothing of it is live.
pub fn remove(row: &Row, key: &RowKey, dot: Dot, seen: &impl Knows) -> Option<Change> {
    let mut removed = row.seen(seen);
    if removed.is_empty() {
        return None;
    }
    removed.push(dot);
    Some(Change { key: key.clone(), added: Vec::new(), removed })
}
