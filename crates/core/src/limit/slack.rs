//! Bounded approximation (M4): what its meters may hold besides the limit, and how its holders behave.
//!
//! Slack is issued by the store as a lease is, under the same invariant: what is counted and what is outstanding stay within the
//! capacity. The capacity is a part of the limit, *epsilon*, higher than the limit; so that part, and no more, is what may
//! pass besides, for any number of nodes, crashed or cut off.

use super::bound::passes;
use super::definition::Definition;
use super::holder::is_worth_it;
use super::purse::Terms;
use crate::meter::{Algorithm, Rule};

/// Epsilon's unit: a millionth of the limit.
pub const MILLIONTHS: u64 = 1_000_000;
/// Epsilon if nothing is said: a hundredth.
pub const EPSILON: u64 = 10_000;
/// The low watermark if nothing is said: a fifth of the limit.
pub const LOW: u64 = 200_000;
/// How often a holder says what it has spent, if nothing is said.
pub const SYNC_MS: u64 = 500;

/// How holders of slack behave.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Slack {
    /// How often what was spent is said.
    pub sync_ms: u64,
    /// When less than this isn't counted yet, the store decides every check.
    pub low: u64,
}

/// So many millionths of an amount.
pub fn millionths(amount: u64, part: u64) -> u64 {
    u64::try_from(u128::from(amount) * u128::from(part) / u128::from(MILLIONTHS)).unwrap_or(u64::MAX)
}

/// The rule of an approximate limit's meter: its capacity is higher by epsilon of the limit.
pub fn widened(rule: Rule, epsilon: u64) -> Rule {
    let most = rule.algorithm.amount_max(rule.window_ms);
    let capacity = rule.capacity.saturating_add(millionths(rule.limit, epsilon)).min(most);
    Rule { capacity, ..rule }
}

/// How a definition's slack behaves; nothing if the limit is too small to be divided. Slack lives for some rounds: long enough to
/// miss one, and short, because what a dead holder had is out of use until then.
pub fn slack(definition: &Definition, key: &str, sync_ms: u64, low: u64) -> Option<(Terms, Slack)> {
    let ttl_ms = sync_ms.saturating_mul(4).clamp(100, definition.window_ms.max(100));
    let low = millionths(definition.limit_of(key), low);
    is_worth_it(definition, key)
        .then_some((Terms { ttl_ms, size: definition.lease_size }, Slack { sync_ms, low }))
}

/// How much may pass in an interval as long as the window, by the widened rule.
pub fn worst(rule: &Rule) -> u64 {
    match rule.algorithm {
        // What refills is the limit; only what fits at once is more.
        Algorithm::TokenBucket => passes(rule.algorithm, rule.capacity, rule.limit),
        _ => passes(rule.algorithm, rule.capacity, rule.capacity),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limit::tests::definitions::plain;
    use crate::limit::{Defined, bound};
    use crate::record::Revision;

    fn rule(algorithm: Algorithm) -> Rule {
        let definition = Definition { algorithm, ..plain(1_000, 60_000) };
        Defined { definition, version: Revision(1) }.rule("k", None)
    }

    #[test]
    fn epsilon_adds_to_what_fits_at_once_and_so_to_each_window_that_an_interval_meets() {
        for (algorithm, worst_of) in [
            (Algorithm::TokenBucket, 2_010),
            (Algorithm::FixedWindow, 2_020),
            (Algorithm::SlidingWindow, 2_020),
            (Algorithm::SlidingLog, 1_010),
        ] {
            assert_eq!(worst(&widened(rule(algorithm), EPSILON)), worst_of, "{algorithm:?}");
            let definition = Definition { algorithm, ..plain(1_000, 60_000) };
            let exact = bound(&definition, "k", 1, "nothing").worst();
            assert_eq!(Some(worst(&widened(rule(algorithm), 0))), exact, "{algorithm:?}: without epsilon");
        }
    }

    #[test]
    fn a_widened_rule_is_still_computed_with_exactly() {
        let most = Algorithm::TokenBucket.amount_max(60_000);
        let definition = Definition { algorithm: Algorithm::TokenBucket, ..plain(most, 60_000) };
        let rule = Defined { definition, version: Revision(1) }.rule("k", None);
        assert_eq!(widened(rule, EPSILON).capacity, most);
    }

    #[test]
    fn slack_outlives_a_missed_round_and_never_the_window() {
        let definition = plain(1_000, 60_000);
        for (sync_ms, ttl_ms) in [(500, 2_000), (10, 100), (60_000, 60_000)] {
            let (terms, slack) = slack(&definition, "k", sync_ms, LOW).unwrap();
            assert_eq!((terms.ttl_ms, slack.sync_ms, slack.low), (ttl_ms, sync_ms, 200));
        }
        assert!(slack(&plain(79, 1_000), "k", 500, LOW).is_none(), "a twentieth is too little to divide");
    }
}
