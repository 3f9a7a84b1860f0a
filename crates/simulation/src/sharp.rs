//! What the algorithm itself allows of what nodes and the store admitted, without what outage policies added: more narrowly than an
//! interval that may begin anywhere.
//!
//! A bucket never holds more than its burst, a window never has more than its limit, and a log has no more in any interval; an approximate
//! limit has its part of epsilon besides. All of it is by the milliseconds of the store's clock. Of a limit that was lowered, the old
//! capacity counts until what was issued by it has ended and has been forgotten.

use crate::mishaps::HEARD_US;
use crate::plan::Plan;
use crate::store::{key_name, now_ms};
use baton_core::Revision;
use baton_core::limit::{Defined, Definition, Identity, bound, holder};
use baton_core::meter::{Algorithm, Rule};
use std::collections::VecDeque;

/// Of one key: the most that counted at once, beside what was allowed then.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Closest {
    /// What counted.
    pub most: u64,
    /// What was allowed.
    pub allowed: u64,
}

impl Closest {
    /// Whether no more counted than was allowed.
    pub fn is_within(self) -> bool {
        self.most <= self.allowed
    }

    fn excess(self) -> i128 {
        i128::from(self.most) - i128::from(self.allowed)
    }
}

/// Judges every admission.
#[derive(Clone, Debug)]
pub struct Sharp {
    algorithm: Algorithm,
    window_ms: u64,
    /// By version: the limit, and how much may count at once.
    versions: Vec<(u64, u64)>,
    /// How long a version matters after another one was followed.
    matters_ms: u64,
    keys: Vec<Key>,
    /// Where most was nearest to what was allowed, or furthest beyond.
    pub closest: Option<Closest>,
}

#[derive(Clone, Debug)]
struct Key {
    rule: Rule,
    version: usize,
    /// Versions that were followed before, and until when.
    before: VecDeque<(usize, u64)>,
    at_ms: u64,
    /// A bucket's level times the window's length, or what came in this window.
    level: u64,
    start_ms: u64,
    /// Of a log: when, and how many.
    log: VecDeque<(u64, u64)>,
}

impl Sharp {
    /// Of nothing yet; nothing if the definitions give no number.
    pub fn new(plan: &Plan, definitions: &[Definition]) -> Option<Self> {
        let first = definitions.first()?;
        let (algorithm, window_ms) = (first.algorithm, first.window_ms);
        let versions: Option<Vec<_>> =
            definitions.iter().map(|one| Some((one.limit, capacity(one)?))).collect();
        let versions = versions?;
        let lives_ms = |one| holder::terms(one, "", Identity::default()).map_or(0, |terms| terms.ttl_ms);
        let life_ms = definitions.iter().map(lives_ms).max().unwrap_or_default();
        // Until everybody has heard of it, and what was on its way before has arrived and has been sent again.
        let heard_ms = (HEARD_US + 10 * plan.latency_us).div_ceil(1_000);
        // Until what counted then has leaked, or its window is over.
        let forgets = |(limit, capacity): &(u64, u64)| capacity.div_ceil(*limit).max(1) * window_ms;
        let forgotten_ms = versions.iter().map(forgets).max().unwrap_or_default();
        let matters_ms = if versions.len() > 1 { life_ms + heard_ms + forgotten_ms } else { 0 };
        let defined = Defined { definition: first.clone(), version: Revision(1) };
        let key = |key| Key {
            rule: defined.exact_rule(&key_name(key as usize), None),
            version: 0,
            before: VecDeque::new(),
            at_ms: now_ms(0),
            level: 0,
            start_ms: 0,
            log: VecDeque::new(),
        };
        let keys = (0..plan.keys).map(key).collect();
        Some(Self { algorithm, window_ms, versions, matters_ms, keys, closest: None })
    }

    /// The store follows another version from now on.
    pub fn follow(&mut self, key: usize, version: usize, at_us: u64) {
        if self.keys[key].version == version {
            return;
        }
        self.advance(key, now_ms(at_us));
        let key = &mut self.keys[key];
        let before = std::mem::replace(&mut key.version, version);
        key.before.push_back((before, now_ms(at_us)));
    }

    /// One was admitted.
    pub fn admit(&mut self, key: usize, at_us: u64) {
        let at_ms = now_ms(at_us);
        self.advance(key, at_ms);
        let (algorithm, window_ms) = (self.algorithm, self.window_ms);
        let most = {
            let key = &mut self.keys[key];
            match algorithm {
                Algorithm::TokenBucket => {
                    key.level += window_ms;
                    key.level.div_ceil(window_ms)
                }
                Algorithm::FixedWindow | Algorithm::SlidingWindow => {
                    key.level += 1;
                    key.level
                }
                Algorithm::SlidingLog | Algorithm::InFlight => {
                    match key.log.back_mut() {
                        Some((last_ms, count)) if *last_ms == at_ms => *count += 1,
                        _ => key.log.push_back((at_ms, 1)),
                    }
                    key.log.iter().map(|(_, count)| count).sum()
                }
            }
        };
        let closest = Closest { most, allowed: self.allowed(key, at_ms) };
        if self.closest.is_none_or(|before| before.excess() < closest.excess()) {
            self.closest = Some(closest);
        }
    }

