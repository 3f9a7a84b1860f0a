//! Release: by the holder only, counted once, and the next in the queue has the lock in the same commit (L4).

use super::command::{Context, Decided, End, Release, Reply};
use super::election;
use super::grant::Digest;
use super::memo::{Fate, Memo};
use super::mode::Hold;
use super::name::{GrantId, LockName, digest};
use super::roster::{Holder, Roster};
use super::state::State;
use crate::record::{Record, Revision, WallTime};
use crate::view::{Pause, Stamp, View};
use alloc::vec;
use core::time::Duration;

pub(super) fn decide(
    lock: &LockName,
    release: &Release,
    view: &mut View,
    context: &Context<'_>,
) -> Result<Decided, Pause> {
    // Whoever names a successor knows of others, and the guess, which leaves out what the release would end, must not
    // outlive a refusal.
    if release.token.flags.alone && release.successor.is_none() {
        guess_roster(lock, release, view);
    }
    let fencing = Revision(release.token.fencing.0);
    let mut state = State::open(lock, view, context)?;
    if let Some(id) = release.id
        && let Some(memo) = state.recall(id)?
        && memo.fate != Fate::Void
    {
        let same = memo.digest == digest_of(release);
        return state.reply(if same { Reply::Released } else { Reply::RequestIdReused });
    }
    let is_holder = |holder: &Holder| !holder.closed && State::fencing(holder) == Stamp::At(fencing);
    if !state.roster.find(release.token.id).is_some_and(is_holder) {
        return after_the_end(state, release, fencing);
    }
    let Some(mut holder) = state.living(release.token.id) else {
        state.evict(release.token.id)?;
        state.hand_over()?;
        return state.reply(Reply::Expired);
    };
    if let Some(successor) = &release.successor
        && !election::favour(&mut state, successor)?
    {
        return state.reply(Reply::NoSuchSuccessor);
    }
    if let Some(id) = release.id {
        state.remember(id, Fate::Counted, Stamp::At(fencing), digest_of(release), &release.owner);
    }
    if holder.count > 1 {
        holder.count -= 1;
        state.replace(holder);
        return state.reply(Reply::Released);
    }
    state.end(release.token.id, End::Released, Fate::Released);
    state.hand_over()?;
    state.reply(Reply::Released)
}

/// The grant isn't the holder's any more: was it given back, or lost?
fn after_the_end(mut state: State<'_>, release: &Release, fencing: Revision) -> Result<Decided, Pause> {
    match state.recall(release.token.id)? {
        Some(Memo { fate: Fate::Released, fencing: ended, .. }) if ended == fencing => {
            state.reply(Reply::Released)
        }
        _ => state.reply(Reply::Expired),
    }
}

/// The guess that makes an uncontended release one round trip. If the roster has the revision of the grant's own
/// commit, and nobody was queued then, it says this grant and nothing else.
fn guess_roster(lock: &LockName, release: &Release, view: &mut View) {
    let revision = Revision(release.token.fencing.0);
    let holder = Holder {
        id: release.token.id,
        digest: release.token.digest,
        owner: release.owner.clone(),
        principal: release.principal.clone(),
        // Not known; the grant that is deleted says it.
        granted_at: WallTime(0),
        count: 1,
        flags: release.token.flags,
        replayed: false,
        closed: false,
        // Only these are alone.
        hold: Hold::Exclusive,
        // Not known either, and of no interest to what ends.
        delay: Duration::ZERO,
        fencing: None,
    };
    let roster = Roster { holders: vec![holder], ..Roster::default() };
    let key = lock.roster();
    let value = roster.encode();
    let record =
        Record { key: key.clone(), value, created: revision, revision, touches: 0, expires_in: None };
    view.assume(&key, Some(record));
}

/// Tells releases with one requestId but other tokens or successors apart.
fn digest_of(release: &Release) -> Digest {
    let (id, fencing) = (&release.token.id.0[..], release.token.fencing.0.to_be_bytes());
    match &release.successor {
        None => digest(&[id, &fencing]),
        Some(successor) => digest(&[id, &fencing, successor.as_bytes()]),
    }
}

/// Takes back a grant that couldn't be delivered, unless it was given out again.
pub(super) fn undo(mut state: State<'_>, id: GrantId, fencing: Revision) -> Result<Decided, Pause> {
    let undoable = |holder: &Holder| {
        !holder.closed
            && !holder.replayed
            && holder.count == 1
            && State::fencing(holder) == Stamp::At(fencing)
    };
    if state.roster.find(id).is_some_and(undoable) {
        match state.living(id) {
            Some(_) => state.end(id, End::Undelivered, Fate::Void),
            None => state.evict(id)?,
        }
        state.hand_over()?;
    }
    state.reply(Reply::Left)
}
