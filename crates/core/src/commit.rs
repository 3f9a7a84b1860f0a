//! What a store is asked to do, and what it answers: all writes if all checks hold, else none.

use crate::record::{Bytes, Key, Record, Revision, WallTime};
use alloc::vec::Vec;
use core::time::Duration;

/// At most this many checks and writes together in one commit.
pub const COMMIT_OPERATIONS_MAX: usize = 64;
/// At most this many bytes of names and values in one commit.
pub const COMMIT_BYTES_MAX: usize = 512 * 1024;

/// A condition on one record. An expired record is absent, by the store's own clock.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Check {
    /// There is no such record.
    Absent(Key),
    /// The record made by this commit is still there, whatever was put or touched since.
    Created(Key, Revision),
    /// The record is there and its last Put was this commit.
    At(Key, Revision),
}

impl Check {
    /// The key it looks at.
    pub fn key(&self) -> &Key {
        match self {
            Self::Absent(key) | Self::Created(key, _) | Self::At(key, _) => key,
        }
    }
}

/// How long a record lives if nobody touches it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ttl {
    /// Until deleted.
    Forever,
    /// This long, as exactly as the store can; never shorter.
    Exactly(Duration),
    /// At least this long: the store may let it share another record's end.
    AtLeast(Duration),
}

impl Ttl {
    /// How long, if not forever.
    pub fn length(self) -> Option<Duration> {
        match self {
            Self::Forever => None,
            Self::Exactly(length) | Self::AtLeast(length) => Some(length),
        }
    }
}

/// A change to one record. A commit has at most one write for each key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Write {
    /// Makes the record, or replaces its value and its time to live.
    Put {
        /// Where.
        key: Key,
        /// What.
        value: Bytes,
        /// How long.
        ttl: Ttl,
    },
    /// Moves the expiry to the later of the present one and now + `ttl`. On an absent key the commit is a
    /// conflict. A record without a time to live stays so.
    Touch {
        /// Where.
        key: Key,
        /// How long from now, at least.
        ttl: Duration,
    },
    /// Removes the record, if it is there.
    Delete {
        /// Where.
        key: Key,
    },
}

impl Write {
    /// How many bytes of a name and a value it carries.
    pub fn bytes(&self) -> usize {
        match self {
            Self::Put { key, value, .. } => key.name.len() + value.len(),
            Self::Touch { key, .. } | Self::Delete { key } => key.name.len(),
        }
    }

    /// The key it changes.
    pub fn key(&self) -> &Key {
        match self {
            Self::Put { key, .. } | Self::Touch { key, .. } | Self::Delete { key } => key,
        }
    }
}

/// Checks and writes that happen together or not at all. All keys are of one group.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Commit {
    /// What must hold.
    pub checks: Vec<Check>,
    /// What then happens.
    pub writes: Vec<Write>,
}

impl Commit {
    /// How many operations it counts as, against [`COMMIT_OPERATIONS_MAX`].
    pub fn operations(&self) -> usize {
        self.checks.len() + self.writes.len()
    }

    /// How many bytes of names and values it carries, against [`COMMIT_BYTES_MAX`].
    pub fn bytes(&self) -> usize {
        let checks: usize = self.checks.iter().map(|check| check.key().name.len()).sum();
        let writes: usize = self.writes.iter().map(Write::bytes).sum();
        checks + writes
    }
}

/// What became of a commit. Either way the store has decided: it is not "unknown".
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// All checks held; all writes are durable.
    Committed {
        /// The commit's own revision: `created` and `revision` of what it put.
        revision: Revision,
        /// The store's wall clock.
        now: WallTime,
        /// For each Touch the record as it is now, for each Delete the record as it was, in the order of the writes.
        witnessed: Vec<Option<Record>>,
    },
    /// Some check failed, or a Touch met an absent record; nothing was written.
    Conflict {
        /// Every record checked or touched, as it is now: one for each check, then one for each Touch.
        found: Vec<(Key, Option<Record>)>,
        /// The store's wall clock.
        now: WallTime,
    },
}
