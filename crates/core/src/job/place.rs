//! Where the records of a job are: all in its group, so that a run, its lease, the job's state and its place in the index are
//! one commit (J15).

use super::id::{RunId, RunPlace, Uid};
use crate::name::{Kind, Name};
use crate::record::{Bytes, Group, Key, WallTime};

/// The kind of definitions.
pub const DEFINITION: Kind = *b"Jd";
/// The kind of states.
const STATE: Kind = *b"Js";
/// The kind of index entries: then when, big-endian, so that a scan meets what is due first; then the job's path.
pub const INDEX: Kind = *b"Ji";
/// The kind of runs: then the job's uid and the run's place, so that a scan meets a job's runs in the order of their times.
const RUN: Kind = *b"Jr";
/// The kind of leases: then as for runs.
pub const LEASE: Kind = *b"Jl";
/// The kind of limits: then as for runs.
const LIMIT: Kind = *b"Jt";
/// The kind of runs that a worker may take: then namespace, queue, since when, uid and place.
const READY: Kind = *b"Jw";
/// The kind of requests that were carried out: then uid and a hash of the request.
const MEMO: Kind = *b"Jm";

/// The kind of calendars.
pub const CALENDAR: Kind = *b"Jc";

/// Where a calendar is: in the group of its own name.
pub fn calendar_key(name: &Name) -> Key {
    name.record(CALENDAR, &[])
}

/// Where a job's definition is.
pub fn definition_key(name: &Name) -> Key {
    name.record(DEFINITION, &[])
}

/// Where a job's state is.
pub fn state_key(name: &Name) -> Key {
    name.record(STATE, &[])
}

/// Where a job is in the index.
pub fn index_key(name: &Name, at: WallTime) -> Key {
    let parts = [&INDEX[..], &at.0.to_be_bytes(), name.path()];
    Key::new(name.group(), parts.concat())
}

/// When an index entry is due, and whose it is.
pub fn index_entry(key: &[u8]) -> Option<(WallTime, Name)> {
    let (at, path) = key.strip_prefix(&INDEX)?.split_first_chunk()?;
    let zero = path.iter().position(|byte| *byte == 0)?;
    let text = |bytes| core::str::from_utf8(bytes).ok();
    let name = Name::new(text(&path[..zero])?, text(&path[zero + 1..])?);
    Some((WallTime(u64::from_be_bytes(*at)), name))
}

/// Where a run is.
pub fn run_key(id: RunId) -> Key {
    of_run(RUN, id)
}

/// What the names of a job's runs begin with.
pub fn runs_prefix(uid: Uid) -> Bytes {
    [&RUN[..], &uid.bytes()].concat().into()
}

/// Which run a record is.
pub fn run_of(key: &[u8]) -> Option<RunId> {
    let (uid, place) = key.strip_prefix(&RUN)?.split_first_chunk()?;
    let place = RunPlace::of_bytes(place.try_into().ok()?)?;
    Some(RunId { uid: Uid(u128::from_be_bytes(*uid)), place })
}

/// Where a run's lease is.
pub fn lease_key(id: RunId) -> Key {
    of_run(LEASE, id)
}

/// Whose lease a record is.
pub fn lease_of(key: &[u8]) -> Option<RunId> {
    let (uid, place) = key.strip_prefix(&LEASE)?.split_first_chunk()?;
    let place = RunPlace::of_bytes(place.try_into().ok()?)?;
    Some(RunId { uid: Uid(u128::from_be_bytes(*uid)), place })
}

/// Where it is that an attempt may still go on, which others make: absent when it has taken too long. By the store's own clock for leases, since
/// a wall clock may step, or be another node's (J16).
pub fn limit_key(id: RunId) -> Key {
    of_run(LIMIT, id)
}

fn of_run(kind: Kind, id: RunId) -> Key {
    Key::new(id.uid.group(), [&kind[..], &id.uid.bytes(), &id.place.bytes()].concat())
}

/// Where it is said that a worker may take a run. In the order of when they were to begin.
pub fn ready_key(namespace: &str, queue: &str, due: WallTime, id: RunId) -> Key {
    let (uid, place) = (id.uid.bytes(), id.place.bytes());
    let parts = [&*ready_prefix(namespace, queue), &due.0.to_be_bytes(), &uid, &place];
    Key::new(id.uid.group(), parts.concat())
}

/// What the names of the runs begin with that workers of a queue may take, in every group.
pub fn ready_prefix(namespace: &str, queue: &str) -> Bytes {
    [&READY[..], namespace.as_bytes(), &[0], queue.as_bytes(), &[0]].concat().into()
}

/// What all their names begin with, whatever the queue.
pub fn ready_prefix_of_all() -> Bytes {
    READY[..].into()
}

/// Which run a worker may take: since when, and of which queue (namespace and name).
pub fn ready_entry(key: &[u8]) -> Option<(&str, &str, WallTime, RunId)> {
    let rest = key.strip_prefix(&READY)?;
    let (path, tail) = rest.split_at_checked(rest.len().checked_sub(8 + 16 + 17 + 1)?)?;
    let (due, tail) = tail.strip_prefix(&[0])?.split_first_chunk()?;
    let (uid, place) = tail.split_first_chunk()?;
    let (namespace, queue) = core::str::from_utf8(path).ok()?.split_once('\0')?;
    let place = RunPlace::of_bytes(place.try_into().ok()?)?;
    let id = RunId { uid: Uid(u128::from_be_bytes(*uid)), place };
    Some((namespace, queue, WallTime(u64::from_be_bytes(*due)), id))
}

/// Where it is remembered that a request was carried out.
pub fn memo_key(uid: Uid, request: [u8; 16]) -> Key {
    Key::new(uid.group(), [&MEMO[..], &uid.bytes(), &request].concat())
}

/// What the index of a group begins with.
pub fn index_prefix() -> Bytes {
    INDEX[..].into()
}

/// The group whose index a name is in, if it is one.
pub fn index_time(key: &Key) -> Option<(Group, WallTime)> {
    let (at, _) = key.name.strip_prefix(&INDEX)?.split_first_chunk()?;
    Some((key.group, WallTime(u64::from_be_bytes(*at))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn names_say_what_they_are_about(namespace in "[^\0]{1,9}", word in "[^\0]{1,9}", time: u64, uid: u128, number: u64) {
            let (name, at) = (Name::new(&namespace, &word), WallTime(time));
            prop_assert_eq!(index_entry(&index_key(&name, at).name), Some((at, name)));
            let place = RunPlace { number, ..RunPlace::scheduled(at) };
            let id = RunId { uid: Uid(uid), place };
            prop_assert_eq!(run_of(&run_key(id).name), Some(id));
            prop_assert_eq!(lease_of(&lease_key(id).name), Some(id));
            prop_assert!(run_key(id).name.starts_with(&runs_prefix(id.uid)));
            let ready = ready_key(&namespace, &word, at, id);
            prop_assert_eq!(ready_entry(&ready.name), Some((&*namespace, &*word, at, id)));
        }

        #[test]
        fn what_is_due_first_comes_first(one: u64, other: u64) {
            let key = |at| index_key(&Name::new("n", "j"), WallTime(at)).name;
            prop_assert_eq!(key(one).cmp(&key(other)), one.cmp(&other));
        }

        #[test]
        fn other_names_are_none_of_them(name: alloc::vec::Vec<u8>) {
            for kind in [INDEX, READY, RUN, LEASE] {
                let name = [&kind[..], &name].concat();
                drop((index_entry(&name), ready_entry(&name), run_of(&name), lease_of(&name)));
            }
        }
    }
}
