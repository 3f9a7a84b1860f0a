//! Forced release: an administrator takes the lock away, with a reason that is kept (L10).

use super::audit::Forced;
use super::command::{Decided, End, Force, Reply};
use super::memo::Fate;
use super::state::State;
use crate::commit::Ttl;
use crate::record::Revision;
use crate::view::{Pause, Stamp};
use core::time::Duration;

/// How long the note of a forced release is kept.
pub const AUDIT_KEPT: Duration = Duration::from_secs(30 * 24 * 60 * 60);

pub(super) fn decide(mut state: State<'_>, force: &Force) -> Result<Decided, Pause> {
    state.evict_if_expired()?;
    let holder = match state.roster.holder.clone() {
        Some(holder) if force.target.is_none_or(|target| target == holder.id) => holder,
        _ => return not_the_holder(state, force),
    };
    let fencing = State::fencing(&holder);
    let Stamp::At(Revision(_)) = fencing else { return Err(Pause::NextCommit) };
    let note = Forced {
        fencing: fencing.resolve(Revision(0)),
        at: state.context.now,
        owner: holder.owner.clone(),
        by: force.by.clone(),
        reason: force.reason.clone(),
    };
    state.view.put(&state.lock.audit(holder.id), note.encode(), Ttl::AtLeast(AUDIT_KEPT));
    state.end(End::Forced, Fate::Forced);
    state.hand_over()?;
    state.reply(Reply::Forced { id: holder.id, owner: holder.owner, fencing })
}

/// Nothing to take away: perhaps because that was done already, and the answer was lost.
fn not_the_holder(mut state: State<'_>, force: &Force) -> Result<Decided, Pause> {
    state.hand_over()?;
    if let Some(target) = force.target
        && let Some(note) = state.view.get(&state.lock.audit(target))?
    {
        let note = Forced::decode(&note.value)?;
        let fencing = Stamp::At(note.fencing);
        return state.reply(Reply::Forced { id: target, owner: note.owner, fencing });
    }
    state.reply(Reply::NotFound)
}
