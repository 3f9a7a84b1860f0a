//! What the call that tries can do with its bundle's record. Every rule says whether the bundle is still the call's: `false`
//! means that another call has taken it over, or that it is forgotten, and nothing was changed.
//!
//! Each is told from a repetition of itself by what it leaves behind, so that an unknown outcome is resolved by deciding
//! again.

use super::bundle_key;
use super::record::{Bundle, Nonce, Phase};
use crate::commit::Ttl;
use crate::name::Name;
use crate::view::{Pause, View};
use alloc::vec::Vec;
use core::time::Duration;

/// Everything is held under this nonce: this commit is the one that makes it true.
pub fn seal(name: &Name, by: Nonce, nonce: Nonce, kept: Duration, view: &mut View) -> Result<bool, Pause> {
    let Some(bundle) = found(name, view)?.filter(|bundle| bundle.nonce == nonce) else { return Ok(false) };
    match bundle.phase {
        Phase::Trying { .. } if bundle.by == by => {
            put(name, Bundle { phase: Phase::Held, ..bundle }, kept, view)
        }
        // Its own commit, whose answer got lost; perhaps another call was given it since. It counts, and must not be
        // taken back.
        Phase::Held => {}
        Phase::Trying { .. } | Phase::Resting { .. } => return Ok(false),
    }
    Ok(true)
}

/// The call ends and is to be made again: it waits at one key, and holds none.
pub fn rest(name: &Name, by: Nonce, at: u8, kept: Duration, view: &mut View) -> Result<bool, Pause> {
    let Some(bundle) = own(name, by, view)? else { return Ok(false) };
    match bundle.phase {
        Phase::Trying { .. } => put(name, Bundle { phase: Phase::Resting { at }, ..bundle }, kept, view),
        Phase::Resting { .. } => {}
        Phase::Held => return Ok(false),
    }
    Ok(true)
}

/// Goes on with grants of a fresh nonce, because some under the old one ran out and can't be made again.
pub fn renew(name: &Name, by: Nonce, fresh: Nonce, kept: Duration, view: &mut View) -> Result<bool, Pause> {
    let Some(bundle) = own(name, by, view)? else { return Ok(false) };
    match bundle.phase {
        Phase::Trying { .. } if bundle.nonce == fresh => {}
        Phase::Trying { .. } => {
            let phase = Phase::Trying { stale: Vec::new() };
            put(name, Bundle { nonce: fresh, phase, ..bundle }, kept, view);
        }
        Phase::Resting { .. } | Phase::Held => return Ok(false),
    }
    Ok(true)
}

/// It came to nothing, and nothing is left of it: a refusal isn't remembered.
pub fn close(name: &Name, by: Nonce, view: &mut View) -> Result<(), Pause> {
    if let Some(Bundle { phase: Phase::Trying { .. }, .. }) = own(name, by, view)? {
        view.delete(&bundle_key(name));
    }
    Ok(())
}

/// It was held, but its caller has gone before it heard so: it isn't any more, and what there is is to be taken back, by
/// this call or by the next. Not if another call was given it meanwhile.
pub fn forsake(name: &Name, by: Nonce, kept: Duration, view: &mut View) -> Result<bool, Pause> {
    let Some(bundle) = own(name, by, view)? else { return Ok(false) };
    match bundle.phase {
        Phase::Held => put(name, Bundle { phase: Phase::Trying { stale: Vec::new() }, ..bundle }, kept, view),
        Phase::Trying { .. } => {}
        Phase::Resting { .. } => return Ok(false),
    }
    Ok(true)
}

/// The record, if this call was the last to write it.
fn own(name: &Name, by: Nonce, view: &mut View) -> Result<Option<Bundle>, Pause> {
    Ok(found(name, view)?.filter(|bundle| bundle.by == by))
}

fn found(name: &Name, view: &mut View) -> Result<Option<Bundle>, Pause> {
    Ok(view.get(&bundle_key(name))?.map(|seen| Bundle::decode(&seen.value)).transpose()?)
}

fn put(name: &Name, bundle: Bundle, kept: Duration, view: &mut View) {
    view.put(&bundle_key(name), bundle.encode(), Ttl::AtLeast(kept));
}
