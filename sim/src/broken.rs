//! Deliberately broken rules: a store that leaves one kind of check out of every commit, or that hides from the rules what
//! they are about. If no invariant notices, the simulation is blind.

use baton_core::lock::name::Kind;
use baton_core::lock::roster::Roster;
use baton_core::lock::waiting::Waiting;
use baton_core::lock::{Hold, Mode, NodeId};
use baton_core::{Bytes, Check, Commit, Key, Outcome, Record, Write};
use baton_store::watch::Watch;
use baton_store::{Guarantees, Page, Range, Reading, Store, StoreFuture, Usage};
use std::sync::Arc;

/// Which check is left out, or what is overlooked.
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
    /// Those who share a lock: whoever reads a roster takes it for free.
    Readers,
    /// The last permit that was given out.
    LastPermit,
    /// That whoever waits to hold a lock alone is still there.
    WaitingWriters,
    /// The records that keep a lock closed.
    Delays,
}

impl Broken {
    /// Those that have to be noticed.
    pub const NOTICED: [Self; 8] = [
        Self::RosterCheck,
        Self::GrantCheck,
        Self::MemoCheck,
        Self::LeaseCheck,
        Self::Readers,
        Self::LastPermit,
        Self::WaitingWriters,
        Self::Delays,
    ];

    fn leaves_out(self, check: &Check) -> bool {
        let kind = Kind::of_name(&check.key().name);
        match self {
            Self::RosterCheck => kind == Some(Kind::Roster),
            Self::GrantCheck => kind == Some(Kind::Grant),
            Self::AbsentGrantCheck => kind == Some(Kind::Grant) && matches!(check, Check::Absent(_)),
            Self::MemoCheck => kind == Some(Kind::Memo) && matches!(check, Check::Absent(_)),
            Self::LeaseCheck => kind == Some(Kind::Grant) && matches!(check, Check::Created(..)),
            Self::Delays => kind == Some(Kind::Delay),
            Self::Readers | Self::LastPermit | Self::WaitingWriters => false,
        }
    }

    fn drops(self, write: &Write) -> bool {
        self == Self::Delays && Kind::of_name(&write.key().name) == Some(Kind::Delay)
    }

    /// A record as it is seen.
    fn seen(self, mut record: Record) -> Record {
        match (self, Kind::of_name(&record.key.name)) {
            (Self::Readers | Self::LastPermit, Some(Kind::Roster)) => {
                let Ok(mut roster) = Roster::decode(&record.value) else { return record };
                if self == Self::Readers {
                    roster.holders.retain(|holder| holder.hold != Hold::Shared);
                } else if roster.permits.is_some() {
                    roster.holders.pop();
                }
                record.value = roster.encode();
            }
            (Self::WaitingWriters, Some(Kind::Waiting)) => {
                let Ok(mut waiting) = Waiting::decode(&record.value) else { return record };
                if waiting.terms.mode == Mode::Exclusive {
                    waiting.node = NodeId::NONE;
                }
                record.value = waiting.encode();
            }
            _ => {}
        }
        record
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
        commit.writes.retain(|write| !self.broken.drops(write));
        Box::pin(async move {
            let mut outcome = self.store.commit(commit).await?;
            if let Outcome::Conflict { found, .. } = &mut outcome {
                for (_, record) in found {
                    *record = record.take().map(|record| self.broken.seen(record));
                }
            }
            Ok(outcome)
        })
    }

    fn read(&self, keys: Vec<Key>) -> StoreFuture<'_, Reading> {
        Box::pin(async move {
            let mut reading = self.store.read(keys).await?;
            for record in &mut reading.records {
                *record = record.take().map(|record| self.broken.seen(record));
            }
            Ok(reading)
        })
    }

    fn scan(&self, range: Range, limit: usize) -> StoreFuture<'_, Page> {
        Box::pin(async move {
            let mut page = self.store.scan(range, limit).await?;
            page.records = page.records.into_iter().map(|record| self.broken.seen(record)).collect();
            Ok(page)
        })
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
