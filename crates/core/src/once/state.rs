//! The state of a key: claimed and running, or done.
//!
//! Layout, version 1: a byte that says which. Running (1): claim id (16), digest of the request (8), ttl in ms, claimed
//! at, owner. Done (2): completed at, result.

use super::token::ClaimId;
use crate::codec::{Decoder, Encoder, Unreadable};
use crate::record::{Bytes, WallTime};
use alloc::sync::Arc;
use core::time::Duration;

/// The eight bytes that tell two requests with one id apart.
pub type Digest = [u8; 8];

/// A state record's value.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum State {
    /// Somebody is at it.
    Running(Running),
    /// It was done.
    Done(Done),
}

/// A claim that was made and lives.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Running {
    /// The request's that made it.
    pub id: ClaimId,
    /// Of that request.
    pub digest: Digest,
    /// The lease's length.
    pub ttl: Duration,
    /// For display.
    pub claimed_at: WallTime,
    /// Whose.
    pub owner: Arc<str>,
}

/// What came of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Done {
    /// For display.
    pub completed_at: WallTime,
    /// As it was given.
    pub result: Bytes,
}

const VERSION: u8 = 1;

impl State {
    /// The record's value.
    pub fn encode(&self) -> Bytes {
        let to = Encoder::new(VERSION);
        match self {
            Self::Running(running) => to
                .byte(1)
                .fixed(&running.id.0)
                .fixed(&running.digest)
                .number(running.ttl.as_millis() as u64)
                .number(running.claimed_at.0)
                .bytes(running.owner.as_bytes()),
            Self::Done(done) => to.byte(2).number(done.completed_at.0).bytes(&done.result),
        }
        .finish()
    }

    /// Reads a record's value.
    pub fn decode(value: &[u8]) -> Result<Self, Unreadable> {
        let mut from = Decoder::new(value, VERSION)?;
        let state = match from.byte()? {
            1 => Self::Running(Running {
                id: ClaimId(from.fixed()?),
                digest: from.fixed()?,
                ttl: Duration::from_millis(from.number()?),
                claimed_at: from.time()?,
                owner: from.text()?,
            }),
            2 => Self::Done(Done { completed_at: from.time()?, result: from.bytes()?.into() }),
            _ => return Err(Unreadable),
        };
        from.finish()?;
        Ok(state)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::String;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_state_is_read_as_it_was_written(id: [u8; 16], digest: [u8; 8], ms: u32, at: u64, owner: String,
                                             result: Vec<u8>) {
            let (ttl, at) = (Duration::from_millis(ms.into()), WallTime(at));
            let running = Running { id: ClaimId(id), digest, ttl, claimed_at: at, owner: owner.as_str().into() };
            let done = Done { completed_at: at, result: result.into() };
            for state in [State::Running(running), State::Done(done)] {
                prop_assert_eq!(State::decode(&state.encode()), Ok(state));
            }
        }

        #[test]
        fn damaged_bytes_are_unreadable_and_never_a_panic(value: Vec<u8>) {
            drop(State::decode(&value));
        }
    }
}
