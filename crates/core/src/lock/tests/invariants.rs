//! What must hold after every commit, whatever was asked. Every test's commits go through here.

use super::store::Store;
use super::world::World;
use crate::lock::command::End;
use crate::lock::memo::{Fate, Memo};
use crate::lock::name::Kind;
use crate::lock::waiting::Waiting;
use crate::lock::{Decided, Effect, GrantId, Granted, LockName, NodeId, Reply};
use crate::record::Revision;
use crate::view::Stamp;
use alloc::collections::BTreeMap;

/// What was promised outside of the store: the greatest token, and until when its holder may rely on it.
#[derive(Clone, Default)]
pub struct Promised {
    token: Revision,
    lease: Option<(GrantId, u64)>,
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
                    check_turn(world, before, grant.id);
                    let lease = world.promised.lease;
                    assert!(lease.is_none_or(|(_, until)| until <= world.store.now), "two holders at a time");
                    world.promised.lease = None;
                    check_granted(world, before, grant, commit);
                }
            }
        }
        if let Reply::Granted(grant) = &decided.reply {
            check_granted(world, before, grant, commit);
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
    let Some(record) = world.roster_record() else {
        assert!(grants.is_empty() && waiters.is_empty() && order.is_empty(), "a queue without a roster");
        return;
    };
    let roster = world.roster().unwrap();
    assert!(roster.holder.is_some() || roster.waiting > 0, "an empty roster is deleted");
    assert_eq!(roster.waiting, waiters.len() as u64, "waiting records");
    assert_eq!(roster.waiting, order.len() as u64, "order records");
    for (id, waiting) in &waiters {
        let place = world.store.look(&world.lock.order(waiting.place)).expect("an order record");
        assert_eq!(GrantId::from_suffix(&place.value), Some(*id), "each waiter has its own place");
        assert!(waiting.place < roster.next_place);
    }
    assert!(grants.len() <= 1, "at most one live grant");
    let Some(holder) = &roster.holder else {
        assert!(grants.is_empty(), "a grant that the roster doesn't know");
        assert_eq!(roster.metadata, None, "metadata of nobody");
        return;
    };
    assert!(!waiters.contains_key(&holder.id), "nobody waits for what it has");
    if let Some(grant) = grants.first() {
        assert_eq!(grant.key, world.lock.grant(holder.id), "the live grant is the holder's");
        let fencing = holder.fencing.unwrap_or(record.revision);
        assert_eq!(fencing, grant.created, "the roster knows the token");
        if holder.flags.alone && record.revision == grant.created {
            assert_eq!((roster.waiting, holder.count), (0, 1), "a blind release would lose someone");
        }
    }
}

/// Tokens only grow: a grant that this commit made has this commit's revision, which is greater than all before.
fn check_tokens(world: &mut World, commit: Revision) {
    for grant in world.store.all(&world.lock.prefix(Kind::Grant)) {
        assert!(grant.created >= world.promised.token, "an old token");
        assert!(grant.created == commit || grant.created == world.promised.token, "a token from nowhere");
        world.promised.token = grant.created;
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
        let promised = world.promised.lease.filter(|(promised, _)| *promised == id);
        assert!(promised.is_none_or(|(_, until)| until <= world.store.now), "it was promised longer");
    }
    world.promised.lease = None;
}

/// Nobody who waited before, and still does, with its call parked all the while, was overtaken.
fn check_turn(world: &World, before: &Store, granted: GrantId) {
    let (was, is) = (waiters(&world.lock, before), waiters(&world.lock, &world.store));
    let place = was.get(&granted).map_or(u64::MAX, |waiting| waiting.place);
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
    assert_eq!(world.holder(), Some(grant.id));
    let until = world.store.now + grant.ttl.as_millis() as u64;
    let promised = world.promised.lease.map_or(until, |(_, earlier)| earlier.max(until));
    world.promised.lease = Some((grant.id, promised));
}
