//! A set: a row for each element. An add wins over a removal that hasn't seen it.

use super::delta::Change;
use super::dot::Dot;
use super::kind::RowKey;
use super::row::{Entry, Row};
use alloc::vec;

/// Adds the element of this row. Its earlier dots go, so an element that is added over and over stays one entry.
pub fn add(row: &Row, key: &RowKey, dot: Dot) -> Change {
    Change { key: key.clone(), added: vec![(dot, Entry::Member)], removed: row.dots().collect() }
}
