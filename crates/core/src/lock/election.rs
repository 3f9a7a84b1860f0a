//! What elections add to locks: priorities, a value that the leader changes, a successor that it names (E7, E8).
//!
//! A leader is a holder, a candidate is a waiter, an epoch is a fencing token: everything else is the lock's. A place
//! in the queue is a rank and a number. Locks have one rank; candidates have one for each priority, the highest first.
//! The record's name is the place, so the store's own order of names is the order of the queue.

use super::command::{Decided, Liveness, Proclaim, Reply};
use super::front::Next;
use super::name::{GrantId, Kind};
use super::roster::Holder;
use super::state::State;
use super::waiting::Waiting;
use crate::commit::Ttl;
use crate::record::Bytes;
use crate::view::{Pause, Stamp};

/// Before all priorities: where a named successor stands.
const FAVOURED: u16 = 0;
/// The rank of priority 0.
const MIDDLE: i32 = 0x8000;
/// What is left of a place for the number within a rank: more than a queue will ever see.
const NUMBER_BITS: u32 = 48;

/// The rank of a candidate: the higher its priority, the sooner its turn.
pub fn rank(priority: i16) -> u16 {
    (MIDDLE - i32::from(priority)).clamp(i32::from(FAVOURED) + 1, i32::from(u16::MAX)) as u16
}

/// The priority of a candidate at this place; none for a named successor, and where there are no priorities.
pub fn priority(place: u64) -> Option<i16> {
    let rank = (place >> NUMBER_BITS) as u16;
    (rank != FAVOURED).then(|| (MIDDLE - i32::from(rank)) as i16)
}

/// A place in the queue: ranks in order, and in each the order of arrival.
pub(super) fn place(rank: u16, number: u64) -> u64 {
    u64::from(rank) << NUMBER_BITS | number & ((1 << NUMBER_BITS) - 1)
}

/// Changes the holder's value, if it is still this grant that holds. Doing it twice is doing it once.
pub(super) fn proclaim(mut state: State<'_>, proclaim: &Proclaim) -> Result<Decided, Pause> {
    let is_holder =
        |holder: &Holder| holder.id == proclaim.id && State::fencing(holder) == Stamp::At(proclaim.fencing);
    if !state.roster.exclusive().is_some_and(is_holder) {
        return state.reply(Reply::Expired);
    }
    if state.living(proclaim.id).is_none() {
        state.evict(proclaim.id)?;
        state.hand_over()?;
        return state.reply(Reply::Expired);
    }
    if state.roster.metadata != proclaim.value {
        state.roster.metadata = proclaim.value.clone();
        state.change();
    }
    state.reply(Reply::Proclaimed)
}

/// Moves the first live waiter of this owner before everybody else, so that it is handed the lock, wherever its call is
/// parked. False if there is none.
pub(super) fn favour(state: &mut State<'_>, owner: &str) -> Result<bool, Pause> {
    let Some((id, waiting)) = find(state, owner)? else { return Ok(false) };
    let place = place(FAVOURED, state.roster.next_place);
    state.view.delete(&state.lock.order(waiting.place));
    state.view.put(&state.lock.order(place), id.0[..].into(), Ttl::Forever);
    let waiting = Waiting { place, ..waiting };
    state.view.put(&state.lock.waiting(id), waiting.encode(), Ttl::Forever);
    state.roster.front.leave(id);
    state.show(Next::of(id, &waiting), state.roster.waiting.saturating_sub(1));
    state.roster.next_place += 1;
    state.change();
    Ok(true)
}

/// Reads the whole queue: waiters are filed by request, not by owner, and who is named is nearly always there.
fn find(state: &State<'_>, owner: &str) -> Result<Option<(GrantId, Waiting)>, Pause> {
    let mut first: Option<(GrantId, Waiting)> = None;
    if state.roster.waiting == 0 {
        return Ok(None);
    }
    let prefix = state.lock.prefix(Kind::Waiting);
    let mut after: Option<Bytes> = None;
    while let Some((name, seen)) = state.view.next(&prefix, after.as_ref())? {
        let id = GrantId::from_suffix(&name[prefix.len()..]).ok_or(Pause::Unreadable)?;
        let waiting = Waiting::decode(&seen.value)?;
        let comes_first = first.as_ref().is_none_or(|(_, first)| waiting.place < first.place);
        if comes_first
            && *waiting.terms.owner == *owner
            && (state.context.liveness)(id, waiting.node, waiting.attachment) != Liveness::Orphan
        {
            first = Some((id, waiting));
        }
        after = Some(name);
    }
    Ok(first)
}
