//! A waiter: what it asked for, its place, and which call on which node is parked for it.
//!
//! Layout, version 1: place, node, attachment, since, ttl in ms, flags (reentrant, metadata), owner, principal,
//! metadata.

use super::command::NodeId;
use super::grant::Terms;
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

const VERSION: u8 = 1;

impl Waiting {
    /// The record's value.
    pub fn encode(&self) -> Bytes {
        let Terms { owner, principal, ttl, reentrant, metadata } = &self.terms;
        Encoder::new(VERSION)
            .number(self.place)
            .number(self.node.0)
            .number(self.attachment)
            .number(self.since.0)
            .number(ttl.as_millis() as u64)
            .byte(u8::from(*reentrant) | u8::from(metadata.is_some()) << 1)
            .bytes(owner.as_bytes())
            .bytes(principal.as_bytes())
            .bytes(metadata.as_deref().unwrap_or_default())
            .finish()
    }

    /// Reads a record's value.
    pub fn decode(value: &[u8]) -> Result<Self, Unreadable> {
        let mut from = Decoder::new(value, VERSION)?;
        let (place, node, attachment) = (from.number()?, NodeId(from.number()?), from.number()?);
        let since = from.time()?;
        let ttl = Duration::from_millis(from.number()?);
        let flags = from.byte()?;
        let (owner, principal) = (from.text()?, from.text()?);
        let metadata = from.bytes()?;
        let metadata = (flags & 2 != 0).then(|| metadata.into());
        from.finish()?;
        let terms = Terms { owner, principal, ttl, reentrant: flags & 1 != 0, metadata };
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
            numbers: [u64; 4], ms: u32, owner: String, principal: String, reentrant: bool, metadata: Option<Vec<u8>>,
        ) {
            let [place, node, attachment, since] = numbers;
            let terms = Terms {
                owner: owner.as_str().into(),
                principal: principal.as_str().into(),
                ttl: Duration::from_millis(ms.into()),
                reentrant,
                metadata: metadata.map(Into::into),
            };
            let waiting = Waiting { place, node: NodeId(node), attachment, since: WallTime(since), terms };
            prop_assert_eq!(Waiting::decode(&waiting.encode()), Ok(waiting));
        }
    }
}
