//! A row: what is live of one counter, element or register, each under the dot that made it.
//!
//! Every kind is this one shape, so there is one join. A dot that was seen and isn't in the row was removed: nothing has to be
//! kept about what is gone. A dot is used once, so it says the same wherever it is found.
//!
//! Layout, version 1: how many entries; for each its dot (actor 16, number), then what it says. Member (1): nothing. Value (2):
//! time in ms, time's counter, the bytes. Tally (3): slot (16), added, taken.

use super::clock::Hlc;
use super::context::Context;
use super::delta::Change;
use super::dot::{Actor, Dot};
use super::kind::{Kind, RowKey};
use super::seen::Knows;
use crate::codec::{Decoder, Encoder, Unreadable};
use crate::record::Bytes;
use alloc::vec::Vec;

const VERSION: u8 = 1;
/// What an entry counts as, besides its value: see [`Row::size`].
pub const ENTRY_SIZE: usize = 64;

/// What a dot says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Entry {
    /// That an element is in a set.
    Member,
    /// That a register was set.
    Value {
        /// When, as far as the writer's clock and all it had seen can say.
        at: Hlc,
        /// To what.
        value: Bytes,
    },
    /// What was added by way of one slot, in total.
    Tally {
        /// Whose total it is: an actor's, or a writer's that keeps its own. Apart from the dot, so that a total that is
        /// written twice under different dots counts once.
        slot: Actor,
        /// All that was added.
        added: u64,
        /// All that was taken.
        taken: u64,
    },
}

impl Entry {
    fn fits(&self, kind: Kind) -> bool {
        match self {
            Self::Member => kind == Kind::Set,
            Self::Value { .. } => matches!(kind, Kind::Register | Kind::MultiValue),
            Self::Tally { taken, .. } => kind == Kind::Counter || (kind == Kind::GrowCounter && *taken == 0),
        }
    }

    pub(super) fn encode(&self, to: Encoder) -> Encoder {
        match self {
            Self::Member => to.byte(1),
            Self::Value { at, value } => to.byte(2).number(at.ms).number(at.count.into()).bytes(value),
            Self::Tally { slot, added, taken } => to.byte(3).fixed(&slot.0).number(*added).number(*taken),
        }
    }

    pub(super) fn decode(from: &mut Decoder<'_>, kind: Kind) -> Result<Self, Unreadable> {
        let entry = match from.byte()? {
            1 => Self::Member,
            2 => {
                let ms = from.number()?;
                let count = u32::try_from(from.number()?).map_err(|_| Unreadable)?;
                let value = from.bytes()?;
                if value.len() > super::VALUE_BYTES_MAX {
                    return Err(Unreadable);
                }
                Self::Value { at: Hlc { ms, count }, value: value.into() }
            }
            3 => Self::Tally { slot: Actor(from.fixed()?), added: from.number()?, taken: from.number()? },
            _ => return Err(Unreadable),
        };
        if entry.fits(kind) { Ok(entry) } else { Err(Unreadable) }
    }
}

/// Entries by their dots, in order.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Row(Vec<(Dot, Entry)>);

impl Row {
    /// Whether nothing is live: such a row is not kept.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// What is live.
    pub fn entries(&self) -> &[(Dot, Entry)] {
        &self.0
    }

