//! The secret that proves a claim.

use crate::lock::name::digest;
use crate::lock::{ClusterKey, FencingToken};
use crate::name::Name;
use alloc::string::String;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use core::fmt;
use hmac::Mac;

/// A hash of (namespace, key, principal, requestId): the same claim has the same id.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClaimId(pub [u8; 16]);

impl ClaimId {
    /// The id of a request.
    pub fn of(name: &Name, principal: &str, request_id: &str) -> Self {
        Self(digest(&[name.path(), principal.as_bytes(), b"once", request_id.as_bytes()]))
    }
}

impl fmt::Debug for ClaimId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0[..4].iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// Proves a claim. Never stored: it is computed from what the store holds, and is recognised as authentic after that is
/// gone.
///
/// Layout, as base64url without padding: `O`, version 1, claim id (16), fencing token (8, big-endian), and the first 16
/// bytes of an HMAC-SHA-256 over all of that, namespace, key and principal. A lock's token begins otherwise, so that
/// neither can pass for the other.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct ClaimToken {
    /// Which claim.
    pub id: ClaimId,
    /// Its fencing token.
    pub fencing: FencingToken,
    seal: [u8; SEAL_BYTES],
}

const START: [u8; 2] = [b'O', 1];
const SEAL_BYTES: usize = 16;
const BODY_BYTES: usize = 26;

impl ClaimToken {
    /// The token of a claim.
    pub fn new(key: &ClusterKey, name: &Name, principal: &str, id: ClaimId, fencing: FencingToken) -> Self {
        let unsealed = Self { id, fencing, seal: [0; SEAL_BYTES] };
        let mac = key.seal(&unsealed.body(), &[name.namespace(), name.key(), principal]);
        let mut seal = [0; SEAL_BYTES];
        seal.copy_from_slice(&mac.finalize().into_bytes()[..SEAL_BYTES]);
        Self { seal, ..unsealed }
    }

    /// Reads a token as it came over the wire, if this cluster made it, for this key and principal. Takes the same time
    /// whatever is wrong with its seal.
    pub fn authentic(key: &ClusterKey, name: &Name, principal: &str, text: &str) -> Option<Self> {
        let bytes = URL_SAFE_NO_PAD.decode(text).ok()?;
        let (body, seal) = bytes.split_first_chunk::<BODY_BYTES>()?;
        let (start, rest) = body.split_first_chunk::<2>()?;
        let (id, fencing) = rest.split_first_chunk()?;
        let token = Self {
            id: ClaimId(*id),
            fencing: FencingToken(u64::from_be_bytes(fencing.try_into().ok()?)),
            seal: seal.try_into().ok()?,
        };
        let mac = key.seal(body, &[name.namespace(), name.key(), principal]);
        (*start == START && mac.verify_truncated_left(&token.seal).is_ok()).then_some(token)
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
        body[..2].copy_from_slice(&START);
        body[2..18].copy_from_slice(&self.id.0);
        body[18..].copy_from_slice(&self.fencing.0.to_be_bytes());
        body
    }
}

impl fmt::Debug for ClaimToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ClaimToken(of {:?})", self.fencing)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::format;

    fn token() -> (ClusterKey, Name, ClaimToken) {
        let (key, name) = (ClusterKey([7; 32]), Name::new("n", "k"));
        let token = ClaimToken::new(&key, &name, "principal", ClaimId([3; 16]), FencingToken(34));
        (key, name, token)
    }

    #[test]
    fn a_token_is_authentic_for_its_own_key_and_principal_only() {
        let (key, name, token) = token();
        let text = token.reveal();
        assert_eq!(ClaimToken::authentic(&key, &name, "principal", &text), Some(token));
        assert_eq!(ClaimToken::authentic(&ClusterKey([8; 32]), &name, "principal", &text), None);
        assert_eq!(ClaimToken::authentic(&key, &Name::new("n", "j"), "principal", &text), None);
        assert_eq!(ClaimToken::authentic(&key, &Name::new("m", "k"), "principal", &text), None);
        assert_eq!(ClaimToken::authentic(&key, &name, "", &text), None);
        assert_eq!(ClaimToken::authentic(&key, &Name::new("n", "kp"), "rincipal", &text), None);
    }

    #[test]
    fn no_changed_bit_of_a_token_is_accepted() {
        let (key, name, token) = token();
        let bytes = URL_SAFE_NO_PAD.decode(token.reveal()).unwrap();
        for bit in 0..bytes.len() * 8 {
            let mut changed = bytes.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            let text = URL_SAFE_NO_PAD.encode(&changed);
            assert_eq!(ClaimToken::authentic(&key, &name, "principal", &text), None, "{bit}");
        }
    }

    #[test]
    fn what_is_printed_gives_nothing_away() {
        let (_, _, token) = token();
        assert_eq!(format!("{token:?}"), "ClaimToken(of FencingToken(34))");
    }
}
