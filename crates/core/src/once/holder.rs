//! What whoever has the claim can do with it: complete it, renew it, give it up.
//!
//! All three start from the guess that the claim runs, which its token is enough to check, so that each is one round
//! trip to the store.

use super::memo::Memo;
use super::state::{Done, Running, State};
use super::token::{ClaimId, ClaimToken};
use super::{memo_key, state_key};
use crate::commit::Ttl;
use crate::name::Name;
use crate::record::{Bytes, Record, Revision, WallTime};
use crate::view::{Pause, Stamp, View};
use core::time::Duration;

/// What came of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ended {
    /// It was done as asked, now or by an earlier try.
    Yes,
    /// The claim ran out or was given up, and nothing was changed.
    Lost,
    /// The claim was completed before, with a result of its own, and nothing was changed.
    AlreadyCompleted,
}

/// Stores the result, and keeps it for `kept`.
pub fn complete(
    name: &Name,
    token: &ClaimToken,
    result: &Bytes,
    kept: Duration,
    view: &mut View,
    now: WallTime,
) -> Result<Ended, Pause> {
    Ok(match standing(name, token, view)? {
        Standing::Running => {
            let done = State::Done(Done { completed_at: now, result: result.clone() });
            view.put(&state_key(name), done.encode(), Ttl::Exactly(kept));
            Ended::Yes
        }
        Standing::Completed(done) if done.result == *result => Ended::Yes,
        Standing::Completed(_) => Ended::AlreadyCompleted,
        Standing::Lost => Ended::Lost,
    })
}

/// Makes the claim last: until `ttl` from now, or as long as it would have anyway.
pub fn renew(name: &Name, token: &ClaimToken, ttl: Duration, view: &mut View) -> Result<Ended, Pause> {
    Ok(match standing(name, token, view)? {
        Standing::Running => {
            view.touch(&state_key(name), ttl);
            Ended::Yes
        }
        Standing::Completed(_) => Ended::AlreadyCompleted,
        Standing::Lost => Ended::Lost,
    })
}

/// Gives the claim up: the next caller is first.
pub fn fail(name: &Name, token: &ClaimToken, memory: Duration, view: &mut View) -> Result<Ended, Pause> {
    let fencing = Revision(token.fencing.0);
    let memo = memo_key(name, token.id);
    Ok(match standing(name, token, view)? {
        Standing::Running => {
            view.delete(&state_key(name));
            view.put(&memo, Memo::Failed(fencing).encode(), Ttl::AtLeast(memory));
            Ended::Yes
        }
        Standing::Completed(_) => Ended::AlreadyCompleted,
        Standing::Lost => {
            let seen = view.get(&memo)?.map(|seen| Memo::decode(&seen.value)).transpose()?;
            if seen == Some(Memo::Failed(fencing)) { Ended::Yes } else { Ended::Lost }
        }
    })
}

enum Standing {
    Running,
    Completed(Done),
    Lost,
}

/// How the token's claim stands.
fn standing(name: &Name, token: &ClaimToken, view: &mut View) -> Result<Standing, Pause> {
    let (state, fencing) = (state_key(name), Revision(token.fencing.0));
    view.assume(&state, Some(guess(name, fencing)));
    let Some(seen) = view.get(&state)?.filter(|seen| seen.created == Stamp::At(fencing)) else {
        return Ok(Standing::Lost);
    };
    Ok(match State::decode(&seen.value)? {
        State::Running(_) => Standing::Running,
        State::Done(done) => Standing::Completed(done),
    })
}

/// A running claim is never rewritten, so its creation is its revision. What it says is not known, nor asked for.
fn guess(name: &Name, fencing: Revision) -> Record {
    let running = Running {
        id: ClaimId([0; 16]),
        digest: [0; 8],
        ttl: Duration::ZERO,
        claimed_at: WallTime(0),
        owner: "".into(),
    };
    Record {
        key: state_key(name),
        value: State::Running(running).encode(),
        created: fencing,
        revision: fencing,
        touches: 0,
        expires_in: None,
    }
}
