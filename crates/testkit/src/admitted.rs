//! What was surely admitted in an interval, and by how much that is beyond an algorithm's own bound.
//!
//! Every admission is known by two moments: before it was asked for, and after it was heard of. It happened in between. So an interval
//! is charged only with what was asked for and heard of within it. Moments are in whatever unit the caller has.

use baton_core::meter::Algorithm;

/// Before it was asked for, and after it was heard of.
pub type Admitted = (u64, u64);

/// What is judged.
#[derive(Clone, Copy, Debug)]
pub struct Judged {
    /// What is counted.
    pub algorithm: Algorithm,
    /// How much in a window; windows begin together, at multiples of their length.
    pub limit: u64,
    /// What a bucket holds.
    pub burst: u64,
    /// The window's length.
    pub window: u64,
    /// By how much a stored moment may be off: it is cut to a millisecond, and so is what it is compared with.
    pub grain: u64,
}

impl Judged {
    /// By how much more was admitted, at worst, than the algorithm lets pass; below 0 if it was less.
    pub fn beyond(&self, admitted: &[Admitted]) -> i64 {
        let over = |most: u64, bound: u64| most as i64 - bound as i64;
        match self.algorithm {
            Algorithm::TokenBucket => self.overdrawn(admitted),
            // Of its own window a sliding one never admits more than the limit, whatever it takes the last one to have been.
            Algorithm::FixedWindow | Algorithm::SlidingWindow => {
                over(most_in_a_window(admitted, self.window), self.limit)
            }
            Algorithm::SlidingLog => over(most_in(admitted, self.window - self.grain), self.limit),
            Algorithm::InFlight => panic!("places aren't admitted by time"),
        }
    }

    /// By how much a bucket was overdrawn at worst, over all intervals: what was surely admitted in one, less a burst and the rate.
    fn overdrawn(&self, admitted: &[Admitted]) -> i64 {
        let mut by_end = admitted.to_vec();
        by_end.sort_by_key(|(_, heard)| *heard);
        let mut worst = i64::MIN;
        for (asked, _) in admitted {
            let since = by_end.iter().filter(|one| one.0 >= *asked);
            for (before, (_, heard)) in since.enumerate() {
                let elapsed = heard - asked + self.grain;
                let allowed = self.burst + (self.limit * elapsed).div_ceil(self.window);
                worst = worst.max(before as i64 + 1 - allowed as i64);
            }
        }
        worst
    }
}

/// The most that was surely admitted in any interval of this length.
pub fn most_in(admitted: &[Admitted], length: u64) -> u64 {
    let in_one = |from: u64| {
        let is_in = |one: &&Admitted| one.0 >= from && one.1 < from + length;
        admitted.iter().filter(is_in).count() as u64
    };
    admitted.iter().map(|(asked, _)| in_one(*asked)).max().unwrap_or_default()
}

/// The most that was surely admitted in any window, where windows begin together.
pub fn most_in_a_window(admitted: &[Admitted], window: u64) -> u64 {
    let mut windows = std::collections::BTreeMap::new();
    for (asked, _) in admitted.iter().filter(|(asked, heard)| asked / window == heard / window) {
        *windows.entry(asked / window).or_insert(0) += 1;
    }
    windows.into_values().max().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_too_many_is_found_whatever_the_algorithm() {
        // Three at once, and one when a window is over.
        let admitted = [(1_000, 1_000), (1_000, 1_001), (1_001, 1_002), (2_500, 2_500)];
        for algorithm in
            [Algorithm::TokenBucket, Algorithm::FixedWindow, Algorithm::SlidingWindow, Algorithm::SlidingLog]
        {
            let judged = |limit| Judged { algorithm, limit, burst: limit - 1, window: 1_000, grain: 2 };
            assert_eq!(judged(3).beyond(&admitted), 0, "{algorithm:?}");
            assert_eq!(judged(2).beyond(&admitted), 1, "{algorithm:?}");
        }
    }
}
