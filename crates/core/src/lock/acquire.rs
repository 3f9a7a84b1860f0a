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
    if let Some(holder) = &state.roster.holder
        && holder.id == acquire.id
    {
        return replay_grant(state, acquire);
    }
    let waiting = own_place(&mut state, acquire)?;
    if let Some(waiting) = &waiting
        && waiting.terms.digest() != acquire.digest
    {
        return state.reply(Reply::RequestIdReused);
    }
    if acquire.attachment.is_none() {
        // A refusal shows when the lease ends, so that the grant has to be read anyway.
        state.evict_if_expired()?;
    } else if state.roster.holder.is_some() && state.holder().is_none() {
        state.evict();
    }
    if let Some(waiting) = waiting {
        return match acquire.attachment {
            Some(attachment) => rejoin(state, acquire, attachment, waiting),
            None => take_own_turn(state, acquire, &waiting),
        };
    }
    if let Some(holder) = state.roster.holder.clone()
        && acquire.terms.reentrant
        && holder.flags.reentrant
        && holder.owner == acquire.terms.owner
        && holder.principal == acquire.terms.principal
    {
        return nest(state, acquire, holder);
    }
    take_or_wait(state, acquire)
}

/// The queue comes first; then the caller takes the lock if it is free, or waits if it wants to.
fn take_or_wait(mut state: State<'_>, acquire: &Acquire) -> Result<Decided, Pause> {
    let someone_comes_before = state.hand_over()?;
    if state.roster.holder.is_none() && !someone_comes_before {
        let granted = state.grant(acquire.id, &acquire.terms, None)?;
        return state.reply(Reply::Granted(granted));
    }
    let Some(attachment) = acquire.attachment else {
        let held = state.held()?;
        return state.reply(Reply::Held(held));
    };
    if state.roster.waiting >= state.context.queue_max {
        let held = state.held()?;
        return state.reply(Reply::QueueFull(held));
    }
    state.enqueue(acquire.id, &acquire.terms, attachment)?;
    state.reply(Reply::Parked)
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
    let Some(mut holder) = state.holder() else {
        // Its own lease ran out: that is the answer, and the next in the queue gets the lock.
        let same = state.roster.holder.as_ref().is_some_and(|holder| holder.digest == acquire.digest);
        state.evict();
        state.hand_over()?;
        return state.reply(if same { Reply::Expired } else { Reply::RequestIdReused });
    };
    if holder.digest != acquire.digest {
        return state.reply(Reply::RequestIdReused);
    }
    state.view.touch(&state.lock.grant(holder.id), acquire.terms.ttl);
    if !holder.replayed {
        holder.replayed = true;
        state.roster.holder = Some(holder.clone());
        state.change();
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
    state.view.touch(&state.lock.grant(holder.id), acquire.terms.ttl);
    state.roster.holder = Some(holder.clone());
    state.change();
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
    let is_same = |holder: &Holder| holder.id == of && State::fencing(holder) == Stamp::At(memo.fencing);
    if state.roster.holder.as_ref().is_some_and(is_same)
        && let Some(holder) = state.holder()
    {
        state.view.touch(&state.lock.grant(of), acquire.terms.ttl);
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
    state.change();
    state.hand_over()?;
    state.reply(Reply::Parked)
}

/// A waiter came back with a call that doesn't wait: it takes the lock if nobody comes before, else its place
/// stays with the call that is parked for it.
fn take_own_turn(mut state: State<'_>, acquire: &Acquire, waiting: &Waiting) -> Result<Decided, Pause> {
    let someone_comes_before = state.hand_over()?;
    match &state.roster.holder {
        // Its parked call was first; this one hears the same.
        Some(holder) if holder.id == acquire.id => return replay_grant(state, acquire),
        None if !someone_comes_before => {
            // Unless it was forgotten, and has just been dropped.
            if state.waiting(acquire.id)?.is_some() {
                state.dequeue(acquire.id, waiting.place);
            }
            let granted = state.grant(acquire.id, &waiting.terms, Some(waiting))?;
            return state.reply(Reply::Granted(granted));
        }
        _ => {}
    }
    let held = state.held()?;
    state.reply(Reply::Held(held))
}
