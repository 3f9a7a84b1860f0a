//! What locks, grants and callers are called, and the store keys made of it.

use crate::record::{Bytes, Group, Key};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use core::hash::{Hash, Hasher};
use sha2::{Digest, Sha256};

/// Who a caller is, as far as authentication goes: empty when there is none.
pub type Principal = Arc<str>;

/// What a lock is to those who use it. All families obey the same rules, and their names never meet: lock `x` and
/// election `x` have nothing to do with each other.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum Family {
    /// Somebody uses a resource for a while.
    Lock = b'L',
    /// Somebody leads until further notice.
    Election = b'E',
}

impl Family {
    /// Every family.
    pub const ALL: [Self; 2] = [Self::Lock, Self::Election];

    /// What sets tokens of this family apart. Nothing for locks, which were there first.
    pub(super) fn mark(self) -> &'static [u8] {
        match self {
            Self::Lock => &[],
            Self::Election => b"E",
        }
    }
}

/// A lock: a key in a namespace. Neither contains a zero byte.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct LockName {
    family: Family,
    group: Group,
    namespace_bytes: u16,
    /// Where its roster is, which is asked for all the time: family, kind, namespace, zero, key.
    roster: Bytes,
}

impl LockName {
    /// The lock `key` in `namespace`.
    pub fn new(namespace: &str, key: &str) -> Self {
        Self::of(Family::Lock, namespace, key)
    }

    /// The election `name` in `namespace`: its leader holds it.
    pub fn election(namespace: &str, name: &str) -> Self {
        Self::of(Family::Election, namespace, name)
    }

    /// The lock `key` in `namespace`, of a family.
    pub fn of(family: Family, namespace: &str, key: &str) -> Self {
        let roster = [&[family as u8, Kind::Roster as u8], namespace.as_bytes(), &[0], key.as_bytes()];
        let group = Group::of(&[namespace.as_bytes(), key.as_bytes()]);
        Self { family, group, namespace_bytes: namespace.len() as u16, roster: joined(&roster) }
    }

    /// What it is to those who use it.
    pub fn family(&self) -> Family {
        self.family
    }

    /// The namespace.
    pub fn namespace(&self) -> &str {
        core::str::from_utf8(&self.path()[..usize::from(self.namespace_bytes)]).unwrap_or_default()
    }

    /// The key.
    pub fn key(&self) -> &str {
        core::str::from_utf8(&self.path()[usize::from(self.namespace_bytes) + 1..]).unwrap_or_default()
    }

    /// The partition that all its records are in.
    pub fn group(&self) -> Group {
        self.group
    }

    /// Where its roster is.
    pub fn roster(&self) -> Key {
        Key { group: self.group, name: self.roster.clone() }
    }

    /// Where a grant is.
    pub fn grant(&self, id: GrantId) -> Key {
        self.record(Kind::Grant, &id.0)
    }

    /// Where the memory of a request is.
    pub fn memo(&self, id: GrantId) -> Key {
        self.record(Kind::Memo, &id.0)
    }

    /// Where a waiter is.
    pub fn waiting(&self, id: GrantId) -> Key {
        self.record(Kind::Waiting, &id.0)
    }

    /// Where a place in the queue is.
    pub fn order(&self, place: u64) -> Key {
        self.record(Kind::Order, &place.to_be_bytes())
    }

    /// Where the record is that keeps the lock closed after a grant (L14).
    pub fn delay(&self, id: GrantId) -> Key {
        self.record(Kind::Delay, &id.0)
    }

    /// Where the note of a forced release is.
    pub fn audit(&self, id: GrantId) -> Key {
        self.record(Kind::Audit, &id.0)
    }

    /// Where its history is.
    pub fn history(&self) -> Key {
        self.record(Kind::History, &[])
    }

    /// What the names of all its records of a kind begin with.
    pub fn prefix(&self, kind: Kind) -> Bytes {
        joined(&[&[self.family as u8, kind as u8], self.path(), &[0]])
    }

