//! Tokens: the public number that a resource compares, and the secret that proves ownership.

use super::grant::{Digest, Flags};
use super::name::{GrantId, LockName};
use crate::record::Revision;
use alloc::string::String;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use core::fmt;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

/// A number that grows with every grant of a lock: the revision that made the grant (L7).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct FencingToken(pub u64);

impl From<Revision> for FencingToken {
    fn from(revision: Revision) -> Self {
        Self(revision.0)
    }
}

/// The secret that makes lock tokens unguessable: one for all nodes of a cluster, kept in the store.
#[derive(Clone)]
pub struct ClusterKey(pub [u8; 32]);

impl ClusterKey {
    /// The code that authenticates a token's body, for what and whom it was made: each part with its length, so that no
    /// two lists of parts run together.
    pub(crate) fn seal(&self, body: &[u8], parts: &[&str]) -> Hmac<Sha256> {
        // A key shorter than the hash's block is padded with zeros, as HMAC defines.
        let mut block = [0; 64];
        block[..self.0.len()].copy_from_slice(&self.0);
        let mut mac = <Hmac<Sha256> as KeyInit>::new(&block.into());
        mac.update(body);
        for part in parts {
            mac.update(&(part.len() as u32).to_be_bytes());
            mac.update(part.as_bytes());
        }
        mac
    }
}

impl fmt::Debug for ClusterKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ClusterKey")
    }
}

/// Proves ownership of a grant (L6). Never stored: it is computed from what the store holds, and is recognised as
/// authentic after that is gone.
///
/// Layout, as base64url without padding: version 1, flags, grant id (16), fencing token (8, big-endian), digest of
/// the request (8), and the first 16 bytes of an HMAC-SHA-256 over all of that, the lock, the owner and the principal.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct LockToken {
    /// Which grant.
    pub id: GrantId,
    /// What its release has to know.
    pub flags: Flags,
    /// Its fencing token.
    pub fencing: FencingToken,
    /// What was asked for, so that a release can leave it in its memo without looking.
    pub digest: Digest,
    seal: [u8; SEAL_BYTES],
}

const VERSION: u8 = 1;
const SEAL_BYTES: usize = 16;
const BODY_BYTES: usize = 34;

impl LockToken {
    /// The token of a grant.
    pub fn new(
        key: &ClusterKey,
        lock: &LockName,
        owner: &str,
        principal: &str,
        (id, flags, fencing, digest): (GrantId, Flags, FencingToken, Digest),
    ) -> Self {
        let unsealed = Self { id, flags, fencing, digest, seal: [0; SEAL_BYTES] };
        let mut seal = [0; SEAL_BYTES];
        seal.copy_from_slice(
            &unsealed.mac(key, lock, owner, principal).finalize().into_bytes()[..SEAL_BYTES],
        );
        Self { seal, ..unsealed }
    }

    /// Reads a token as it came over the wire. What it says is not to be believed before [`Self::is_authentic`].
    pub fn parse(text: &str) -> Option<Self> {
        let bytes = URL_SAFE_NO_PAD.decode(text).ok()?;
        let (body, seal) = bytes.split_first_chunk::<BODY_BYTES>()?;
        let ([VERSION, flags], rest) = body.split_first_chunk::<2>()? else { return None };
        let (id, rest) = rest.split_first_chunk()?;
        let (fencing, digest) = rest.split_first_chunk()?;
        Some(Self {
            id: GrantId(*id),
            flags: Flags::from_bits(*flags)?,
            fencing: FencingToken(u64::from_be_bytes(*fencing)),
            digest: digest.try_into().ok()?,
            seal: seal.try_into().ok()?,
        })
    }

    /// Whether this cluster made it, for this lock, owner and principal. Takes the same time whatever is wrong.
    pub fn is_authentic(&self, key: &ClusterKey, lock: &LockName, owner: &str, principal: &str) -> bool {
        self.mac(key, lock, owner, principal).verify_truncated_left(&self.seal).is_ok()
    }

    /// The token as it goes over the wire, to its owner and nobody else.
    pub fn reveal(&self) -> String {
        let mut bytes = [0; BODY_BYTES + SEAL_BYTES];
        bytes[..BODY_BYTES].copy_from_slice(&self.body());
        bytes[BODY_BYTES..].copy_from_slice(&self.seal);
        URL_SAFE_NO_PAD.encode(bytes)
    }

    fn body(&self) -> [u8; BODY_BYTES] {
        let mut body = [0; BODY_BYTES];
        body[0] = VERSION;
        body[1] = self.flags.bits();
        body[2..18].copy_from_slice(&self.id.0);
        body[18..26].copy_from_slice(&self.fencing.0.to_be_bytes());
        body[26..].copy_from_slice(&self.digest);
        body
    }

    fn mac(&self, key: &ClusterKey, lock: &LockName, owner: &str, principal: &str) -> Hmac<Sha256> {
        let mut mac = key.seal(&self.body(), &[lock.namespace(), lock.key(), owner, principal]);
        mac.update(lock.family().mark());
        mac
    }
}

impl fmt::Debug for LockToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LockToken(of {:?})", self.fencing)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::format;

    fn token() -> (ClusterKey, LockName, LockToken) {
        let (key, lock) = (ClusterKey([7; 32]), LockName::new("n", "k"));
        let grant = (GrantId([3; 16]), Flags { alone: true, ..Flags::default() }, FencingToken(34), [5; 8]);
        let token = LockToken::new(&key, &lock, "owner", "principal", grant);
        (key, lock, token)
    }

    #[test]
    fn a_token_is_authentic_for_its_own_lock_owner_and_principal_only() {
        let (key, lock, token) = token();
        let token = LockToken::parse(&token.reveal()).unwrap();
        assert!(token.is_authentic(&key, &lock, "owner", "principal"));
        assert!(!token.is_authentic(&ClusterKey([8; 32]), &lock, "owner", "principal"));
        assert!(!token.is_authentic(&key, &LockName::new("n", "j"), "owner", "principal"));
        assert!(!token.is_authentic(&key, &LockName::election("n", "k"), "owner", "principal"));
        assert!(!token.is_authentic(&key, &lock, "other", "principal"));
        assert!(!token.is_authentic(&key, &lock, "owner", ""));
        assert!(!token.is_authentic(&key, &lock, "ownerp", "rincipal"));
    }

    #[test]
    fn no_changed_bit_of_a_token_is_accepted() {
        let (key, lock, token) = token();
        let bytes = URL_SAFE_NO_PAD.decode(token.reveal()).unwrap();
        for bit in 0..bytes.len() * 8 {
            let mut changed = bytes.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            let parsed = LockToken::parse(&URL_SAFE_NO_PAD.encode(&changed));
            assert!(
                !parsed.is_some_and(|token| token.is_authentic(&key, &lock, "owner", "principal")),
                "{bit}"
            );
        }
    }

    #[test]
    fn what_is_printed_gives_nothing_away() {
        let (_, _, token) = token();
        assert_eq!(format!("{token:?}"), "LockToken(of FencingToken(34))");
    }
}
