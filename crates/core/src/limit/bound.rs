//! How much more than the limit may pass, at worst, and why: one line for each reason.
//!
//! Every line is for one key and any interval as long as the window, wherever it begins.

use super::definition::{Definition, Mechanism, Policy};
use super::gossip::{self, Spread};
use super::holder;
use super::slack::{self, Identity};
use crate::meter::{Algorithm, Reclaim};
use alloc::string::String;
use alloc::vec::Vec;
use alloc::{format, vec};

/// One reason.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BoundItem {
    /// What it comes from.
    pub source: &'static str,
    /// How much it may add; nothing if there is no number for it.
    pub amount: Option<u64>,
    /// How much it may add each time that it happens, if nobody can say how often that is.
    pub each: Option<u64>,
    /// Why.
    pub because: String,
}

/// All reasons.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Bound {
    /// The limit it is about.
    pub limit: u64,
    /// Every reason.
    pub items: Vec<BoundItem>,
}

impl Bound {
    /// How much may pass in an interval as long as the window while the store can be reached and loses nothing; nothing if
    /// there is no number for it.
    pub fn worst(&self) -> Option<u64> {
        let added = self.items.iter().filter(|item| ["mechanism", "algorithm"].contains(&item.source));
        added.map(|item| item.amount).try_fold(self.limit, |sum, amount| Some(sum.saturating_add(amount?)))
    }
}

/// The worst case of a key's limit. `nodes` is how many are known; `on_failover` is the store's own word.
pub fn bound(definition: &Definition, key: &str, nodes: u64, on_failover: &str) -> Bound {
    if definition.mechanism == Mechanism::Gossip {
        return gossip::bound(definition, key, &Spread::unmeasured(definition, nodes));
    }
    let (limit, capacity) = (definition.limit_of(key), definition.capacity_of(key));
    let mut mechanism = mechanism_item(definition, key);
    if let Some(own) = definition.own_of(Identity::Anonymous) {
        let anonymous = mechanism_item(&own, key);
        mechanism = BoundItem {
            amount: mechanism.amount.zip(anonymous.amount).map(|(one, other)| one.max(other)),
            each: mechanism.each.max(anonymous.each),
            because: format!("{}; anonymous {}", mechanism.because, anonymous.because),
            ..mechanism
        };
    }
    let algorithm = algorithm_item(definition, key);
    let store = BoundItem {
        source: "store",
        amount: None,
        each: None,
        because: format!("what the store loses on failover is not counted: {on_failover}"),
    };
    let nodes = definition.expected_nodes.unwrap_or(nodes).max(nodes).max(1);
    // Nodes count by the limit's own algorithm, so its own bound is each share's too.
    let shares = Some(passes(definition.algorithm, capacity, limit));
    let (amount, because) = match definition.on_failure {
        Policy::Closed => (Some(0), "closed: nothing is admitted in an outage".into()),
        Policy::ClosedLocal => {
            (shares, format!("closed_local: each of {nodes} nodes counts up to its share of the limit"))
        }
        Policy::Open => {
            let (cap, rate) = definition.local_cap.map_or((capacity, limit), |cap| (cap, cap));
            (
                Some(passes(definition.algorithm, cap, rate).saturating_mul(nodes)),
                format!(
                    "open: each of {nodes} nodes counts by itself, up to {cap} at once and {rate} a window"
                ),
            )
        }
        Policy::Local => {
            (shares, format!("local: {nodes} nodes divide what remained when the store was last heard of"))
        }
        Policy::Snapshot => (
            shares,
            format!(
                "snapshot: {nodes} nodes divide what remained by their last snapshots; what was spent after those, \
                     5 minutes at most, comes on top"
            ),
        ),
    };
    let outage = BoundItem { source: "outage", amount, each: None, because };
    Bound { limit, items: vec![mechanism, algorithm, store, outage] }
}

/// What the algorithm lets pass.
pub(super) fn algorithm_item(definition: &Definition, key: &str) -> BoundItem {
    let (limit, capacity) = (definition.limit_of(key), definition.capacity_of(key));
    let (amount, because) = match definition.algorithm {
        Algorithm::TokenBucket => (
            capacity,
            format!("token bucket: a burst of {capacity} besides the {limit} that come in a window"),
        ),
        Algorithm::SlidingWindow => (
            limit,
            "sliding window: it takes the last window to have been even; if all came at its end, up to twice the limit \
             passes in an interval that begins there"
                .into(),
        ),
        Algorithm::FixedWindow => {
            (limit, "fixed window: one full window's end and the next one's begin".into())
        }
        Algorithm::SlidingLog => (0, "sliding log: exact over every interval".into()),
        Algorithm::InFlight => (0, "in flight: exact at every moment; a place ends with its lease".into()),
    };
    BoundItem { source: "algorithm", amount: Some(amount), each: None, because }
}

