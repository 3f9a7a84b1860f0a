//! Things go on: whoever is granted a lock is told, a free lock goes to whoever waits, every client comes to an end
//! once nothing goes wrong any more, and nobody calls the store in a loop.

use super::Evidence;
use super::fifo::parked;
use crate::timeline::{Life, Step, Story};
use crate::world::Ask;
use baton_core::lock::waiting::Waiting;
use baton_core::lock::{Hold, Mode};
use std::time::Duration;

/// From a grant to its answer, while things go wrong: two deadlines of the store, and some.
const TOLD_WITHIN: Duration = Duration::from_secs(5);
/// The same, if calls may take longer than their deadline, several in a row.
const TOLD_WITHIN_SLOW: Duration = Duration::from_secs(20);
/// The same, and from a free lock to the next grant, when nothing goes wrong.
const CALM_WITHIN: Duration = Duration::from_millis(500);

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
        let is_calm = life.from > evidence.calm + evidence.aftermath;
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

/// Moments at which the first whose call was parked could have had the lock for long.
fn left_free(evidence: &Evidence<'_>, story: &Story) -> Vec<String> {
    let mut found = Vec::new();
    let next_steps = story.steps.iter().skip(1).map(|step| step.at).chain([evidence.end]);
    for (step, next) in story.steps.iter().zip(next_steps) {
        let since = step.at.max(evidence.calm + evidence.aftermath);
        if since + CALM_WITHIN >= next {
            continue;
        }
        let waiting = |id| step.state.waiting.get(id).filter(|waiting| is_parked(evidence, since, waiting));
        let first = step.state.order.values().find_map(|id| waiting(id).map(|waiting| (id, waiting)));
        let Some((id, waiting)) = first else { continue };
        // There is room for it from here, until the next step at least.
        let free = room_from(story, step, waiting.terms.mode).max(since);
        let at = free + CALM_WITHIN;
        if at < next && is_parked(evidence, at, waiting) {
            found.push(format!("{id:?} waits at {at:?}, and there is room for it since {free:?}"));
        }
    }
    found
}

fn is_parked(evidence: &Evidence<'_>, at: Duration, waiting: &Waiting) -> bool {
    let node = evidence.records.nodes.iter().find(|life| life.id == waiting.node.0);
    node.is_some_and(|node| parked(evidence.records, node.number, at, waiting).is_some())
}

/// From when on one more may hold the lock so, if nothing else happens.
fn room_from(story: &Story, step: &Step, mode: Mode) -> Duration {
    let ids = step.state.roster.iter().flat_map(|(_, roster)| &roster.holders).map(|holder| holder.id);
    let lives = ids.filter_map(|id| {
        story.lives.iter().rev().find(|life| life.id == id && life.created <= step.revision)
    });
    let in_the_way = lives.filter(|life| mode != Mode::Shared || life.hold != Hold::Shared);
    let mut ends: Vec<_> = in_the_way.map(Life::occupies_until).collect();
    ends.sort_unstable();
    // It takes all of them to end, or all but those for whom there is a permit besides.
    let others = usize::from(mode.permits().unwrap_or(1)) - 1;
    ends.iter().rev().nth(others).copied().unwrap_or_default()
}
