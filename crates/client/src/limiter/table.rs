//! Where the pockets of all keys are: found without a lock and without writing to anything that threads share, mostly by one access to memory.
//!
//! A place has a pocket and its key's words side by side. Places are in blocks; a key's hash says which blocks it may be in, and where in
//! them one begins to look. It is in the first one that had room when it came, and stays there. Whoever finds a pocket compares the
//! key's words before spending; see [`Pocket`] for why that is safe although a place may go to another key: that is so
//! only when all alarms of the old one are over, and no alarm before that moment is set again.
//!
//! When a table is two thirds full, a larger one is made. What is in the old places moves, and they stay, empty, since readers may be there:
//! who finds one empty looks behind the locks, and finds the new one.
//!
//! Writers (new keys, forgotten ones, a larger table) take turns. What is needed less often is behind a lock of the key's own.
//! A writer may hold both, in this order. A key changes its place only under both.

use baton_core::limit::pocket::{Pocket, Taken};
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock};

/// Keys at most. Beyond it those that come new ask the server.
pub(super) const KEYS_MAX: usize = 1_000_000;
/// Blocks, smallest first, each three times the one before: what is left of the smaller ones is half as much as the largest, and a new one has
/// three times the places that it needs at first. Steps of two would leave as much as they have, larger ones more that is empty.
const LEVELS: [usize; 7] = [260, 780, 2_320, 6_950, 20_840, 62_500, KEYS_MAX * 3 / 2 / PLACES];
/// Places of a block: two cache lines of numbers.
const PLACES: usize = 8;
/// Blocks that a key may be in. Where all are full it asks the server: when two thirds are taken, that is less than one of a hundred million.
const CHOICES: u32 = 8;
/// Of what is behind locks, so much is made at once.
const CHUNK: usize = 1_024;

/// A key, ready to be looked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Mark<const W: usize> {
    pub words: [u64; W],
    /// Spreads keys over the table; nothing else rests on it.
    pub hash: u64,
}

struct Place<const W: usize> {
    pocket: Pocket,
    words: [AtomicU64; W],
}

impl<const W: usize> Place<W> {
    #[inline]
    fn is(&self, words: &[u64; W]) -> bool {
        let differs = |(mine, word): (&AtomicU64, &u64)| mine.load(Ordering::Acquire) ^ word;
        // All of them, without a branch for each: they are in one cache line.
        self.words.iter().zip(words).map(differs).fold(0, |all, some| all | some) == 0
    }

    fn words(&self) -> [u64; W] {
        std::array::from_fn(|index| self.words[index].load(Ordering::Acquire))
    }

    /// Only while its pocket is empty.
    fn belongs_to(&self, words: &[u64; W]) {
        for (mine, word) in self.words.iter().zip(words) {
            mine.store(*word, Ordering::Release);
        }
    }
}

/// So that no place lies across two cache lines.
#[repr(align(64))]
struct Block<const W: usize>([Place<W>; PLACES]);

struct Level<const W: usize> {
    blocks: Box<[Block<W>]>,
    /// Where what is behind a place's lock is, from 1 on; 0 of a place that is free, and has an empty pocket.
    numbers: Box<[AtomicU32]>,
}

fn home(hash: u64, choice: u32, blocks: usize) -> usize {
    let part = hash.rotate_left(choice * (u64::BITS / CHOICES)) >> 32;
    ((part * blocks as u64) >> 32) as usize
}

impl<const W: usize> Level<W> {
    fn new(blocks: usize) -> Self {
        let place =
            |_| Place { pocket: Pocket::default(), words: std::array::from_fn(|_| AtomicU64::new(0)) };
        Self {
            blocks: (0..blocks).map(|_| Block(std::array::from_fn(place))).collect(),
            numbers: (0..blocks * PLACES).map(|_| AtomicU32::new(0)).collect(),
        }
    }

    /// Where a key may be, in the order that places are given away.
    fn candidates(&self, hash: u64) -> impl Iterator<Item = usize> {
        let blocks = self.blocks.len();
        (0..CHOICES).flat_map(move |choice| {
            let block = home(hash, choice, blocks);
            (0..PLACES).map(move |turn| block * PLACES + (hash as usize).wrapping_add(turn) % PLACES)
        })
    }

