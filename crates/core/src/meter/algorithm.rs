//! How each algorithm counts, and how it forgets.

use super::claim::{Algorithm, Edges, Rule};
use super::state::Meter;
use super::{LOG_MAX, NUMBER_MAX, PRODUCT_MAX};

impl Rule {
    /// Where the window of this moment began.
    pub fn start_of(&self, now_ms: u64) -> u64 {
        match self.edges {
            Edges::Every { offset_ms } => start_every(now_ms, self.window_ms, offset_ms),
            Edges::At([first, second, third]) => match now_ms {
                _ if now_ms >= third => third,
                _ if now_ms >= second => second,
                _ => first,
            },
        }
    }

    /// Where the window that began at `start_ms` ends.
    pub fn end_of(&self, start_ms: u64) -> u64 {
        match self.edges {
            Edges::Every { .. } => start_ms.saturating_add(self.window_ms),
            Edges::At(edges) => edges
                .into_iter()
                .find(|edge| *edge > start_ms)
                .unwrap_or_else(|| start_ms.saturating_add(self.window_ms)),
        }
    }

    /// As a meter keeps it.
    pub(super) fn offset_ms(&self) -> u64 {
        match self.edges {
            Edges::Every { offset_ms } => offset_ms,
            Edges::At(_) => self.window_ms,
        }
    }
}

/// Windows of one length; before the first whole one there is a part of one.
fn start_every(now_ms: u64, window_ms: u64, offset_ms: u64) -> u64 {
    let into = (now_ms % window_ms + window_ms - offset_ms) % window_ms;
    now_ms.saturating_sub(into)
}

impl Meter {
    /// A meter that nothing was taken from.
    pub(super) fn fresh(rule: &Rule, now_ms: u64) -> Self {
        Self {
            version: rule.version,
            algorithm: rule.algorithm,
            limit: rule.limit,
            window_ms: rule.window_ms,
            offset_ms: rule.offset_ms(),
            since_ms: now_ms,
            at_ms: now_ms,
            start_ms: rule.start_of(now_ms),
            current: 0,
            previous: 0,
            log: alloc::vec::Vec::new(),
            rows: alloc::vec::Vec::new(),
        }
    }

    /// Whether it counts the way the rule wants it to, apart from how much.
    pub(super) fn has_shape(&self, rule: &Rule) -> bool {
        self.algorithm == rule.algorithm
            && self.window_ms == rule.window_ms
            && self.offset_ms == rule.offset_ms()
    }

    /// Brings it to a later moment: forgets what is over. Never goes back.
    ///
    /// Windows are the rule's if it has the meter's shape; else the meter's own. Those of a calendar that the rule doesn't
    /// know stay open: nothing is forgotten too early.
    pub(super) fn advance(&mut self, rule: &Rule, now_ms: u64) {
        if now_ms <= self.at_ms {
            return;
        }
        let elapsed_ms = now_ms - self.at_ms;
        self.at_ms = now_ms;
        match self.algorithm {
            Algorithm::TokenBucket => {
                let empty_after_ms = self.current.div_ceil(self.limit);
                self.current = match elapsed_ms >= empty_after_ms {
                    true => 0,
                    false => self.current - self.limit * elapsed_ms,
                };
            }
            Algorithm::FixedWindow | Algorithm::SlidingWindow => {
                let start_ms = if self.has_shape(rule) {
                    rule.start_of(now_ms)
                } else if self.offset_ms == self.window_ms {
                    self.start_ms
                } else {
                    start_every(now_ms, self.window_ms, self.offset_ms)
                };
                // A window that is yet to begin, as somebody's calendar says whose clock is ahead, ends none.
                if start_ms > self.start_ms && start_ms <= now_ms {
                    let is_next = start_ms - self.start_ms <= self.window_ms;
                    let slides = self.algorithm == Algorithm::SlidingWindow && is_next;
                    self.previous = if slides { self.current } else { 0 };
                    self.current = 0;
                    self.start_ms = start_ms;
                }
            }
            Algorithm::SlidingLog => {
                let window_ms = self.window_ms;
                self.log.retain(|(time, _)| time.saturating_add(window_ms) > now_ms);
            }
            Algorithm::InFlight => {}
        }
    }

