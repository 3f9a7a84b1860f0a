//! What a meter shows: what remains, when it is fresh again, when to try again.

use super::claim::{Algorithm, Rule};
use super::state::Meter;

impl Meter {
    /// What may still be taken, of what the rule allows.
    pub fn remaining(&self, rule: &Rule) -> u64 {
        rule.capacity.saturating_sub(self.used()).saturating_sub(self.outstanding())
    }

    /// In how many milliseconds all of it is available again if nothing more is taken: rounded up, never 0 while something is
    /// used.
    pub fn reset_ms(&self, rule: &Rule) -> u64 {
        let end_ms = rule.end_of(self.start_ms).saturating_sub(self.at_ms);
        match self.algorithm {
            Algorithm::TokenBucket => self.current.div_ceil(self.limit),
            Algorithm::FixedWindow if self.current == 0 => 0,
            Algorithm::FixedWindow => end_ms,
            Algorithm::SlidingWindow if self.current > 0 => end_ms.saturating_add(self.window_ms),
            Algorithm::SlidingWindow if self.previous > 0 => end_ms,
            Algorithm::SlidingWindow => 0,
            Algorithm::SlidingLog => {
                self.log.last().map_or(0, |(time, _)| (time + self.window_ms).saturating_sub(self.at_ms))
            }
            Algorithm::InFlight => 0,
        }
    }

    /// After how many milliseconds `amount` fits if nothing more is taken; nothing if it never does. What is outstanding is
    /// taken to stay for as long as it may, then to have been spent.
    pub fn retry_ms(&self, rule: &Rule, amount: u64) -> Option<u64> {
        if amount > rule.capacity {
            return None;
        }
        // At the moments at which something changes: by itself, or because something expires.
        let mut later = self.clone();
        let mut waited_ms = 0_u64;
        for _ in 0..=self.rows.len() + 1 {
            let due_ms = later.rows.first().map(|row| row.expires_ms);
            if let Some(free_ms) = later.free_after(rule, amount)
                && due_ms.is_none_or(|due_ms| later.at_ms.saturating_add(free_ms) <= due_ms)
            {
                return Some(waited_ms.saturating_add(free_ms));
            }
            let due_ms = due_ms?;
            waited_ms = due_ms.saturating_sub(self.at_ms);
            later.expire(rule, due_ms);
        }
        Some(waited_ms)
    }

    /// After how many milliseconds `amount` fits beside what is outstanding; nothing if it never does.
    fn free_after(&self, rule: &Rule, amount: u64) -> Option<u64> {
        let wanted = self.outstanding().checked_add(amount)?;
        let most = rule.capacity.checked_sub(wanted)?;
        if self.used() <= most {
            return Some(0);
        }
        let end_ms = rule.end_of(self.start_ms).saturating_sub(self.at_ms);
        Some(match self.algorithm {
            Algorithm::TokenBucket => (self.current - most * self.window_ms).div_ceil(self.limit),
            Algorithm::FixedWindow => end_ms,
            Algorithm::SlidingWindow => {
                // Within this window only the last one's part shrinks, in the next one only this one's.
                let part_ms = |counted: u64, most: u64| {
                    self.window_ms - (most * self.window_ms / counted.max(1)).min(self.window_ms)
                };
                match most.checked_sub(self.current) {
                    Some(most) => {
                        let into_ms = self.at_ms.saturating_sub(self.start_ms);
                        part_ms(self.previous, most).saturating_sub(into_ms).min(end_ms)
                    }
                    None => end_ms + part_ms(self.current, most),
                }
            }
            Algorithm::SlidingLog => {
                // All of it: `used` ends counting somewhere.
                let mut used = self.log.iter().map(|(_, counted)| counted).sum::<u64>();
                let mut moment_ms = 0;
                for (time, counted) in &self.log {
                    if used <= most {
                        break;
                    }
                    used -= counted;
                    moment_ms = (time + self.window_ms).saturating_sub(self.at_ms);
                }
                moment_ms
            }
            Algorithm::InFlight => return None,
        })
    }
}