    fn place(&self, place: usize) -> &Place<W> {
        &self.blocks[place / PLACES].0[place % PLACES]
    }

    fn number(&self, place: usize) -> u32 {
        self.numbers[place].load(Ordering::Acquire)
    }

    /// Gives a free place to a key. Where that is; nothing if there is none.
    fn give(&self, mark: &Mark<W>, number: u32) -> Option<&Pocket> {
        let place = self.candidates(mark.hash).find(|place| self.number(*place) == 0)?;
        self.place(place).belongs_to(&mark.words);
        self.numbers[place].store(number, Ordering::Release);
        Some(&self.place(place).pocket)
    }

    /// Places that are somebody's.
    fn taken(&self) -> impl Iterator<Item = usize> {
        (0..self.numbers.len()).filter(|place| self.number(*place) != 0)
    }
}

/// Made as it is needed, and never moved.
type Chunk<C> = Box<[Mutex<C>]>;

/// See the module. `C` is what is behind each key's own lock.
pub(super) struct Table<const W: usize, C> {
    levels: [OnceLock<Level<W>>; LEVELS.len()],
    /// The level in use.
    level: AtomicUsize,
    colds: Box<[OnceLock<Chunk<C>>]>,
    /// When a key was last forgotten: no alarm is set before.
    forgotten_ms: AtomicU64,
    writers: Mutex<Numbers>,
}

/// Which numbers there are.
#[derive(Default)]
struct Numbers {
    /// Those that were used once, and are free again.
    free: Vec<u32>,
    /// How many were ever used.
    made: u32,
    live: usize,
}

/// A pocket that was found, and what is behind its lock.
pub(super) struct Found<'a, C> {
    pub pocket: &'a Pocket,
    pub cold: MutexGuard<'a, C>,
    /// No alarm may be set up to this moment.
    pub forgotten_ms: u64,
}

impl<const W: usize, C: Default> Default for Table<W, C> {
    fn default() -> Self {
        Self {
            levels: Default::default(),
            level: AtomicUsize::new(0),
            colds: (0..KEYS_MAX.div_ceil(CHUNK)).map(|_| OnceLock::new()).collect(),
            forgotten_ms: AtomicU64::new(0),
            writers: Mutex::default(),
        }
    }
}

impl<const W: usize, C: Default> Table<W, C> {
    /// Takes from the pocket of a key, if it has one.
    #[inline]
    pub fn take(&self, mark: &Mark<W>, cost: u64, now_ms: u64) -> bool {
        let blocks = &self.level().blocks;
        for choice in 0..CHOICES {
            let block = &blocks[home(mark.hash, choice, blocks.len())];
            for turn in 0..PLACES {
                let place = &block.0[(mark.hash as usize).wrapping_add(turn) % PLACES];
                match place.pocket.take(cost, now_ms, || place.is(&mark.words)) {
                    Taken::Another => {}
                    taken => return taken == Taken::Yes,
                }
            }
        }
        false
    }

