//! What a caller may ask for, one row at a time.

use super::clock::{Clock, Skewed};
use super::context::Context;
use super::counter::{self, Refused};
use super::delta::Change;
use super::dot::{Actor, Dot};
use super::kind::{Kind, Object, RowKey};
use super::row::Row;
use super::seen::Knows;
use super::{
    CONCURRENT_VALUES_MAX, ELEMENT_BYTES_MAX, ROW_NAME_BYTES_MAX, VALUE_BYTES_MAX, register, removal, set,
};
use crate::codec::Encoder;
use crate::record::Bytes;
use alloc::vec::Vec;
use sha2::{Digest as _, Sha256};

/// A change that is asked for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Edit {
    /// The row that changes. Its kind decides what may be done.
    pub key: RowKey,
    /// What is done.
    pub act: Act,
}

/// What is done to a row.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Act {
    /// A counter is added to, or taken from.
    Add(i64),
    /// A writer says all it ever added to a counter, and took.
    Report {
        /// A slot of its own, that nobody else uses.
        writer: Actor,
        /// All it added.
        added: u64,
        /// All it took.
        taken: u64,
    },
    /// An element is put into its set.
    Insert,
    /// A register is set.
    Put(Bytes),
    /// A register that keeps concurrent values is set, in the place of those that its writer has seen.
    Replace {
        /// To what.
        value: Bytes,
        /// What the writer has seen.
        seen: Context,
    },
    /// What was seen is removed: by the context, or else by this replica.
    Remove(Option<Context>),
}

/// Why an edit was refused. Nothing changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EditRefused {
    /// The row's kind has no such thing.
    WrongKind,
    /// The value, the element or the name is too large.
    TooLarge,
    /// As many concurrent values as a local write may leave: one that has seen them takes their place.
    TooManyValues,
    /// The counter doesn't count that.
    Counter(Refused),
    /// The wall clock is behind what was seen.
    ClockSkew(Skewed),
}

impl From<Refused> for EditRefused {
    fn from(refused: Refused) -> Self {
        Self::Counter(refused)
    }
}

impl Edit {
    /// Adds to a counter, or a grow-only one.
    pub fn add(object: &Object, kind: Kind, amount: i64) -> Self {
        Self { key: object.row(kind), act: Act::Add(amount) }
    }

    /// Puts an element into a set.
    pub fn insert(object: &Object, element: &[u8]) -> Self {
        Self { key: object.element(Kind::Set, element), act: Act::Insert }
    }

    /// Removes what was seen of an element.
    pub fn remove(object: &Object, element: &[u8], seen: Option<Context>) -> Self {
        Self { key: object.element(Kind::Set, element), act: Act::Remove(seen) }
    }

    /// Sets a register of either kind.
    pub fn put(object: &Object, kind: Kind, value: &[u8]) -> Self {
        Self { key: object.row(kind), act: Act::Put(value.into()) }
    }

    /// The change it makes to its row, if any. `seen` is what this replica has seen; `now_ms` its wall clock.
    pub fn change(
        &self,
        row: &Row,
        dot: Dot,
        seen: &impl Knows,
        clock: &mut Clock,
        now_ms: u64,
    ) -> Result<Option<Change>, EditRefused> {
        let (key, kind) = (&self.key, self.key.kind());
        let is_large = kind == Kind::Set && key.parts().element.len() > ELEMENT_BYTES_MAX;
        if is_large || key.bytes().len() > ROW_NAME_BYTES_MAX {
            return Err(EditRefused::TooLarge);
        }
        match (&self.act, kind) {
            (Act::Add(amount), Kind::Counter | Kind::GrowCounter) => {
                Ok(Some(counter::add(row, key, dot, *amount)?))
            }
            (Act::Report { writer, added, taken }, Kind::Counter | Kind::GrowCounter) => {
                Ok(counter::report(row, key, dot, *writer, (*added, *taken))?)
            }
            (Act::Insert, Kind::Set) => Ok(Some(set::add(row, key, dot))),
            (Act::Put(value), Kind::Register | Kind::MultiValue) => {
                if value.len() > VALUE_BYTES_MAX {
                    return Err(EditRefused::TooLarge);
                }
                let at = clock.tick(now_ms).map_err(EditRefused::ClockSkew)?;
                Ok(Some(register::put(row, key, dot, at, value.clone())))
            }
            (Act::Replace { value, seen }, Kind::MultiValue) => {
                if value.len() > VALUE_BYTES_MAX {
                    return Err(EditRefused::TooLarge);
                }
                if row.entries().len() >= row.seen(seen).len() + CONCURRENT_VALUES_MAX {
                    return Err(EditRefused::TooManyValues);
                }
                let at = clock.tick(now_ms).map_err(EditRefused::ClockSkew)?;
                Ok(Some(register::replace(row, key, dot, at, value.clone(), seen)))
            }
            (Act::Remove(Some(given)), _) => Ok(removal::remove(row, key, dot, given)),
            (Act::Remove(None), _) => Ok(removal::remove(row, key, dot, seen)),
            _ => Err(EditRefused::WrongKind),
        }
    }

    fn encode(&self, to: Encoder) -> Encoder {
        let to = to.bytes(self.key.bytes());
        match &self.act {
            Act::Add(amount) => to.byte(1).fixed(&amount.to_le_bytes()),
            Act::Report { writer, added, taken } => to.byte(2).fixed(&writer.0).number(*added).number(*taken),
            Act::Insert => to.byte(3),
            Act::Put(value) => to.byte(4).bytes(value),
            Act::Remove(None) => to.byte(5),
            Act::Remove(Some(seen)) => to.byte(6).bytes(&seen.encode()),
            Act::Replace { value, seen } => to.byte(7).bytes(value).bytes(&seen.encode()),
        }
    }
}

/// What a repeated request is known by: the writer's name and what it calls the request.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct RequestId(pub [u8; 16]);

impl RequestId {
    /// The id of a writer's request. Nobody can make one that collides with another writer's.
    pub fn of(writer: &str, request: &str) -> Self {
        Self(hashed(&Encoder::new(1).bytes(writer.as_bytes()).bytes(request.as_bytes()).finish()))
    }

    /// Tells requests with one id but different edits apart.
    pub fn digest(edits: &[Edit]) -> [u8; 8] {
        let encoded = edits.iter().fold(Encoder::new(1), |to, edit| edit.encode(to)).finish();
        hashed(&encoded)
    }
}

/// The slot of a writer that keeps its own totals: the same for one name everywhere, and no run of a replica's.
pub fn slot_of(writer: &str) -> Actor {
    Actor(hashed(&Encoder::new(2).bytes(writer.as_bytes()).finish()))
}

fn hashed<const N: usize>(bytes: &[u8]) -> [u8; N] {
    let digest: Vec<u8> = Sha256::digest(bytes).to_vec();
    core::array::from_fn(|at| digest[at])
}
