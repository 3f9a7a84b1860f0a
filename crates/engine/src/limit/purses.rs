//! Where the purses of all keys are (M2, P12).
//!
//! They lie densely in chunks, found by an index of 4 bytes a key. The last one moves to where another was forgotten, and chunks
//! that are empty go: so keys take memory while they are used, and no longer.

use super::held::{Given, Held, Whose};
use baton_core::Name;
use baton_core::limit::purse::Message;
use baton_core::limit::{Defined, Identity, Mechanism};
use hashbrown::HashTable;
use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use tokio::sync::futures::OwnedNotified;

const SHARDS: usize = 64;
/// Keys with a purse in each shard. Beyond it those that come new are decided by the store.
const SHARD_MAX: usize = 1 << 14;
/// Purses that are made room for at once: 4 KiB, which is what the allocator then takes. For 8 KiB it takes 10.
const CHUNK: usize = 32;
const _: () = assert!(CHUNK * size_of::<Held>() == 4096, "no more, no less");
/// Limits whose purses share what they have in common. Beyond it all are forgotten, and purses that come new share anew.
const SHARED_MAX: usize = 10_000;
/// What is found at once to be said to the store. There is more if there are as many.
const LEAVING_MAX: usize = 4_096;

/// All purses of a node.
pub(crate) struct Purses {
    shards: Vec<Mutex<Shard>>,
    hasher: RandomState,
    /// By limit, for each identity.
    shared: Mutex<HashMap<Name, [Option<Arc<Given>>; 2]>>,
    next: AtomicU32,
}

/// Whose purse.
#[derive(Clone, Copy)]
pub(super) struct Sought<'a> {
    pub limit: &'a Name,
    pub key: &'a str,
    class: Identity,
    hash: u64,
}

/// A part of all purses.
pub(super) struct Shard {
    hasher: RandomState,
    /// Where in the chunks a key's purse is.
    index: HashTable<u32>,
    /// All but the last are full.
    chunks: Vec<Vec<Held>>,
}

fn hash_of(hasher: &RandomState, limit: &Name, key: &[u8], class: Identity) -> u64 {
    hasher.hash_one((limit.path(), key, class))
}

impl Shard {
    fn place(&self, sought: &Sought<'_>) -> Option<usize> {
        let is_it = |at: &u32| {
            let held = &self.chunks[*at as usize / CHUNK][*at as usize % CHUNK];
            held.key_bytes() == sought.key.as_bytes()
                && held.class == sought.class
                && held.given.limit == *sought.limit
        };
        self.index.find(sought.hash, is_it).map(|at| *at as usize)
    }

    pub fn find(&mut self, sought: &Sought<'_>) -> Option<&mut Held> {
        self.place(sought).map(|at| &mut self.chunks[at / CHUNK][at % CHUNK])
    }

    fn count(&self) -> usize {
        self.index.len()
    }

    pub fn is_full(&self) -> bool {
        self.count() >= SHARD_MAX
    }

    /// Of a key that has none, while it isn't full.
    fn insert(&mut self, hash: u64, held: Held) {
        let at = self.count();
        if at.is_multiple_of(CHUNK) {
            self.chunks.push(Vec::with_capacity(CHUNK));
        }
        self.chunks[at / CHUNK].push(held);
        let Self { hasher, index, chunks } = self;
        let rehash = |at: &u32| rehash(hasher, chunks, *at);
        index.insert_unique(hash, at as u32, rehash);
    }

    /// Forgets one. The last one comes into its place.
    fn remove(&mut self, at: usize) {
        let last = self.count() - 1;
        let hashes = [at, last].map(|at| rehash(&self.hasher, &self.chunks, at as u32));
        let entry = self.index.find_entry(hashes[0], |found| *found as usize == at);
        entry.expect("what is in a chunk is in the index").remove();
        let moved = self.chunks[last / CHUNK].pop().expect("only the last chunk isn't full");
        if last.is_multiple_of(CHUNK) {
            self.chunks.pop();
        }
        if at != last {
            self.chunks[at / CHUNK][at % CHUNK] = moved;
            let found = self.index.find_mut(hashes[1], |found| *found as usize == last);
            *found.expect("what is in a chunk is in the index") = at as u32;
        }
    }

    /// An index that has become far too large goes.
    fn shrink(&mut self) {
        let Self { hasher, index, chunks } = self;
        if index.capacity() > 4 * index.len() + CHUNK {
            index.shrink_to(2 * index.len(), |at| rehash(hasher, chunks, *at));
        }
    }

    fn all(&mut self) -> impl Iterator<Item = &mut Held> {
        self.chunks.iter_mut().flatten()
    }
}

fn rehash(hasher: &RandomState, chunks: &[Vec<Held>], at: u32) -> u64 {
    let held = &chunks[at as usize / CHUNK][at as usize % CHUNK];
    hash_of(hasher, &held.given.limit, held.key_bytes(), held.class)
}

