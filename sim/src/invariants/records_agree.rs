//! The records of a lock agree with each other after every commit: a live grant is a holder of the roster's, the roster
//! counts its waiters, and places and waiters match one to one.

use super::Evidence;
use crate::timeline::{Step, Story};

pub(super) fn violations(evidence: &Evidence<'_>) -> Vec<String> {
    let mut found = Vec::new();
    for (lock, story) in evidence.stories.iter().enumerate() {
        let first = story.steps.iter().find_map(|step| disagreement(story, step).map(|what| (step, what)));
        if let Some((step, what)) = first {
            found.push(format!("lock-{lock}: at revision {}, {what}", step.revision.0));
        }
    }
    found
}

fn disagreement(story: &Story, step: &Step) -> Option<String> {
    let state = &step.state;
    let holders = state.roster.as_ref().map_or(&[][..], |(_, roster)| &roster.holders);
    for (id, index) in &state.grants {
        let life = &story.lives[*index];
        if life.expires <= step.at {
            continue;
        }
        let Some(holder) = holders.iter().find(|holder| holder.id == *id && !holder.closed) else {
            return Some(format!("{id:?} is granted, and not a holder"));
        };
        let fencing = holder.fencing.or(state.roster.as_ref().map(|(revision, _)| *revision));
        if fencing != Some(life.created) || holder.hold != life.hold {
            return Some(format!("{id:?} is granted otherwise than the roster says: {holder:?}"));
        }
    }
    let waiting = state.roster.as_ref().map_or(0, |(_, roster)| roster.waiting);
    let (waiters, places) = (state.waiting.len() as u64, state.order.len() as u64);
    if waiting != waiters || waiting != places {
        return Some(format!(
            "the roster counts {waiting} waiters; there are {waiters}, with {places} places"
        ));
    }
    let mut order = state.order.iter();
    let stray =
        order.find(|(place, id)| state.waiting.get(id).is_none_or(|waiting| waiting.place != **place));
    stray.map(|(place, id)| format!("place {place} is {id:?}'s, who waits elsewhere or not at all"))
}
