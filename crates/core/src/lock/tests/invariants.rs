//! What must hold after every commit, whatever was asked. Every test's commits go through here.

use super::store::Store;
use super::world::World;
use crate::lock::command::End;
use crate::lock::election::place;
use crate::lock::front::Next;
use crate::lock::memo::{Fate, Memo};
use crate::lock::name::Kind;
use crate::lock::roster::{Holder, Roster};
use crate::lock::waiting::Waiting;
use crate::lock::{Decided, Effect, GrantId, Granted, Hold, LockName, NodeId, Reply};
use crate::record::Revision;
use crate::view::Stamp;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

/// What was promised outside of the store: the greatest token, and until when holders may rely on theirs.
#[derive(Clone, Default)]
pub struct Promised {
    token: Revision,
    leases: BTreeMap<GrantId, Lease>,
}

/// A promise to one holder, and to everybody else that its place stays closed after it.
#[derive(Clone, Copy)]
struct Lease {
    hold: Hold,
    until: u64,
    closed_until: u64,
}

/// The whole of it: `before` is the store as it was, `world` how it is after a commit of `decided`.
pub fn check(world: &mut World, before: &Store, decided: &[Decided], commit: Revision) {
    check_records(world);
    check_tokens(world, commit);
    check_memos_stay(world, before);
    for decided in decided {
        for effect in &decided.effects {
            match effect {
                Effect::Ended { id, how, fencing, .. } => check_end(world, before, *id, *how, *fencing),
                Effect::Granted { grant, .. } => {
                    if !world.named.contains(&grant.owner) {
                        check_turn(world, before, grant.id);
                    }
                    check_room(world, grant);
                    check_granted(world, before, grant, commit);
                }
            }
        }
        if let Reply::Granted(grant) = &decided.reply {
            check_granted(world, before, grant, commit);
        }
    }
}

/// Whoever is granted the lock may hold it beside all who rely on theirs, and beside those whose places are closed.
fn check_room(world: &mut World, grant: &Granted) {
    let now = world.store.now;
    world.promised.leases.retain(|_, lease| lease.closed_until > now);
    let others: Vec<_> = world.promised.leases.values().map(|lease| lease.hold).collect();
    match grant.hold {
        Hold::Exclusive => assert!(others.is_empty(), "beside {others:?}"),
        Hold::Shared => {
            assert!(others.iter().all(|hold| *hold == Hold::Shared), "a reader beside {others:?}")
        }
        Hold::Permit { slot } => {
            let permits = world.roster().unwrap().permits.unwrap();
            assert!(slot < permits && others.len() < permits.into(), "one of {permits} beside {others:?}");
            assert!(!others.contains(&grant.hold), "slot {slot} has two holders");
        }
    }
}

fn waiters(lock: &LockName, store: &Store) -> BTreeMap<GrantId, Waiting> {
    let prefix = lock.prefix(Kind::Waiting);
    let records = store.all(&prefix).into_iter();
    let waiting = records.map(|record| {
        let id = GrantId::from_suffix(&record.key.name[prefix.len()..]).unwrap();
        (id, Waiting::decode(&record.value).unwrap())
    });
    waiting.collect()
}

/// The records agree with each other.
fn check_records(world: &World) {
    let grants = world.store.all(&world.lock.prefix(Kind::Grant));
    let waiters = waiters(&world.lock, &world.store);
    let order = world.store.all(&world.lock.prefix(Kind::Order));
    let delays = world.store.all(&world.lock.prefix(Kind::Delay));
    let Some(record) = world.roster_record() else {
        assert!(grants.is_empty() && waiters.is_empty() && order.is_empty(), "a queue without a roster");
        assert!(delays.is_empty(), "closed without a roster: a newcomer's guess would take it");
        return;
    };
    let roster = world.roster().unwrap();
    assert!(!roster.is_empty(), "an empty roster is deleted");
    assert_eq!(roster.waiting, waiters.len() as u64, "waiting records");
    assert_eq!(roster.waiting, order.len() as u64, "order records");
    for (id, waiting) in &waiters {
        let place = world.store.look(&world.lock.order(waiting.place)).expect("an order record");
        assert_eq!(GrantId::from_suffix(&place.value), Some(*id), "each waiter has its own place");
        assert!(waiting.place & ((1 << 48) - 1) < roster.next_place);
        assert_eq!(waiting.terms.mode.permits(), roster.permits, "a waiter for another kind of lock");
    }
    let mut queue: Vec<_> = waiters.iter().map(|(id, waiting)| Next::of(*id, waiting)).collect();
    queue.sort_by_key(|next| next.place);
    let shown = roster.front.shown();
    assert_eq!(shown, &queue[..shown.len()], "the roster shows the beginning of the queue");
    assert!(roster.exclusive().is_some() || roster.metadata.is_none(), "metadata of nobody");
    check_kind(&roster);
    for grant in &grants {
        let is_it = |holder: &&Holder| grant.key == world.lock.grant(holder.id);
        let holder = roster.holders.iter().find(is_it).expect("a live grant is a holder's");
        assert!(!holder.closed, "a live grant keeps its place open");
        let fencing = holder.fencing.unwrap_or(record.revision);
        assert_eq!(fencing, grant.created, "the roster knows the token");
        if holder.flags.alone && record.revision == grant.created {
            assert_eq!((roster.waiting, holder.count), (0, 1), "a blind release would lose someone");
            assert_eq!(roster.holders.len(), 1, "a blind release would lose someone");
        }
        if holder.flags.delayed {
            let delay = world.store.look(&world.lock.delay(holder.id)).expect("a delay record");
            assert!(
                delay.expires_in >= grant.expires_in.map(|left| left + holder.delay),
                "a delay is cut short"
            );
        }
    }
    for delay in &delays {
        let is_it = |holder: &Holder| delay.key == world.lock.delay(holder.id);
        assert!(roster.holders.iter().any(is_it), "a delay that the roster doesn't know");
    }
    assert!(
        !roster.holders.iter().any(|holder| waiters.contains_key(&holder.id)),
        "nobody waits for what it has"
    );
}

