//! Things go on: whoever is granted a lock is told, a free lock goes to whoever waits, every client comes to an end
//! once nothing goes wrong any more, and nobody calls the store in a loop.

use super::Evidence;
use super::fifo::parked;
use crate::timeline::Story;
use crate::world::Ask;
use std::time::Duration;

/// From a grant to its answer, while things go wrong: two deadlines of the store, and some.
const TOLD_WITHIN: Duration = Duration::from_secs(5);
/// The same, if calls may take longer than their deadline, several in a row.
const TOLD_WITHIN_SLOW: Duration = Duration::from_secs(20);
/// The same, and from a free lock to the next grant, when nothing goes wrong.
const CALM_WITHIN: Duration = Duration::from_millis(500);
/// What went wrong before has its consequences for so long.
const AFTERMATH: Duration = Duration::from_secs(10);

pub(super) fn violations(evidence: &Evidence<'_>) -> Vec<String> {
    let mut found = Vec::new();
    if evidence.is_spinning {
        found.push("the store was called again and again in one moment".into());
    }
    for client in evidence.unfinished {
        found.push(format!("client {client} hasn't finished by {:?}", evidence.end));
    }
    for (lock, story) in evidence.stories.iter().enumerate() {
        found.extend(untold(evidence, story).into_iter().map(|what| format!("lock-{lock}: {what}")));
        found.extend(left_free(evidence, story).into_iter().map(|what| format!("lock-{lock}: {what}")));
    }
    found
}

/// Grants whose waiting call wasn't told.
fn untold(evidence: &Evidence<'_>, story: &Story) -> Vec<String> {
    let mut found = Vec::new();
    let bad = if evidence.is_slow { TOLD_WITHIN_SLOW } else { TOLD_WITHIN };
    for life in &story.lives {
        let is_calm = life.from > evidence.calm + AFTERMATH;
        let by = life.from + if is_calm { CALM_WITHIN } else { bad };
        let call = evidence.records.calls.iter().find(|call| {
            let its_own = matches!(&call.ask, Ask::Acquire { id, attachment: Some(_), .. } if *id == life.id);
            its_own
                && call.node == life.node
                && call.start <= life.from
                && call.end.is_none_or(|end| end > by)
        });
        if let Some(call) = call {
            let (client, token, at) = (call.client, life.created.0, life.from);
            found.push(format!(
                "grant {token} was made at {at:?}, and client {client}, who waits, isn't told"
            ));
        }
    }
    found
}

/// Moments at which the lock was free for long while someone's call was parked.
fn left_free(evidence: &Evidence<'_>, story: &Story) -> Vec<String> {
    let mut found = Vec::new();
    let next_steps = story.steps.iter().skip(1).map(|step| step.at).chain([evidence.end]);
    for (step, next) in story.steps.iter().zip(next_steps) {
        // The lock is free from here, until the next step at least.
        let held_until = step.state.grants.values().map(|index| story.lives[*index].expires).max();
        let free = held_until.unwrap_or(step.at).max(step.at).max(evidence.calm + AFTERMATH);
        if free + CALM_WITHIN >= next {
            continue;
        }
        let at = free + CALM_WITHIN;
        let waits = step.state.waiting.iter().find(|(_, waiting)| {
            let nodes = &evidence.records.nodes;
            let node = nodes.iter().find(|life| life.id == waiting.node.0);
            node.is_some_and(|node| parked(evidence.records, node.number, at, waiting).is_some())
        });
        if let Some((id, _)) = waits {
            found.push(format!("{id:?} waits at {at:?}, and the lock is free since {free:?}"));
        }
    }
    found
}
