//! What a commit did to one record, as the log and the snapshots keep it.
//!
//! ```text
//! put     1 | group 1 | name | value | created 8 | revision 8 | expires 8 | touches 4
//! touch   2 | group 1 | name | expires 8 | touches 4
//! delete  3 | group 1 | name
//! ```
//! Names and values have their length in front, in 4 bytes. `expires` is a moment of the lease clock in
//! microseconds, 0 for never. Effects are absolute, so that applying one twice, or applying old ones to a newer
//! state and going on from there, ends in the same state: a snapshot may be taken while commits go on.

use super::segment::{u32_at, u64_at};
use baton_core::Bytes;

/// A record as memory holds it. Kept small: there are millions.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Entry {
    pub value: Bytes,
    pub created: u64,
    pub revision: u64,
    /// On the lease clock; 0 means never.
    pub expires_us: u64,
    /// Stops counting at its end: a record touched once a second gets there in 136 years.
    pub touches: u32,
    /// Where the expiry index has it; 0 means nowhere. Not stored.
    pub armed: u32,
}

impl Entry {
    pub fn is_live(&self, now_us: u64) -> bool {
        self.expires_us == 0 || self.expires_us > now_us
    }
}

/// One change, borrowed from the bytes it was read from.
#[derive(PartialEq, Eq, Debug)]
pub(super) enum Effect<'a> {
    Put { group: u8, name: &'a [u8], entry: Entry },
    Touch { group: u8, name: &'a [u8], expires_us: u64, touches: u32 },
    Delete { group: u8, name: &'a [u8] },
}

/// At most this many bytes beyond names and values for one write.
pub(super) const EFFECT_OVERHEAD_BYTES: usize = 2 + 4 + 4 + 28;

const PUT: u8 = 1;
const TOUCH: u8 = 2;
const DELETE: u8 = 3;

pub(super) fn encode_put(to: &mut Vec<u8>, group: u8, name: &[u8], entry: &Entry) {
    to.extend([PUT, group]);
    encode_bytes(to, name);
    encode_bytes(to, &entry.value);
    to.extend(entry.created.to_le_bytes());
    to.extend(entry.revision.to_le_bytes());
    to.extend(entry.expires_us.to_le_bytes());
    to.extend(entry.touches.to_le_bytes());
}

pub(super) fn encode_touch(to: &mut Vec<u8>, group: u8, name: &[u8], entry: &Entry) {
    to.extend([TOUCH, group]);
    encode_bytes(to, name);
    to.extend(entry.expires_us.to_le_bytes());
    to.extend(entry.touches.to_le_bytes());
}

pub(super) fn encode_delete(to: &mut Vec<u8>, group: u8, name: &[u8]) {
    to.extend([DELETE, group]);
    encode_bytes(to, name);
}

fn encode_bytes(to: &mut Vec<u8>, bytes: &[u8]) {
    to.extend(u32::try_from(bytes.len()).expect("a commit is at most 512 KiB").to_le_bytes());
    to.extend(bytes);
}

/// Reads one effect after the other; an `Err` is a payload that this code would never have written.
pub(super) struct Effects<'a>(pub &'a [u8]);

/// The payload makes no sense although its checksum is right.
#[derive(PartialEq, Eq, Debug)]
pub(super) struct Malformed;

impl<'a> Effects<'a> {
    fn take(&mut self, count: usize) -> Result<&'a [u8], Malformed> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or(Malformed)?;
        self.0 = rest;
        Ok(taken)
    }

    fn bytes(&mut self) -> Result<&'a [u8], Malformed> {
        let length = u32_at(self.take(4)?, 0) as usize;
        self.take(length)
    }

    fn next_effect(&mut self) -> Result<Effect<'a>, Malformed> {
        let head = self.take(2)?;
        let (group, name) = (head[1], self.bytes()?);
        match head[0] {
            PUT => {
                let (value, tail) = (Bytes::from(self.bytes()?), self.take(28)?);
                let (created, revision) = (u64_at(tail, 0), u64_at(tail, 8));
                let (expires_us, touches) = (u64_at(tail, 16), u32_at(tail, 24));
                let entry = Entry { value, created, revision, expires_us, touches, armed: 0 };
                Ok(Effect::Put { group, name, entry })
            }
            TOUCH => {
                let tail = self.take(12)?;
                Ok(Effect::Touch { group, name, expires_us: u64_at(tail, 0), touches: u32_at(tail, 8) })
            }
            DELETE => Ok(Effect::Delete { group, name }),
            _ => Err(Malformed),
        }
    }
}

impl<'a> Iterator for Effects<'a> {
    type Item = Result<Effect<'a>, Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let effect = self.next_effect();
        if effect.is_err() {
            self.0 = &[];
        }
        Some(effect)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn effects_are_read_back(
            name in prop::collection::vec(any::<u8>(), 0..40), value in prop::collection::vec(any::<u8>(), 0..80),
            group: u8, created: u64, revision: u64, expires_us: u64, touches: u32,
        ) {
            let entry = Entry { value: value.into(), created, revision, expires_us, touches, armed: 0 };
            let mut bytes = Vec::new();
            encode_put(&mut bytes, group, &name, &entry);
            prop_assert!(bytes.len() <= name.len() + entry.value.len() + EFFECT_OVERHEAD_BYTES);
            encode_touch(&mut bytes, group, &name, &entry);
            encode_delete(&mut bytes, group, &name);
            let read: Vec<_> = Effects(&bytes).collect::<Result<_, _>>().unwrap();
            let name = &name[..];
            prop_assert_eq!(read, vec![
                Effect::Put { group, name, entry },
                Effect::Touch { group, name, expires_us, touches },
                Effect::Delete { group, name },
            ]);
            bytes.pop();
            prop_assert!(Effects(&bytes).any(|effect| effect.is_err()));
        }
    }
}
