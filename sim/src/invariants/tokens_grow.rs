//! Fencing tokens grow with every grant of a lock: in the store, and in what clients are told.

use super::Evidence;
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
            let (Some(Told::Granted { fencing, .. }), Some(end)) = (&call.told, call.end) else { continue };
            if *owners.entry(*fencing).or_insert(call.client) != call.client {
                found.push(format!("lock-{lock}: token {fencing} was given to two clients"));
            }
            told.push((call.start, end, *fencing));
        }
        // Whoever asks after an answer was given is never told an older token.
        for (start, _, fencing) in &told {
            let known = told.iter().filter(|(_, end, _)| end < start).map(|(_, _, token)| *token).max();
            if known.is_some_and(|known| known > *fencing) {
                found.push(format!("lock-{lock}: told {fencing} after {known:?} was told"));
            }
        }
    }
    found
}
