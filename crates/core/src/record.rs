//! What a store holds: versioned records under keys, each in one of 256 groups.

use alloc::sync::Arc;
use core::fmt;
use core::time::Duration;

/// One of 256 partitions. A commit stays inside one, and revisions are ordered within it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Group(pub u8);

impl Group {
    /// The group that `parts`, taken together, hash to. Stable across versions and machines.
    pub fn of(parts: &[&[u8]]) -> Self {
        let mut hash = xxhash_rust::xxh3::Xxh3::new();
        for part in parts {
            hash.update(part);
            hash.update(&[0]);
        }
        Self(hash.digest() as u8)
    }

    /// Every group, in order.
    pub fn all() -> impl Iterator<Item = Self> {
        (0..=u8::MAX).map(Self)
    }
}

/// The bytes of a key's name or of a record's value: cheap to clone, never changed.
pub type Bytes = Arc<[u8]>;

/// Where a record lives. Ordered by group, then by name.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    /// The partition.
    pub group: Group,
    /// The name within the partition.
    pub name: Bytes,
}

impl Key {
    /// The key `name` in `group`.
    pub fn new(group: Group, name: impl Into<Bytes>) -> Self {
        Self { group, name: name.into() }
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:02x}/{}", self.group.0, self.name.escape_ascii())
    }
}

/// A store's version number: it only grows, over delete, restart, failover and restore. Below 2^53.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Revision(pub u64);

impl Revision {
    /// The largest revision a store may hand out, so that every JSON reader keeps it exact.
    pub const MAX: Self = Self((1 << 53) - 1);
}

/// A store's wall clock in milliseconds since the Unix epoch: for display, never for a decision.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct WallTime(pub u64);

impl WallTime {
    /// This time, `duration` later.
    pub fn after(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)))
    }
}

/// A record as a store gave it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Record {
    /// Where it lives.
    pub key: Key,
    /// What it says.
    pub value: Bytes,
    /// The commit that made it. A delete and a new Put make a new record.
    pub created: Revision,
    /// The last Put. A Touch keeps it.
    pub revision: Revision,
    /// How many times it was touched since it was created.
    pub touches: u64,
    /// What was left of its time to live when the store answered: arms timers and displays, decides nothing.
    pub expires_in: Option<Duration>,
}
