//! Bounded approximation (M4): what its meters may hold besides the limit, and how its holders behave.
//!
//! Slack is issued by the store as a lease is, under the same invariant: what is counted and what is outstanding stay within the
//! capacity. The capacity is higher than the limit, by no more than *epsilon*, a part of it; so that part, and no more, is what may
//! pass besides, for any number of nodes, crashed, cut off or come back under another name: what a node had before is outstanding
//! until it ends, so no node has slack twice that wasn't issued twice.
//!
//! An interval as long as the window may meet the end of one window and the begin of the next. Then each of them has half of epsilon.
//!
//! What sets it apart from a lease is that the store is told every so often what was spent, so what it knows is never much older; and
//! when little is left by that, nobody but the store decides.

use super::definition::Definition;
use super::purse::{LIFE_MS_MIN, Rhythm, Terms, every_ms, life_ms};
use crate::meter::{Algorithm, LOG_MAX, Rule};

/// Epsilon's unit, and the watermark's: a millionth of the limit.
pub const MILLIONTHS: u64 = 1_000_000;
/// Epsilon if nothing is said: a hundredth.
pub const EPSILON: u64 = 10_000;
/// The low watermark if nothing is said: a fifth of the limit.
pub const LOW: u64 = 200_000;
/// The slack of somebody nobody knows: a hundredth of the limit, at most.
const ANONYMOUS: u64 = 10_000;

/// Who is checked: whoever isn't known gets less slack, so that less is out of use if nobody comes back to it, and perhaps another
/// mechanism.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Identity {
    /// Somebody nobody knows.
    Anonymous,
    /// Somebody who is known; also if nothing is said.
    #[default]
    Authenticated,
}

/// So many millionths of an amount.
pub fn millionths(amount: u64, part: u64) -> u64 {
    u64::try_from(u128::from(amount) * u128::from(part) / u128::from(MILLIONTHS)).unwrap_or(u64::MAX)
}

/// The rule of an approximate limit's meter: its capacity is higher, so that epsilon of the limit may pass besides.
pub(super) fn widened(rule: Rule, epsilon: u64) -> Rule {
    let besides = millionths(rule.limit, epsilon) / windows_met(rule.algorithm);
    let most = match rule.algorithm {
        // A log has so many entries at most.
        Algorithm::SlidingLog => LOG_MAX as u64,
        algorithm => algorithm.amount_max(rule.window_ms),
    };
    Rule { capacity: rule.capacity.saturating_add(besides).min(most.max(rule.capacity)), ..rule }
}

/// How many windows an interval as long as one can meet.
fn windows_met(algorithm: Algorithm) -> u64 {
    match algorithm {
        Algorithm::FixedWindow | Algorithm::SlidingWindow => 2,
        Algorithm::TokenBucket | Algorithm::SlidingLog | Algorithm::InFlight => 1,
    }
}

/// How slack behaves; whether there is any is not asked here.
pub(super) fn terms(definition: &Definition, key: &str, identity: Identity) -> Terms {
    let limit = definition.limit_of(key);
    let size_max = match identity {
        Identity::Anonymous => millionths(limit, ANONYMOUS).max(1),
        Identity::Authenticated => u64::MAX,
    };
    Terms {
        ttl_ms: definition.window_ms.max(LIFE_MS_MIN),
        size: definition.lease_size,
        size_max,
        rhythm: definition.sync_ms.map_or(Rhythm::AsUsed, Rhythm::Every),
        low: millionths(limit, definition.low_watermark.unwrap_or(LOW)),
    }
}

/// How much an approximate limit lets pass besides, in an interval as long as the window.
pub(super) fn adds(definition: &Definition, key: &str) -> u64 {
    let besides = millionths(definition.limit_of(key), definition.epsilon.unwrap_or(EPSILON));
    let windows = windows_met(definition.algorithm);
    besides / windows * windows
}

/// How long slack lives at most.
pub(super) fn longest_ms(definition: &Definition) -> u64 {
    let terms = terms(definition, "", Identity::default());
    let quietest = every_ms(Some(0), &terms);
    quietest.map_or(terms.ttl_ms, |every_ms| life_ms(every_ms, &terms))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limit::tests::definitions::plain;
    use crate::limit::{Defined, Mechanism, bound};
    use crate::record::Revision;

    fn approximate(algorithm: Algorithm, limit: u64) -> Definition {
        Definition { algorithm, mechanism: Mechanism::Approximate, ..plain(limit, 60_000) }
    }

    #[test]
    fn epsilon_is_what_passes_besides_in_any_interval_however_many_windows_it_meets() {
        for (algorithm, exact, capacity) in [
            (Algorithm::TokenBucket, 2_000, 1_010),
            (Algorithm::FixedWindow, 2_000, 1_005),
            (Algorithm::SlidingWindow, 2_000, 1_005),
            // It can't have more entries.
            (Algorithm::SlidingLog, 1_000, 1_000),
        ] {
            let definition = approximate(algorithm, 1_000);
            assert_eq!(bound(&definition, "k", 1, "nothing").worst(), Some(exact + 10), "{algorithm:?}");
            let none = Definition { epsilon: Some(0), ..definition.clone() };
            assert_eq!(
                bound(&none, "k", 1, "nothing").worst(),
                Some(exact),
                "{algorithm:?}: without epsilon"
            );
            let defined = Defined { definition, version: Revision(1) };
            let (rule, exact) = (defined.rule("k", None), defined.exact_rule("k", None));
            assert_eq!(
                (rule.capacity, rule.limit, exact.capacity),
                (capacity, 1_000, 1_000),
                "{algorithm:?}"
            );
        }
    }

    #[test]
    fn a_widened_rule_is_still_computed_with_exactly() {
        let most = Algorithm::TokenBucket.amount_max(60_000);
        let defined = Defined { definition: approximate(Algorithm::TokenBucket, most), version: Revision(1) };
        assert_eq!(defined.rule("k", None).capacity, most);
    }

    #[test]
    fn who_is_not_known_has_a_hundredth_of_the_limit_at_most() {
        let definition = approximate(Algorithm::TokenBucket, 10_000);
        let of = |identity| terms(&definition, "k", identity);
        assert_eq!(of(Identity::Anonymous).size_max, 100);
        assert_eq!(of(Identity::Authenticated).size_max, u64::MAX);
        assert_eq!(of(Identity::default()).low, 2_000);
        let said = Definition { low_watermark: Some(0), sync_ms: Some(50), ..definition };
        let Terms { low, rhythm, .. } = terms(&said, "k", Identity::default());
        assert_eq!((low, rhythm), (0, Rhythm::Every(50)));
    }
}
