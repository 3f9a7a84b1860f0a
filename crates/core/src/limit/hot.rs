//! Keys that are used far more than others, found in bounded memory.
//!
//! Two spans of 5 s each have a table of counts. A key that comes when the table is full takes one from every count instead of a place
//! (Misra and Gries), so a key that makes up more than a 256th of all is never missed, and no count is too high. How many keys there
//! are, for the mean, is read off a table of bits.

use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;

/// Keys with a count, in each span.
const COUNTED_MAX: usize = 256;
/// A span's length.
const SPAN_MS: u64 = 5_000;
/// A key is hot from this multiple of the mean on.
const TIMES_THE_MEAN: u64 = 10;
/// And not below this many uses in the time looked at: a quiet limit has no hot keys.
const USES_MIN: u64 = 1_000;
/// One of these is set for a key.
const BITS: u64 = 1 << 16;
/// Of a logarithm's series.
const TERMS: u32 = 64;

/// A key that is hot.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HotKey<T> {
    /// Which.
    pub label: T,
    /// Its uses in the last 5 to 10 s, or somewhat more than these.
    pub uses: u64,
    /// All uses of all keys in that time.
    pub all: u64,
    /// Over which time.
    pub over_ms: u64,
}

/// What was used of late. `T` is what a key is called.
#[derive(Clone, Debug)]
pub struct Hot<T> {
    began_ms: u64,
    now: Span<T>,
    before: Span<T>,
    before_ms: u64,
}

#[derive(Clone, Debug)]
struct Span<T> {
    counts: BTreeMap<u64, (T, u64)>,
    all: u64,
    seen: Vec<u64>,
    keys: u64,
}

impl<T> Default for Span<T> {
    fn default() -> Self {
        Self { counts: BTreeMap::new(), all: 0, seen: vec![0; (BITS / 64) as usize], keys: 0 }
    }
}

impl<T> Default for Hot<T> {
    fn default() -> Self {
        Self { began_ms: 0, now: Span::default(), before: Span::default(), before_ms: 0 }
    }
}

impl<T: Clone> Hot<T> {
    /// A key was used this often. `hash` stands for the key; `label` is made only if it gets a place.
    pub fn note(&mut self, hash: u64, uses: u64, now_ms: u64, label: impl FnOnce() -> T) {
        self.turn(now_ms);
        let span = &mut self.now;
        span.all = span.all.saturating_add(uses);
        let bit = hash % BITS;
        let word = &mut span.seen[(bit / 64) as usize];
        if *word & (1 << (bit % 64)) == 0 {
            *word |= 1 << (bit % 64);
            span.keys += 1;
        }
        if let Some((_, count)) = span.counts.get_mut(&hash) {
            *count = count.saturating_add(uses);
        } else if span.counts.len() < COUNTED_MAX {
            span.counts.insert(hash, (label(), uses));
        } else {
            span.counts.retain(|_, (_, count)| {
                *count = count.saturating_sub(uses);
                *count > 0
            });
        }
    }

    /// The hot ones, hottest first.
    pub fn hot(&mut self, now_ms: u64) -> Vec<HotKey<T>> {
        self.turn(now_ms);
        let over_ms = (now_ms.saturating_sub(self.began_ms) + self.before_ms).max(1);
        let all = self.now.all.saturating_add(self.before.all);
        let keys = self.now.estimate().max(self.before.estimate()).max(1);
        let least = (all / keys).saturating_mul(TIMES_THE_MEAN).max(USES_MIN);
        let mut found: BTreeMap<u64, (T, u64)> = self.now.counts.clone();
        for (hash, (label, uses)) in &self.before.counts {
            let entry = found.entry(*hash).or_insert_with(|| (label.clone(), 0));
            entry.1 = entry.1.saturating_add(*uses);
        }
        let hot = found.into_values().filter(|(_, uses)| *uses >= least);
        let mut hot: Vec<_> = hot.map(|(label, uses)| HotKey { label, uses, all, over_ms }).collect();
        hot.sort_by_key(|found| core::cmp::Reverse(found.uses));
        hot
    }

