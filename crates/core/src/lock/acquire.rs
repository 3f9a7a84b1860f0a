//! Acquire: once per requestId, in turn (L1, L2, L3, L8, L9).

use super::command::{Acquire, Context, Decided, Granted, Reply};
use super::memo::{Fate, Memo};
use super::name::{GrantId, LockName};
use super::roster::Holder;
use super::state::State;
use super::waiting::Waiting;
use crate::commit::Ttl;
use crate::view::{Pause, Stamp, View};

pub(super) fn decide(
    lock: &LockName,
    acquire: &Acquire,
    view: &mut View,
    context: &Context<'_>,
) -> Result<Decided, Pause> {
    // The guess that makes an uncontended acquire one round trip: nobody is there.
    view.assume_absent(&lock.roster());
    let mut state = State::open(lock, view, context)?;

    let memo = state.recall(acquire.id)?;
    if let Some(memo) = &memo
        && memo.fate != Fate::Void
    {
        return replay_memo(state, acquire, memo);
    }
    if let Some(holder) = state.roster.find(acquire.id) {
        if holder.closed {
            // It is over, and remembered at least as long as its place is closed.
            let same = holder.digest == acquire.digest;
            return state.reply(if same { Reply::Expired } else { Reply::RequestIdReused });
        }
        return replay_grant(state, acquire);
    }
    let waiting = own_place(&mut state, acquire)?;
    if let Some(waiting) = &waiting
        && waiting.terms.digest() != acquire.digest
    {
        return state.reply(Reply::RequestIdReused);
    }
    make_way(&mut state, acquire)?;
    if let Some(waiting) = waiting {
        return match acquire.attachment {
            Some(attachment) => rejoin(state, acquire, attachment, waiting),
            None => take_own_turn(state, acquire, &waiting),
        };
    }
    if is_of_another_kind(&state, acquire) {
        let permits = state.roster.permits;
        return state.reply(Reply::ModeMismatch { permits });
    }
    if let Some(holder) = state.roster.exclusive().cloned()
        && acquire.terms.reentrant
        && holder.flags.reentrant
        && holder.owner == acquire.terms.owner
        && holder.principal == acquire.terms.principal
    {
        return nest(state, acquire, holder);
    }
    take_or_wait(state, acquire)
}

fn is_of_another_kind(state: &State<'_>, acquire: &Acquire) -> bool {
    !state.roster.is_empty() && state.roster.permits != acquire.terms.mode.permits()
}

/// Ends those who are in the way though their leases are over.
fn make_way(state: &mut State<'_>, acquire: &Acquire) -> Result<(), Pause> {
    if is_of_another_kind(state, acquire)
        || acquire.attachment.is_none() && !state.roster.admits(acquire.terms.mode)
    {
        // A refusal shows when the first lease ends, so that the grants have to be read anyway.
        state.evict_expired()?;
        if state.has_more_to_end {
            return Err(Pause::SettleFirst);
        }
    } else if let Some(holder) = state.roster.exclusive() {
        let id = holder.id;
        if state.living(id).is_none() {
            state.evict(id)?;
        }
    }
    // Whoever waits for one of several places queues without asking: the first lease's end is looked at in time.
    Ok(())
}

/// The queue comes first; then the caller takes the lock if it is free, or waits if it wants to.
fn take_or_wait(mut state: State<'_>, acquire: &Acquire) -> Result<Decided, Pause> {
    let someone_comes_before = state.hand_over()?;
    if state.roster.admits(acquire.terms.mode) && !someone_comes_before {
        let granted = state.grant(acquire.id, &acquire.terms, None)?;
        return state.reply(Reply::Granted(granted));
    }
    let Some(attachment) = acquire.attachment else { return refuse(state) };
    if state.roster.waiting >= state.context.queue_max {
        let held = state.held()?;
        return state.reply(Reply::QueueFull(held));
    }
    state.enqueue(acquire.id, &acquire.terms, attachment, acquire.rank)?;
    if acquire.rank != 0 && state.roster.holders.is_empty() {
        // By its rank it may have come to stand before those who were to take it.
        state.hand_over()?;
    }
    state.reply(Reply::Parked)
}

/// The lock can't be had now: because somebody has it, or because nobody may yet.
fn refuse(state: State<'_>) -> Result<Decided, Pause> {
    let held = state.held()?;
    let is_closed =
        !state.roster.holders.is_empty() && state.roster.holders.iter().all(|holder| holder.closed);
    state.reply(if is_closed { Reply::Delayed(held) } else { Reply::Held(held) })
}

/// The request ended before: the same answer again, never the lock.
fn replay_memo(state: State<'_>, acquire: &Acquire, memo: &Memo) -> Result<Decided, Pause> {
    if memo.digest != acquire.digest {
        return state.reply(Reply::RequestIdReused);
    }
    match memo.fate {
        Fate::Nested { of, count } => replay_nested(state, acquire, memo, of, count),
        Fate::Released => state.reply(Reply::AlreadyReleased),
        Fate::Expired | Fate::Forced | Fate::Void | Fate::Counted => state.reply(Reply::Expired),
    }
}

