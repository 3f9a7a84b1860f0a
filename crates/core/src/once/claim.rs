//! Asking for a key: the first caller has it to do, all others hear how far it is.

use super::memo::Memo;
use super::state::{Digest, Done, Running, State};
use super::token::ClaimId;
use super::{memo_key, state_key};
use crate::commit::Ttl;
use crate::lock::name::digest;
use crate::name::Name;
use crate::record::WallTime;
use crate::view::{Pause, Stamp, View};
use alloc::sync::Arc;
use core::time::Duration;

/// What is asked.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Claim {
    /// The request's.
    pub id: ClaimId,
    /// Who asks.
    pub owner: Arc<str>,
    /// How long the claim lasts if it isn't renewed.
    pub ttl: Duration,
}

impl Claim {
    /// Tells requests with other parameters apart.
    fn digest(&self) -> Digest {
        digest(&[self.owner.as_bytes(), &self.ttl.as_millis().to_be_bytes()])
    }
}

/// What is answered.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Claimed {
    /// It is the caller's to do, now or since an earlier try.
    First {
        /// The claim's creation: the fencing token.
        fencing: Stamp,
    },
    /// Somebody is at it.
    Running {
        /// Who, and since when.
        running: Running,
        /// The claim's.
        fencing: Stamp,
        /// What is left of the lease if it isn't renewed.
        expires_in: Duration,
    },
    /// It was done.
    Done {
        /// When, and with which result.
        done: Done,
        /// The claim's.
        fencing: Stamp,
        /// How much longer that is known.
        expires_in: Duration,
    },
    /// The requestId was used with other parameters.
    RequestIdReused,
    /// The request's claim was given up: it isn't made again.
    Lost,
}

/// Claims the key, if nobody has it and it isn't done.
pub fn claim(name: &Name, claim: &Claim, view: &mut View, now: WallTime) -> Result<Claimed, Pause> {
    let (state, memo) = (state_key(name), memo_key(name, claim.id));
    // A first caller finds nothing; whoever doesn't learns from the conflict what there is.
    view.assume_absent(&state);
    let Some(seen) = view.get(&state)? else {
        // A late copy of a commit of the same request is kept out by this check. What isn't checked isn't assumed either:
        // an answer without a commit would wait for it to be found out for ever.
        view.assume_absent(&memo);
        let memo = view.get(&memo)?.map(|seen| Memo::decode(&seen.value)).transpose()?;
        if matches!(memo, Some(Memo::Failed(_))) {
            return Ok(Claimed::Lost);
        }
        let owner = claim.owner.clone();
        let running =
            Running { id: claim.id, digest: claim.digest(), ttl: claim.ttl, claimed_at: now, owner };
        view.put(&state, State::Running(running).encode(), Ttl::Exactly(claim.ttl));
        return Ok(Claimed::First { fencing: Stamp::ThisCommit });
    };
    let (fencing, expires_in) = (seen.created, seen.expires_in.unwrap_or_default());
    Ok(match State::decode(&seen.value)? {
        State::Done(done) => Claimed::Done { done, fencing, expires_in },
        State::Running(running) if running.id != claim.id => {
            Claimed::Running { running, fencing, expires_in }
        }
        State::Running(running) if running.digest != claim.digest() => Claimed::RequestIdReused,
        State::Running(_) => {
            view.touch(&state, claim.ttl);
            Claimed::First { fencing }
        }
    })
}

/// Makes sure that a commit of this request that may still be under way comes to nothing: late, it could make a claim
/// that nobody knows of. What has become of the request is then for [`claim`] to find out.
pub fn void(name: &Name, id: ClaimId, memory: Duration, view: &mut View) -> Result<(), Pause> {
    let memo = memo_key(name, id);
    view.assume_absent(&memo);
    let seen = view.get(&memo)?.map(|seen| Memo::decode(&seen.value)).transpose()?;
    // Also over another one: the late commit may have been decided on that, and check that it is the same still.
    if !matches!(seen, Some(Memo::Failed(_))) {
        view.put(&memo, Memo::Void.encode(), Ttl::AtLeast(memory));
    }
    Ok(())
}
