//! A register: values under the dots of their writes. A write replaces all it has seen, so more than one is there only after
//! concurrent writes.
//!
//! Both kinds keep all concurrent values until the next write. One that is read as "the last write wins" shows the one
//! with the highest time, and between equal times the one of the higher actor; the other kind shows all. Forgetting the others at
//! a merge instead would be a removal that no delta tells of, and replicas might not agree.

use super::clock::Hlc;
use super::context::Context;
use super::delta::Change;
use super::dot::Dot;
use super::kind::RowKey;
use super::row::{Entry, Row};
use crate::record::Bytes;
use alloc::vec;
use alloc::vec::Vec;

/// Sets the register.
pub fn put(row: &Row, key: &RowKey, dot: Dot, at: Hlc, value: Bytes) -> Change {
    Change { key: key.clone(), added: vec![(dot, Entry::Value { at, value })], removed: row.dots().collect() }
}

/// Sets the register in the place of what was seen, and leaves what wasn't.
pub fn replace(row: &Row, key: &RowKey, dot: Dot, at: Hlc, value: Bytes, seen: &Context) -> Change {
    Change { removed: row.seen(seen), ..put(row, key, dot, at, value) }
}

/// The value of the last write.
pub fn latest(row: &Row) -> Option<(Hlc, &Bytes)> {
    row.entries()
        .iter()
        .filter_map(stamped)
        .max_by_key(|(dot, at, _)| (*at, *dot))
        .map(|(_, at, value)| (at, value))
}

/// All values that no write has replaced, the last write's first.
pub fn values(row: &Row) -> Vec<(Hlc, &Bytes)> {
    let mut values: Vec<_> = row.entries().iter().filter_map(stamped).collect();
    values.sort_by_key(|(dot, at, _)| core::cmp::Reverse((*at, *dot)));
    // A write whose dot was renewed at two replicas is there twice, and is one write.
    values.dedup_by(|(_, at, value), (_, other_at, other)| at == other_at && value == other);
    values.into_iter().map(|(_, at, value)| (at, value)).collect()
}

fn stamped((dot, entry): &(Dot, Entry)) -> Option<(Dot, Hlc, &Bytes)> {
    match entry {
        Entry::Value { at, value } => Some((*dot, *at, value)),
        Entry::Member | Entry::Tally { .. } => None,
    }
}
