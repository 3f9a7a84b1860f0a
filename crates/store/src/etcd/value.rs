//! A record as the value of an etcd key: a header, then the record's value.
//!
//! ```text
//! state        1 byte    0: put, never touched; 1: put, touched before that; 2: touched since its last Put
//! version      1 byte    1
//! own          1 byte    1: no other key is under its lease
//! seconds      4 bytes   of its lease, as granted; 0: no lease
//! ends_ms      8 bytes   when that lease may end, by the wall clock of the node that had it granted: for display
//! touches      8 bytes
//! revision     8 bytes   of the last Put, if touched since; else 0: it is the key's mod_revision
//! value        the rest
//! ```
//! Numbers are little-endian. The state comes first so that a transaction can compare it: values are ordered.

use super::wire::KeyValue;
use baton_core::{Key, Record, Revision, WallTime};
use std::time::Duration;

const VERSION: u8 = 1;
const HEADER_BYTES: usize = 31;
/// etcd looks for leases that are over twice a second: a record that is there has about this long, at least.
const LEFT_MIN: Duration = Duration::from_millis(500);

/// Values below this were never touched.
pub(super) const TOUCHED_ONCE: [u8; 1] = [1];
/// Values below this weren't touched since their last Put.
pub(super) const TOUCHED_SINCE: [u8; 1] = [2];

/// What etcd's own fields don't say.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Meta {
    pub own: bool,
    pub seconds: u32,
    pub ends_ms: u64,
    pub touches: u64,
    /// The last Put, if the record was touched since.
    pub put_at: Option<u64>,
}

impl Meta {
    pub fn encode(&self, value: &[u8]) -> Vec<u8> {
        let state = match (self.put_at, self.touches) {
            (Some(_), _) => 2,
            (None, 0) => 0,
            (None, _) => 1,
        };
        let mut bytes = Vec::with_capacity(HEADER_BYTES + value.len());
        bytes.extend([state, VERSION, u8::from(self.own)]);
        bytes.extend(self.seconds.to_le_bytes());
        bytes.extend(self.ends_ms.to_le_bytes());
        bytes.extend(self.touches.to_le_bytes());
        bytes.extend(self.put_at.unwrap_or(0).to_le_bytes());
        bytes.extend(value);
        bytes
    }

    pub fn decode(bytes: &[u8]) -> Option<(Self, &[u8])> {
        let (header, value) = bytes.split_at_checked(HEADER_BYTES)?;
        let number = |at: usize| header[at..at + 8].try_into().map(u64::from_le_bytes).ok();
        if header[0] > 2 || header[1] != VERSION {
            return None;
        }
        let meta = Self {
            own: header[2] == 1,
            seconds: u32::from_le_bytes(header[3..7].try_into().ok()?),
            ends_ms: number(7)?,
            touches: number(15)?,
            put_at: if header[0] == 2 { number(23) } else { None },
        };
        Some((meta, value))
    }
}

/// A record as etcd has it.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Stored {
    pub key: Key,
    pub created: u64,
    pub modified: u64,
    pub lease: i64,
    pub meta: Meta,
    pub value: Vec<u8>,
}

impl Stored {
    /// `None` for a value that isn't one of ours.
    pub fn read(key: Key, kv: &KeyValue) -> Option<Self> {
        let (meta, value) = Meta::decode(&kv.value)?;
        let (created, modified) = (kv.create_revision.unsigned_abs(), kv.mod_revision.unsigned_abs());
        Some(Self { key, created, modified, lease: kv.lease, meta, value: value.to_vec() })
    }

    /// The last Put.
    pub fn revision(&self) -> u64 {
        self.meta.put_at.unwrap_or(self.modified)
    }

    pub fn record(&self, now: WallTime) -> Record {
        let left = Duration::from_millis(self.meta.ends_ms.saturating_sub(now.0));
        let longest = Duration::from_secs(self.meta.seconds.into()).max(LEFT_MIN);
        Record {
            key: self.key.clone(),
            value: self.value.clone().into(),
            created: Revision(self.created),
            revision: Revision(self.revision()),
            touches: self.meta.touches,
            expires_in: (self.lease != 0).then(|| left.clamp(LEFT_MIN, longest)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_is_encoded_is_decoded(own: bool, seconds: u32, ends_ms: u64, touches: u64, put_at: Option<u64>, value: Vec<u8>) {
            let meta = Meta { own, seconds, ends_ms, touches, put_at };
            let bytes = meta.encode(&value);
            prop_assert_eq!(Meta::decode(&bytes), Some((meta, &value[..])));
            prop_assert_eq!(bytes[..] < TOUCHED_SINCE[..], put_at.is_none());
            prop_assert_eq!(bytes[..] < TOUCHED_ONCE[..], put_at.is_none() && touches == 0);
        }

        #[test]
        fn any_bytes_are_refused_or_understood(bytes: Vec<u8>) {
            Meta::decode(&bytes);
        }
    }
}
