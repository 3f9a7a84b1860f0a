//! What may really have been spent at most, by the algorithm's own bound. It knows when what was spent, and nothing of meters.

use crate::meter::{Algorithm, Edges, Rule};
use alloc::vec::Vec;

/// When how much was really spent, in order of time.
#[derive(Default, Debug)]
pub struct Actual(Vec<(u64, u64)>);

impl Actual {
    pub fn spend(&mut self, now_ms: u64, amount: u64) {
        match self.0.last_mut() {
            Some((time, spent)) if *time == now_ms => *spent += amount,
            _ if amount > 0 => self.0.push((now_ms, amount)),
            _ => {}
        }
    }

    /// The most that was spent within any so many milliseconds.
    fn most_within(&self, window_ms: u64) -> u64 {
        let within = |first: &(u64, u64)| {
            let (from_ms, until_ms) = (first.0, first.0 + window_ms);
            self.0
                .iter()
                .filter(|(time, _)| (from_ms..until_ms).contains(time))
                .map(|(_, amount)| amount)
                .sum()
        };
        self.0.iter().map(within).max().unwrap_or(0)
    }

    /// The most that was spent in one of the meter's windows.
    fn most_in_a_window(&self, window_ms: u64, offset_ms: u64) -> u64 {
        let window = |time: u64| (time + window_ms - offset_ms) / window_ms;
        let in_window = |first: &(u64, u64)| {
            self.0.iter().filter(|(time, _)| window(*time) == window(first.0)).map(|(_, amount)| amount).sum()
        };
        self.0.iter().map(in_window).max().unwrap_or(0)
    }

    /// `added` is what may be on top of the algorithm's own bound.
    pub fn assert_within(&self, rule: &Rule, added: u64) {
        let Edges::Every { offset_ms } = rule.edges else { panic!("uneven windows are in tables") };
        let (limit, window_ms) = (rule.limit + added, rule.window_ms);
        let in_a_window = self.most_in_a_window(window_ms, offset_ms);
        match rule.algorithm {
            Algorithm::FixedWindow => assert!(in_a_window <= limit, "{in_a_window} of {limit}: {self:?}"),
            Algorithm::SlidingWindow => {
                assert!(in_a_window <= limit, "{in_a_window} of {limit}: {self:?}");
                assert!(self.most_within(window_ms) <= 2 * limit, "{self:?}");
            }
            Algorithm::SlidingLog => {
                let most = self.most_within(window_ms);
                assert!(most <= limit, "{most} of {limit}: {self:?}");
            }
            Algorithm::TokenBucket => {
                for (place, (from_ms, _)) in self.0.iter().enumerate() {
                    let mut spent = 0;
                    for (time, amount) in &self.0[place..] {
                        spent += amount;
                        let refilled = rule.limit * (time - from_ms);
                        let most = (rule.capacity + added) * window_ms + refilled;
                        assert!(spent * window_ms <= most, "{spent} from {from_ms} to {time}: {self:?}");
                    }
                }
            }
            Algorithm::InFlight => {}
        }
    }
}
