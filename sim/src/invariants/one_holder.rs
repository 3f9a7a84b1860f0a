//! Nobody beside whom nobody may be, in store time: no writer beside a reader or a writer, no two holders of one permit, no
//! permit beyond the last, nobody while the lock is closed. And nothing rewrites a live grant.

use super::{Evidence, excludes};
use crate::scenarios::LockKind;
use crate::timeline::Life;
use baton_core::lock::Hold;

pub(super) fn violations(evidence: &Evidence<'_>) -> Vec<String> {
    let mut found = Vec::new();
    for (lock, story) in evidence.stories.iter().enumerate() {
        for (index, life) in story.lives.iter().enumerate() {
            if life.is_rewritten {
                found.push(format!("lock-{lock}: live grant {:?} was put again", life.created));
            }
            if let (Hold::Permit { slot }, LockKind::Semaphore(permits)) = (life.hold, evidence.kind)
                && slot >= permits
            {
                found.push(format!("lock-{lock}: grant {} has permit {slot} of {permits}", life.created.0));
            }
            for later in &story.lives[index + 1..] {
                if excludes(life.hold, later.hold) && overlap(life, later) {
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
        None => earlier.occupies_until() > later.from,
    }
}
