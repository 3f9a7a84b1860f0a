//! Fencing tokens grow with every grant of a lock: in the store, and in what clients are told.

use super::{Evidence, excludes};
use crate::world::Told;
use std::collections::BTreeMap;

pub(super) fn violations(evidence: &Evidence<'_>) -> Vec<String> {
    let mut found = Vec::new();
    for (lock, story) in evidence.stories.iter().enumerate() {
        for pair in story.lives.windows(2) {
            if pair[0].created >= pair[1].created {
                found.push(format!("lock-{lock}: token {:?} after {:?}", pair[1].created, pair[0].created));
            }
        }
        let mut owners = BTreeMap::new();
        let mut told = Vec::new();
        for call in evidence.records.calls.iter().filter(|call| call.lock == lock) {
            let (Some(Told::Granted { fencing, hold, .. }), Some(end)) = (&call.told, call.end) else {
                continue;
            };
            if *owners.entry(*fencing).or_insert(call.client) != call.client {
                found.push(format!("lock-{lock}: token {fencing} was given to two clients"));
            }
            told.push((call.start, end, *fencing, *hold));
        }
        // Whoever asks after an answer was given is never told an older token, unless both may hold the lock at once.
        for (start, _, fencing, hold) in &told {
            let before = told.iter().filter(|(_, end, _, other)| end < start && excludes(*hold, *other));
            let known = before.map(|(_, _, token, _)| *token).max();
            if known.is_some_and(|known| known > *fencing) {
                found.push(format!("lock-{lock}: told {fencing} after {known:?} was told"));
            }
        }
    }
    found
}
