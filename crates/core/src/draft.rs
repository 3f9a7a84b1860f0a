//! The draft of one commit: what must hold, and what then happens, each in the order of names.
//!
//! Nearly every draft has three checks and three writes, and none more than a commit may have: short lists, searched by
//! halves, cost less than trees.

use crate::commit::{COMMIT_BYTES_MAX, COMMIT_OPERATIONS_MAX, Write};
use crate::record::{Bytes, Revision};
use alloc::vec::Vec;

/// What a record is checked by.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Basis {
    /// By its last Put.
    Revision,
    /// By the commit that made it.
    Creation,
    /// Not known, but taken to be there, made by this commit.
    Assumed(Revision),
}

/// Checks and writes, at most one of each for a name.
#[derive(Default)]
pub(crate) struct Draft {
    checks: Vec<(Bytes, Basis)>,
    writes: Vec<Write>,
}

impl Draft {
    /// How a record is checked.
    pub fn check(&self, name: &[u8]) -> Option<Basis> {
        let place = self.check_place(name).ok()?;
        Some(self.checks[place].1)
    }

    /// What happens to a record.
    pub fn write(&self, name: &[u8]) -> Option<&Write> {
        let place = self.write_place(name).ok()?;
        Some(&self.writes[place])
    }

    /// Checks a record like this, or not at all; gives back how it was checked before.
    pub fn set_check(&mut self, name: &Bytes, basis: Option<Basis>) -> Option<Basis> {
        match (self.check_place(name), basis) {
            (Ok(place), Some(basis)) => Some(core::mem::replace(&mut self.checks[place].1, basis)),
            (Ok(place), None) => Some(self.checks.remove(place).1),
            (Err(place), Some(basis)) => {
                self.checks.insert(place, (name.clone(), basis));
                None
            }
            (Err(_), None) => None,
        }
    }

    /// Does this to a record, or nothing; gives back what would have been done before.
    pub fn set_write(&mut self, name: &[u8], write: Option<Write>) -> Option<Write> {
        match (self.write_place(name), write) {
            (Ok(place), Some(write)) => Some(core::mem::replace(&mut self.writes[place], write)),
            (Ok(place), None) => Some(self.writes.remove(place)),
            (Err(place), Some(write)) => {
                self.writes.insert(place, write);
                None
            }
            (Err(_), None) => None,
        }
    }

    /// All checks.
    pub fn checks(&self) -> impl Iterator<Item = (&Bytes, Basis)> {
        self.checks.iter().map(|(name, basis)| (name, *basis))
    }

    /// All writes.
    pub fn writes(&self) -> &[Write] {
        &self.writes
    }

    /// Writes to names after this one.
    pub fn writes_after(&self, name: &[u8]) -> impl Iterator<Item = &Write> {
        let first = self.write_place(name).map_or_else(|place| place, |place| place + 1);
        self.writes[first..].iter()
    }

    /// All writes, to be carried out.
    pub fn into_writes(self) -> Vec<Write> {
        self.writes
    }

    /// Whether it changes anything.
    pub fn is_dirty(&self) -> bool {
        !self.writes.is_empty()
    }

    /// Whether it is within what a store takes.
    pub fn fits(&self) -> bool {
        if self.checks.len() + self.writes.len() > COMMIT_OPERATIONS_MAX {
            return false;
        }
        let names: usize = self.checks.iter().map(|(name, _)| name.len()).sum();
        let writes = self.writes.iter().map(|write| match write {
            Write::Put { key, value, .. } => key.name.len() + value.len(),
            Write::Touch { key, .. } | Write::Delete { key } => key.name.len(),
        });
        names + writes.sum::<usize>() <= COMMIT_BYTES_MAX
    }

    fn check_place(&self, name: &[u8]) -> Result<usize, usize> {
        self.checks.binary_search_by(|(other, _)| (**other).cmp(name))
    }

    fn write_place(&self, name: &[u8]) -> Result<usize, usize> {
        self.writes.binary_search_by(|write| (*write.key().name).cmp(name))
    }
}
