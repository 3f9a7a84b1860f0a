//! Chance from a seed: SplitMix64, a counter through a mixer. Good enough to choose with, and nothing else.

use std::time::Duration;

/// Throws the same numbers for the same seed.
#[derive(Clone, Debug)]
pub struct Dice(u64);

impl Dice {
    /// From a seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Any number.
    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ (word >> 31)
    }

    /// Less than `end`, which is not 0.
    pub fn below(&mut self, end: u64) -> u64 {
        ((u128::from(self.number()) * u128::from(end)) >> 64) as u64
    }

    /// From `low` to `high`, both possible.
    pub fn between(&mut self, (low, high): (u64, u64)) -> u64 {
        low + self.below(high.saturating_sub(low) + 1)
    }

    /// So many milliseconds.
    pub fn millis(&mut self, range: (u64, u64)) -> Duration {
        Duration::from_millis(self.between(range))
    }

    /// True in so many of a thousand throws.
    pub fn chance(&mut self, per_mille: u32) -> bool {
        self.below(1000) < u64::from(per_mille)
    }

    /// Dice of their own, for something that must not depend on how often these are thrown.
    pub fn fork(&mut self) -> Self {
        Self(self.number())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn throws_stay_in_range_reach_both_ends_and_repeat_with_the_seed() {
        let (mut dice, mut again) = (Dice::new(7), Dice::new(7));
        let throws: Vec<_> = (0..1000).map(|_| dice.between((3, 5))).collect();
        assert_eq!(throws, (0..1000).map(|_| again.between((3, 5))).collect::<Vec<_>>());
        for value in 3..=5 {
            assert!(throws.contains(&value), "{value}");
        }
        assert!(throws.iter().all(|value| (3..=5).contains(value)));
        assert!(!dice.chance(0) && dice.chance(1000));
    }
}
