//! What a write changed, to be told to other replicas: in any order, any number of times.
//!
//! Layout of a delta, version 1: how many changes; for each the row's name, its added entries (as in a row), how many dots it
//! removes, and those.

use super::context::Context;
use super::dot::Dot;
use super::kind::RowKey;
use super::row::{Entry, decode_entries, encode_entries};
use crate::codec::{Decoder, Encoder, Unreadable};
use crate::record::Bytes;
use alloc::vec::Vec;

const VERSION: u8 = 1;

/// A change to one row. Each dot in it is explained by it: it was added here, or it is gone. So a replica that took the change in has
/// seen exactly these dots, and may say so in its context, whatever else it has missed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Change {
    /// Which row.
    pub key: RowKey,
    /// What was added.
    pub added: Vec<(Dot, Entry)>,
    /// What is gone. A removal's own dot is among these and never in a row: it lets a context say that the removal was seen.
    pub removed: Vec<Dot>,
}

impl Change {
    /// Every dot that it tells of.
    pub fn dots(&self) -> impl Iterator<Item = Dot> + '_ {
        self.added.iter().map(|(dot, _)| *dot).chain(self.removed.iter().copied())
    }

    /// Whether it changes nothing.
    pub fn is_empty(&self) -> bool {
        self.added.is_empty() && self.removed.is_empty()
    }
}

/// Changes that were made, or are sent, together.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Delta {
    /// One for each row.
    pub changes: Vec<Change>,
}

impl Delta {
    /// Every dot that it tells of: what has been seen by whoever took it in.
    pub fn context(&self) -> Context {
        self.changes.iter().flat_map(Change::dots).collect()
    }

    /// As bytes.
    pub fn encode(&self) -> Bytes {
        let to = Encoder::new(VERSION).number(self.changes.len() as u64);
        let to = self.changes.iter().fold(to, |to, change| {
            let to = encode_entries(to.bytes(change.key.bytes()), &change.added);
            let to = to.number(change.removed.len() as u64);
            change.removed.iter().fold(to, |to, dot| dot.encode(to))
        });
        to.finish()
    }

    /// Reads what was written; what is too large is refused like what is damaged.
    pub fn decode(value: &[u8]) -> Result<Self, Unreadable> {
        let mut from = Decoder::new(value, VERSION)?;
        let count = from.number()?;
        if count > super::DELTA_CHANGES_MAX as u64 {
            return Err(Unreadable);
        }
        let changes = (0..count).map(|_| decode_change(&mut from)).collect::<Result<_, _>>()?;
        from.finish()?;
        Ok(Self { changes })
    }
}

fn decode_change(from: &mut Decoder<'_>) -> Result<Change, Unreadable> {
    let key = RowKey::decode(from.bytes()?)?;
    let added = decode_entries(from, key.kind())?;
    let count = from.number()?;
    // A removal takes at most a whole row away, and has a dot of its own.
    if count > super::ROW_ENTRIES_MAX as u64 + 1 {
        return Err(Unreadable);
    }
    let removed = (0..count).map(|_| Dot::decode(from)).collect::<Result<_, _>>()?;
    Ok(Change { key, added, removed })
}