    /// The lock that a record of this name belongs to, and what comes after the lock's name.
    pub fn of_record(kind: Kind, name: &[u8]) -> Option<(Self, &[u8])> {
        let (first, rest) = name.split_first()?;
        let family = Family::ALL.into_iter().find(|family| *family as u8 == *first)?;
        let path = rest.strip_prefix(&[kind as u8])?;
        let namespace_end = path.iter().position(|byte| *byte == 0)?;
        let (namespace, rest) = (&path[..namespace_end], &path[namespace_end + 1..]);
        let key_end = rest.iter().position(|byte| *byte == 0).unwrap_or(rest.len());
        let suffix = rest.get(key_end + 1..).unwrap_or_default();
        let text = |bytes| core::str::from_utf8(bytes).ok();
        Some((Self::of(family, text(namespace)?, text(&rest[..key_end])?), suffix))
    }

    /// Namespace, zero, key.
    fn path(&self) -> &[u8] {
        &self.roster[2..]
    }

    fn record(&self, kind: Kind, suffix: &[u8]) -> Key {
        let kind = [self.family as u8, kind as u8];
        let zero: &[u8] = if suffix.is_empty() { &[] } else { &[0] };
        Key { group: self.group, name: joined(&[&kind, self.path(), zero, suffix]) }
    }
}

/// The parts in a row. On the stack if they fit, so that only the result is allocated: it is done for every record that
/// a decision looks at.
fn joined(parts: &[&[u8]]) -> Bytes {
    let mut bytes = [0; 256];
    let mut end = 0;
    for part in parts {
        let Some(room) = bytes.get_mut(end..end + part.len()) else { return parts.concat().into() };
        room.copy_from_slice(part);
        end += part.len();
    }
    bytes[..end].into()
}

impl Hash for LockName {
    fn hash<H: Hasher>(&self, to: &mut H) {
        // The roster's name has all the rest in it.
        to.write(&self.roster);
    }
}

impl fmt::Debug for LockName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace(), self.key())
    }
}

/// The kinds of records a lock has: the second byte of their names, after the family's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Kind {
    /// See [`super::audit`].
    Audit = b'a',
    /// Lives as long as the lease and the lock-delay after it.
    Delay = b'd',
    /// See [`super::grant`].
    Grant = b'g',
    /// Kept by the engine, behind the answers.
    History = b'h',
    /// See [`super::memo`]. Sorts before grants, so that who watches a commit hears of an end before the next beginning.
    Memo = b'e',
    /// A place in the queue.
    Order = b'q',
    /// See [`super::roster`].
    Roster = b'r',
    /// See [`super::waiting`].
    Waiting = b'w',
}

impl Kind {
    /// What the names of this kind begin with, for a family's locks of a namespace whose keys begin with `key_prefix`.
    pub fn prefix(self, family: Family, namespace: &str, key_prefix: &str) -> Vec<u8> {
        [&[family as u8, self as u8], namespace.as_bytes(), &[0], key_prefix.as_bytes()].concat()
    }

    /// What all names of this kind and family begin with.
    pub fn everywhere(self, family: Family) -> Bytes {
        [family as u8, self as u8][..].into()
    }

    /// Which kind of record this is the name of.
    pub fn of_name(name: &[u8]) -> Option<Self> {
        let kinds = [
            Self::Audit,
            Self::Delay,
            Self::Grant,
            Self::History,
            Self::Memo,
            Self::Order,
            Self::Roster,
            Self::Waiting,
        ];
        match name {
            [first, kind, ..] if Family::ALL.iter().any(|family| *family as u8 == *first) => {
                kinds.into_iter().find(|known| *known as u8 == *kind)
            }
            _ => None,
        }
    }
}

/// What a requestId is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Operation {
    /// Its id is the grant's.
    Acquire = b'a',
    /// Its id is the grant's: one of several that a bundle makes, each under its nonce.
    Bundle = b'b',
    /// Its id is remembered by itself.
    Release = b'r',
}

/// A hash of (namespace, key, principal, operation, requestId): the same call has the same id. Only ever used under its
/// lock's name, which has the family in it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GrantId(pub [u8; 16]);

