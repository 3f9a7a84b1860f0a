//! Where the tills of all keys are: found without a lock and without writing to anything that threads share.
//!
//! A slot has a key's words and its till, in one cache line. Slots never move. An index says where a key's slot is: words of a tag,
//! which also says where the search begins, and a slot's number. Whoever finds a slot compares the key; whoever spends from it does so by
//! the till's own word, which changes when the slot goes to another key. So a reader may be behind a writer and miss a
//! key, but never spends from another's.
//!
//! Writers (new keys, forgotten ones, a larger index) take turns. What is needed less often is behind a lock of the slot's own.
//! A writer may hold both, in this order.

use super::key::{Sought, WORDS};
use baton_core::limit::till::{Taken, Till};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock};

/// Keys at most. Beyond it those that come new ask the server.
pub(super) const KEYS_MAX: usize = 1_000_000;
/// Places in the index, smallest first. When two thirds are taken, the next one is made; those before stay, as readers may be in them.
const LEVELS: [usize; 4] = [2_048, 32_768, 163_840, KEYS_MAX * 3 / 2];
/// Slots that are made at once.
const CHUNK: usize = 1_024;
/// In place of a key's words: no key ends like this.
const NOBODY: u64 = u64::MAX - 2;

/// One key's.
#[repr(align(64))]
pub(super) struct Slot {
    pub till: Till,
    words: [AtomicU64; WORDS],
}

impl Default for Slot {
    fn default() -> Self {
        Self { till: Till::default(), words: std::array::from_fn(|_| AtomicU64::new(NOBODY)) }
    }
}

impl Slot {
    #[inline]
    fn is(&self, words: &[u64; WORDS]) -> bool {
        let differs = |(mine, word): (&AtomicU64, &u64)| mine.load(Ordering::Acquire) ^ word;
        // All of them, without a branch for each: they are in one cache line.
        self.words.iter().zip(words).map(differs).fold(0, |all, some| all | some) == 0
    }

    pub fn words(&self) -> [u64; WORDS] {
        std::array::from_fn(|index| self.words[index].load(Ordering::Acquire))
    }

    fn belongs_to(&self, words: &[u64; WORDS]) {
        for (mine, word) in self.words.iter().zip(words) {
            mine.store(*word, Ordering::Release);
        }
    }
}

/// Made as they are needed, and never moved.
type Chunks<T> = Box<[OnceLock<Box<[T]>>]>;

/// See the module. `C` is what is behind each slot's own lock.
pub(super) struct Table<C> {
    levels: [OnceLock<Box<[AtomicU64]>>; LEVELS.len()],
    /// The level in use.
    level: AtomicUsize,
    slots: Chunks<Slot>,
    colds: Chunks<Mutex<C>>,
    writers: Mutex<Slots>,
}

/// Which slots there are.
#[derive(Default)]
struct Slots {
    /// Those that were used once, and are free again.
    free: Vec<u32>,
    /// How many were ever used.
    made: u32,
    live: usize,
}

/// A slot that was found, and what is behind its lock.
pub(super) struct Found<'a, C> {
    pub slot: &'a Slot,
    pub cold: MutexGuard<'a, C>,
}

fn home(tag: u32, places: usize) -> usize {
    ((u64::from(tag) * places as u64) >> 32) as usize
}

fn tag_of(word: u64) -> u32 {
    (word >> 32) as u32
}

/// The number of the slot; a place without one is 0.
fn number_of(word: u64) -> u32 {
    word as u32 - 1
}

impl<C: Default> Default for Table<C> {
    fn default() -> Self {
        let chunks = KEYS_MAX.div_ceil(CHUNK);
        Self {
            levels: Default::default(),
            level: AtomicUsize::new(0),
            slots: (0..chunks).map(|_| OnceLock::new()).collect(),
            colds: (0..chunks).map(|_| OnceLock::new()).collect(),
            writers: Mutex::default(),
        }
    }
}

impl<C: Default> Table<C> {
    /// Takes from the till of a key, if it has one.
    #[inline]
    pub fn take(&self, sought: &Sought, cost: u64, now_ms: u64) -> Option<Taken> {
        let index = self.index();
        let mut place = home(sought.tag, index.len());
        // A third of the places are free, so one is soon found; a writer at work may hide one, but not for a whole round.
        for _ in 0..index.len() {
            let word = index[place].load(Ordering::Acquire);
            if word == 0 {
                return None;
            }
            if tag_of(word) == sought.tag
                && let Some(slot) = self.slot(number_of(word))
            {
                match slot.till.take(cost, now_ms, || slot.is(&sought.words)) {
                    Taken::Another => {}
                    taken => return Some(taken),
                }
            }
            place = if place + 1 == index.len() { 0 } else { place + 1 };
        }
        None
    }

