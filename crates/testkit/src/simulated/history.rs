//! All that happened in the store, in its order: what invariants are checked on, and what a trace shows.

use baton_core::{Commit, Key, Revision};
use std::time::Duration;

/// Something that happened in the store.
#[derive(Clone, Debug)]
pub struct Happening {
    /// When, by the store's clock.
    pub at: Duration,
    /// Whose call it was.
    pub node: u32,
    /// Which call it was; one that is carried out twice has one number.
    pub call: u64,
    /// What.
    pub what: What,
}

/// What happened.
#[derive(Clone, Debug)]
pub enum What {
    /// All checks held, and all writes were done.
    Committed {
        /// Its revision.
        revision: Revision,
        /// What was done.
        commit: Commit,
    },
    /// Some check failed.
    Conflict {
        /// What wasn't done.
        commit: Commit,
    },
    /// A commit got lost on the way, or was refused.
    NeverArrived {
        /// What wasn't done.
        commit: Commit,
    },
    /// The node was told that the outcome is unknown.
    ToldUnknown,
    /// The node was cut off.
    Died,
    /// An expired record was taken back.
    Collected {
        /// Which.
        key: Key,
    },
}
