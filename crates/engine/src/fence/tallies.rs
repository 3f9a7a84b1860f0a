//! Checks that were counted on this node and not written yet.
//!
//! Only a higher token is written down, so that a check of the same one costs no write; the counts of the others are kept
//! here until then. They are lost with the node, and approximate for that.

use baton_core::Name;
use baton_core::fence::Tally;
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard};

/// Fences with unwritten counts. Beyond it, checks of further ones aren't counted until these were written.
const FENCES_MAX: usize = 4096;

#[derive(Default)]
pub(crate) struct Tallies(Mutex<HashMap<Name, Tally>>);

impl Tallies {
    /// What is counted of a fence and not written.
    pub fn of(&self, name: &Name) -> Tally {
        self.all().get(name).copied().unwrap_or_default()
    }

    /// Counts.
    pub fn add(&self, name: &Name, tally: Tally) {
        let mut all = self.all();
        if let Some(counted) = all.get_mut(name) {
            *counted = counted.plus(tally);
        } else if all.len() < FENCES_MAX {
            all.insert(name.clone(), tally);
        }
    }

    /// So much was written, and is counted there.
    pub fn written(&self, name: &Name, tally: Tally) {
        let mut all = self.all();
        let left = all.get(name).map(|counted| counted.minus(tally)).unwrap_or_default();
        if left == Tally::default() {
            all.remove(name);
        } else {
            all.insert(name.clone(), left);
        }
    }

    /// The fence is no more.
    pub fn forget(&self, name: &Name) {
        self.all().remove(name);
    }

    fn all(&self) -> MutexGuard<'_, HashMap<Name, Tally>> {
        self.0.lock().expect("no panic while held")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_no_longer_counted_here_and_the_number_of_fences_is_bounded() {
        let tallies = Tallies::default();
        let (one, name) = (Tally { accepted: 1, refused: 1 }, Name::new("n", "r"));
        tallies.add(&name, one);
        tallies.add(&name, one);
        tallies.written(&name, one);
        assert_eq!(tallies.of(&name), one);
        tallies.written(&name, one);
        assert!(tallies.all().is_empty());
        for number in 0..FENCES_MAX + 10 {
            tallies.add(&Name::new("n", &number.to_string()), one);
        }
        assert_eq!(tallies.all().len(), FENCES_MAX);
        tallies.forget(&Name::new("n", "0"));
        tallies.add(&name, one);
        assert_eq!(tallies.of(&name), one);
    }
}
