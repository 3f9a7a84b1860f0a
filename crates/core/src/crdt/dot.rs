//! Who made a change, and which one it was.

use crate::codec::{Decoder, Encoder, Unreadable};
use core::fmt;

/// A run of a replica: 128 random bits, made at every start. A directory that was restored from an old copy, or cloned,
/// therefore never makes a dot that was made before.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Actor(pub [u8; 16]);

impl fmt::Debug for Actor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0[..4].iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// Higher numbers are refused from outside: nobody makes as many, and there is room for sums.
pub(super) const DOT_NUMBER_MAX: u64 = 1 << 62;

/// One change: the actor's first is number 1, and it leaves none out.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Dot {
    /// Who made it.
    pub actor: Actor,
    /// Which of its changes, over all rows.
    pub number: u64,
}

impl Dot {
    pub(super) fn encode(self, to: Encoder) -> Encoder {
        to.fixed(&self.actor.0).number(self.number)
    }

    pub(super) fn decode(from: &mut Decoder<'_>) -> Result<Self, Unreadable> {
        let dot = Self { actor: Actor(from.fixed()?), number: from.number()? };
        if (1..=DOT_NUMBER_MAX).contains(&dot.number) { Ok(dot) } else { Err(Unreadable) }
    }
}

impl fmt::Debug for Dot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}:{}", self.actor, self.number)
    }
}
