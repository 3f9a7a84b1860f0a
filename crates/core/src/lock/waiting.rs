//! A waiter: what it asked for, its place, and which call on which node is parked for it.
//!
//! Layout, version 1: place, node, attachment, since, ttl in ms, flags (reentrant, metadata), owner, principal,
//! metadata. Version 2, for all but a plain exclusive lock, adds the mode and the lock-delay in ms.

use super::command::NodeId;
use super::grant::Terms;
use super::mode::Mode;
use crate::codec::{Decoder, Encoder, Unreadable};
use crate::record::{Bytes, WallTime};
use core::time::Duration;

/// A waiting record's value.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Waiting {
    /// Its place in the queue; lower comes first.
    pub place: u64,
    /// Where its call is parked; [`NodeId::NONE`] when it has none.
    pub node: NodeId,
    /// Which call: only that one may leave for it.
    pub attachment: u64,
    /// For display.
    pub since: WallTime,
    /// What it asked for.
    pub terms: Terms,
}

const NEWEST: u8 = 2;

impl Waiting {
    /// The record's value.
    pub fn encode(&self) -> Bytes {
        let Terms { owner, principal, ttl, reentrant, metadata, mode, delay } = &self.terms;
        let is_plain = *mode == Mode::Exclusive && delay.is_zero();
        let to = Encoder::new(if is_plain { 1 } else { NEWEST })
            .number(self.place)
            .number(self.node.0)
            .number(self.attachment)
            .number(self.since.0)
            .number(ttl.as_millis() as u64)
            .byte(u8::from(*reentrant) | u8::from(metadata.is_some()) << 1)
            .bytes(owner.as_bytes())
            .bytes(principal.as_bytes())
            .bytes(metadata.as_deref().unwrap_or_default());
        if is_plain {
            to.finish()
        } else {
            to.number(mode.number()).number(delay.as_millis() as u64).finish()
        }
    }

    /// Reads a record's value.
    pub fn decode(value: &[u8]) -> Result<Self, Unreadable> {
        let (version, mut from) = Decoder::versioned(value, NEWEST)?;
        let (place, node, attachment) = (from.number()?, NodeId(from.number()?), from.number()?);
        let since = from.time()?;
        let ttl = Duration::from_millis(from.number()?);
        let flags = from.byte()?;
        let (owner, principal) = (from.text()?, from.text()?);
        let metadata = from.bytes()?;
        let metadata = (flags & 2 != 0).then(|| metadata.into());
        let (mut mode, mut delay) = (Mode::Exclusive, Duration::ZERO);
        if version > 1 {
            mode = Mode::from_number(from.number()?)?;
            delay = Duration::from_millis(from.number()?);
        }
        from.finish()?;
        let terms = Terms { owner, principal, ttl, reentrant: flags & 1 != 0, metadata, mode, delay };
        Ok(Self { place, node, attachment, since, terms })
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
        fn a_waiter_is_read_as_it_was_written(
            numbers: [u64; 4], ms: [u32; 2], names: [String; 2], reentrant: bool, metadata: Option<Vec<u8>>, mode in 0..4_u64,
        ) {
            let [place, node, attachment, since] = numbers;
            let terms = Terms {
                owner: names[0].as_str().into(),
                principal: names[1].as_str().into(),
                ttl: Duration::from_millis(ms[0].into()),
                reentrant,
                metadata: metadata.map(Into::into),
                mode: Mode::from_number(if mode == 2 { 7 } else { mode }).unwrap(),
                delay: Duration::from_millis(if mode == 0 { 0 } else { ms[1].into() }),
            };
            let waiting = Waiting { place, node: NodeId(node), attachment, since: WallTime(since), terms };
            prop_assert_eq!(Waiting::decode(&waiting.encode()), Ok(waiting));
        }
    }
}
