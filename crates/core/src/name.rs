//! What things are called, and the store keys made of it: a key in a namespace, and records of several kinds for it.

use crate::record::{Bytes, Group, Key};
use alloc::vec::Vec;
use core::fmt;

/// A key in a namespace. Neither contains a zero byte.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name {
    group: Group,
    namespace_bytes: u16,
    /// Namespace, zero, key.
    path: Bytes,
}

/// The first two bytes of a record's name: whose it is, and what it says. No two primitives share the first.
pub type Kind = [u8; 2];

/// Records that nobody looks for by a list: they are found by those who know their names. Of locks and elections, the grants
/// and what is remembered of requests, which are most of all that is written.
const UNLISTED: [Kind; 4] = [*b"Le", *b"Lg", *b"Ee", *b"Eg"];

/// Whether lists may have to show a record of this name. A store need not keep the others in order, and may leave them
/// out of scans.
pub fn is_listed(name: &[u8]) -> bool {
    !UNLISTED.iter().any(|kind| name.starts_with(kind))
}

impl Name {
    /// The key `key` in `namespace`.
    pub fn new(namespace: &str, key: &str) -> Self {
        let path = [namespace.as_bytes(), &[0], key.as_bytes()].concat();
        let group = Group::of(&[namespace.as_bytes(), key.as_bytes()]);
        Self { group, namespace_bytes: namespace.len() as u16, path: path.into() }
    }

    /// The namespace.
    pub fn namespace(&self) -> &str {
        core::str::from_utf8(&self.path[..usize::from(self.namespace_bytes)]).unwrap_or_default()
    }

    /// The key.
    pub fn key(&self) -> &str {
        core::str::from_utf8(&self.path[usize::from(self.namespace_bytes) + 1..]).unwrap_or_default()
    }

    /// The partition that all its records are in.
    pub fn group(&self) -> Group {
        self.group
    }

    /// Namespace, zero, key.
    pub fn path(&self) -> &[u8] {
        &self.path
    }

    /// Where its record of a kind is; one of several if there is a `suffix`.
    pub fn record(&self, kind: Kind, suffix: &[u8]) -> Key {
        let mut name = Vec::with_capacity(self.path.len() + suffix.len() + 3);
        name.extend_from_slice(&kind);
        name.extend_from_slice(&self.path);
        if !suffix.is_empty() {
            name.push(0);
            name.extend_from_slice(suffix);
        }
        Key::new(self.group, name)
    }

    /// What the record of a kind without a suffix is about.
    pub fn of_record(kind: Kind, name: &[u8]) -> Option<Self> {
        let path = name.strip_prefix(&kind)?;
        let namespace_end = path.iter().position(|byte| *byte == 0)?;
        let text = |bytes| core::str::from_utf8(bytes).ok();
        Some(Self::new(text(&path[..namespace_end])?, text(&path[namespace_end + 1..])?))
    }

    /// What the names of a kind begin with, in a namespace, for keys that begin with `key_prefix`.
    pub fn prefix(kind: Kind, namespace: &str, key_prefix: &str) -> Bytes {
        [&kind, namespace.as_bytes(), &[0], key_prefix.as_bytes()].concat().into()
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace(), self.key())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_record_s_name_says_what_it_is_about(namespace in "[^\0]{1,20}", key in "[^\0]{1,40}") {
            let name = Name::new(&namespace, &key);
            prop_assert_eq!((name.namespace(), name.key()), (namespace.as_str(), key.as_str()));
            let record = name.record(*b"Xy", &[]);
            prop_assert_eq!(Name::of_record(*b"Xy", &record.name), Some(name.clone()));
            prop_assert_eq!(Name::of_record(*b"Xz", &record.name), None);
            prop_assert!(record.name.starts_with(&Name::prefix(*b"Xy", &namespace, &key)));
            prop_assert!(name.record(*b"Xy", b"suffix").name.starts_with(&record.name));
        }
    }

    #[test]
    fn namespaces_and_keys_do_not_run_together() {
        assert_ne!(Name::new("a", "bc").record(*b"Xy", &[]), Name::new("ab", "c").record(*b"Xy", &[]));
    }
}
