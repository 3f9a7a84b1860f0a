//! Leaving the queue, keeping a place without a call, and what the passing of time brings (L2, L3, L5).

use super::command::{Attachment, Decided, FORGOTTEN_MAX, NodeId, Reply};
use super::state::State;
use super::waiting::Waiting;
use crate::commit::Ttl;
use crate::view::Pause;

/// The call has ended. Only the call that is parked may take its waiter out.
pub(super) fn leave(mut state: State<'_>, attachment: Attachment) -> Result<Decided, Pause> {
    if let Some(waiting) = state.waiting(attachment.id)?
        && is_attached(&state, &waiting, attachment)
    {
        state.dequeue(attachment.id, waiting.place);
        // It may have been its turn: then it is the next one's.
        state.hand_over()?;
    }
    state.reply(Reply::Left)
}

/// The call has ended but is to be made again: the waiter keeps its place without one.
pub(super) fn detach(mut state: State<'_>, attachment: Attachment) -> Result<Decided, Pause> {
    if let Some(waiting) = state.waiting(attachment.id)?
        && is_attached(&state, &waiting, attachment)
    {
        let waiting = Waiting { node: NodeId::NONE, ..waiting };
        state.view.put(&state.lock.waiting(attachment.id), waiting.encode(), Ttl::Forever);
        state.roster.front.attach(attachment.id, NodeId::NONE, attachment.number);
        state.change();
        state.hand_over()?;
    }
    state.reply(Reply::Left)
}

/// Time has passed: evict holders whose leases are over, drop the forgotten, hand over.
pub(super) fn settle(mut state: State<'_>) -> Result<Decided, Pause> {
    state.evict_expired()?;
    state.hand_over()?;
    let look_in = state.held()?.retry_after;
    let is_free = state.is_free_elsewhere || state.roster.holders.is_empty() && state.roster.waiting > 0;
    state.reply(Reply::Settled { look_in, is_free })
}

/// Drops the forgotten, and looks at nothing else: it must get on also where so many of them stand in the queue that to look
/// for somebody behind them takes longer than a call may.
pub(super) fn prune(mut state: State<'_>) -> Result<Decided, Pause> {
    state.prune(FORGOTTEN_MAX)?;
    state.reply(Reply::Pruned)
}

fn is_attached(state: &State<'_>, waiting: &Waiting, attachment: Attachment) -> bool {
    waiting.node == state.context.node && waiting.attachment == attachment.number
}