impl Default for Purses {
    fn default() -> Self {
        let hasher = RandomState::new();
        let shard = || Shard { hasher: hasher.clone(), index: HashTable::new(), chunks: Vec::new() };
        let shards = (0..SHARDS).map(|_| Mutex::new(shard())).collect();
        Self { shards, hasher, shared: Mutex::default(), next: AtomicU32::new(1) }
    }
}

/// Of a lease that was over before it was given back.
pub(super) struct Lapsed {
    pub whose: Whose,
    pub number: u32,
    pub amount: u64,
}

/// What of all purses is given back.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Leaving {
    /// What nobody spends.
    Idle,
    /// All that isn't being asked for right now.
    All,
}

/// What is to be said.
#[derive(Default)]
pub(super) struct Leavings {
    pub messages: Vec<(Whose, Message)>,
    pub lapsed: Vec<Lapsed>,
}

impl Leavings {
    /// As much as is found at once: there may be more.
    pub fn is_full(&self) -> bool {
        self.messages.len() + self.lapsed.len() >= LEAVING_MAX
    }
}

impl Purses {
    /// Whose purse is looked for.
    pub(super) fn sought<'a>(&self, limit: &'a Name, key: &'a str, class: Identity) -> Sought<'a> {
        Sought { limit, key, class, hash: hash_of(&self.hasher, limit, key.as_bytes(), class) }
    }

