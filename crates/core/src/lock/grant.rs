//! The grant: the lease itself. Put once, touched, deleted; never rewritten, so its creation is its identity.
//!
//! Layout, version 1: flags, ttl in ms, granted at, owner, principal. Version 2, for all but a plain exclusive grant, adds
//! how it is held, the lock-delay in ms, whether there is metadata, and the metadata.

use super::mode::{Hold, Mode};
use super::name::{Principal, digest};
use crate::codec::{Decoder, Encoder, Unreadable};
use crate::record::{Bytes, WallTime};
use alloc::sync::Arc;
use core::time::Duration;

/// What a release has to know about a grant before it looks.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Flags {
    /// Releases are counted, and need a requestId.
    pub reentrant: bool,
    /// It wasn't queued, and nobody was when it was granted: a roster that hasn't changed since says just this
    /// grant, so a release may guess it instead of reading it.
    pub alone: bool,
    /// It has a lock-delay: a record beside it has to be touched and deleted with it.
    pub delayed: bool,
}

impl Flags {
    pub(super) fn bits(self) -> u8 {
        u8::from(self.reentrant) | u8::from(self.alone) << 1 | u8::from(self.delayed) << 2
    }

    pub(super) fn from_bits(bits: u8) -> Option<Self> {
        let (reentrant, alone, delayed) = (bits & 1 != 0, bits & 2 != 0, bits & 4 != 0);
        (bits < 8).then_some(Self { reentrant, alone, delayed })
    }
}

/// The eight bytes that tell two requests with one id apart.
pub type Digest = [u8; 8];

/// What somebody asked for, apart from how long to wait for it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Terms {
    /// Who.
    pub owner: Arc<str>,
    /// As whom.
    pub principal: Principal,
    /// For how long.
    pub ttl: Duration,
    /// Whether the owner may acquire it again.
    pub reentrant: bool,
    /// Shown in the lock's status; compact JSON.
    pub metadata: Option<Bytes>,
    /// How to hold it.
    pub mode: Mode,
    /// For how long it stays closed if the lease runs out (L14).
    pub delay: Duration,
}

impl Terms {
    /// Tells requests with other parameters apart.
    pub fn digest(&self) -> Digest {
        let ttl_ms = self.ttl.as_millis().to_be_bytes();
        let flags = [u8::from(self.reentrant), u8::from(self.metadata.is_some())];
        let metadata = self.metadata.as_deref().unwrap_or_default();
        let (mode, delay_ms) = (self.mode.number().to_be_bytes(), self.delay.as_millis().to_be_bytes());
        // Requests without either have the digest that they had before there was either.
        match (self.mode, self.delay) {
            (Mode::Exclusive, Duration::ZERO) => digest(&[self.owner.as_bytes(), &ttl_ms, &flags, metadata]),
            _ => digest(&[self.owner.as_bytes(), &ttl_ms, &flags, metadata, &mode, &delay_ms]),
        }
    }
}

/// A grant record's value.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Grant {
    /// What its release has to know.
    pub flags: Flags,
    /// The lease's length.
    pub ttl: Duration,
    /// For display.
    pub granted_at: WallTime,
    /// Whose.
    pub owner: Arc<str>,
    /// Whose, as far as authentication goes.
    pub principal: Principal,
    /// How it is held.
    pub hold: Hold,
    /// For how long the lock stays closed if the lease runs out.
    pub delay: Duration,
    /// Of one holder among several; a lone holder's is in the roster, where it can be changed.
    pub metadata: Option<Bytes>,
}

const NEWEST: u8 = 2;

impl Grant {
    /// The record's value.
    pub fn encode(&self) -> Bytes {
        let is_plain = self.hold == Hold::Exclusive && self.delay.is_zero() && self.metadata.is_none();
        let to = Encoder::new(if is_plain { 1 } else { NEWEST })
            .byte(self.flags.bits())
            .number(self.ttl.as_millis() as u64)
            .number(self.granted_at.0)
            .bytes(self.owner.as_bytes())
            .bytes(self.principal.as_bytes());
        if is_plain {
            return to.finish();
        }
        to.number(self.hold.number())
            .number(self.delay.as_millis() as u64)
            .byte(u8::from(self.metadata.is_some()))
            .bytes(self.metadata.as_deref().unwrap_or_default())
            .finish()
    }

    /// Reads a record's value.
    pub fn decode(value: &[u8]) -> Result<Self, Unreadable> {
        let (version, mut from) = Decoder::versioned(value, NEWEST)?;
        let mut grant = Self {
            flags: Flags::from_bits(from.byte()?).ok_or(Unreadable)?,
            ttl: Duration::from_millis(from.number()?),
            granted_at: from.time()?,
            owner: from.text()?,
            principal: from.text()?,
            hold: Hold::Exclusive,
            delay: Duration::ZERO,
            metadata: None,
        };
        if version > 1 {
            grant.hold = Hold::from_number(from.number()?)?;
            grant.delay = Duration::from_millis(from.number()?);
            let has_metadata = from.byte()? != 0;
            let metadata = from.bytes()?;
            grant.metadata = has_metadata.then(|| metadata.into());
        }
        from.finish()?;
        Ok(grant)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_grant_is_read_as_it_was_written(
            bits in 0..8_u8, ms: [u32; 2], at: u64, owner: String, who: String, hold in 0..300_u64, metadata: Option<Vec<u8>>,
        ) {
            let grant = Grant {
                flags: Flags::from_bits(bits).unwrap(),
                ttl: Duration::from_millis(ms[0].into()),
                granted_at: WallTime(at),
                owner: owner.as_str().into(),
                principal: who.as_str().into(),
                hold: Hold::from_number(hold).unwrap(),
                delay: Duration::from_millis(ms[1].into()),
                metadata: metadata.map(Into::into),
            };
            prop_assert_eq!(Grant::decode(&grant.encode()), Ok(grant));
        }
    }

    use alloc::string::String;
    use alloc::vec::Vec;

    #[test]
    fn a_plain_exclusive_grant_is_written_as_it_always_was() {
        let value = [1, 2, 0xe8, 7, 5, 1, b'o', 1, b'p'];
        let grant = Grant {
            flags: Flags { alone: true, ..Flags::default() },
            ttl: Duration::from_secs(1),
            granted_at: WallTime(5),
            owner: "o".into(),
            principal: "p".into(),
            hold: Hold::Exclusive,
            delay: Duration::ZERO,
            metadata: None,
        };
        assert_eq!(*grant.encode(), value);
        assert_eq!(Grant::decode(&value), Ok(grant));
    }

    #[test]
    fn requests_with_other_parameters_have_other_digests() {
        let base = Terms {
            owner: "a".into(),
            principal: "".into(),
            ttl: Duration::from_secs(1),
            reentrant: false,
            metadata: None,
            mode: Mode::Exclusive,
            delay: Duration::ZERO,
        };
        let others = [
            Terms { mode: Mode::Shared, ..base.clone() },
            Terms { mode: Mode::Semaphore { permits: 1 }, ..base.clone() },
            Terms { mode: Mode::Semaphore { permits: 2 }, ..base.clone() },
            Terms { delay: Duration::from_secs(1), ..base.clone() },
            Terms { owner: "b".into(), ..base.clone() },
            Terms { ttl: Duration::from_secs(2), ..base.clone() },
            Terms { reentrant: true, ..base.clone() },
            Terms { metadata: Some(b"{}"[..].into()), ..base.clone() },
            Terms { metadata: Some(b""[..].into()), ..base.clone() },
        ];
        for other in others {
            assert_ne!(base.digest(), other.digest(), "{other:?}");
        }
    }
}