    fn turn(&mut self, now_ms: u64) {
        let elapsed_ms = now_ms.saturating_sub(self.began_ms);
        if elapsed_ms < SPAN_MS {
            return;
        }
        let ended = core::mem::take(&mut self.now);
        // After a pause of more than a span nothing of before matters.
        (self.before, self.before_ms) =
            if elapsed_ms < 2 * SPAN_MS { (ended, elapsed_ms) } else { (Span::default(), 0) };
        self.began_ms = now_ms;
    }
}

impl<T> Span<T> {
    /// How many keys there were, from how many bits they have set: n keys leave about e^(-n/BITS) of them unset.
    fn estimate(&self) -> u64 {
        // The logarithm as its series. Beyond nineteen of twenty bits there are many keys, and that is all that matters.
        let set = (self.keys as f64 / BITS as f64).min(0.95);
        let (mut power, mut sum) = (1.0, 0.0);
        for term in 1..=TERMS {
            power *= set;
            sum += power / f64::from(term);
        }
        (sum * BITS as f64 + 0.5) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::format;
    use alloc::string::String;
    use proptest::prelude::*;
    use xxhash_rust::xxh3::xxh3_64;

    fn hash(key: u64) -> u64 {
        xxh3_64(&key.to_be_bytes())
    }

    fn names(hot: &mut Hot<String>, now_ms: u64) -> Vec<String> {
        hot.hot(now_ms).into_iter().map(|key| key.label).collect()
    }

    #[test]
    fn a_key_far_above_the_mean_is_found_at_once_and_forgotten_when_it_is_quiet_again() {
        let mut hot = Hot::default();
        for round in 0..2_000 {
            hot.note(hash(round % 1_000), 1, round, || format!("quiet-{}", round % 1_000));
            hot.note(hash(7_777), 20, round, || "busy".into());
        }
        assert_eq!(names(&mut hot, 2_000), ["busy"]);
        let found = &hot.hot(2_000)[0];
        assert!(found.uses > 39_000 && found.uses <= 40_000, "{found:?}");
        for round in 2_000..14_000 {
            hot.note(hash(round % 1_000), 1, round, || format!("quiet-{}", round % 1_000));
        }
        assert_eq!(names(&mut hot, 14_000), [""; 0]);
    }

    #[test]
    fn many_keys_that_are_used_alike_or_little_are_not_hot() {
        let mut hot = Hot::default();
        for round in 0..100_000_u64 {
            hot.note(hash(round % 500), 1, round / 100, || format!("{}", round % 500));
        }
        assert_eq!(names(&mut hot, 1_000), [""; 0], "all are busy alike");
        let mut hot = Hot::default();
        hot.note(hash(1), USES_MIN - 1, 0, || "only".into());
        assert_eq!(names(&mut hot, 1), [""; 0], "not enough to matter");
    }

    #[test]
    fn the_number_of_keys_is_estimated_well_enough_for_a_mean() {
        for keys in [1_u64, 10, 1_000, 30_000, 100_000] {
            let mut hot = Hot::default();
            (0..keys).for_each(|key| hot.note(hash(key), 1, 0, || ()));
            let found = hot.now.estimate();
            assert!(found >= keys * 8 / 10 && found <= keys * 12 / 10 + 1, "{found} of {keys}");
        }
    }

    proptest! {
        /// However the others come, and more of them than there are places.
        #[test]
        fn a_tenth_of_all_uses_is_never_missed_and_never_overstated(seed in any::<u64>(), keys in 20_u64..5_000) {
            let mut hot = Hot::default();
            let mut used = 0;
            for round in 0..30_000_u64 {
                let dice = xxh3_64(&(seed ^ round).to_be_bytes());
                let key = if dice.is_multiple_of(10) { used += 1; u64::MAX } else { dice / 10 % keys };
                hot.note(hash(key), 1, 0, || key);
            }
            let found = hot.hot(0).into_iter().find(|found| found.label == u64::MAX);
            // Of fewer keys the mean is so high that a tenth isn't ten times of it.
            if keys > 150 {
                let found = found.expect("found");
                prop_assert!(found.uses <= used && found.uses + 30_000 / 128 >= used, "{} of {used}", found.uses);
            }
        }
    }
}
