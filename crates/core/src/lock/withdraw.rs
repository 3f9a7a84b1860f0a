//! Withdraw: whatever a request has at this lock is taken from it, and what may still arrive of it stays out (L16).
//!
//! For requests that only the engine makes, for a bundle: nobody was given their grants before the bundle was held, so
//! nothing but the bundle's own record says whether they may be taken back.

use super::command::{Decided, End, Reply, Withdraw};
use super::memo::Fate;
use super::state::State;
use crate::record::Revision;
use crate::view::{Pause, Stamp};

pub(super) fn decide(mut state: State<'_>, withdraw: &Withdraw) -> Result<Decided, Pause> {
    let (id, fate) = (withdraw.id, if withdraw.again { Fate::Void } else { Fate::Released });
    if let Some(holder) = state.roster.find(id).cloned()
        && !holder.closed
    {
        // A memo says the grant's token, which its own commit doesn't know yet.
        let Stamp::At(_) = State::fencing(&holder) else { return Err(Pause::NextCommit) };
        match state.living(id) {
            Some(_) => state.end(id, End::Undelivered, fate),
            None => state.evict(id)?,
        }
        state.hand_over()?;
        return state.reply(Reply::Left);
    }
    let waiting = if state.roster.waiting == 0 { None } else { state.waiting(id)? };
    if let Some(waiting) = &waiting {
        state.dequeue(id, waiting.place);
    }
    // Also over a void one: a commit that is under way may have been decided on that. It may say which grant it was.
    let memo = state.recall(id)?;
    if memo.as_ref().is_none_or(|memo| memo.fate == Fate::Void) {
        let fencing = memo.map_or(Revision(0), |memo| memo.fencing);
        state.remember(id, fate, Stamp::At(fencing), withdraw.digest, &withdraw.owner);
    }
    if waiting.is_some() {
        // It may have been its turn: then it is the next one's.
        state.hand_over()?;
    }
    state.reply(Reply::Left)
}