/// The request's own grant: the same again, renewed; it may have been delivered twice now, so nobody may undo it.
fn replay_grant(mut state: State<'_>, acquire: &Acquire) -> Result<Decided, Pause> {
    let Some(mut holder) = state.living(acquire.id) else {
        // Its own lease ran out: that is the answer, and the next in the queue gets the lock.
        let same = state.roster.find(acquire.id).is_some_and(|holder| holder.digest == acquire.digest);
        state.evict(acquire.id)?;
        state.hand_over()?;
        return state.reply(if same { Reply::Expired } else { Reply::RequestIdReused });
    };
    if holder.digest != acquire.digest {
        return state.reply(Reply::RequestIdReused);
    }
    state.touch(&holder, acquire.terms.ttl);
    if !holder.replayed {
        holder.replayed = true;
        state.replace(holder.clone());
    }
    let granted = again(&holder, acquire, holder.count);
    state.reply(Reply::Granted(granted))
}

/// The same owner takes what it has (L8).
fn nest(mut state: State<'_>, acquire: &Acquire, mut holder: Holder) -> Result<Decided, Pause> {
    // A memo needs the token, and the first one's answer may say that it takes one release.
    let Stamp::At(_) = State::fencing(&holder) else { return Err(Pause::NextCommit) };
    let Some(count) = holder.count.checked_add(1) else {
        let held = state.held()?;
        return state.reply(Reply::QueueFull(held));
    };
    holder.count = count;
    // This answer gives the token out again, so that the first one may not be undone any more.
    holder.replayed = true;
    let fate = Fate::Nested { of: holder.id, count };
    state.remember(acquire.id, fate, State::fencing(&holder), acquire.digest, &holder.owner);
    state.view.lease(&state.lock.grant(holder.id))?;
    state.touch(&holder, acquire.terms.ttl);
    state.replace(holder.clone());
    state.reply(Reply::Granted(again(&holder, acquire, count)))
}

fn replay_nested(
    mut state: State<'_>,
    acquire: &Acquire,
    memo: &Memo,
    of: GrantId,
    count: u32,
) -> Result<Decided, Pause> {
    // The same request may have been granted anew since, once it was forgotten: then with another token.
    let is_same = |holder: &Holder| !holder.closed && State::fencing(holder) == Stamp::At(memo.fencing);
    if state.roster.find(of).is_some_and(is_same)
        && let Some(holder) = state.living(of)
    {
        state.touch(&holder, acquire.terms.ttl);
        return state.reply(Reply::Granted(again(&holder, acquire, count)));
    }
    match state.recall(of)? {
        Some(Memo { fate: Fate::Released, .. }) => state.reply(Reply::AlreadyReleased),
        _ => state.reply(Reply::Expired),
    }
}

fn again(holder: &Holder, acquire: &Acquire, count: u32) -> Granted {
    Granted {
        id: holder.id,
        flags: holder.flags,
        digest: holder.digest,
        fencing: State::fencing(holder),
        owner: holder.owner.clone(),
        principal: holder.principal.clone(),
        ttl: acquire.terms.ttl,
        count,
        hold: holder.hold,
        is_new: false,
    }
}

/// The request's place in the queue, if it has one. The roster's revision vouches for it.
fn own_place(state: &mut State<'_>, acquire: &Acquire) -> Result<Option<Waiting>, Pause> {
    if state.roster.waiting == 0 {
        return Ok(None);
    }
    let key = state.lock.waiting(acquire.id);
    state.view.assume_absent(&key);
    state.view.get(&key)?;
    state.waiting(acquire.id)
}

/// A waiter came back: it has its place, and this call is now the one parked for it (L3).
fn rejoin(
    mut state: State<'_>,
    acquire: &Acquire,
    attachment: u64,
    waiting: Waiting,
) -> Result<Decided, Pause> {
    let waiting = Waiting { node: state.context.node, attachment, ..waiting };
    state.view.put(&state.lock.waiting(acquire.id), waiting.encode(), Ttl::Forever);
    state.roster.front.attach(acquire.id, waiting.node, attachment);
    state.change();
    state.hand_over()?;
    state.reply(Reply::Parked)
}

/// A waiter came back with a call that doesn't wait: it takes the lock if nobody comes before, else its place
/// stays with the call that is parked for it.
fn take_own_turn(mut state: State<'_>, acquire: &Acquire, waiting: &Waiting) -> Result<Decided, Pause> {
    let someone_comes_before = state.hand_over()?;
    if state.roster.find(acquire.id).is_some() {
        // Its parked call was first; this one hears the same.
        return replay_grant(state, acquire);
    }
    if state.roster.admits(acquire.terms.mode) && !someone_comes_before {
        // Unless it was forgotten, and has just been dropped.
        if state.waiting(acquire.id)?.is_some() {
            state.dequeue(acquire.id, waiting.place);
        }
        let granted = state.grant(acquire.id, &waiting.terms, Some(waiting))?;
        return state.reply(Reply::Granted(granted));
    }
    refuse(state)
}