    /// The dots of what is live.
    pub fn dots(&self) -> impl Iterator<Item = Dot> + '_ {
        self.0.iter().map(|(dot, _)| *dot)
    }

    /// The dots of what is live and was seen: what a removal with this context removes.
    pub fn seen(&self, by: &impl Knows) -> Vec<Dot> {
        self.dots().filter(|dot| by.contains(*dot)).collect()
    }

    /// Takes a change in. `seen` is all that this replica has seen, and has to be told of the change's dots
    /// ([`Change::dots`]) before the next one comes.
    pub fn apply(&mut self, change: &Change, seen: &impl Knows) {
        *self = self.after(change, seen);
    }

    /// The row as it is after a change; see [`Row::apply`].
    pub fn after(&self, change: &Change, seen: &impl Knows) -> Self {
        let stays = |(dot, _): &&(Dot, Entry)| !change.removed.contains(dot);
        // No more room than it takes: a row may stay for long.
        let mut after = Vec::with_capacity(self.0.iter().filter(stays).count() + change.added.len());
        after.extend(self.0.iter().filter(stays).cloned());
        let mut after = Self(after);
        for (dot, entry) in &change.added {
            if !seen.contains(*dot) && !change.removed.contains(dot) {
                after.insert(*dot, entry.clone());
            }
        }
        after
    }

    /// What this row has to learn from the same row of another replica, whose context is of *all* it has seen. The change has
    /// only dots that tell something here.
    pub fn difference(
        &self,
        seen: &impl Knows,
        key: &RowKey,
        theirs: &Self,
        their_context: &Context,
    ) -> Change {
        let gone = |dot: &Dot| their_context.contains(*dot) && theirs.get(*dot).is_none();
        Change {
            key: key.clone(),
            added: theirs.0.iter().filter(|(dot, _)| !seen.contains(*dot)).cloned().collect(),
            removed: self.dots().filter(gone).collect(),
        }
    }

    /// A hash of the row and its name, that all replicas which have it alike agree on. A dot says the same wherever it is found, so
    /// the dots are enough.
    pub fn hash(&self, key: &RowKey) -> u64 {
        let seed = key.hash();
        self.dots().fold(seed, |hash, dot| {
            let mut bytes = [0; 24];
            bytes[..16].copy_from_slice(&dot.actor.0);
            bytes[16..].copy_from_slice(&dot.number.to_le_bytes());
            hash.wrapping_add(xxhash_rust::xxh3::xxh3_64_with_seed(&bytes, seed))
        })
    }

    /// Memory and disk that it takes, about: more than its bytes.
    pub fn size(&self) -> usize {
        let values = self.0.iter().map(|(_, entry)| match entry {
            Entry::Value { value, .. } => value.len(),
            Entry::Member | Entry::Tally { .. } => 0,
        });
        ENTRY_SIZE * self.0.len() + values.sum::<usize>()
    }

    fn get(&self, dot: Dot) -> Option<&Entry> {
        let at = self.0.binary_search_by_key(&dot, |(dot, _)| *dot).ok()?;
        Some(&self.0[at].1)
    }

    fn insert(&mut self, dot: Dot, entry: Entry) {
        if let Err(at) = self.0.binary_search_by_key(&dot, |(dot, _)| *dot) {
            self.0.insert(at, (dot, entry));
        }
    }

    /// The record's value.
    pub fn encode(&self) -> Bytes {
        encode_entries(Encoder::new(VERSION), &self.0).finish()
    }

    /// The same, in memory that is lent for it: who encodes many needs no other.
    pub fn encode_in(&self, memory: &mut Vec<u8>) -> Bytes {
        let (value, lent) =
            encode_entries(Encoder::with(VERSION, core::mem::take(memory)), &self.0).finish_in();
        *memory = lent;
        value
    }

    /// Reads a record's value, of a row of this kind.
    pub fn decode(value: &[u8], kind: Kind) -> Result<Self, Unreadable> {
        let mut from = Decoder::new(value, VERSION)?;
        let entries = decode_entries(&mut from, kind)?;
        from.finish()?;
        if !entries.is_sorted_by(|(one, _), (other, _)| one < other) {
            return Err(Unreadable);
        }
        Ok(Self(entries))
    }
}

pub(super) fn encode_entries(to: Encoder, entries: &[(Dot, Entry)]) -> Encoder {
    let to = to.number(entries.len() as u64);
    entries.iter().fold(to, |to, (dot, entry)| entry.encode(dot.encode(to)))
}

pub(super) fn decode_entries(from: &mut Decoder<'_>, kind: Kind) -> Result<Vec<(Dot, Entry)>, Unreadable> {
    let count = from.number()?;
    if count > super::ROW_ENTRIES_MAX as u64 {
        return Err(Unreadable);
    }
    (0..count).map(|_| Ok((Dot::decode(from)?, Entry::decode(from, kind)?))).collect()
}
