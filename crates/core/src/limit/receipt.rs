//! What a check is given back with: which limit and key, how much, when it was counted and on which meter. Nobody but the cluster
//! can make one.
//!
//! As text: URL-safe base64 of a byte that says which meter (1 the key's own, 2 the shared one), 16 random bytes, then amount and time in 8 bytes each, then 16 bytes of an
//! authentication code over these and the limit's name and key.

use super::metered::Metered;
use crate::lock::ClusterKey;
use crate::name::Name;
use crate::record::WallTime;
use alloc::string::String;
use alloc::vec::Vec;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hmac::Mac;

/// A receipt.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Receipt {
    /// Of the check; what makes giving back happen once.
    pub id: [u8; 16],
    /// How much was counted.
    pub amount: u64,
    /// When, by the store's clock.
    pub at: WallTime,
    /// On which meter.
    pub metered: Metered,
}

const OWN: u8 = 1;
const SHARED: u8 = 2;
const BODY: usize = 1 + 16 + 8 + 8;

impl Receipt {
    /// As text.
    pub fn issue(&self, cluster: &ClusterKey, name: &Name, key: &str) -> String {
        let mut bytes = Vec::with_capacity(BODY + 16);
        bytes.push(match self.metered {
            Metered::Own => OWN,
            Metered::Shared => SHARED,
        });
        bytes.extend(self.id);
        bytes.extend(self.amount.to_be_bytes());
        bytes.extend(self.at.0.to_be_bytes());
        let code = cluster.seal(&bytes, &parts(name, key)).finalize().into_bytes();
        bytes.extend(&code[..16]);
        URL_SAFE_NO_PAD.encode(bytes)
    }

    /// Reads one that was issued for this limit and key; nothing if it wasn't. Compared in constant time.
    pub fn read(text: &str, cluster: &ClusterKey, name: &Name, key: &str) -> Option<Self> {
        let bytes = URL_SAFE_NO_PAD.decode(text).ok()?;
        let (body, found) = bytes.split_at_checked(BODY)?;
        let metered = match body[0] {
            OWN => Metered::Own,
            SHARED => Metered::Shared,
            _ => return None,
        };
        if found.len() != 16 {
            return None;
        }
        cluster.seal(body, &parts(name, key)).verify_truncated_left(found).ok()?;
        let number = |from: usize| body[from..from + 8].try_into().map(u64::from_be_bytes).ok();
        let (amount, at) = (number(17)?, WallTime(number(25)?));
        Some(Self { id: body[1..17].try_into().ok()?, amount, at, metered })
    }
}

/// What it was issued for: no other token has these parts.
fn parts<'a>(name: &'a Name, key: &'a str) -> [&'a str; 4] {
    ["limit receipt", name.namespace(), name.key(), key]
}
