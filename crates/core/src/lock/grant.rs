//! The grant: the lease itself. Put once, touched, deleted; never rewritten, so its creation is its identity.
//!
//! Layout, version 1: flags, ttl in ms, granted at, owner, principal.

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
}

impl Flags {
    pub(super) fn bits(self) -> u8 {
        u8::from(self.reentrant) | u8::from(self.alone) << 1
    }

    pub(super) fn from_bits(bits: u8) -> Option<Self> {
        (bits < 4).then_some(Self { reentrant: bits & 1 != 0, alone: bits & 2 != 0 })
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
}

impl Terms {
    /// Tells requests with other parameters apart.
    pub fn digest(&self) -> Digest {
        let ttl_ms = self.ttl.as_millis().to_be_bytes();
        let flags = [u8::from(self.reentrant), u8::from(self.metadata.is_some())];
        digest(&[self.owner.as_bytes(), &ttl_ms, &flags, self.metadata.as_deref().unwrap_or_default()])
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
}

const VERSION: u8 = 1;

impl Grant {
    /// The record's value.
    pub fn encode(&self) -> Bytes {
        Encoder::new(VERSION)
            .byte(self.flags.bits())
            .number(self.ttl.as_millis() as u64)
            .number(self.granted_at.0)
            .bytes(self.owner.as_bytes())
            .bytes(self.principal.as_bytes())
            .finish()
    }

    /// Reads a record's value.
    pub fn decode(value: &[u8]) -> Result<Self, Unreadable> {
        let mut from = Decoder::new(value, VERSION)?;
        let grant = Self {
            flags: Flags::from_bits(from.byte()?).ok_or(Unreadable)?,
            ttl: Duration::from_millis(from.number()?),
            granted_at: from.time()?,
            owner: from.text()?,
            principal: from.text()?,
        };
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
        fn a_grant_is_read_as_it_was_written(bits in 0..4_u8, ms: u32, at: u64, owner: String, who: String) {
            let grant = Grant {
                flags: Flags::from_bits(bits).unwrap(),
                ttl: Duration::from_millis(ms.into()),
                granted_at: WallTime(at),
                owner: owner.as_str().into(),
                principal: who.as_str().into(),
            };
            prop_assert_eq!(Grant::decode(&grant.encode()), Ok(grant));
        }
    }

    use alloc::string::String;

    #[test]
    fn requests_with_other_parameters_have_other_digests() {
        let base = Terms {
            owner: "a".into(),
            principal: "".into(),
            ttl: Duration::from_secs(1),
            reentrant: false,
            metadata: None,
        };
        let others = [
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
