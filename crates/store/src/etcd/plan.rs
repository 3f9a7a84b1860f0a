//! A commit as one transaction of etcd, given what is known of the records it is about.
//!
//! What isn't known is guessed: a wrong guess makes the transaction show what is there instead, and the next one
//! knows. So the compares here are at least as strict as the checks, and never less.

use super::group::Touched;
use super::keys::Keys;
use super::lease::Lease;
use super::value::{Meta, Stored, TOUCHED_ONCE, TOUCHED_SINCE};
use super::wire::{
    Compare, DeleteRequest, Operand, PutRequest, RangeRequest, Relation, Request, RequestOp, Target,
    TxnRequest,
};
use baton_core::{Check, Commit, Key, Revision, Write};
use std::collections::HashMap;

/// What etcd has under some keys, as of one moment.
pub(super) type Known = HashMap<Key, Option<Stored>>;

/// What must be known of records to commit: those checked, touched and put, each once.
pub(super) fn looked_at(commit: &Commit) -> Vec<Key> {
    let writes = commit.writes.iter().filter(|write| !matches!(write, Write::Delete { .. })).map(Write::key);
    let mut keys: Vec<_> = commit.checks.iter().map(Check::key).chain(writes).cloned().collect();
    keys.sort_unstable();
    keys.dedup();
    keys
}

/// All keys of a commit.
pub(super) fn touched(commit: &Commit) -> Touched {
    let written: Vec<_> = commit.writes.iter().map(|write| write.key().clone()).collect();
    let read = commit.checks.iter().map(Check::key).filter(|key| !written.contains(key)).cloned().collect();
    Touched { read, written }
}

/// The keys that a conflict shows: one for each check, then one for each Touch.
pub(super) fn shown(commit: &Commit) -> impl Iterator<Item = &Key> {
    let touched = commit.writes.iter().filter(|write| matches!(write, Write::Touch { .. })).map(Write::key);
    commit.checks.iter().map(Check::key).chain(touched)
}

/// Whether all checks hold and everything touched is there.
pub(super) fn holds(commit: &Commit, known: &Known) -> bool {
    let found = |key: &Key| known.get(key).and_then(Option::as_ref);
    let checks = commit.checks.iter().all(|check| match check {
        Check::Absent(key) => found(key).is_none(),
        Check::Created(key, revision) => found(key).is_some_and(|stored| stored.created == revision.0),
        Check::At(key, revision) => found(key).is_some_and(|stored| stored.revision() == revision.0),
    });
    let touched = |write: &Write| !matches!(write, Write::Touch { key, .. } if found(key).is_none());
    checks && commit.writes.iter().all(touched)
}

/// Whether anything that the commit would put or touch is as it would be then: of an answer that doesn't tell. Deletes tell
/// nothing. Whoever put the same under the same lease was this commit, or one that is its like.
pub(super) fn may_have_happened(
    commit: &Commit,
    before: &Known,
    now: &Known,
    leases: &HashMap<Key, Lease>,
) -> bool {
    let found = |known: &Known, key: &Key| known.get(key).and_then(Option::as_ref).cloned();
    commit.writes.iter().any(|write| match write {
        Write::Put { key, value, .. } => found(now, key).is_some_and(|stored| {
            stored.value[..] == value[..] && stored.lease == leases.get(key).map_or(0, |lease| lease.id)
        }),
        Write::Touch { key, .. } => {
            let modified = |known| found(known, key).map(|stored| stored.modified);
            modified(before) != modified(now)
        }
        Write::Delete { .. } => false,
    })
}

/// The transaction, and what each Touch will have made of its record but for its revision.
pub(super) struct Plan {
    pub txn: TxnRequest,
    /// Whether it puts something. What doesn't needs a mark, so that it has a revision, and isn't taken for an expiry
    /// by who watches.
    pub puts: bool,
    pub touched: HashMap<Key, Stored>,
}

/// `leases` has one for each write that needs one; `known` has everything touched.
pub(super) fn plan(keys: &Keys, commit: &Commit, known: &Known, leases: &HashMap<Key, Lease>) -> Plan {
    let mut compare = Vec::new();
    for check in &commit.checks {
        checked(keys, check, known, &mut compare);
    }
    let (mut success, mut touched) = (Vec::with_capacity(commit.writes.len()), HashMap::new());
    let mut puts = false;
    for write in &commit.writes {
        let key = keys.encode(write.key());
        let lease = leases.get(write.key()).copied();
        success.push(match write {
            Write::Delete { .. } => Request::Delete(DeleteRequest { key, prev_kv: true }),
            Write::Put { key: name, value, .. } => {
                puts = true;
                let touches = replaced(commit, name, &key, known, &mut compare);
                let meta = Meta { touches, ..under(lease) };
                let lease = lease.map_or(0, |lease| lease.id);
                Request::Put(PutRequest { key, value: meta.encode(value), lease })
            }
            Write::Touch { key: name, .. } => {
                puts = true;
                let present = known.get(name).cloned().flatten().expect("what is touched was read before");
                compare.push(is(&key, Operand::Mod(signed(present.modified))));
                let stored = touch(present, lease);
                let (value, lease) = (stored.meta.encode(&stored.value), stored.lease);
                touched.insert(name.clone(), stored);
                Request::Put(PutRequest { key, value, lease })
            }
        });
    }
    // A check and a write may want to know the same of a key.
    let mut distinct: Vec<Compare> = Vec::with_capacity(compare.len());
    for one in compare {
        if !distinct.contains(&one) {
            distinct.push(one);
        }
    }
    let failure = looked_at(commit).iter().map(|key| range(keys, key, 0)).collect();
    let success = success.into_iter().map(RequestOp::from).collect();
    Plan { txn: TxnRequest { compare: distinct, success, failure }, puts, touched }
}

