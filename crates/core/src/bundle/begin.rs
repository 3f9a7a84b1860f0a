//! The beginning of every call of a bundle's request: it starts, resumes, takes over or repeats.

use super::bundle_key;
use super::record::{Bundle, Digest, Nonce, Phase, STALE_MAX};
use crate::commit::Ttl;
use crate::lock::grant::Terms;
use crate::lock::name::digest;
use crate::name::Name;
use crate::view::{Pause, View};
use alloc::vec;
use alloc::vec::Vec;
use core::time::Duration;

/// What is asked.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Begin {
    /// Of the request: see [`digest_of`].
    pub digest: Digest,
    /// The call's own, and its grants' if they are to be new.
    pub fresh: Nonce,
    /// How long the record is kept, unless the call says something else before.
    pub kept: Duration,
}

/// What is answered.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Begun {
    /// The call is the one that tries now.
    Trying {
        /// What the ids of its grants are made of.
        nonce: Nonce,
        /// What earlier calls' were made of, that may still be at it: to be withdrawn before anything else.
        stale: Vec<Nonce>,
        /// Where a place in a queue is kept for it.
        at: Option<u8>,
    },
    /// It is held, since an earlier call: the grants under this nonce, or what became of them, are the answer.
    Held {
        /// What their ids are made of.
        nonce: Nonce,
    },
    /// The requestId was used with other parameters.
    RequestIdReused,
}

/// Tells requests with other parameters apart; the order of the keys is none. `keys` are sorted.
pub fn digest_of(terms: &Terms, keys: &[&str]) -> Digest {
    let terms = terms.digest();
    let mut parts = vec![&terms[..]];
    parts.extend(keys.iter().map(|key| key.as_bytes()));
    digest(&parts)
}

/// Makes this call the one that tries, unless the bundle is held.
///
/// A call that was trying before can't seal any more: its record isn't there. What it did, or does yet, is withdrawn by
/// this one, under the nonces that it is told.
pub fn begin(name: &Name, begin: &Begin, view: &mut View) -> Result<Begun, Pause> {
    let key = bundle_key(name);
    // A first call finds nothing; whoever doesn't learns from the conflict what there is.
    view.assume_absent(&key);
    let found = view.get(&key)?.map(|seen| Bundle::decode(&seen.value)).transpose()?;
    let Begin { digest, fresh, kept } = begin.clone();
    if found.as_ref().is_some_and(|found| found.digest != digest) {
        return Ok(Begun::RequestIdReused);
    }
    let (nonce, stale, at) = match found {
        None => (fresh, Vec::new(), None),
        Some(Bundle { nonce, by, phase: Phase::Trying { stale }, .. }) if by == fresh => {
            // Its own commit, whose answer got lost. A resumed one doesn't hear its place again, and waits as any other.
            return Ok(Begun::Trying { nonce, stale, at: None });
        }
        Some(Bundle { nonce, phase: Phase::Trying { mut stale }, .. }) => {
            stale.push(nonce);
            let excess = stale.len().saturating_sub(STALE_MAX);
            stale.drain(..excess);
            (fresh, stale, None)
        }
        Some(Bundle { nonce, phase: Phase::Resting { at }, .. }) => (nonce, Vec::new(), Some(at)),
        Some(found @ Bundle { nonce, by, phase: Phase::Held, .. }) => {
            if by != fresh {
                // Written anew, so that the call it was made for can't take it back as undelivered.
                view.put(&key, Bundle { by: fresh, ..found }.encode(), Ttl::AtLeast(kept));
            }
            return Ok(Begun::Held { nonce });
        }
    };
    let phase = Phase::Trying { stale: stale.clone() };
    view.put(&key, Bundle { digest, nonce, by: fresh, phase }.encode(), Ttl::AtLeast(kept));
    Ok(Begun::Trying { nonce, stale, at })
}
