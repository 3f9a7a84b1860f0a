//! Checking a token, and forgetting a fence.

use super::fence_key;
use super::record::{Fence, Tally};
use crate::commit::Ttl;
use crate::lock::name::digest;
use crate::name::Name;
use crate::record::WallTime;
use crate::view::{Pause, View};

/// What is asked.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Check {
    /// The token.
    pub token: u64,
    /// Whether it must be higher than any before.
    pub strict: bool,
    /// The request's: the same check sent again has the same.
    pub id: [u8; 16],
    /// Checks that were counted and not written yet: they are, if something is.
    pub unwritten: Tally,
}

/// What is answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Checked {
    /// No higher token was seen.
    Accepted {
        /// Whether it is higher than any before, and was written down with the unwritten counts.
        raised: bool,
    },
    /// A higher token was seen, or the same in a strict check.
    Stale {
        /// The highest.
        highest: u64,
    },
}

/// What the same check sent again has in common: a hash of (namespace, resource, principal, token, requestId).
pub fn check_id(name: &Name, principal: &str, token: u64, request_id: &str) -> [u8; 16] {
    digest(&[name.path(), principal.as_bytes(), b"fence", &token.to_be_bytes(), request_id.as_bytes()])
}

/// Accepts a token that isn't lower than any before (higher, if strict), and remembers it.
pub fn check(name: &Name, check: &Check, view: &mut View, now: WallTime) -> Result<Checked, Pause> {
    let key = fence_key(name);
    let seen = view.get(&key)?;
    let fence = seen.map(|seen| Fence::decode(&seen.value)).transpose()?;
    let mut tally = check.unwritten;
    if let Some(fence) = fence {
        let highest = fence.highest;
        if check.token < highest {
            return Ok(Checked::Stale { highest });
        }
        if check.token == highest {
            // A strict check may be heard twice: its own token isn't stale to it.
            let is_stale = check.strict && fence.raised_by != check.id;
            return Ok(match is_stale {
                true => Checked::Stale { highest },
                false => Checked::Accepted { raised: false },
            });
        }
        tally = tally.plus(fence.tally);
    }
    tally.accepted = tally.accepted.saturating_add(1);
    let fence = Fence { highest: check.token, raised_by: check.id, raised_at: now, tally };
    view.put(&key, fence.encode(), Ttl::Forever);
    Ok(Checked::Accepted { raised: true })
}

/// Forgets a fence. Gives what it was; nothing if there is none.
pub fn forget(name: &Name, view: &mut View) -> Result<Option<Fence>, Pause> {
    let key = fence_key(name);
    let seen = view.get(&key)?;
    let fence = seen.map(|seen| Fence::decode(&seen.value)).transpose()?;
    if fence.is_some() {
        view.delete(&key);
    }
    Ok(fence)
}