    /// Where it is, if it is.
    pub(super) fn shard(&self, sought: &Sought<'_>) -> MutexGuard<'_, Shard> {
        // By other bits than those that an index begins and tells entries by.
        self.locked(&self.shards[(sought.hash >> 40) as usize % SHARDS])
    }

    fn locked<'a>(&self, shard: &'a Mutex<Shard>) -> MutexGuard<'a, Shard> {
        shard.lock().expect("no panic while held")
    }

    /// Gives a key a purse with nothing in it.
    pub(super) fn insert(&self, shard: &mut Shard, sought: &Sought<'_>, given: Arc<Given>, now_ms: u64) {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        shard.insert(sought.hash, Held::new(sought.key, sought.class, given, number, now_ms));
    }

    /// What a limit's purses have in common, by this definition.
    pub(super) fn given(&self, limit: &Name, defined: &Arc<Defined>, identity: Identity) -> Arc<Given> {
        let mut shared = self.shared.lock().expect("no panic while held");
        if !shared.contains_key(limit) {
            if shared.len() >= SHARED_MAX {
                shared.clear();
            }
            shared.insert(limit.clone(), [None, None]);
        }
        let of_limit = shared.get_mut(limit).expect("it was there, or is now");
        let given = &mut of_limit[usize::from(identity == Identity::Anonymous)];
        match given {
            Some(given) if given.defined.version == defined.version => given.clone(),
            _ => {
                let made = Given { limit: limit.clone(), defined: defined.clone(), identity };
                given.insert(Arc::new(made)).clone()
            }
        }
    }

    /// What is to be said now, to give back what is idle or all there is. Forgets empty purses that nobody came back to. Of
    /// an owned limit, that which another node owns goes too.
    pub(super) fn leaving(
        &self,
        which: Leaving,
        now_ms: u64,
        is_anothers: impl Fn(&Name, &str) -> bool,
    ) -> Leavings {
        let mut found = Leavings::default();
        for shard in &self.shards {
            let mut shard = self.locked(shard);
            let mut at = 0;
            while at < shard.count() && !found.is_full() {
                let held = &mut shard.chunks[at / CHUNK][at % CHUNK];
                at += 1;
                let is_owned = held.given.defined.definition.mechanism == Mechanism::Owned;
                if which == Leaving::Idle && !is_owned && held.is_quiet(now_ms) {
                    continue;
                }
                let (terms, used_ms) = (held.terms(), held.used_ms());
                if held.with(&terms, |holder| holder.is_over(used_ms, now_ms)) {
                    let amount = held.purse.lapse(&held.till, now_ms);
                    if amount > 0 {
                        found.lapsed.push(Lapsed { whose: held.whose(), number: held.number, amount });
                    }
                    at -= 1;
                    shard.remove(at);
                    continue;
                }
                let must_go =
                    which == Leaving::All || (is_owned && is_anothers(&held.given.limit, held.key()));
                if let Some(message) = held.with(&terms, |holder| holder.look(must_go, now_ms)) {
                    found.messages.push((held.whose(), message));
                }
            }
            shard.shrink();
        }
        found
    }

    /// What an older definition of a limit than this one has given, to be given back.
    pub(super) fn outdated(&self, limit: &Name, defined: &Defined, now_ms: u64) -> Leavings {
        let mut found = Leavings::default();
        for shard in &self.shards {
            for held in self.locked(shard).all() {
                if held.given.defined.version >= defined.version || held.given.limit != *limit {
                    continue;
                }
                if found.is_full() {
                    return found;
                }
                let terms = held.terms();
                if let Some(message) = held.with(&terms, |holder| holder.look(true, now_ms)) {
                    found.messages.push((held.whose(), message));
                }
            }
        }
        found
    }

    /// Resolves when somebody hears an answer that is waited for now; nothing if nobody waits for any.
    pub(super) fn next_answer(&self) -> Option<OwnedNotified> {
        self.shards.iter().find_map(|shard| {
            let mut shard = self.locked(shard);
            shard.all().find(|held| held.purse.is_asking()).map(Held::next_answer)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use baton_core::limit::Definition;
    use baton_core::meter::Algorithm;

    fn defined(version: u64) -> Arc<Defined> {
        let definition = Definition::plain(Algorithm::FixedWindow, 1_000, 60_000);
        let definition = Definition { mechanism: Mechanism::Leased, ..definition };
        Arc::new(Defined { definition, version: baton_core::Revision(version) })
    }

    fn insert(purses: &Purses, limit: &Name, key: &str, now_ms: u64) -> bool {
        let sought = purses.sought(limit, key, Identity::default());
        let mut shard = purses.shard(&sought);
        let has_room = !shard.is_full();
        if has_room {
            let given = purses.given(limit, &defined(1), Identity::default());
            purses.insert(&mut shard, &sought, given, now_ms);
        }
        has_room
    }

    fn finds(purses: &Purses, limit: &Name, key: &str) -> bool {
        let sought = purses.sought(limit, key, Identity::default());
        purses.shard(&sought).find(&sought).is_some_and(|held| held.key() == key)
    }

    fn count(purses: &Purses) -> usize {
        purses.shards.iter().map(|shard| shard.lock().unwrap().count()).sum()
    }

    #[test]
    fn whatever_comes_and_goes_those_that_stay_are_found() {
        let (purses, limit, other) = (Purses::default(), Name::new("n", "l"), Name::new("n", "other"));
        let key = |number: u64| format!("{number:0length$}", length = number as usize % 40);
        for number in 0..10_000 {
            // Every third is used long after the others.
            insert(&purses, &limit, &key(number), if number % 3 == 0 { 60_000 } else { 0 });
        }
        assert!((0..10_000).all(|number| finds(&purses, &limit, &key(number))));
        assert!(!finds(&purses, &other, &key(0)), "a limit's keys are its own");
        let forgotten = purses.leaving(Leaving::Idle, 60_000, |_, _| false);
        assert!(forgotten.messages.is_empty() && forgotten.lapsed.is_empty(), "nothing was in them");
        for number in 0..10_000 {
            assert_eq!(finds(&purses, &limit, &key(number)), number % 3 == 0, "{number}");
        }
        purses.leaving(Leaving::Idle, 120_000, |_, _| false);
        let is_freed = |shard: &Mutex<Shard>| {
            let shard = shard.lock().unwrap();
            shard.chunks.is_empty() && shard.index.capacity() <= CHUNK
        };
        assert!(purses.shards.iter().all(is_freed), "what nobody uses takes no memory");
    }

    #[test]
    fn there_is_an_end_to_the_keys_with_a_purse() {
        let (purses, limit) = (Purses::default(), Name::new("n", "l"));
        // All in one shard.
        let mut same = (0..).map(|number: u64| number.to_string()).filter(|key| {
            let shard = purses.sought(&limit, key, Identity::default()).hash >> 40;
            (shard as usize).is_multiple_of(SHARDS)
        });
        for key in same.by_ref().take(SHARD_MAX) {
            assert!(insert(&purses, &limit, &key, 0));
        }
        assert!(!insert(&purses, &limit, &same.next().unwrap(), 0));
        assert_eq!(count(&purses), SHARD_MAX);
    }

    #[test]
    fn what_keys_have_in_common_is_there_once_for_each_version_and_identity() {
        let (purses, limit) = (Purses::default(), Name::new("n", "l"));
        let given = |version, identity| purses.given(&limit, &defined(version), identity);
        let first = given(1, Identity::Authenticated);
        assert!(Arc::ptr_eq(&first, &given(1, Identity::Authenticated)));
        assert!(!Arc::ptr_eq(&first, &given(1, Identity::Anonymous)));
        assert!(!Arc::ptr_eq(&first, &given(2, Identity::Authenticated)));
        for number in 0..SHARED_MAX {
            purses.given(&Name::new("n", &number.to_string()), &defined(1), Identity::default());
        }
        assert!(purses.shared.lock().unwrap().len() <= SHARED_MAX);
    }

    #[test]
    fn what_is_to_be_said_comes_in_parts_until_all_was_said() {
        let (purses, limit) = (Purses::default(), Name::new("n", "l"));
        for number in 0..LEAVING_MAX + 10 {
            let key = number.to_string();
            insert(&purses, &limit, &key, 0);
            let sought = purses.sought(&limit, &key, Identity::default());
            let mut shard = purses.shard(&sought);
            let held = shard.find(&sought).unwrap();
            let terms = held.terms();
            let message = held.purse.ask(&held.till, 1, 1, &terms);
            held.purse.heard(&held.till, message.sequence, 10, &terms);
        }
        for said in [LEAVING_MAX, 10, 0] {
            let leaving = purses.leaving(Leaving::All, 2, |_, _| false);
            assert_eq!((leaving.messages.len(), leaving.is_full()), (said, said == LEAVING_MAX));
        }
        assert!(purses.next_answer().is_some());
    }
}
