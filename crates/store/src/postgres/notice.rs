//! What nodes tell each other, as the text that NOTIFY carries.
//!
//! ```text
//! hex( node u64, then for each hint: kind u8
//!      1 put      group u8, name, value, revision u64
//!      2 deleted  group u8, name, revision u64
//!      3 look     group u8, name
//!      4 lost
//! )                                   without a hint: the node is there
//!                                     numbers big-endian; name and value: length u16, bytes
//! ```

use crate::watch::Change;
use baton_core::{Bytes, Group, Key, Revision};

/// What the server takes is below 8000 characters; a byte is two of them.
const PAYLOAD_BYTES_MAX: usize = 3990;

/// Together with a name this leaves room for the rest of a message; what is larger is read by who wants it.
const TOLD_BYTES_MAX: usize = 2048;

/// A change, as far as it is told.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Hint {
    Put {
        key: Key,
        value: Bytes,
        revision: Revision,
    },
    Deleted {
        key: Key,
        revision: Revision,
    },
    /// Put, and too large to be told.
    Look(Key),
    Lost,
}

impl Hint {
    /// Also keeps what waits to be told small.
    pub fn of(change: &Change) -> Self {
        match change {
            Change::Put { key, .. } | Change::Deleted { key, .. } if key.name.len() > TOLD_BYTES_MAX => {
                Self::Lost
            }
            Change::Put { key, value, revision } if key.name.len() + value.len() <= TOLD_BYTES_MAX => {
                Self::Put { key: key.clone(), value: value.clone(), revision: *revision }
            }
            Change::Put { key, .. } => Self::Look(key.clone()),
            Change::Deleted { key, revision } => Self::Deleted { key: key.clone(), revision: *revision },
            Change::Expired { .. } | Change::Lost => Self::Lost,
        }
    }

    fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        let text = |bytes: &mut Vec<u8>, text: &[u8]| {
            let length = u16::try_from(text.len()).expect("what is told is at most TOLD_BYTES_MAX long");
            bytes.extend(length.to_be_bytes());
            bytes.extend(text);
        };
        match self {
            Self::Put { key, value, revision } => {
                bytes.extend([1, key.group.0]);
                text(&mut bytes, &key.name);
                text(&mut bytes, value);
                bytes.extend(revision.0.to_be_bytes());
            }
            Self::Deleted { key, revision } => {
                bytes.extend([2, key.group.0]);
                text(&mut bytes, &key.name);
                bytes.extend(revision.0.to_be_bytes());
            }
            Self::Look(key) => {
                bytes.extend([3, key.group.0]);
                text(&mut bytes, &key.name);
            }
            Self::Lost => bytes.push(4),
        }
        bytes
    }
}

/// As few messages as hold them all.
pub(super) fn encode(node: u64, hints: &[Hint]) -> Vec<String> {
    let mut payloads = vec![node.to_be_bytes().to_vec()];
    for hint in hints {
        let bytes = hint.encode();
        match payloads.last_mut() {
            Some(last) if last.len() + bytes.len() <= PAYLOAD_BYTES_MAX => last.extend(bytes),
            _ => payloads.push([&node.to_be_bytes()[..], &bytes].concat()),
        }
    }
    payloads.iter().map(|bytes| hex(bytes)).collect()
}

/// Who told it, if it is one of ours: a node hears itself too, and needn't read on.
pub(super) fn teller(payload: &str) -> Option<u64> {
    u64::from_str_radix(payload.get(..16)?, 16).ok()
}

/// Who told it, and what; `None` if it isn't one of ours.
pub(super) fn decode(payload: &str) -> Option<(u64, Vec<Hint>)> {
    let bytes = unhex(payload)?;
    let mut rest = &bytes[..];
    let node = number(&mut rest)?;
    let mut hints = Vec::new();
    while let Some((kind, after)) = rest.split_first() {
        rest = after;
        if *kind == 4 {
            hints.push(Hint::Lost);
            continue;
        }
        let group = Group(take(&mut rest, 1)?[0]);
        let key = Key::new(group, text(&mut rest)?);
        hints.push(match kind {
            1 => Hint::Put { key, value: text(&mut rest)?.into(), revision: Revision(number(&mut rest)?) },
            2 => Hint::Deleted { key, revision: Revision(number(&mut rest)?) },
            3 => Hint::Look(key),
            _ => return None,
        });
    }
    Some((node, hints))
}

fn take<'a>(rest: &mut &'a [u8], length: usize) -> Option<&'a [u8]> {
    let (taken, after) = rest.split_at_checked(length)?;
    *rest = after;
    Some(taken)
}

fn number(rest: &mut &[u8]) -> Option<u64> {
    Some(u64::from_be_bytes(take(rest, 8)?.try_into().ok()?))
}

fn text<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let length = u16::from_be_bytes(take(rest, 2)?.try_into().ok()?);
    take(rest, length.into())
}

fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digits = bytes.iter().flat_map(|byte| [byte >> 4, byte & 15]);
    let text: Vec<_> = digits.map(|digit| DIGITS[usize::from(digit)]).collect();
    String::from_utf8(text).expect("digits are text")
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let digit = |digit: u8| char::from(digit).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    if !text.len().is_multiple_of(2) {
        return None;
    }
    text.as_bytes().chunks_exact(2).map(|pair| Some(digit(pair[0])? << 4 | digit(pair[1])?)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn change() -> impl Strategy<Value = Change> {
        let key = (any::<u8>(), prop_oneof![0..40_usize, Just(2048), Just(2049)])
            .prop_map(|(group, length)| Key::new(Group(group), vec![group; length]));
        let put = (key.clone(), prop_oneof![0..40_usize, 1900..2100_usize], any::<u64>())
            .prop_map(|(key, length, revision)| (key, vec![0xff; length].into(), Revision(revision)))
            .prop_map(|(key, value, revision)| Change::Put { key, value, revision });
        let deleted =
            (key, any::<u64>()).prop_map(|(key, number)| Change::Deleted { key, revision: Revision(number) });
        prop_oneof![put, deleted, Just(Change::Lost)]
    }

    proptest! {
        #[test]
        fn hints_arrive_as_they_were_sent(node: u64, changes in proptest::collection::vec(change(), 1..20)) {
            let hints: Vec<_> = changes.iter().map(Hint::of).collect();
            let mut arrived = Vec::new();
            for payload in encode(node, &hints) {
                prop_assert!(payload.len() < 8000, "{}", payload.len());
                let (from, hints) = decode(&payload).unwrap();
                prop_assert_eq!((from, teller(&payload)), (node, Some(node)));
                arrived.extend(hints);
            }
            prop_assert_eq!(arrived, hints);
        }

        #[test]
        fn whatever_else_arrives_does_no_harm(payload in "[0-9a-fx]{0,60}") {
            drop(decode(&payload));
        }
    }
}
