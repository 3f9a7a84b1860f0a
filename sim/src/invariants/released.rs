//! A release that was acknowledged is done, and remembered; one that only counted down leaves the grant alive; and
//! nobody is told that a lease ran out which he gave back himself. What an administrator forced is gone.

use super::Evidence;
use crate::timeline::Story;
use crate::world::{Ask, Call, Told};
use baton_core::lock::memo::Fate;
use baton_engine::lock::Refusal;

pub(super) fn violations(evidence: &Evidence<'_>) -> Vec<String> {
    evidence.records.calls.iter().filter_map(|call| violation(&evidence.stories[call.lock], call)).collect()
}

fn violation(story: &Story, call: &Call) -> Option<String> {
    let (told, end) = (call.told.as_ref()?, call.end?);
    match (&call.ask, told) {
        (Ask::Release { fencing, left, certain, .. }, Told::Done) => {
            let who = format!("client {} was told at {end:?} that {fencing} is released", call.client);
            let Some(life) = story.life(*fencing) else { return Some(format!("{who}: there is no such")) };
            let fate = life.deleted.and_then(|(at, revision)| {
                // What happens in the same millisecond may come after it.
                (if *left > 0 { at < end } else { at <= end })
                    .then(|| story.memo(life.id, revision).map(|memo| memo.fate))
            });
            match fate {
                _ if !certain => None,
                Some(Some(Fate::Released)) if *left > 0 => {
                    Some(format!("{who} once, but it is gone with {left} to go"))
                }
                _ if *left > 0 => None,
                None => Some(format!("{who}, but it wasn't deleted (ends at {:?})", life.until())),
                Some(Some(Fate::Released)) => None,
                Some(fate) => Some(format!("{who}, but it is remembered as {fate:?}")),
            }
        }
        (Ask::Release { fencing, .. }, Told::Refused(Refusal::Expired)) => {
            let life = story.life(*fencing)?;
            let (_, revision) = life.deleted?;
            let memo = story.memo(life.id, revision)?;
            (memo.fate == Fate::Released).then(|| {
                format!("client {} was told at {end:?} that {fencing} expired; it was released", call.client)
            })
        }
        (Ask::Force, Told::Forced { fencing }) => {
            let is_gone = |token: &u64| story.life(*token).is_some_and(|life| life.until() <= end);
            let lives = fencing.iter().find(|token| !is_gone(token))?;
            Some(format!("{lives} was forced by {end:?}, and lives"))
        }
        (Ask::Force, Told::Refused(refusal)) if *refusal != Refusal::NotFound => {
            Some(format!("the administrator was told {refusal:?}"))
        }
        _ => None,
    }
}
