//! How a request shows that it comes from Baton (J7): an HMAC-SHA256 over when it was sent and its body.
//!
//! The header says `t=MILLISECONDS,v1=HEXADECIMAL`, and what is signed is the milliseconds, a dot, and the body. The time is in it
//! so that a target can refuse what somebody recorded and sends again later.

use super::target::Secret;
use crate::record::WallTime;
use alloc::format;
use alloc::string::String;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

/// What the header of a request says that is sent at this time.
pub fn signature(secret: &Secret, at: WallTime, body: &[u8]) -> String {
    let mut mac =
        <Hmac<Sha256> as KeyInit>::new_from_slice(secret.0.as_bytes()).expect("a key may have any length");
    mac.update(format!("{}.", at.0).as_bytes());
    mac.update(body);
    let sum: String = mac.finalize().into_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
    format!("t={},v1={sum}", at.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signature_is_what_any_other_implementation_makes_of_it() {
        let said = signature(&Secret("hush".into()), WallTime(1_700_000_000_000), br#"{"a":1}"#);
        // As Python's hmac computes it.
        let sum = "213135ed7f3324cc45caaa25eda576024c5a867c379310e0d3c000c79f96e6d3";
        assert_eq!(said, format!("t=1700000000000,v1={sum}"));
        assert_ne!(said, signature(&Secret("hush".into()), WallTime(1_700_000_000_001), br#"{"a":1}"#));
    }
}