    fn advance(&mut self, key: usize, at_ms: u64) {
        let key = &mut self.keys[key];
        match self.algorithm {
            Algorithm::TokenBucket => {
                let limit = self.versions[key.version].0;
                key.level = key.level.saturating_sub(limit * (at_ms - key.at_ms));
            }
            Algorithm::FixedWindow | Algorithm::SlidingWindow => {
                let start_ms = key.rule.start_of(at_ms);
                if start_ms > key.start_ms {
                    (key.start_ms, key.level) = (start_ms, 0);
                }
            }
            Algorithm::SlidingLog | Algorithm::InFlight => {
                let window_ms = self.window_ms;
                while key.log.pop_front_if(|(ms, _)| *ms + window_ms <= at_ms).is_some() {}
            }
        }
        key.at_ms = at_ms;
    }

    fn allowed(&mut self, key: usize, at_ms: u64) -> u64 {
        let matters_ms = self.matters_ms;
        let key = &mut self.keys[key];
        while key.before.pop_front_if(|(_, until_ms)| *until_ms + matters_ms < at_ms).is_some() {}
        let versions = key.before.iter().map(|(version, _)| *version).chain([key.version]);
        versions.map(|version| self.versions[version].1).max().unwrap_or_default()
    }
}

/// How much may count at once, by what is said about the worst case; nothing if that is no number.
fn capacity(definition: &Definition) -> Option<u64> {
    let bounds = bound(definition, "", 1, "");
    let besides = bounds.items.iter().find(|item| item.source == "mechanism")?.amount?;
    let windows = match definition.algorithm {
        Algorithm::FixedWindow | Algorithm::SlidingWindow => 2,
        Algorithm::TokenBucket | Algorithm::SlidingLog | Algorithm::InFlight => 1,
    };
    Some(definition.capacity_of("") + besides / windows)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::definition;

    fn sharp(algorithm: Algorithm, limits: &[u64]) -> Sharp {
        let staggered = false;
        let one = |limit: &u64| Definition { staggered, ..definition(algorithm, *limit, 1_000) };
        let definitions: Vec<_> = limits.iter().map(one).collect();
        Sharp::new(&Plan::new(1, 1, definitions[0].clone()), &definitions).unwrap()
    }

    /// What was nearest to what was allowed after each of these, `(milliseconds, how many)`.
    fn seen(sharp: &mut Sharp, admitted: &[(u64, u64)]) -> Vec<(u64, u64)> {
        let mut seen = Vec::new();
        for (ms, count) in admitted {
            sharp.closest = None;
            (0..*count).for_each(|_| sharp.admit(0, ms * 1_000));
            seen.extend(sharp.closest.map(|closest| (closest.most, closest.allowed)));
        }
        seen
    }

    #[test]
    fn a_bucket_counts_what_has_not_leaked_yet() {
        let mut bucket = sharp(Algorithm::TokenBucket, &[10]);
        assert_eq!(seen(&mut bucket, &[(0, 8), (300, 4), (10_000, 1)]), [(8, 10), (9, 10), (1, 10)]);
        assert_eq!(seen(&mut bucket, &[(10_050, 10)]), [(11, 10)], "half of one has leaked");
    }

    #[test]
    fn a_window_begins_where_the_clock_says_and_a_log_anywhere() {
        for algorithm in [Algorithm::FixedWindow, Algorithm::SlidingWindow] {
            let mut window = sharp(algorithm, &[10]);
            assert_eq!(
                seen(&mut window, &[(999, 10), (1_000, 10), (1_500, 1)]),
                [(10, 10), (10, 10), (11, 10)]
            );
        }
        let mut log = sharp(Algorithm::SlidingLog, &[10]);
        assert_eq!(seen(&mut log, &[(999, 6), (1_998, 5), (1_999, 1)]), [(6, 10), (11, 10), (6, 10)]);
    }

    #[test]
    fn after_a_limit_was_lowered_the_old_one_counts_until_what_was_issued_by_it_has_ended() {
        for algorithm in [Algorithm::FixedWindow, Algorithm::TokenBucket, Algorithm::SlidingLog] {
            let mut lowered = sharp(algorithm, &[1_000, 500]);
            lowered.follow(0, 1, 1_000_000);
            // A second for a lease, for all to hear of it and for it to be forgotten, each, and 10 ms on the way.
            assert_eq!(
                seen(&mut lowered, &[(4_010, 1), (5_100, 1)]),
                [(1, 1_000), (1, 500)],
                "{algorithm:?}"
            );
            lowered.follow(0, 0, 6_000_000);
            assert_eq!(seen(&mut lowered, &[(6_000, 1)])[0].1, 1_000, "and a higher one at once");
        }
    }
}
