//! How often holders ask the store, by reckoning: what advice rests on.
//!
//! All holders of a key spend alike, so one stands for all. From one message to the next: what a message finds at the store
//! decides what it brings, and that decides when the next one leaves. The same sizes, shares and moments as in [`super::purse`]
//! and the meter's grants.

use super::holder::{LOOK_MS, TTL_MS};
use super::purse::{SIZE_MAX, SIZE_MIN, Terms, every_ms, life_ms};
use crate::meter::{Algorithm, Rule};
use alloc::vec::Vec;

/// Messages reckoned at most. What takes more has long shown how it goes on.
const STEPS_MAX: usize = 100_000;
/// Windows reckoned, after one that only warms up; for a bucket, lives of a lease.
const WINDOWS: f64 = 8.0;

/// What the holders of one key want.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Demand {
    /// Of each holder, on average.
    pub per_ms: f64,
    /// How many there are.
    pub holders: u64,
    /// There and back.
    pub latency_ms: f64,
}

/// How often a holder asks.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Pace {
    /// There is enough.
    Steady {
        /// A second, of each holder.
        messages: f64,
        /// Which part of the checks waits for the store.
        waits: f64,
    },
    /// There is less than is wanted: every check may end at the store.
    Short,
}

/// What the store has counted, when it is told by all holders together.
struct Counted {
    algorithm: Algorithm,
    window_ms: f64,
    per_ms: f64,
    at_ms: f64,
    current: f64,
    previous: f64,
    log: Vec<(f64, f64)>,
}

impl Counted {
    fn advance(&mut self, to_ms: f64) {
        match self.algorithm {
            Algorithm::TokenBucket => {
                self.current = (self.current - self.per_ms * (to_ms - self.at_ms)).max(0.0)
            }
            Algorithm::FixedWindow | Algorithm::SlidingWindow => {
                let number = |ms: f64| (ms / self.window_ms) as u64;
                let passed = number(to_ms) - number(self.at_ms);
                if passed > 0 {
                    self.previous = if passed == 1 { self.current } else { 0.0 };
                    self.current = 0.0;
                }
            }
            Algorithm::SlidingLog => {
                let window_ms = self.window_ms;
                self.log.retain(|(ms, _)| ms + window_ms > to_ms);
            }
            Algorithm::InFlight => {}
        }
        self.at_ms = to_ms;
    }

    fn add(&mut self, amount: f64) {
        match self.algorithm {
            Algorithm::SlidingLog => self.log.push((self.at_ms, amount)),
            _ => self.current += amount,
        }
    }

    fn used(&self) -> f64 {
        match self.algorithm {
            Algorithm::SlidingWindow => {
                let into = self.at_ms % self.window_ms / self.window_ms;
                self.previous * (1.0 - into) + self.current
            }
            Algorithm::SlidingLog => self.log.iter().map(|(_, amount)| amount).sum(),
            _ => self.current,
        }
    }
}

/// How often each holder asks the store, by the rule of the key's meter.
pub fn pace(demand: &Demand, rule: &Rule, terms: &Terms) -> Pace {
    let (rate, holders) = (demand.per_ms, demand.holders.max(1) as f64);
    let round_ms = every_ms(Some((rate * 1_000.0) as u64), terms);
    let ttl_ms = round_ms.map_or(terms.ttl_ms, |round_ms| life_ms(round_ms, terms)) as f64;
    let window_ms = rule.window_ms as f64;
    if rate * holders * window_ms >= rule.limit as f64 {
        return Pace::Short;
    }
    // Between a third and a half of its life, or in the last eighth of a round, on average.
    let renewed_ms = round_ms.map_or(ttl_ms * 5.0 / 12.0, |round_ms| round_ms as f64 * 15.0 / 16.0);
    if rate * renewed_ms < 1.0 {
        // Who comes after a while finds nothing to spend and asks for some, which goes back when it is idle; who comes much later
        // isn't even known any more.
        let (waits, forgotten) = (fades(rate * renewed_ms), fades(rate * 2.0 * ttl_ms.min(TTL_MS as f64)));
        let messages = rate * 1_000.0 * (forgotten + 2.0 * (waits - forgotten));
        return Pace::Steady { messages, waits };
    }
    // Whether somebody comes when it is time, before it is only kept for a while longer.
    let comes = 1.0 - fades(rate * LOOK_MS as f64 / 2.0);
    let size = terms.size.map_or((rate * ttl_ms).clamp(SIZE_MIN as f64, SIZE_MAX as f64), |size| size as f64);
    let size = size.min(terms.size_max as f64);
    let (low, most) = ((size / 4.0).max(0.0), (rule.limit as f64 / 20.0).max(1.0));
    let mut counted = Counted {
        algorithm: rule.algorithm,
        window_ms,
        per_ms: rule.limit as f64 / window_ms,
        at_ms: 0.0,
        current: 0.0,
        previous: 0.0,
        log: Vec::new(),
    };
    let span_ms = if rule.algorithm == Algorithm::TokenBucket { ttl_ms } else { window_ms };
    let (warm_ms, end_ms) = (span_ms, span_ms * (1.0 + WINDOWS));
    let (mut now_ms, mut had, mut kept) = (0.0_f64, 0.0_f64, 0.0_f64);
    let (mut messages, mut asked) = (0.0_f64, 0.0_f64);
    // Whether a message brings any.
    let mut brings = 1.0_f64;
    for _ in 0..STEPS_MAX {
        if now_ms >= end_ms {
            break;
        }
        counted.advance(now_ms);
        let is_measured = now_ms >= warm_ms;
        if rule.capacity as f64 - counted.used() < terms.low as f64 {
            // The store decides each check until there is more.
            counted.add(holders * rate);
            asked += if is_measured { rate } else { 0.0 };
            (now_ms, had, kept) = (now_ms + 1.0, 0.0, 0.0);
            continue;
        }
        // All ask at about the same time: for the one in the middle, half of them have already got theirs.
        let room = rule.capacity as f64 - counted.used() - holders * had;
        let share = room / (2.5 * holders);
        let granted = brings * share.min(most).min((size - kept).max(0.0)).max(0.0);
        counted.add(holders * (had - kept));
        messages += if is_measured { 1.0 } else { 0.0 };
        had = kept + granted;
        // As soon as it is low again, but not before this answer is there and somebody has come.
        let low_ms = ((had - low) / rate).max(demand.latency_ms + 1.0 / rate);
        let due_ms = renewed_ms.max(1.0 / rate);
        let after_ms = low_ms.min(due_ms);
        brings = if low_ms <= due_ms { 1.0 } else { comes };
        now_ms += after_ms;
        kept = had - rate * after_ms;
        if kept < 0.0 {
            return Pace::Short;
        }
    }
    let measured_ms = (now_ms.min(end_ms) - warm_ms).max(1.0);
    let per_second = 1_000.0 / measured_ms;
    Pace::Steady { messages: (messages + asked) * per_second, waits: asked * per_second / (rate * 1_000.0) }
}

/// How likely it is that nothing happens for a while in which `mean` would on average: e to the power of the negative mean, closely
/// enough, since there are no logarithms here.
fn fades(mean: f64) -> f64 {
    let step = 1.0 / (1.0 + mean / 256.0);
    (0..8).fold(step, |part, _| part * part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chances_fade_as_they_should() {
        for (mean, part) in [(0.0, 1.0), (0.1, 0.9048), (1.0, 0.3679), (2.0, 0.1353)] {
            assert!((fades(mean) - part).abs() < 0.005, "{mean}: {}", fades(mean));
        }
        assert!(fades(100.0) < 0.001);
    }
}
