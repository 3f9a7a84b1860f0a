//! A client that was told yes is in the store: a grant with its token lived while its call was under way, under its
//! request's id, and with a lease of at least what it was told from when it asked.

use super::Evidence;
use crate::timeline::{Life, Story};
use crate::world::{Ask, Call, Told};
use baton_core::lock::memo::Fate;
use std::time::Duration;

pub(super) fn violations(evidence: &Evidence<'_>) -> Vec<String> {
    evidence.records.calls.iter().filter_map(|call| violation(&evidence.stories[call.lock], call)).collect()
}

fn violation(story: &Story, call: &Call) -> Option<String> {
    let (Some(told), Some(end)) = (&call.told, call.end) else { return None };
    let (fencing, ttl) = match (&call.ask, told) {
        (Ask::Acquire { ttl, .. }, Told::Granted { fencing, .. }) => (*fencing, *ttl),
        (Ask::Renew { fencing, ttl }, Told::Done) => (*fencing, *ttl),
        _ => return None,
    };
    let who = format!("client {} was told yes with token {fencing} at {end:?}", call.client);
    let Some(life) = story.life(fencing) else { return Some(format!("{who}, and there is no such grant")) };
    if life.from > end || life.until() < call.start {
        return Some(format!("{who}, when its grant wasn't alive"));
    }
    if life.deleted.is_none() && life.expires < call.start + ttl {
        return Some(format!("{who}, and its lease ended at {:?} already", life.expires));
    }
    if let Ask::Acquire { id, .. } = &call.ask
        && *id != life.id
        && !is_nested(story, call, life, end)
    {
        return Some(format!("{who}, which is somebody else's"));
    }
    None
}

fn is_nested(story: &Story, call: &Call, life: &Life, _end: Duration) -> bool {
    let Ask::Acquire { id, .. } = &call.ask else { return false };
    let memo = story.memo(*id, baton_core::Revision::MAX);
    memo.is_some_and(|memo| {
        matches!(memo.fate, Fate::Nested { of, .. } if of == life.id) && memo.fencing == life.created
    })
}
