//! Which windows counts are of, and where in a replica they are.
//!
//! A limit's counts are a map in a namespace that callers can't name; its name is `limit`, the limit's namespace and its name, with a control character
//! before each of these, since no name that people give has one. What receipts gave back is in a map beside it, of the same fields. A field is the moment from which on nothing of the window counts any more,
//! and its begin, each as 14 hexadecimal digits, a colon, and the key. So what is over comes first.

use crate::crdt::{Kind, Object, RowKey};
use crate::meter::Rule;
use crate::name::Name;
use alloc::format;
use alloc::string::String;

/// The namespace of all such maps.
pub const NAMESPACE: &str = "\u{1}";
/// What their names begin with.
pub const MAPS: &str = "limit\u{1}";
/// How long after nothing of a window counts any more its counts go: as far as clocks may be apart without a node losing what the others counted.
pub const MARGIN_MS: u64 = 10_000;
/// Digits of a moment.
const DIGITS: usize = 14;

/// From a moment to another. Nodes that mean the same one count together.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Window {
    /// Where it begins.
    pub start_ms: u64,
    /// Where the next one begins.
    pub end_ms: u64,
}

impl Window {
    /// The one of this moment.
    pub fn of(rule: &Rule, now_ms: u64) -> Self {
        let start_ms = rule.start_of(now_ms);
        Self { start_ms, end_ms: rule.end_of(start_ms) }
    }

    /// The one before, if it is as long. Those of a calendar may not be, and count nothing by then.
    pub fn before(self) -> Self {
        let length_ms = self.end_ms - self.start_ms;
        Self { start_ms: self.start_ms.saturating_sub(length_ms), end_ms: self.start_ms }
    }

    /// When nothing of it counts any more: a sliding window looks back by one.
    pub fn over_ms(self) -> u64 {
        self.end_ms.saturating_add(self.end_ms - self.start_ms)
    }

    /// Where a key's count of this window is.
    pub fn row(self, limit: &Name, key: &str) -> RowKey {
        self.row_in(&map_of(limit), key)
    }

    /// Where it is what of that was given back by receipts, each of which is a slot: a counter has room for so many slots, and those
    /// that nodes count in are not to be taken by these.
    pub fn refunds(self, limit: &Name, key: &str) -> RowKey {
        self.row_in(&format!("{}\u{1}refunds", map_of(limit)), key)
    }

    fn row_in(self, map: &str, key: &str) -> RowKey {
        let field = format!("{:014x}{:014x}:{key}", self.over_ms(), self.start_ms);
        Object::field(NAMESPACE, map, &field).row(Kind::Counter)
    }

    /// Which window a field is of, and whose.
    pub fn of_field(field: &str) -> Option<(Self, &str)> {
        let (label, key) = field.split_once(':')?;
        let (over, start) = label.split_at_checked(DIGITS)?;
        let number = |digits: &str| u64::from_str_radix(digits, 16).ok();
        let (over_ms, start_ms) = (number(over)?, number(start)?);
        let length_ms = over_ms.checked_sub(start_ms)? / 2;
        Some((Self { start_ms, end_ms: start_ms + length_ms }, key))
    }

    /// Whether its counts can go.
    pub fn is_forgettable(self, now_ms: u64) -> bool {
        self.over_ms().saturating_add(MARGIN_MS) <= now_ms
    }

    /// Tells windows apart where there is little room.
    pub fn digest(self) -> [u8; 8] {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&self.start_ms.to_be_bytes());
        bytes[8..].copy_from_slice(&self.end_ms.to_be_bytes());
        xxhash_rust::xxh3::xxh3_64(&bytes).to_be_bytes()
    }
}

/// The map that a limit's counts are in.
pub fn map_of(limit: &Name) -> String {
    format!("{MAPS}{}\u{1}{}", limit.namespace(), limit.key())
}
