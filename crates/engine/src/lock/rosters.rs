//! Rosters of locks that somebody waits for, as the store's hints tell them: what is guessed when such a lock is
//! released or asked for at a node where nobody waits. A wrong guess costs what reading would have cost.

use baton_core::lock::LockName;
use baton_core::lock::roster::Roster;
use baton_core::{Bytes, Record, Revision};
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard};

/// Rosters kept; of further ones nothing is known before they are read.
const ROSTERS_MAX: usize = 4096;
/// A longer one isn't kept: it has many holders, who come and go before a guess is of use.
const ROSTER_BYTES_MAX: usize = 4096;

/// What was heard last of each lock with a queue.
#[derive(Default)]
pub(crate) struct Rosters(Mutex<HashMap<LockName, (Bytes, Revision)>>);

impl Rosters {
    fn all(&self) -> MutexGuard<'_, HashMap<LockName, (Bytes, Revision)>> {
        self.0.lock().expect("no panic while held")
    }

    /// A lock's roster is this now, or was a moment ago.
    pub fn hear(&self, lock: &LockName, value: &Bytes, revision: Revision) {
        let is_of_use =
            value.len() <= ROSTER_BYTES_MAX && Roster::decode(value).is_ok_and(|roster| roster.waiting > 0);
        let mut all = self.all();
        let known = all.get(lock).map(|(_, known)| *known);
        if known.is_some_and(|known| known >= revision) {
            return;
        }
        if !is_of_use {
            all.remove(lock);
        } else if known.is_some() || all.len() < ROSTERS_MAX {
            all.insert(lock.clone(), (value.clone(), revision));
        }
    }

    /// A lock has no roster any more.
    pub fn forget(&self, lock: &LockName) {
        self.all().remove(lock);
    }

    /// Something was not heard.
    pub fn forget_all(&self) {
        self.all().clear();
    }

    /// What a lock's roster is, perhaps.
    pub fn guess(&self, lock: &LockName) -> Option<Record> {
        let (value, revision) = self.all().get(lock).cloned()?;
        let key = lock.roster();
        Some(Record { key, value, created: revision, revision, touches: 0, expires_in: None })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn roster(waiting: u64) -> Bytes {
        Roster { waiting, ..Roster::default() }.encode()
    }

    #[test]
    fn the_newest_roster_of_a_lock_with_a_queue_is_guessed() {
        let (rosters, lock) = (Rosters::default(), LockName::new("n", "k"));
        let guessed = || rosters.guess(&lock).map(|record| record.revision.0);
        rosters.hear(&lock, &roster(0), Revision(1));
        assert_eq!(guessed(), None, "nobody waits");
        rosters.hear(&lock, &roster(2), Revision(5));
        rosters.hear(&lock, &roster(1), Revision(4));
        assert_eq!(guessed(), Some(5), "hints may come late");
        rosters.hear(&lock, &roster(0), Revision(6));
        assert_eq!(guessed(), None);
    }

    #[test]
    fn no_more_are_kept_than_there_is_room_for() {
        let rosters = Rosters::default();
        let lock = |number: usize| LockName::new("n", &format!("k{number}"));
        for number in 0..=ROSTERS_MAX {
            rosters.hear(&lock(number), &roster(1), Revision(1));
        }
        assert!(rosters.guess(&lock(0)).is_some() && rosters.guess(&lock(ROSTERS_MAX)).is_none());
        rosters.forget(&lock(0));
        rosters.hear(&lock(ROSTERS_MAX), &roster(1), Revision(2));
        assert!(rosters.guess(&lock(ROSTERS_MAX)).is_some());
    }
}