/// What a mechanism adds.
fn mechanism_item(definition: &Definition, key: &str) -> BoundItem {
    match definition.mechanism {
        Mechanism::Central => BoundItem {
            source: "mechanism",
            amount: Some(0),
            each: None,
            because: "central: the store decides every check".into(),
        },
        Mechanism::Leased | Mechanism::Owned => {
            let mechanism = definition.mechanism.as_str();
            // Those who are known have the largest leases. Where none is given nothing is reclaimed.
            let leases = holder::terms(definition, key, Identity::default());
            let most = leases.filter(|_| definition.reclaim == Reclaim::Drop).map(|terms| terms.size_max);
            let each = most.map(|most| most.min(definition.capacity_of(key)));
            BoundItem {
                source: "mechanism",
                amount: if each.is_some() { None } else { Some(0) },
                each,
                because: match each {
                    None => format!(
                        "{mechanism}: what is spent was debited before; a dead holder's rest counts as spent"
                    ),
                    Some(each) => format!(
                        "{mechanism}, reclaimed optimistically: up to {each}, which is the most that a lease has, each \
                         time that a lease ends before all that was spent of it is told, as when its holder dies or is \
                         cut off, since that is available to others then; after a change, what a lease had by the old definition"
                    ),
                },
            }
        }
        // It has a bound of its own, and is never one of two.
        Mechanism::Gossip => BoundItem {
            source: "mechanism",
            amount: None,
            each: None,
            because: "gossip: see its own bound".into(),
        },
        Mechanism::Approximate => {
            let adds = slack::adds(definition, key);
            BoundItem {
                source: "mechanism",
                amount: Some(adds),
                each: None,
                because: format!(
                    "approximate: what nodes spend was issued before, up to {adds} more than the limit in all; after the \
                     limit was lowered, what was issued by the old one until that ends, within {} ms",
                    slack::longest_ms(definition)
                ),
            }
        }
    }
}

/// How much an algorithm lets pass at most in an interval as long as the window.
pub fn passes(algorithm: Algorithm, capacity: u64, limit: u64) -> u64 {
    match algorithm {
        Algorithm::TokenBucket => capacity.saturating_add(limit),
        Algorithm::SlidingWindow | Algorithm::FixedWindow => limit.saturating_mul(2),
        Algorithm::SlidingLog => limit,
        // What is in flight is known to the store alone.
        Algorithm::InFlight => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limit::tests::definitions::plain;

    fn open(local_cap: Option<u64>) -> Definition {
        Definition {
            algorithm: Algorithm::TokenBucket,
            burst: Some(20),
            mechanism: Mechanism::Leased,
            on_failure: Policy::Open,
            local_cap,
            expected_nodes: Some(3),
            ..plain(100, 60_000)
        }
    }

    #[test]
    fn open_adds_what_each_node_lets_pass_by_the_limit_s_own_algorithm() {
        for (local_cap, added) in [(Some(7), 3 * (7 + 7)), (None, 3 * (20 + 100))] {
            let bound = bound(&open(local_cap), "k", 1, "nothing");
            let outage = bound.items.iter().find(|item| item.source == "outage");
            assert_eq!(outage.and_then(|item| item.amount), Some(added));
            assert_eq!(bound.worst(), Some(120), "an outage is not in it");
        }
    }

    #[test]
    fn what_is_reclaimed_optimistically_adds_the_largest_lease_there_may_be_each_time() {
        let optimistic = |mechanism, limit, lease_size| {
            let reclaim = Reclaim::Drop;
            let definition = Definition { mechanism, reclaim, lease_size, ..plain(limit, 60_000) };
            let bound = bound(&definition, "k", 1, "nothing");
            (bound.items[0].amount, bound.items[0].each, bound.worst())
        };
        for (mechanism, limit, lease_size, each) in [
            (Mechanism::Leased, 100_000, None, 10_000),
            (Mechanism::Leased, 1_000, None, 1_000),
            (Mechanism::Leased, 100_000, Some(500), 500),
            (Mechanism::Owned, 100_000, None, 5_000),
            (Mechanism::Owned, 100_000, Some(500), 500),
        ] {
            assert_eq!(optimistic(mechanism, limit, lease_size), (None, Some(each), None), "{mechanism:?}");
        }
        assert_eq!(optimistic(Mechanism::Leased, 70, None).0, Some(0), "so little isn't leased");
    }

    #[test]
    fn where_those_who_are_not_known_have_another_mechanism_the_worse_of_the_two_counts() {
        let definition = Definition {
            mechanism: Mechanism::Owned,
            anonymous: Some(Mechanism::Approximate),
            ..plain(1_000, 60_000)
        };
        let bounds = bound(&definition, "k", 1, "nothing");
        let item = bounds.items.iter().find(|item| item.source == "mechanism").unwrap();
        assert_eq!(item.amount, Some(10));
        assert!(item.because.starts_with("owned: ") && item.because.contains("; anonymous approximate: "));
        assert_eq!(bounds.worst(), Some(2_010));
    }
}