/// A semaphore has permits, any other lock one holder or only such as share it.
fn check_kind(roster: &Roster) {
    let holds: Vec<_> = roster.holders.iter().map(|holder| holder.hold).collect();
    match roster.permits {
        Some(permits) => {
            let slots: BTreeSet<_> = holds
                .iter()
                .map(|hold| match hold {
                    Hold::Permit { slot } if *slot < permits => *slot,
                    other => panic!("{other:?} of {permits} permits"),
                })
                .collect();
            assert_eq!(slots.len(), holds.len(), "two in one slot");
        }
        None if holds.len() == 1 => assert!(matches!(holds[0], Hold::Exclusive | Hold::Shared)),
        None => assert!(holds.iter().all(|hold| *hold == Hold::Shared), "{holds:?}"),
    }
}

/// Tokens only grow: a commit makes at most one grant, whose token is its revision and greater than all before.
fn check_tokens(world: &mut World, commit: Revision) {
    let known = world.promised.token;
    let grants = world.store.all(&world.lock.prefix(Kind::Grant));
    let new: Vec<_> = grants.iter().filter(|grant| grant.created > known).collect();
    assert!(new.len() <= 1, "two grants with one token");
    if let Some(grant) = new.first() {
        assert_eq!(grant.created, commit, "a token from nowhere");
        world.promised.token = commit;
    }
}

/// What was answered once is answered again: only a void memo may change, a memo of an effect only expires.
fn check_memos_stay(world: &World, before: &Store) {
    for record in before.all(&world.lock.prefix(Kind::Memo)) {
        if Memo::decode(&record.value).unwrap().fate != Fate::Void {
            let now = world.store.look(&record.key);
            assert_eq!(now.map(|now| now.revision), Some(record.revision), "a memo was rewritten");
        }
    }
}

/// A lease that ran out was over, any other end took a live one.
fn check_end(world: &mut World, before: &Store, id: GrantId, how: End, fencing: Stamp) {
    let key = world.lock.grant(id);
    match before.look(&key) {
        Some(grant) => {
            assert_ne!(how, End::Expired, "a live grant was evicted");
            assert_eq!(Stamp::At(grant.created), fencing);
        }
        None => assert_eq!(how, End::Expired),
    }
    assert!(world.store.look(&key).is_none());
    let memo = world.memo(id).expect("an end is remembered");
    assert_eq!(Stamp::At(memo.fencing), fencing, "with its token");
    if how == End::Expired {
        let promised = world.promised.leases.get(&id);
        assert!(promised.is_none_or(|lease| lease.until <= world.store.now), "it was promised longer");
    } else {
        world.promised.leases.remove(&id);
    }
}

/// Nobody who waited before, and still does, with its call parked all the while, was overtaken.
fn check_turn(world: &World, before: &Store, granted: GrantId) {
    let (was, is) = (waiters(&world.lock, before), waiters(&world.lock, &world.store));
    // Who isn't in the queue yet would stand behind those of its rank; without one, behind all.
    let ranked = world.ranks.iter().filter(|(id, rank)| *id == granted && *rank != 0);
    let newcomer = ranked.map(|(_, rank)| place(*rank, u64::MAX)).min().unwrap_or(u64::MAX);
    let calls = world.ranks.iter().filter(|(id, _)| *id == granted).count();
    // Who was to be forgotten and has no call any more, before this commit or because the first of two calls in it is gone again, is dropped by
    // whatever comes first. Its next call comes as anybody new, perhaps with another rank.
    let is_dropped = |waiting: &Waiting| {
        let is_parked = world.calls.contains(&(waiting.node, granted, waiting.attachment));
        world.forgotten.contains(&granted) && (calls > 1 || !is_parked)
    };
    let place = match was.get(&granted) {
        Some(waiting) if is_dropped(waiting) => waiting.place.min(newcomer),
        Some(waiting) => waiting.place,
        None => newcomer,
    };
    for (id, waiting) in is {
        let parked = world.calls.contains(&(waiting.node, id, waiting.attachment));
        let all_the_while = was.get(&id) == Some(&waiting) && waiting.node != NodeId::NONE;
        assert!(!parked || !all_the_while || waiting.place > place, "{id:?} was overtaken by {granted:?}");
    }
}

/// "Granted" means that the store has the grant, for as long as was said.
fn check_granted(world: &mut World, before: &Store, grant: &Granted, commit: Revision) {
    let fencing = grant.fencing.resolve(commit);
    let Some(record) = world.grant_record(grant.id) else {
        // Given out again, and given back by the next command of the same commit.
        let record = before.look(&world.lock.grant(grant.id)).expect("a grant that was answered");
        assert_eq!(record.created, fencing);
        assert!(!grant.is_new && world.memo(grant.id).is_some());
        return;
    };
    assert_eq!(record.created, fencing);
    assert!(record.expires_in >= Some(grant.ttl));
    let roster = world.roster().unwrap();
    let holder = roster.find(grant.id).filter(|holder| !holder.closed).expect("it holds the lock");
    assert_eq!(holder.hold, grant.hold);
    let until = world.store.now + grant.ttl.as_millis() as u64;
    let closed_until = until + holder.delay.as_millis() as u64;
    let new = Lease { hold: grant.hold, until, closed_until };
    let lease = world.promised.leases.entry(grant.id).or_insert(new);
    (lease.until, lease.closed_until) = (lease.until.max(until), lease.closed_until.max(closed_until));
}
