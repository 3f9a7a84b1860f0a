//! One holder at a time, in store time: no two grants of a lock live at once, and nothing rewrites a live grant.

use super::Evidence;
use crate::timeline::Life;

pub(super) fn violations(evidence: &Evidence<'_>) -> Vec<String> {
    let mut found = Vec::new();
    for (lock, story) in evidence.stories.iter().enumerate() {
        for (index, life) in story.lives.iter().enumerate() {
            if life.is_rewritten {
                found.push(format!("lock-{lock}: live grant {:?} was put again", life.created));
            }
            for later in &story.lives[index + 1..] {
                if overlap(life, later) {
                    let (a, b, at) = (life.created.0, later.created.0, later.from);
                    found.push(format!("lock-{lock}: grants {a} and {b} are both alive at {at:?}"));
                }
            }
        }
    }
    found
}

fn overlap(earlier: &Life, later: &Life) -> bool {
    match earlier.deleted {
        Some((_, revision)) => revision > later.created,
        None => earlier.expires > later.from,
    }
}
