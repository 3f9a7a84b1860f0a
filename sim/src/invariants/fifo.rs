//! First in, first out, and no barging: nobody is granted a lock while someone before him in the queue has his call
//! parked at the node that grants.

use super::Evidence;
use crate::timeline::State;
use crate::world::{Ask, Call, Records, Told};
use baton_core::lock::memo::Fate;
use baton_core::lock::waiting::Waiting;
use baton_core::lock::{GrantId, NodeId};
use baton_engine::lock::Refusal;
use std::time::Duration;

pub(super) fn violations(evidence: &Evidence<'_>) -> Vec<String> {
    let mut found = Vec::new();
    for (lock, story) in evidence.stories.iter().enumerate() {
        for (before, step) in story.changes() {
            let Some(life) = story.lives.iter().find(|life| life.created == step.revision) else { continue };
            if was_named(evidence.records, lock, life.id, step.at) {
                continue;
            }
            for (id, waiting) in ahead(evidence.records, before, life.id) {
                let had_its_turn = story.memo(id, step.revision).is_some_and(|memo| memo.fate != Fate::Void);
                let now = step.state.waiting.get(&id);
                let has_left = now.is_none_or(|waiting| waiting.node == NodeId::NONE);
                let parked = parked(evidence.records, step.node, step.at, waiting);
                // Who leaves the queue, or keeps its place without a call, by that very commit must have wanted to.
                let wanted = |call: &Call| !(has_failed(call) || has_left && is_given_up(call));
                if !had_its_turn && parked.is_some_and(wanted) {
                    let (revision, at) = (step.revision.0, step.at);
                    found.push(format!(
                        "lock-{lock}: grant {revision} to {:?} at {at:?} passed {id:?} over, who was waiting at place {}",
                        life.id, waiting.place
                    ));
                }
            }
        }
    }
    found
}

/// Whether somebody has resigned, or tried to, in favour of whoever made this request.
fn was_named(records: &Records, lock: usize, id: GrantId, at: Duration) -> bool {
    let is_its_own = |call: &&Call| matches!(call.ask, Ask::Acquire { id: its, .. } if its == id);
    let Some(client) = records.calls.iter().find(is_its_own).map(|call| call.client) else { return false };
    records.calls.iter().any(|call| {
        let names = matches!(call.ask, Ask::Release { successor: Some(named), .. } if named == client);
        names && call.lock == lock && call.start <= at
    })
}

/// Where a request would stand that isn't queued: behind those of its rank, or behind all if it has none.
fn newcomer(records: &Records, id: GrantId) -> u64 {
    let rank = records.calls.iter().find_map(|call| match call.ask {
        Ask::Acquire { id: its, rank, attachment: Some(_), .. } if its == id => Some(rank),
        _ => None,
    });
    match rank {
        None | Some(0) => u64::MAX,
        Some(rank) => (u64::from(rank) + 1) << 48,
    }
}

/// Everybody who comes before a request.
fn ahead<'a>(
    records: &Records,
    state: &'a State,
    id: GrantId,
) -> impl Iterator<Item = (GrantId, &'a Waiting)> {
    let place = state.waiting.get(&id).map_or_else(|| newcomer(records, id), |waiting| waiting.place);
    let before = state.order.range(..place).map(|(_, id)| *id);
    before.filter_map(|id| state.waiting.get(&id).map(|waiting| (id, waiting)))
}

/// A waiter's call, if it was at this node before, at and after this moment.
pub(super) fn parked<'a>(
    records: &'a Records,
    node: u32,
    at: Duration,
    waiting: &Waiting,
) -> Option<&'a Call> {
    let is_here = records.nodes.iter().any(|life| life.number == node && life.id == waiting.node.0);
    let is_it = |call: &&Call| {
        let numbered =
            matches!(call.ask, Ask::Acquire { attachment: Some(number), .. } if number == waiting.attachment);
        numbered && call.node == node && call.start <= at && call.end.is_none_or(|end| end > at)
    };
    records.calls.iter().find(is_it).filter(|_| is_here)
}

fn is_given_up(call: &Call) -> bool {
    match &call.told {
        None => true,
        Some(Told::Refused(refusal)) => {
            matches!(refusal, Refusal::WaitTimeout(_) | Refusal::StillWaiting { .. })
        }
        Some(_) => false,
    }
}

/// Whether the node couldn't say that it parked the call.
fn has_failed(call: &Call) -> bool {
    matches!(call.told, Some(Told::Failed(_)))
}
