//! What waits to be told to one other replica: changes of one row become one change, and there is a bound.

use crate::crdt::delta::{Change, Delta};
use crate::crdt::kind::RowKey;
use crate::crdt::row::Entry;
use crate::crdt::{DELTA_CHANGES_MAX, ROW_ENTRIES_MAX};
use alloc::collections::{BTreeMap, VecDeque};

/// Bytes of changes that wait, about. What comes on top makes all of it be forgotten: the next repair brings it.
pub const OUTBOX_BYTES_MAX: usize = 1024 * 1024;
/// Bytes of changes that are told at once, about; one change may be more.
const PUSH_BYTES_MAX: usize = 256 * 1024;

/// Changes on their way to one other replica.
#[derive(Debug, Default)]
pub struct Outbox {
    rows: BTreeMap<RowKey, Change>,
    /// The rows in the order in which they first changed.
    order: VecDeque<RowKey>,
    bytes: usize,
}

impl Outbox {
    /// Takes a change in. False if there was no room: then nothing waits any more.
    #[must_use]
    pub fn add(&mut self, change: &Change) -> bool {
        self.bytes += size(change);
        match self.rows.get_mut(&change.key) {
            Some(known) => follow(known, change),
            None => {
                self.order.push_back(change.key.clone());
                self.rows.insert(change.key.clone(), change.clone());
            }
        }
        let fits = self.bytes <= OUTBOX_BYTES_MAX
            && self.rows.get(&change.key).is_none_or(|known| known.removed.len() <= ROW_ENTRIES_MAX);
        if !fits {
            *self = Self::default();
        }
        fits
    }

    /// What is told next, the oldest first; nothing if nothing waits.
    pub fn take(&mut self) -> Option<Delta> {
        let mut delta = Delta::default();
        let mut bytes = 0;
        while delta.changes.len() < DELTA_CHANGES_MAX && bytes < PUSH_BYTES_MAX {
            let Some(change) = self.order.pop_front().and_then(|key| self.rows.remove(&key)) else { break };
            bytes += size(&change);
            delta.changes.push(change);
        }
        // What was put together is smaller than its parts were counted as.
        self.bytes = if self.rows.is_empty() { 0 } else { self.bytes.saturating_sub(bytes) };
        (!delta.changes.is_empty()).then_some(delta)
    }

    /// How many changes wait.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Whether none does.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }
}

/// Two changes of one row as one: what the later one removes is not added, and all dots stay explained.
fn follow(known: &mut Change, later: &Change) {
    known.added.retain(|(dot, _)| !later.removed.contains(dot));
    known.added.extend(later.added.iter().filter(|(dot, _)| !known.removed.contains(dot)).cloned());
    known.removed.extend(later.removed.iter().copied());
    known.removed.sort_unstable();
    known.removed.dedup();
}

fn size(change: &Change) -> usize {
    let values = change.added.iter().map(|(_, entry)| match entry {
        Entry::Value { value, .. } => value.len(),
        Entry::Member | Entry::Tally { .. } => 0,
    });
    change.key.bytes().len() + 48 * change.added.len() + 24 * change.removed.len() + values.sum::<usize>()
}