    /// A key's slot.
    pub fn find(&self, sought: &Sought) -> Option<Found<'_, C>> {
        self.locked(sought).or_else(|| {
            // It may have been moved in the index just now: while no writer is at work nothing is overlooked.
            let _writers = self.lock();
            self.locked(sought)
        })
    }

    /// Gives a key a slot, unless it has one or there are too many. Whether it was given one.
    pub fn insert(&self, sought: &Sought, cold: C) -> bool {
        let mut writers = self.lock();
        if writers.live >= KEYS_MAX || self.locked(sought).is_some() {
            return false;
        }
        let number = writers.free.pop().unwrap_or_else(|| {
            writers.made += 1;
            writers.made - 1
        });
        let (chunk, place) = (number as usize / CHUNK, number as usize % CHUNK);
        let slot = &self.slots[chunk].get_or_init(|| (0..CHUNK).map(|_| Slot::default()).collect())[place];
        let colds = self.colds[chunk].get_or_init(|| (0..CHUNK).map(|_| Mutex::default()).collect());
        *colds[place].lock().expect("no panic while held") = cold;
        slot.belongs_to(&sought.words);
        self.make_room(writers.live + 1);
        put(self.index(), u64::from(sought.tag) << 32 | u64::from(number + 1));
        writers.live += 1;
        true
    }

    /// Looks at all that are there. Those that come or go meanwhile may be left out.
    pub fn each(&self, mut look: impl FnMut(&Slot, &Mutex<C>)) {
        for word in self.index().iter().map(|word| word.load(Ordering::Acquire)).filter(|word| *word != 0) {
            if let (Some(slot), Some(cold)) = (self.slot(number_of(word)), self.cold(number_of(word))) {
                look(slot, cold);
            }
        }
    }

    /// Forgets those that may be forgotten, of those whose tills have something to be looked at.
    pub fn forget(&self, now_ms: u64, mut may_go: impl FnMut(&C) -> bool) {
        let mut going = Vec::new();
        for word in self.index().iter().map(|word| word.load(Ordering::Acquire)).filter(|word| *word != 0) {
            if let (Some(slot), Some(cold)) = (self.slot(number_of(word)), self.cold(number_of(word)))
                && !slot.till.is_quiet(now_ms)
                && may_go(&cold.lock().expect("no panic while held"))
            {
                going.push(word);
            }
        }
        for word in going {
            // One at a time, so that nobody who comes new waits for all of them.
            let mut writers = self.lock();
            let (Some(slot), Some(cold)) = (self.slot(number_of(word)), self.cold(number_of(word))) else {
                continue;
            };
            let mut cold = cold.lock().expect("no panic while held");
            // It may have been used since, or be another's already.
            if !may_go(&cold) || !remove(self.index(), word) {
                continue;
            }
            slot.till.pass_on();
            slot.belongs_to(&[NOBODY; WORDS]);
            *cold = C::default();
            writers.free.push(number_of(word));
            writers.live -= 1;
        }
    }

    fn lock(&self) -> MutexGuard<'_, Slots> {
        self.writers.lock().expect("no panic while held")
    }

    fn locked(&self, sought: &Sought) -> Option<Found<'_, C>> {
        self.candidates(sought.tag).find_map(|number| {
            let slot = self.slot(number).filter(|slot| slot.is(&sought.words))?;
            let cold = self.cold(number)?.lock().expect("no panic while held");
            // It changes hands only under its lock.
            slot.is(&sought.words).then_some(Found { slot, cold })
        })
    }

    #[inline]
    fn index(&self) -> &[AtomicU64] {
        let level = self.level.load(Ordering::Acquire);
        self.levels[level].get_or_init(|| empty(LEVELS[level]))
    }

    /// Numbers of slots that may be the key's.
    fn candidates(&self, tag: u32) -> impl Iterator<Item = u32> {
        let index = self.index();
        let home = home(tag, index.len());
        let places = index[home..].iter().chain(&index[..home]).map(|word| word.load(Ordering::Acquire));
        places.take_while(|word| *word != 0).filter(move |word| tag_of(*word) == tag).map(number_of)
    }

    #[inline]
    fn slot(&self, number: u32) -> Option<&Slot> {
        self.slots[number as usize / CHUNK].get()?.get(number as usize % CHUNK)
    }

    fn cold(&self, number: u32) -> Option<&Mutex<C>> {
        self.colds[number as usize / CHUNK].get()?.get(number as usize % CHUNK)
    }

    /// Makes a larger index when so many keys are too many for this one. Only for the one writer.
    fn make_room(&self, keys: usize) {
        let level = self.level.load(Ordering::Acquire);
        if keys * 3 <= LEVELS[level] * 2 || level + 1 == LEVELS.len() {
            return;
        }
        let larger = self.levels[level + 1].get_or_init(|| empty(LEVELS[level + 1]));
        for word in self.index().iter().map(|word| word.load(Ordering::Acquire)).filter(|word| *word != 0) {
            put(larger, word);
        }
        self.level.store(level + 1, Ordering::Release);
    }
}