    /// What is counted now, in whole units, rounded up.
    pub fn used(&self) -> u64 {
        match self.algorithm {
            Algorithm::TokenBucket => self.current.div_ceil(self.window_ms),
            Algorithm::SlidingWindow => {
                let left_ms =
                    self.window_ms - (self.at_ms - self.start_ms.min(self.at_ms)).min(self.window_ms);
                (self.previous * left_ms).div_ceil(self.window_ms) + self.current
            }
            Algorithm::FixedWindow => self.current,
            Algorithm::SlidingLog => {
                self.log.iter().fold(0, |sum, (_, amount)| (sum + amount).min(NUMBER_MAX))
            }
            Algorithm::InFlight => 0,
        }
    }

    /// Counts, whether or not there is room.
    pub(super) fn add(&mut self, amount: u64) {
        if amount == 0 {
            return;
        }
        match self.algorithm {
            // Far above any capacity there is an end to counting: what is computed with must stay exact.
            Algorithm::TokenBucket => {
                let amount = amount.min(NUMBER_MAX / self.window_ms) * self.window_ms;
                self.current = (self.current + amount).min(NUMBER_MAX);
            }
            Algorithm::SlidingWindow => {
                self.current = (self.current + amount).min(PRODUCT_MAX / self.window_ms);
            }
            Algorithm::FixedWindow => self.current = (self.current + amount).min(NUMBER_MAX),
            Algorithm::SlidingLog => {
                let is_full = self.log.len() >= LOG_MAX;
                match self.log.last_mut() {
                    Some((time, counted)) if is_full || *time == self.at_ms => {
                        *time = self.at_ms;
                        *counted = (*counted + amount).min(NUMBER_MAX);
                    }
                    _ => self.log.push((self.at_ms, amount)),
                }
            }
            Algorithm::InFlight => {}
        }
    }

    /// Takes back what was counted at `at_ms`, as far as it still counts. Never more than if it had not been counted at all.
    pub(super) fn credit(&mut self, amount: u64, at_ms: u64) -> u64 {
        if at_ms < self.since_ms || at_ms > self.at_ms {
            return 0;
        }
        match self.algorithm {
            Algorithm::TokenBucket => {
                // What has leaked since is there again already.
                let amount = amount.min(NUMBER_MAX / self.window_ms) * self.window_ms;
                let elapsed_ms = self.at_ms - at_ms;
                if elapsed_ms >= amount.div_ceil(self.limit) {
                    return 0;
                }
                let credit = (amount - elapsed_ms * self.limit).min(self.current);
                self.current -= credit;
                credit.div_ceil(self.window_ms)
            }
            Algorithm::FixedWindow | Algorithm::SlidingWindow => {
                if at_ms < self.start_ms {
                    return 0;
                }
                let credit = amount.min(self.current);
                self.current -= credit;
                credit
            }
            Algorithm::SlidingLog => {
                let Some(place) = self.log.iter().position(|(time, _)| *time == at_ms) else { return 0 };
                let credit = amount.min(self.log[place].1);
                self.log[place].1 -= credit;
                if self.log[place].1 == 0 {
                    self.log.remove(place);
                }
                credit
            }
            Algorithm::InFlight => 0,
        }
    }

    /// From when on `amount` more fits, in milliseconds from now, if a bucket has so much debt at most; nothing if later
    /// than a window.
    pub(super) fn booked_after(&self, capacity: u64, amount: u64) -> Option<u64> {
        let wanted = self.outstanding().saturating_add(amount);
        let above = match wanted.checked_sub(capacity) {
            // More than a window refills.
            Some(above) if above > self.limit => return None,
            Some(above) => self.current + above * self.window_ms,
            None => self.current.saturating_sub((capacity - wanted) * self.window_ms),
        };
        let wait_ms = above.div_ceil(self.limit);
        (wait_ms <= self.window_ms).then_some(wait_ms)
    }
}
