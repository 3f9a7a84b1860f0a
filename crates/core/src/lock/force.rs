//! Forced release: an administrator takes the lock away, with a reason that is kept (L10).

use super::audit::Forced;
use super::command::{Decided, End, Force, Reply};
use super::memo::Fate;
use super::roster::Holder;
use super::state::State;
use crate::commit::Ttl;
use crate::view::{Pause, Stamp};
use alloc::vec::Vec;
use core::time::Duration;

/// How long the note of a forced release is kept.
pub const AUDIT_KEPT: Duration = Duration::from_secs(30 * 24 * 60 * 60);

pub(super) fn decide(mut state: State<'_>, force: &Force) -> Result<Decided, Pause> {
    state.evict_expired()?;
    if state.has_more_to_end {
        return Err(Pause::SettleFirst);
    }
    let is_meant = |holder: &&Holder| {
        !holder.closed
            && force.target.is_none_or(|target| target == holder.id)
            && force.fencing.is_none_or(|fencing| State::fencing(holder) == Stamp::At(fencing))
    };
    let mut meant = state.roster.holders.iter().filter(is_meant);
    let Some(holder) = meant.next().cloned() else { return not_the_holder(state, force) };
    let others = meant.map(State::fencing).collect::<Vec<_>>();
    let Stamp::At(token) = State::fencing(&holder) else { return Err(Pause::NextCommit) };
    let mut tokens = Vec::new();
    for other in others {
        let Stamp::At(other) = other else { return Err(Pause::NextCommit) };
        tokens.push(other);
    }
    // It is to be its end, not that of a lease which has just run out.
    if state.view.lease(&state.lock.grant(holder.id))?.is_none() {
        return Err(Pause::Unreadable);
    }
    let note = Forced {
        fencing: token,
        at: state.context.now,
        owner: holder.owner.clone(),
        by: force.by.clone(),
        reason: force.reason.clone(),
    };
    state.view.put(&state.lock.audit(holder.id), note.encode(), Ttl::AtLeast(AUDIT_KEPT));
    state.end(holder.id, End::Forced, Fate::Forced);
    if !force.delay.is_zero() {
        state.close(holder.clone(), force.delay);
    }
    state.hand_over()?;
    state.reply(Reply::Forced {
        id: holder.id,
        owner: holder.owner,
        fencing: Stamp::At(token),
        others: tokens,
    })
}

/// Nothing to take away: perhaps because that was done already, and the answer was lost.
fn not_the_holder(mut state: State<'_>, force: &Force) -> Result<Decided, Pause> {
    state.hand_over()?;
    if let Some(target) = force.target
        && let Some(note) = state.view.get(&state.lock.audit(target))?
    {
        let note = Forced::decode(&note.value)?;
        let fencing = Stamp::At(note.fencing);
        return state.reply(Reply::Forced { id: target, owner: note.owner, fencing, others: Vec::new() });
    }
    state.reply(Reply::NotFound)
}