fn empty(places: usize) -> Box<[AtomicU64]> {
    (0..places).map(|_| AtomicU64::new(0)).collect()
}

/// Into the first free place from its home on. A third of them are free.
fn put(index: &[AtomicU64], word: u64) {
    let home = home(tag_of(word), index.len());
    let place = index[home..].iter().chain(&index[..home]).find(|place| place.load(Ordering::Acquire) == 0);
    place.expect("an index is never full").store(word, Ordering::Release);
}

/// Takes a word out, and moves back those behind it that could not be found any more. Whether it was there.
fn remove(index: &[AtomicU64], word: u64) -> bool {
    let places = index.len();
    let load = |place: usize| index[place].load(Ordering::Acquire);
    let mut hole = home(tag_of(word), places);
    while load(hole) != word {
        if load(hole) == 0 {
            return false;
        }
        hole = (hole + 1) % places;
    }
    let behind = |from: usize, to: usize| (to + places - from) % places;
    let mut place = (hole + 1) % places;
    while load(place) != 0 {
        let from_home = behind(home(tag_of(load(place)), places), place);
        if from_home >= behind(hole, place) {
            index[hole].store(load(place), Ordering::Release);
            hole = place;
        }
        place = (place + 1) % places;
    }
    index[hole].store(0, Ordering::Release);
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use baton_core::limit::purse::{Purse, Terms};

    fn sought(number: u64) -> Sought {
        // Many begin at the same place, at both ends of the index too.
        let tag = [0, 1 << 20, u32::MAX, u32::MAX - 1][number as usize % 4] ^ (number as u32 / 64);
        Sought { words: [number, 0, 0, 0, 1], tag }
    }

    #[test]
    fn whatever_comes_and_goes_those_that_stay_are_found() {
        let table = Table::<u64>::default();
        for round in 0..8_u64 {
            let keys = round * 100..round * 100 + 400;
            for key in keys.clone() {
                table.insert(&sought(key), key);
            }
            // Those of other rounds go, and every seventh.
            let stays = |key: &u64| keys.contains(key) && !key.is_multiple_of(7);
            table.forget(0, |key| !stays(key));
            for key in 0..1_200 {
                let found = table.find(&sought(key)).map(|found| *found.cold);
                assert_eq!(found, stays(&key).then_some(key), "in round {round}");
            }
        }
    }

    #[test]
    fn it_grows_and_forgets_nobody_and_has_a_most() {
        let table = Table::<u64>::default();
        let spread = |number: u64| Sought {
            words: [number; WORDS],
            tag: (number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as u32,
        };
        for key in 0..30_000 {
            assert!(table.insert(&spread(key), key) && !table.insert(&spread(key), key), "once");
        }
        assert_eq!(table.level.load(Ordering::Acquire), 2);
        let mut seen = 0;
        table.each(|_, _| seen += 1);
        assert_eq!(seen, 30_000);
        assert!((0..30_000).all(|key| table.find(&spread(key)).is_some_and(|found| *found.cold == key)));
        table.lock().live = KEYS_MAX;
        assert!(!table.insert(&spread(30_000), 0) && table.find(&spread(30_000)).is_none());
    }

    #[test]
    fn keys_that_look_alike_in_the_index_have_tills_of_their_own() {
        let table = Table::<u64>::default();
        let terms = Terms::lease(10_000, None);
        let alike = |word| Sought { words: [word; WORDS], tag: 7 };
        for (word, amount) in [(1, 50), (2, 60)] {
            table.insert(&alike(word), word);
            let (found, mut purse) = (table.find(&alike(word)).expect("it is there"), Purse::default());
            let message = purse.ask(&found.slot.till, 1, 1, &terms);
            purse.heard(&found.slot.till, message.sequence, amount, &terms);
        }
        assert_eq!(table.take(&alike(2), 60, 2), Some(Taken::Last));
        assert_eq!(table.take(&alike(2), 1, 2), Some(Taken::Look), "what is left is the other's");
        assert_eq!(table.take(&alike(1), 50, 2), Some(Taken::Last));
        assert_eq!(table.take(&alike(3), 1, 2), None);
    }

    #[test]
    fn a_slot_that_was_forgotten_gives_nothing_to_who_knew_it() {
        let table = Table::<u64>::default();
        table.insert(&sought(1), 1);
        assert_eq!(table.take(&sought(1), 1, 0), Some(Taken::Look));
        table.forget(0, |_| true);
        assert_eq!(table.take(&sought(1), 1, 0), None);
        table.insert(&sought(2), 2);
        assert_eq!(table.lock().made, 1, "it is used again");
        assert!(table.find(&sought(1)).is_none() && table.find(&sought(2)).is_some());
    }
}