    /// A key's pocket, and what is behind its lock.
    pub fn find(&self, mark: &Mark<W>) -> Option<Found<'_, C>> {
        self.locked(mark).or_else(|| {
            // It may be on its way to a larger table: while no writer is at work nothing is overlooked.
            let _writers = self.lock();
            self.locked(mark)
        })
    }

    /// Gives a key a place, unless it has one or there is none. Whether it was given one. `again` makes a mark of its words.
    pub fn insert(&self, mark: &Mark<W>, cold: C, again: impl Fn([u64; W]) -> Mark<W>) -> bool {
        let mut writers = self.lock();
        if writers.live >= KEYS_MAX || self.locked(mark).is_some() {
            return false;
        }
        self.make_room(&mut writers, again);
        let number = writers.free.pop().unwrap_or_else(|| {
            writers.made += 1;
            writers.made
        });
        let chunk = self.colds[(number as usize - 1) / CHUNK]
            .get_or_init(|| (0..CHUNK).map(|_| Mutex::default()).collect());
        *chunk[(number as usize - 1) % CHUNK].lock().expect("no panic while held") = cold;
        let is_given = self.level().give(mark, number).is_some();
        match is_given {
            true => writers.live += 1,
            false => writers.free.push(number),
        }
        is_given
    }

    /// Looks at all that are there, and whose pocket is worth it. Those that come, go or move meanwhile may be left out.
    pub fn each(&self, is_worth_it: impl Fn(&Pocket) -> bool, mut look: impl FnMut([u64; W], Found<'_, C>)) {
        let level = self.level();
        for place in level.taken().filter(|place| is_worth_it(&level.place(*place).pocket)) {
            if let Some(found) = self.at(level, place) {
                look(level.place(place).words(), found);
            }
        }
    }

    /// Forgets those that may be forgotten, of those whose purses have something to do. They may be only if all of their alarms are over.
    pub fn forget(&self, now_ms: u64, may_go: impl Fn(&C) -> bool) {
        let level = self.level();
        let is_due = |place: &usize| !level.place(*place).pocket.is_quiet(now_ms);
        let may_place_go = |place: &usize| self.at(level, *place).is_some_and(|found| may_go(&found.cold));
        let going: Vec<_> = level.taken().filter(is_due).filter(may_place_go).collect();
        for place in going {
            // One at a time, so that nobody who comes new waits for all of them.
            let mut writers = self.lock();
            // It may have been used since, or be another's already.
            if let Some(mut found) = self.at(level, place).filter(|found| may_go(&found.cold)) {
                self.forgotten_ms.fetch_max(now_ms, Ordering::AcqRel);
                release(level, place, &mut writers);
                *found.cold = C::default();
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Numbers> {
        self.writers.lock().expect("no panic while held")
    }

    fn locked(&self, mark: &Mark<W>) -> Option<Found<'_, C>> {
        let level = self.level();
        let is_it = |place: &usize| level.place(*place).is(&mark.words);
        level.candidates(mark.hash).filter(is_it).find_map(|place| {
            // It changes hands only under its lock.
            self.at(level, place).filter(|_| is_it(&place))
        })
    }

    /// What is at a place, if it is somebody's.
    fn at<'a>(&'a self, level: &'a Level<W>, place: usize) -> Option<Found<'a, C>> {
        let number = level.number(place);
        let cold = self.cold(number)?.lock().expect("no panic while held");
        let found = || Found {
            pocket: &level.place(place).pocket,
            cold,
            forgotten_ms: self.forgotten_ms.load(Ordering::Acquire),
        };
        (level.number(place) == number).then(found)
    }

    #[inline]
    fn level(&self) -> &Level<W> {
        let level = self.level.load(Ordering::Acquire);
        self.levels[level].get_or_init(|| Level::new(LEVELS[level]))
    }

    fn cold(&self, number: u32) -> Option<&Mutex<C>> {
        let index = (number as usize).checked_sub(1)?;
        self.colds[index / CHUNK].get()?.get(index % CHUNK)
    }

    /// Makes a larger table when one more key is too much for this one.
    fn make_room(&self, writers: &mut Numbers, again: impl Fn([u64; W]) -> Mark<W>) {
        let next = self.level.load(Ordering::Acquire) + 1;
        if (writers.live + 1) * 3 <= LEVELS[next - 1] * PLACES * 2 || next == LEVELS.len() {
            return;
        }
        let (from, to) = (self.level(), self.levels[next].get_or_init(|| Level::new(LEVELS[next])));
        for place in from.taken() {
            let Some(mut found) = self.at(from, place) else { continue };
            match to.give(&again(from.place(place).words()), from.number(place)) {
                Some(pocket) => {
                    found.pocket.move_to(pocket);
                    from.numbers[place].store(0, Ordering::Release);
                }
                // What it has counts as spent when its lease ends.
                None => {
                    release(from, place, writers);
                    *found.cold = C::default();
                }
            }
        }
        self.level.store(next, Ordering::Release);
    }
}

/// Makes a place free. Only for a writer that has the key's lock.
fn release<const W: usize>(level: &Level<W>, place: usize, writers: &mut Numbers) {
    level.place(place).pocket.empty();
    writers.free.push(level.numbers[place].swap(0, Ordering::AcqRel));
    writers.live -= 1;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spread(number: u64) -> Mark<3> {
        Mark { words: [number; 3], hash: number.wrapping_mul(0x9e37_79b9_7f4a_7c15) }
    }

    fn again(words: [u64; 3]) -> Mark<3> {
        spread(words[0])
    }

    /// Many begin at the same place, and go on in the same blocks.
    fn crowded(number: u64) -> Mark<3> {
        Mark { words: [number; 3], hash: spread(number % 4 + 1).hash }
    }

    #[test]
    fn whatever_comes_and_goes_those_that_stay_are_found() {
        let table = Table::<3, u64>::default();
        for round in 0..8_u64 {
            let keys = round * 20..round * 20 + 80;
            for key in keys.clone() {
                let is_new = table.find(&crowded(key)).is_none();
                assert_eq!(table.insert(&crowded(key), key, again), is_new, "in round {round}");
            }
            // Those of other rounds go, and every seventh.
            let stays = |key: &u64| keys.contains(key) && !key.is_multiple_of(7);
            table.forget(round, |key| !stays(key));
            for key in 0..240 {
                let found = table.find(&crowded(key)).map(|found| *found.cold);
                assert_eq!(found, stays(&key).then_some(key), "in round {round}");
            }
        }
    }

    #[test]
    fn it_grows_and_forgets_nobody_and_has_a_most() {
        let table = Table::<3, u64>::default();
        for key in 0..30_000 {
            assert!(
                table.insert(&spread(key), key, again) && !table.insert(&spread(key), key, again),
                "once"
            );
            table.find(&spread(key)).expect("it is there").pocket.fill(key, 1_000);
        }
        assert_eq!(table.level.load(Ordering::Acquire), 3);
        let mut seen = 0;
        table.each(|_| true, |_, _| seen += 1);
        assert_eq!(seen, 30_000);
        for key in 0..30_000 {
            let found = table.find(&spread(key)).expect("it is there");
            assert_eq!((*found.cold, found.pocket.amount()), (key, key));
        }
        table.lock().live = KEYS_MAX;
        assert!(!table.insert(&spread(30_000), 0, again) && table.find(&spread(30_000)).is_none());
    }

    #[test]
    fn who_is_still_in_the_smaller_table_spends_nothing_there() {
        let table = Table::<3, u64>::default();
        table.insert(&spread(0), 0, again);
        let small = table.find(&spread(0)).expect("it is there").pocket;
        small.fill(5, 1_000);
        assert!((1..2_000).all(|key| table.insert(&spread(key), key, again)));
        assert_eq!(small.take(1, 1, || true), Taken::Look);
        assert!(table.take(&spread(0), 5, 1) && !table.take(&spread(0), 1, 1), "what it had has moved");
    }

    #[test]
    fn keys_with_the_same_hash_have_pockets_of_their_own_as_long_as_there_is_room() {
        let table = Table::<3, u64>::default();
        let alike = |word| Mark { words: [word, 0, 1], hash: 7 };
        let alike_again = |words: [u64; 3]| alike(words[0]);
        let most = PLACES as u64 * u64::from(CHOICES);
        let given = (0..most + 9).filter(|key| table.insert(&alike(*key), *key, alike_again)).count() as u64;
        // Their blocks may be the same: then it is less.
        assert!((PLACES as u64..=most).contains(&given), "{given}");
        assert_eq!(table.lock().live as u64, given, "who has no place isn't counted");
        for key in 0..given {
            table.find(&alike(key)).expect("it is there").pocket.fill(key + 1, 1_000);
        }
        for key in 0..given {
            assert!(table.take(&alike(key), key + 1, 1), "all that it has");
            assert!(!table.take(&alike(key), 1, 1), "what is left is the others'");
        }
        assert!(!table.take(&alike(given), 1, 1));
    }

    #[test]
    fn a_place_that_was_forgotten_gives_nothing_to_who_knew_it() {
        let table = Table::<3, u64>::default();
        table.insert(&crowded(0), 1, again);
        let pocket = table.find(&crowded(0)).expect("it is there").pocket;
        pocket.fill(9, 40);
        table.forget(39, |_| true);
        assert!(table.find(&crowded(0)).is_some(), "its alarm isn't over");
        table.forget(41, |_| true);
        assert!(table.find(&crowded(0)).is_none() && !table.take(&crowded(0), 1, 1));
        table.insert(&crowded(4), 2, again);
        let found = table.find(&crowded(4)).expect("it is there");
        assert!(std::ptr::eq(found.pocket, pocket), "it is used again");
        assert_eq!((found.forgotten_ms, found.pocket.amount()), (41, 0), "no alarm is set before");
        assert_eq!(table.lock().made, 1);
    }
}
