//! By their own clocks: no two clients ever believe at once that they hold what only one may. Who was forced out
//! believes wrongly by design, until its next renewal.

use super::{Evidence, excludes};
use crate::world::Belief;
use baton_core::lock::memo::Fate;

pub(super) fn violations(evidence: &Evidence<'_>) -> Vec<String> {
    let mut found = Vec::new();
    for (lock, story) in evidence.stories.iter().enumerate() {
        let forced = |belief: &Belief| {
            let life = story.life(belief.fencing)?;
            let (at, revision) = life.deleted?;
            (story.memo(life.id, revision)?.fate == Fate::Forced).then_some(at)
        };
        let beliefs = evidence.records.beliefs.iter().filter(|belief| belief.lock == lock);
        let mut beliefs: Vec<_> = beliefs
            .map(|belief| {
                let until = forced(belief).map_or(belief.until, |at| belief.until.min(at));
                Belief { until, ..*belief }
            })
            .filter(|belief| belief.from < belief.until)
            .collect();
        beliefs.sort_by_key(|belief| belief.from);
        for (index, belief) in beliefs.iter().enumerate() {
            let overlap = beliefs[index + 1..]
                .iter()
                .take_while(|later| later.from < belief.until)
                .find(|later| later.client != belief.client && excludes(belief.hold, later.hold));
            if let Some(later) = overlap {
                let (a, b) = ((belief.client, belief.fencing), (later.client, later.fencing));
                found.push(format!(
                    "lock-{lock}: clients {a:?} and {b:?} both believe to hold it at {:?}",
                    later.from
                ));
            }
        }
    }
    found
}
