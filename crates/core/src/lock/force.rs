//! Forced release: an administrator takes the lock away, with a reason that is kept (L10).

use super::audit::Forced;
use super::command::{Decided, End, Force, Reply};
use super::memo::Fate;
use super::name::GrantId;
use super::roster::Holder;
use super::state::State;
use crate::commit::Ttl;
use crate::view::{Pause, Stamp};
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
    let holder = state.roster.holders.iter().find(is_meant).cloned();
    let Some(holder) = holder else { return not_the_holder(state, force) };
    let Stamp::At(token) = State::fencing(&holder) else { return Err(Pause::NextCommit) };
    let settled = |other| if let Stamp::At(other) = other { Ok(other) } else { Err(Pause::NextCommit) };
    let others = others(&state, force, holder.id).map(settled).collect::<Result<_, _>>()?;
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
    state.reply(Reply::Forced { id: holder.id, owner: holder.owner, fencing: Stamp::At(token), others })
}

/// What all others who hold it are fenced by, if none was meant in particular. The target doesn't matter for that: it is only the one that
/// this command begins with, however often it has to be decided again.
fn others<'a>(state: &'a State<'_>, force: &Force, but: GrantId) -> impl Iterator<Item = Stamp> + use<'a> {
    let holders = state.roster.holders.iter().filter(move |holder| !holder.closed && holder.id != but);
    holders.map(State::fencing).take(if force.fencing.is_some() { 0 } else { usize::MAX })
}

/// Nothing to take away: perhaps because that was done already, and the answer was lost.
fn not_the_holder(mut state: State<'_>, force: &Force) -> Result<Decided, Pause> {
    state.hand_over()?;
    if let Some(target) = force.target
        && let Some(note) = state.view.get(&state.lock.audit(target))?
    {
        // Who came with that commit or after it keeps it.
        let was_there = |other| match (other, note.revision) {
            (Stamp::At(token), Stamp::At(done)) if token < done => Some(token),
            _ => None,
        };
        let others = others(&state, force, target).filter_map(was_there).collect();
        let note = Forced::decode(&note.value)?;
        let fencing = Stamp::At(note.fencing);
        return state.reply(Reply::Forced { id: target, owner: note.owner, fencing, others });
    }
    state.reply(Reply::NotFound)
}
