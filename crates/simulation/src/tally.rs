//! What was admitted when, and the most of a key in any interval as long as the window.

use crate::outcome::Second;
use crate::sharp::Sharp;
use std::collections::VecDeque;

/// Counts while a simulation runs.
#[derive(Clone, Debug)]
pub struct Tally {
    window_ms: u64,
    /// Of each key, what was admitted in the last window, by millisecond.
    recent: Vec<Recent>,
    /// The most that any key had.
    pub worst: u64,
    /// What outage policies admitted.
    pub by_policies: u64,
    /// Judges the rest.
    pub sharp: Option<Sharp>,
    /// By second.
    pub seconds: Vec<Second>,
}

/// Why something was admitted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum By {
    /// There was room for it: at the store, or in what that had lent.
    Limit,
    /// An outage policy.
    Policy,
}

#[derive(Clone, Debug, Default)]
struct Recent {
    /// At most one for each millisecond of the window, and one for each that was admitted.
    admitted: VecDeque<(u32, u32)>,
    sum: u64,
}

impl Tally {
    /// Of nothing yet.
    pub fn new(keys: u64, window_ms: u64, duration_ms: u64, sharp: Option<Sharp>) -> Self {
        let seconds = duration_ms.div_ceil(1_000) as usize;
        Self {
            window_ms,
            recent: vec![Recent::default(); keys as usize],
            worst: 0,
            by_policies: 0,
            sharp,
            seconds: vec![Second::default(); seconds],
        }
    }

    /// The second of a moment. What comes after the end counts for the last.
    pub fn second(&mut self, at_us: u64) -> &mut Second {
        let last = self.seconds.len() - 1;
        &mut self.seconds[((at_us / 1_000_000) as usize).min(last)]
    }

    /// One was admitted.
    pub fn admit(&mut self, key: usize, at_us: u64, by: By) {
        match (by, &mut self.sharp) {
            (By::Policy, _) => self.by_policies += 1,
            (By::Limit, Some(sharp)) => sharp.admit(key, at_us),
            (By::Limit, None) => {}
        }
        self.second(at_us).admitted += 1;
        let at_ms = at_us / 1_000;
        let recent = &mut self.recent[key];
        while let Some((ms, count)) = recent.admitted.front()
            && u64::from(*ms) + self.window_ms <= at_ms
        {
            recent.sum -= u64::from(*count);
            recent.admitted.pop_front();
        }
        let ms = u32::try_from(at_ms).unwrap_or(u32::MAX);
        match recent.admitted.back_mut() {
            Some((last, count)) if *last == ms => *count += 1,
            _ => recent.admitted.push_back((ms, 1)),
        }
        recent.sum += 1;
        self.worst = self.worst.max(recent.sum);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_interval_may_begin_anywhere_and_is_of_one_key() {
        let mut tally = Tally::new(2, 100, 2_000, None);
        for ms in [0, 60, 99, 120, 159, 160] {
            tally.admit(0, ms * 1_000, By::Limit);
        }
        assert_eq!(
            tally.worst, 4,
            "from 60 to 159: the one at 160 comes after an interval that begins at 60"
        );
        for _ in 0..4 {
            tally.admit(1, 160_000, By::Policy);
        }
        assert_eq!(tally.worst, 4);
        tally.admit(1, 259_999, By::Limit);
        assert_eq!(tally.worst, 5);
        tally.admit(1, 260_000, By::Limit);
        assert_eq!(tally.worst, 5);
        assert_eq!((tally.seconds[0].admitted, tally.by_policies), (12, 4));
    }
}