/// Reads one record.
pub(super) fn range(keys: &Keys, key: &Key, revision: i64) -> RequestOp {
    Request::Range(RangeRequest { key: keys.encode(key), revision, ..RangeRequest::default() }).into()
}

fn checked(keys: &Keys, check: &Check, known: &Known, compare: &mut Vec<Compare>) {
    let key = keys.encode(check.key());
    match check {
        Check::Absent(_) => compare.push(is(&key, Operand::Version(0))),
        Check::Created(_, revision) => {
            // An absent key compares as 0.
            if *revision == Revision(0) {
                compare.push(compared(&key, Relation::Greater, Operand::Version(0)));
            }
            compare.push(is(&key, Operand::Create(signed(revision.0))));
        }
        Check::At(name, revision) => match known.get(name) {
            Some(Some(stored)) => compare.push(is(&key, Operand::Mod(signed(stored.modified)))),
            _ => {
                // A Touch changes what etcd calls modified: only of a key whose last change was a Put it is the Put.
                compare.push(is(&key, Operand::Mod(signed(revision.0))));
                compare.push(compared(&key, Relation::Less, Operand::Value(TOUCHED_SINCE.into())));
            }
        },
    }
}

/// How many touches a Put carries over, and the compares which make sure of that.
fn replaced(commit: &Commit, name: &Key, key: &[u8], known: &Known, compare: &mut Vec<Compare>) -> u64 {
    let untouched = || compared(key, Relation::Less, Operand::Value(TOUCHED_ONCE.into()));
    match known.get(name) {
        Some(None) => compare.push(is(key, Operand::Version(0))),
        Some(Some(stored)) if stored.meta.touches == 0 => compare.push(untouched()),
        Some(Some(stored)) => {
            compare.push(is(key, Operand::Mod(signed(stored.modified))));
            return stored.meta.touches;
        }
        None => match commit.checks.iter().find(|check| check.key() == name) {
            Some(Check::Created(..) | Check::At(..)) => compare.push(untouched()),
            Some(Check::Absent(_)) | None => compare.push(is(key, Operand::Version(0))),
        },
    }
    0
}

fn under(lease: Option<Lease>) -> Meta {
    lease.map_or_else(Meta::default, |lease| Meta {
        own: !lease.shared,
        seconds: lease.seconds,
        ends_ms: lease.ends_ms,
        ..Meta::default()
    })
}

/// A record after a Touch; without a new lease it keeps what it has.
fn touch(present: Stored, lease: Option<Lease>) -> Stored {
    let (put_at, touches) = (Some(present.revision()), present.meta.touches.saturating_add(1));
    match lease {
        None => Stored { meta: Meta { put_at, touches, ..present.meta }, ..present },
        Some(lease) => {
            Stored { lease: lease.id, meta: Meta { put_at, touches, ..under(Some(lease)) }, ..present }
        }
    }
}

fn is(key: &[u8], operand: Operand) -> Compare {
    compared(key, Relation::Equal, operand)
}

fn compared(key: &[u8], relation: Relation, operand: Operand) -> Compare {
    let target = match &operand {
        Operand::Version(_) => Target::Version,
        Operand::Create(_) => Target::Create,
        Operand::Mod(_) => Target::Mod,
        Operand::Value(_) => Target::Value,
    };
    let (relation, target) = (relation.into(), target.into());
    Compare { relation, target, key: key.to_vec(), operand: Some(operand) }
}

fn signed(revision: u64) -> i64 {
    i64::try_from(revision).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use baton_core::{Group, Ttl};
    use std::time::Duration;

    #[test]
    fn a_commit_that_crossed_the_quota_is_told_from_one_that_was_refused() {
        let key = Key::new(Group(1), b"k".as_slice());
        let stored = |value: &[u8], lease: i64, modified: u64| {
            let (key, created, meta) = (key.clone(), 1, Meta::default());
            Some(Stored { key, created, modified, lease, meta, value: value.into() })
        };
        let known = |stored: Option<Stored>| Known::from([(key.clone(), stored)]);
        let leases = HashMap::from([(key.clone(), Lease { id: 7, ..Lease::default() })]);
        let ttl = Duration::from_secs(5);
        let put = Write::Put { key: key.clone(), value: b"v".as_slice().into(), ttl: Ttl::Exactly(ttl) };
        let touch = Write::Touch { key: key.clone(), ttl };
        let delete = Write::Delete { key: key.clone() };
        for (write, before, now, expected) in [
            (&put, None, None, false),
            (&put, None, stored(b"v", 7, 9), true),
            (&put, None, stored(b"v", 6, 9), false),
            (&put, None, stored(b"other", 7, 9), false),
            (&touch, stored(b"v", 6, 3), stored(b"v", 6, 3), false),
            (&touch, stored(b"v", 6, 3), stored(b"v", 7, 9), true),
            (&touch, stored(b"v", 6, 3), None, true),
            (&delete, None, None, false),
        ] {
            let commit = Commit { checks: Vec::new(), writes: vec![write.clone()] };
            let told = may_have_happened(&commit, &known(before.clone()), &known(now.clone()), &leases);
            assert_eq!(told, expected, "{write:?}: {before:?}, then {now:?}");
        }
    }
}
