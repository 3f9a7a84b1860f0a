//! No means no: every grant has a call that wanted it and hadn't been told otherwise, and nobody is told that a
//! lease is over which lives on.

use super::Evidence;
use crate::timeline::{Life, Story};
use crate::world::{Ask, Call, Told};
use baton_engine::lock::{Failure, Refusal};
use std::time::Duration;

pub(super) fn violations(evidence: &Evidence<'_>) -> Vec<String> {
    let mut found = Vec::new();
    for (lock, story) in evidence.stories.iter().enumerate() {
        let calls: Vec<_> = evidence.records.calls.iter().filter(|call| call.lock == lock).collect();
        for life in &story.lives {
            if !calls.iter().any(|call| may_have_made(call, life)) {
                let (token, at) = (life.created.0, life.from);
                found.push(format!(
                    "lock-{lock}: grant {token} to {:?} was made at {at:?}, when all its calls were answered",
                    life.id
                ));
            }
        }
        for call in &calls {
            if let Some(life) = denied(story, call, &calls) {
                let (client, token) = (call.client, life.created.0);
                found.push(format!("lock-{lock}: client {client} was told no, but its grant {token} lives"));
            }
        }
    }
    found
}

/// Whether a call was under way when the grant was made, or its outcome was never said.
fn may_have_made(call: &Call, life: &Life) -> bool {
    let is_its_own = matches!(&call.ask, Ask::Acquire { id, .. } if *id == life.id);
    is_its_own && call.start <= life.from && settled(call).is_none_or(|end| end >= life.from)
}

/// From when on a call can have no effect any more.
fn settled(call: &Call) -> Option<Duration> {
    match call.told.as_ref()? {
        Told::Refused(Refusal::StillWaiting { .. })
        | Told::Failed(Failure::Unavailable { unknown: true }) => None,
        _ => call.end,
    }
}

/// The grant that a call was denied and that lived all the while.
fn denied<'a>(story: &'a Story, call: &Call, calls: &[&Call]) -> Option<&'a Life> {
    let end = call.end?;
    let Told::Refused(refusal) = call.told.as_ref()? else { return None };
    let is_no = matches!(
        refusal,
        Refusal::Held(_)
            | Refusal::WaitTimeout(_)
            | Refusal::QueueFull(_)
            | Refusal::Delayed(_)
            | Refusal::ModeMismatch { .. }
            | Refusal::Expired
            | Refusal::AlreadyReleased
    );
    let mine = |life: &&Life| match &call.ask {
        Ask::Acquire { id, .. } => *id == life.id,
        Ask::Renew { fencing, .. } | Ask::Release { fencing, .. } => *fencing == life.created.0,
        Ask::Force => false,
    };
    // Who has waited in vain has left the queue: it wasn't handed the lock on the way out either, unless another call of
    // the same waiter was.
    let was_granted = |other: &&Call| match (&call.ask, &other.ask) {
        (Ask::Acquire { id, .. }, Ask::Acquire { id: its, .. }) => {
            id == its && matches!(other.told, Some(Told::Granted { .. }))
        }
        _ => false,
    };
    let waited = matches!(refusal, Refusal::WaitTimeout(_)) && !calls.iter().any(was_granted);
    let since = if waited { end } else { call.start };
    let lived = |life: &&Life| life.from <= since && life.until() > end;
    story.lives.iter().find(|life| is_no && mine(life) && lived(life))
}
