//! Who checks when. The same for every mechanism of a plan, so that they can be compared.

use crate::chance::{Dice, Skewed};
use crate::plan::{Pattern, Plan};

/// One check.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Arrival {
    /// When.
    pub at_us: u64,
    /// Of which key.
    pub key: usize,
    /// At which node: as a number from 0 up to 1, since not all of them may live.
    pub node: f64,
}

/// How long bursts last, and the time between them, on average.
const BURST_US: f64 = 500_000.0;
const PAUSE_US: f64 = 2_000_000.0;

/// All checks of a plan, in order.
#[derive(Debug)]
pub struct Traffic {
    dice: Dice,
    pattern: Pattern,
    gap_us: f64,
    keys: Skewed,
    at_us: f64,
    end_us: u64,
    is_burst: bool,
    phase_end_us: f64,
}

impl Traffic {
    /// Of this plan.
    pub fn new(plan: &Plan) -> Self {
        Self {
            dice: Dice::new(plan.seed, 1),
            pattern: plan.pattern,
            gap_us: 1_000_000.0 / plan.rate as f64,
            keys: Skewed::new(plan.keys, plan.key_skew),
            at_us: 0.0,
            end_us: plan.duration_ms * 1_000,
            is_burst: true,
            phase_end_us: 0.0,
        }
    }

    fn step(&mut self) {
        match self.pattern {
            Pattern::Steady => self.at_us += self.gap_us,
            Pattern::Poisson => self.at_us += self.dice.until(self.gap_us),
            Pattern::Bursty => loop {
                let gap_us = if self.is_burst { self.gap_us / 4.0 } else { self.gap_us * 4.0 };
                let next_us = self.at_us + self.dice.until(gap_us);
                if next_us < self.phase_end_us {
                    self.at_us = next_us;
                    return;
                }
                // What happens at any moment alike can begin anew at any moment.
                self.at_us = self.phase_end_us;
                self.is_burst = !self.is_burst;
                let mean_us = if self.is_burst { BURST_US } else { PAUSE_US };
                self.phase_end_us += self.dice.until(mean_us);
            },
        }
    }
}

impl Iterator for Traffic {
    type Item = Arrival;

    fn next(&mut self) -> Option<Arrival> {
        self.step();
        let at_us = self.at_us as u64;
        let arrival = Arrival { at_us, key: self.keys.at(self.dice.part()), node: self.dice.part() };
        (at_us < self.end_us).then_some(arrival)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::definition;
    use baton_core::meter::Algorithm;

    #[test]
    fn every_pattern_comes_in_order_and_as_often_as_its_rate_says() {
        for pattern in [Pattern::Steady, Pattern::Poisson, Pattern::Bursty] {
            let plan = Plan {
                pattern,
                duration_ms: 1_000_000,
                ..Plan::new(100, 1, definition(Algorithm::TokenBucket, 100, 1_000))
            };
            let times: Vec<_> = Traffic::new(&plan).map(|arrival| arrival.at_us).collect();
            assert!(times.is_sorted(), "{pattern:?}");
            assert!((90_000..110_000).contains(&times.len()), "{pattern:?}: {}", times.len());
            let busiest =
                times.chunk_by(|a, b| a / 1_000_000 == b / 1_000_000).map(<[_]>::len).max().unwrap();
            match pattern {
                Pattern::Steady => assert!(busiest <= 101, "{busiest}"),
                Pattern::Poisson => assert!((115..200).contains(&busiest), "{busiest}"),
                Pattern::Bursty => assert!(busiest > 300, "{busiest}"),
            }
        }
    }
}
