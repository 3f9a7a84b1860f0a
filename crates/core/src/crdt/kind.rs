//! What a row is about: an object of a kind, or a field of a map, and for sets one element.
//!
//! A row's name in bytes: scope (0: an object, 1: a map's field), namespace, zero, name, zero, for a field its name and zero,
//! then the kind and, for a set, the element to the end. So all rows of an object are together, and in order.

use crate::codec::Unreadable;
use crate::record::Bytes;
use alloc::vec::Vec;
use core::fmt;

/// What a value is, and how it merges. Part of the name: a counter and a set of one name are two things.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Kind {
    /// Can be added to and taken from.
    Counter,
    /// Can only be added to.
    GrowCounter,
    /// Elements; an add wins over a removal that hasn't seen it.
    Set,
    /// The last write wins.
    Register,
    /// Keeps what was written concurrently.
    MultiValue,
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 5] =
        [Self::Counter, Self::GrowCounter, Self::Set, Self::Register, Self::MultiValue];

    fn byte(self) -> u8 {
        match self {
            Self::Counter => b'c',
            Self::GrowCounter => b'g',
            Self::Set => b's',
            Self::Register => b'r',
            Self::MultiValue => b'm',
        }
    }

    fn of_byte(byte: u8) -> Result<Self, Unreadable> {
        Self::ALL.into_iter().find(|kind| kind.byte() == byte).ok_or(Unreadable)
    }
}

/// An object, or one field of a map: what a kind belongs to. Names have no zero byte.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Object(Bytes);

impl Object {
    /// A counter, set or register of its own.
    pub fn plain(namespace: &str, name: &str) -> Self {
        Self([&[OBJECT], namespace.as_bytes(), &[0], name.as_bytes(), &[0]].concat().into())
    }

    /// A field of a map.
    pub fn field(namespace: &str, map: &str, field: &str) -> Self {
        Self([&Self::map_prefix(namespace, map), field.as_bytes(), &[0]].concat().into())
    }

    /// What the names of all rows of a map begin with.
    pub fn map_prefix(namespace: &str, map: &str) -> Vec<u8> {
        [&[FIELD], namespace.as_bytes(), &[0], map.as_bytes(), &[0]].concat()
    }

    /// Its only row; of a set, what its rows begin with.
    pub fn row(&self, kind: Kind) -> RowKey {
        self.element(kind, &[])
    }

    /// The row of one of a set's elements.
    pub fn element(&self, kind: Kind, element: &[u8]) -> RowKey {
        RowKey { bytes: [&self.0, &[kind.byte()][..], element].concat().into(), kind }
    }
}

/// A row's name.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RowKey {
    bytes: Bytes,
    /// As the bytes say: asked for so often that it is kept.
    kind: Kind,
}

const OBJECT: u8 = 0;
const FIELD: u8 = 1;

/// A row's name, taken apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Parts<'a> {
    /// The namespace.
    pub namespace: &'a str,
    /// The object's name.
    pub name: &'a str,
    /// The field, if the object is a map.
    pub field: Option<&'a str>,
    /// How it merges.
    pub kind: Kind,
    /// The element, if it is a set's.
    pub element: &'a [u8],
}

impl RowKey {
    /// As bytes.
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// From bytes that came from outside.
    pub fn decode(bytes: &[u8]) -> Result<Self, Unreadable> {
        match take_apart(bytes) {
            Some(parts) if bytes.len() <= super::ROW_NAME_BYTES_MAX => {
                Ok(Self { bytes: bytes.into(), kind: parts.kind })
            }
            _ => Err(Unreadable),
        }
    }

    /// A place among names, to look from. It may be no row's name, and then has no parts.
    pub fn place(bytes: &[u8]) -> Self {
        // No kind comes before this one, so the place comes before any row whose name is these bytes.
        Self { bytes: bytes.into(), kind: Kind::Counter }
    }

    /// What it is about.
    pub fn parts(&self) -> Parts<'_> {
        take_apart(&self.bytes).expect("made by an object, or looked at when decoded")
    }

    /// How the row merges.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// What is bounded together: a set's elements, or a map's rows. Nothing for what has one row.
    pub fn collection(&self) -> Option<&[u8]> {
        if self.bytes[0] == OBJECT && self.kind != Kind::Set {
            return None;
        }
        let parts = self.parts();
        // After a field's name come its zero and its kind.
        let field_bytes = parts.field.map_or(0, |field| field.len() + 2);
        Some(&self.bytes[..self.bytes.len() - parts.element.len() - field_bytes])
    }

    /// A hash that all replicas agree on.
    pub fn hash(&self) -> u64 {
        xxhash_rust::xxh3::xxh3_64(&self.bytes)
    }
}

fn take_apart(bytes: &[u8]) -> Option<Parts<'_>> {
    let (scope, rest) = bytes.split_first()?;
    let (namespace, rest) = text(rest)?;
    let (name, rest) = text(rest)?;
    let (field, rest) = match *scope {
        OBJECT => (None, rest),
        FIELD => text(rest).map(|(field, rest)| (Some(field), rest))?,
        _ => return None,
    };
    let (kind, element) = rest.split_first()?;
    let kind = Kind::of_byte(*kind).ok()?;
    if kind != Kind::Set && !element.is_empty() {
        return None;
    }
    Some(Parts { namespace, name, field, kind, element })
}

fn text(bytes: &[u8]) -> Option<(&str, &[u8])> {
    let end = bytes.iter().position(|byte| *byte == 0)?;
    Some((core::str::from_utf8(&bytes[..end]).ok()?, &bytes[end + 1..]))
}

impl fmt::Debug for RowKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.bytes.escape_ascii())
    }
}

impl fmt::Debug for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0.escape_ascii())
    }
}
