//! What must hold, whatever goes wrong. One property a file; each is a function over what [`Evidence`] there is and
//! says every violation it finds, in a sentence. To add one, write it and put it into [`ALL`].

mod answers;
mod client_view;
mod fifo;
mod leaks;
mod liveness;
mod one_holder;
mod records_agree;
mod released;
mod tokens_grow;
mod told_no;
mod told_yes;

use crate::scenarios::LockKind;
use crate::timeline::Story;
use crate::world::Records;
use baton_core::Record;
use baton_core::lock::{Hold, LockName};
use std::time::Duration;

/// What is known of a simulation after its end.
pub struct Evidence<'a> {
    /// The locks.
    pub locks: &'a [LockName],
    /// What they are used as.
    pub kind: LockKind,
    /// What happened to each, by the store's history.
    pub stories: &'a [Story],
    /// What clients did and heard.
    pub records: &'a Records,
    /// When things stopped going wrong.
    pub calm: Duration,
    /// What went wrong before has its consequences for so long.
    pub aftermath: Duration,
    /// When it ended.
    pub end: Duration,
    /// What is left in the store.
    pub left: &'a [Record],
    /// Locks that the last node still worked on, and calls parked there.
    pub desks: (i64, i64),
    /// Clients that hadn't finished long after things stopped going wrong.
    pub unfinished: &'a [usize],
    /// Whether calls to the store may take longer than the node waits for them.
    pub is_slow: bool,
    /// Whether somebody called the store again and again without letting time pass.
    pub is_spinning: bool,
}

/// Finds violations.
pub type Invariant = fn(&Evidence<'_>) -> Vec<String>;

/// Every invariant.
pub const ALL: [(&str, Invariant); 11] = [
    ("one holder", one_holder::violations),
    ("tokens grow", tokens_grow::violations),
    ("fifo", fifo::violations),
    ("told yes", told_yes::violations),
    ("told no", told_no::violations),
    ("released", released::violations),
    ("client view", client_view::violations),
    ("answers", answers::violations),
    ("records agree", records_agree::violations),
    ("liveness", liveness::violations),
    ("leaks", leaks::violations),
];

/// Every violation, with its invariant's name.
pub fn violations(evidence: &Evidence<'_>) -> Vec<String> {
    let found = ALL.iter().flat_map(|(name, invariant)| {
        invariant(evidence).into_iter().map(move |violation| format!("{name}: {violation}"))
    });
    found.collect()
}

/// Whether two may not hold a lock at once.
pub(crate) fn excludes(one: Hold, other: Hold) -> bool {
    one == Hold::Exclusive || other == Hold::Exclusive || one == other && one != Hold::Shared
}