impl GrantId {
    /// The id of a call.
    pub fn of(lock: &LockName, principal: &str, operation: Operation, request_id: &str) -> Self {
        Self(digest(&[lock.path(), principal.as_bytes(), &[operation as u8], request_id.as_bytes()]))
    }

    /// The id of what a bundle asks of a lock, under one of its nonces. Nobody else can ask under the same.
    pub fn of_bundle(lock: &LockName, principal: &str, nonce: &[u8]) -> Self {
        Self(digest(&[lock.path(), principal.as_bytes(), &[Operation::Bundle as u8], nonce]))
    }

    /// The id in a record's name, after the lock's.
    pub fn from_suffix(suffix: &[u8]) -> Option<Self> {
        suffix.try_into().ok().map(Self)
    }
}

impl fmt::Debug for GrantId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0[..4].iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// The first bytes of a hash of `parts`, each with its length, so that no two lists of parts run together.
pub(crate) fn digest<const N: usize>(parts: &[&[u8]]) -> [u8; N] {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update((part.len() as u32).to_be_bytes());
        hash.update(part);
    }
    let mut first = [0; N];
    first.copy_from_slice(&hash.finalize()[..N]);
    first
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_records_name_says_which_lock_and_id_it_is_of(ns in "[a-z:/.]{1,9}", key in "[a-zé ]{1,20}", id: [u8; 16]) {
            let lock = LockName::new(&ns, &key);
            prop_assert_eq!((lock.namespace(), lock.key()), (ns.as_str(), key.as_str()));
            let grant = lock.grant(GrantId(id));
            prop_assert_eq!(Kind::of_name(&grant.name), Some(Kind::Grant));
            prop_assert!(grant.name.starts_with(&lock.prefix(Kind::Grant)));
            let (found, suffix) = LockName::of_record(Kind::Grant, &grant.name).unwrap();
            prop_assert_eq!((found, GrantId::from_suffix(suffix)), (lock.clone(), Some(GrantId(id))));
            let roster = lock.roster();
            prop_assert_eq!(LockName::of_record(Kind::Roster, &roster.name), Some((lock, &[][..])));
        }
    }

    #[test]
    fn lists_need_not_show_grants_and_memos_and_have_all_others() {
        let id = GrantId([7; 16]);
        for lock in [LockName::new("n", "k"), LockName::election("n", "k")] {
            for key in [lock.grant(id), lock.memo(id)] {
                assert!(!crate::name::is_listed(&key.name), "{key:?}");
            }
            for key in [
                lock.roster(),
                lock.waiting(id),
                lock.order(1),
                lock.audit(id),
                lock.delay(id),
                lock.history(),
            ] {
                assert!(crate::name::is_listed(&key.name), "{key:?}");
            }
        }
    }

    #[test]
    fn a_lock_and_an_election_of_one_name_share_no_record() {
        let (lock, election) = (LockName::new("n", "k"), LockName::election("n", "k"));
        assert_ne!(lock, election);
        assert_ne!(lock.roster(), election.roster());
        assert_eq!(LockName::of_record(Kind::Roster, &election.roster().name), Some((election, &[][..])));
        assert_eq!(LockName::of_record(Kind::Roster, b"Xrn\0k"), None);
    }

    #[test]
    fn ids_differ_in_every_part_of_their_scope() {
        let of = |ns, key, who, what, id| GrantId::of(&LockName::new(ns, key), who, what, id);
        let base = of("n", "k", "p", Operation::Acquire, "r");
        assert_eq!(base, of("n", "k", "p", Operation::Acquire, "r"));
        for other in [
            of("m", "k", "p", Operation::Acquire, "r"),
            of("n", "l", "p", Operation::Acquire, "r"),
            of("n", "k", "q", Operation::Acquire, "r"),
            of("n", "k", "p", Operation::Release, "r"),
            of("n", "k", "p", Operation::Acquire, "s"),
            of("n", "k", "", Operation::Acquire, "pr"),
            GrantId::of_bundle(&LockName::new("n", "k"), "p", b"r"),
        ] {
            assert_ne!(base, other);
        }
    }
}
