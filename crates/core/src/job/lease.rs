//! An attempt's lease: that somebody runs it. Put once with the attempt, touched by heartbeats, deleted at its end; its time to
//! live is how long nobody is heard of before it is taken for dead. **The revision that made it is the attempt's fencing token.**
//!
//! Layout, version 1: nonce (8), attempt, runner.

use crate::codec::{Decoder, Encoder, Unreadable};
use crate::record::Bytes;
use alloc::string::String;

/// A lease record's value.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Lease {
    /// Random: whoever put it recognises it, also if the answer to that commit got lost.
    pub nonce: u64,
    /// Which attempt.
    pub attempt: u32,
    /// Who runs it.
    pub runner: String,
}

const VERSION: u8 = 1;

impl Lease {
    /// The record's value.
    pub fn encode(&self) -> Bytes {
        let to = Encoder::new(VERSION).fixed(&self.nonce.to_be_bytes()).number(self.attempt.into());
        to.bytes(self.runner.as_bytes()).finish()
    }

    /// Reads a record's value.
    pub fn decode(value: &[u8]) -> Result<Self, Unreadable> {
        let mut from = Decoder::new(value, VERSION)?;
        let lease = Self {
            nonce: u64::from_be_bytes(from.fixed()?),
            attempt: u32::try_from(from.number()?).map_err(|_| Unreadable)?,
            runner: from.string()?,
        };
        from.finish()?;
        Ok(lease)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_lease_is_read_as_it_was_written(nonce: u64, attempt: u32, runner: String) {
            let lease = Lease { nonce, attempt, runner };
            prop_assert_eq!(Lease::decode(&lease.encode()), Ok(lease));
        }

        #[test]
        fn damaged_bytes_are_unreadable_and_never_a_panic(value: Vec<u8>) {
            drop(Lease::decode(&value));
        }
    }
}
