//! Deliberately broken rules: a store that leaves one kind of check out of every commit. If no invariant notices,
//! the simulation is blind.

use baton_core::lock::name::Kind;
use baton_core::{Bytes, Check, Commit, Key, Outcome};
use baton_store::watch::Watch;
use baton_store::{Guarantees, Page, Range, Reading, Store, StoreFuture, Usage};
use std::sync::Arc;

/// Which check is left out.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub enum Broken {
    /// That the roster is as it was seen, or absent.
    RosterCheck,
    /// Whether there is a grant under an id, and which.
    GrantCheck,
    /// That nothing is remembered of a request.
    MemoCheck,
    /// That the holder's lease still runs.
    LeaseCheck,
    /// Only that there is no grant under an id. With one node at a time nobody can notice: whoever makes a grant
    /// rewrites the roster, whose check then says the same. It is for the day when several nodes share a store.
    AbsentGrantCheck,
}

impl Broken {
    /// Those that have to be noticed.
    pub const NOTICED: [Self; 4] = [Self::RosterCheck, Self::GrantCheck, Self::MemoCheck, Self::LeaseCheck];

    fn leaves_out(self, check: &Check) -> bool {
        let kind = Kind::of_name(&check.key().name);
        match self {
            Self::RosterCheck => kind == Some(Kind::Roster),
            Self::GrantCheck => kind == Some(Kind::Grant),
            Self::AbsentGrantCheck => kind == Some(Kind::Grant) && matches!(check, Check::Absent(_)),
            Self::MemoCheck => kind == Some(Kind::Memo) && matches!(check, Check::Absent(_)),
            Self::LeaseCheck => kind == Some(Kind::Grant) && matches!(check, Check::Created(..)),
        }
    }
}

/// Wraps a store.
pub struct BrokenStore {
    /// What is left out.
    pub broken: Broken,
    /// Of commits to this store.
    pub store: Arc<dyn Store>,
}

impl Store for BrokenStore {
    fn commit(&self, mut commit: Commit) -> StoreFuture<'_, Outcome> {
        commit.checks.retain(|check| !self.broken.leaves_out(check));
        self.store.commit(commit)
    }

    fn read(&self, keys: Vec<Key>) -> StoreFuture<'_, Reading> {
        self.store.read(keys)
    }

    fn scan(&self, range: Range, limit: usize) -> StoreFuture<'_, Page> {
        self.store.scan(range, limit)
    }

    fn watch(&self, prefix: Bytes) -> Watch {
        self.store.watch(prefix)
    }

    fn expirations(&self, prefix: Bytes) -> Watch {
        self.store.expirations(prefix)
    }

    fn guarantees(&self) -> Guarantees {
        self.store.guarantees()
    }

    fn usage(&self) -> Usage {
        self.store.usage()
    }
}
