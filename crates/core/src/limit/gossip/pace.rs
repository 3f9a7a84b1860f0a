//! How fast a key is used, by all who were heard of: what its bound is reckoned with.

/// Over less than this nothing is measured: counts come in lumps.
const OVER_MS: u64 = 100;

/// The fastest that a count grew in this window and the one before.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Pace {
    since_ms: u64,
    count: u64,
    fastest: u64,
    before: u64,
}

impl Pace {
    /// What the count is at a moment.
    pub fn note(&mut self, count: u64, at_ms: u64) {
        let over_ms = at_ms.saturating_sub(self.since_ms);
        if over_ms < OVER_MS {
            return;
        }
        let grown = u128::from(count.saturating_sub(self.count));
        let rate = u64::try_from(grown * 1_000 / u128::from(over_ms)).unwrap_or(u64::MAX);
        self.fastest = self.fastest.max(rate);
        (self.since_ms, self.count) = (at_ms, count);
    }

    /// Another window has begun: its count begins at nothing.
    pub fn turn(&mut self, at_ms: u64) {
        *self = Self { since_ms: at_ms, count: 0, fastest: 0, before: self.fastest };
    }

    /// A second.
    pub fn rate(&self) -> u64 {
        self.fastest.max(self.before)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fastest_of_this_window_and_the_one_before_counts() {
        let mut pace = Pace::default();
        pace.turn(1_000);
        for (count, at_ms) in [(5, 1_050), (10, 1_100), (60, 1_200), (70, 1_300)] {
            pace.note(count, at_ms);
        }
        assert_eq!(pace.rate(), 500, "fifty in a tenth of a second");
        pace.turn(2_000);
        pace.note(20, 2_100);
        assert_eq!(pace.rate(), 500);
        pace.turn(3_000);
        assert_eq!(pace.rate(), 200);
    }
}
