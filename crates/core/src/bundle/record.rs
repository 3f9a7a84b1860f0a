//! A bundle's record.
//!
//! Layout, version 1: phase, digest of the request (8), nonce of the grants (16), nonce of the call (16). Trying (1) adds
//! how many nonces are stale, and these; resting (2) the place of the key it waits at; held (3) nothing.

use crate::codec::{Decoder, Encoder, Unreadable};
use crate::record::Bytes;
use alloc::vec::Vec;

/// Random bytes that nobody else has.
pub type Nonce = [u8; 16];
/// The eight bytes that tell two requests with one id apart.
pub type Digest = [u8; 8];

/// Of more attempts than this that were taken over before anybody withdrew them, the oldest are left to their TTL.
pub const STALE_MAX: usize = 4;

/// A bundle record's value.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Bundle {
    /// Of the request.
    pub digest: Digest,
    /// What the ids of its grants are made of.
    pub nonce: Nonce,
    /// The call that wrote this: each has a nonce of its own, so that it recognizes its own commit.
    pub by: Nonce,
    /// How far it is.
    pub phase: Phase,
}

/// How far a bundle is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Phase {
    /// A call is at it, or died at it: nothing counts yet.
    Trying {
        /// Nonces of attempts that were taken over: what they may have made is to be withdrawn.
        stale: Vec<Nonce>,
    },
    /// A call has ended and is to be made again: nothing is held, and a place in one queue is kept for it.
    Resting {
        /// Which key's, in their order.
        at: u8,
    },
    /// Every lock is the caller's.
    Held,
}

const VERSION: u8 = 1;

impl Bundle {
    /// The record's value.
    pub fn encode(&self) -> Bytes {
        let phase = match self.phase {
            Phase::Trying { .. } => 1,
            Phase::Resting { .. } => 2,
            Phase::Held => 3,
        };
        let to = Encoder::new(VERSION).byte(phase).fixed(&self.digest).fixed(&self.nonce).fixed(&self.by);
        match &self.phase {
            Phase::Trying { stale } => {
                stale.iter().fold(to.number(stale.len() as u64), |to, nonce| to.fixed(nonce))
            }
            Phase::Resting { at } => to.byte(*at),
            Phase::Held => to,
        }
        .finish()
    }

    /// Reads a record's value.
    pub fn decode(value: &[u8]) -> Result<Self, Unreadable> {
        let mut from = Decoder::new(value, VERSION)?;
        let phase = from.byte()?;
        let (digest, nonce, by) = (from.fixed()?, from.fixed()?, from.fixed()?);
        let phase = match phase {
            1 => {
                let count = usize::try_from(from.number()?).map_err(|_| Unreadable)?;
                if count > STALE_MAX {
                    return Err(Unreadable);
                }
                Phase::Trying { stale: (0..count).map(|_| from.fixed()).collect::<Result<_, _>>()? }
            }
            2 => Phase::Resting { at: from.byte()? },
            3 => Phase::Held,
            _ => return Err(Unreadable),
        };
        from.finish()?;
        Ok(Self { digest, nonce, by, phase })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn phase() -> impl Strategy<Value = Phase> {
        prop_oneof![
            proptest::collection::vec(any::<Nonce>(), 0..=STALE_MAX)
                .prop_map(|stale| Phase::Trying { stale }),
            any::<u8>().prop_map(|at| Phase::Resting { at }),
            Just(Phase::Held),
        ]
    }

    proptest! {
        #[test]
        fn a_bundle_is_read_as_it_was_written(digest: Digest, nonce: Nonce, by: Nonce, phase in phase()) {
            let bundle = Bundle { digest, nonce, by, phase };
            prop_assert_eq!(Bundle::decode(&bundle.encode()), Ok(bundle));
        }

        #[test]
        fn damaged_bytes_are_unreadable_and_never_a_panic(value: Vec<u8>) {
            drop(Bundle::decode(&value));
        }
    }
}
