//! Dice from a seed: a counter through SplitMix64's mixer.

/// Throws the same for the same seed.
#[derive(Clone, Debug)]
pub struct Dice(u64);

impl Dice {
    /// From a seed, for one purpose: what one purpose throws doesn't change another's.
    pub fn new(seed: u64, purpose: u64) -> Self {
        Self(mixed(seed ^ mixed(purpose.wrapping_add(0x9e37_79b9_7f4a_7c15))))
    }

    /// Any number.
    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mixed(self.0)
    }

    /// From 0 up to 1, which it never is.
    pub fn part(&mut self) -> f64 {
        (self.number() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Less than `end`, which is not 0.
    pub fn below(&mut self, end: u64) -> u64 {
        ((u128::from(self.number()) * u128::from(end)) >> 64) as u64
    }

    /// How long until something happens that happens every `mean`, on average, at any moment alike.
    pub fn until(&mut self, mean: f64) -> f64 {
        -mean * (1.0 - self.part()).ln()
    }
}

fn mixed(mut word: u64) -> u64 {
    word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

/// One of several by Zipf's law: the first most often, the n-th as often divided by n to the power of the skew.
#[derive(Clone, Debug)]
pub struct Skewed {
    /// The weights of all up to each of them, of 1 together.
    up_to: Vec<f64>,
}

impl Skewed {
    /// `count` of them, at least one. A skew of 0 takes all alike.
    pub fn new(count: u64, skew: f64) -> Self {
        let mut sum = 0.0;
        let mut up_to: Vec<f64> = (1..=count.max(1))
            .map(|place| {
                sum += (place as f64).powf(-skew);
                sum
            })
            .collect();
        for weight in &mut up_to {
            *weight /= sum;
        }
        Self { up_to }
    }

    /// Which, for a number from 0 up to 1.
    pub fn at(&self, part: f64) -> usize {
        self.up_to.partition_point(|weight| *weight <= part).min(self.up_to.len() - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn purposes_of_one_seed_throw_apart_and_each_repeats() {
        let throws = |seed, purpose| {
            let mut dice = Dice::new(seed, purpose);
            (0..8).map(|_| dice.number()).collect::<Vec<_>>()
        };
        assert_eq!(throws(1, 1), throws(1, 1));
        assert_ne!(throws(1, 1), throws(1, 2));
        assert_ne!(throws(1, 1), throws(2, 1));
    }

    #[test]
    fn what_happens_at_any_moment_alike_happens_as_often_as_its_mean_says() {
        let mut dice = Dice::new(7, 0);
        let mean = (0..100_000).map(|_| dice.until(5.0)).sum::<f64>() / 100_000.0;
        assert!((4.9..5.1).contains(&mean), "{mean}");
    }

    #[test]
    fn the_first_comes_most_often_and_as_often_as_zipf_says() {
        let (mut dice, skewed) = (Dice::new(7, 0), Skewed::new(3, 1.0));
        let mut counts = [0_u64; 3];
        for _ in 0..110_000 {
            counts[skewed.at(dice.part())] += 1;
        }
        for (count, expected) in counts.into_iter().zip([60_000_u64, 30_000, 20_000]) {
            assert!(count.abs_diff(expected) < 1_000, "{counts:?}");
        }
        assert_eq!(Skewed::new(1, 2.0).at(0.999), 0);
    }
}
