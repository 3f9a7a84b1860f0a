//! What a node admits by itself while the store can't be asked: as its definition says (`onFailure`).
//!
//! It counts by the limit's own algorithm, on a meter of its own that has its share.

use super::definition::{Definition, Policy};
use crate::meter::{Algorithm, Claim, Meter, Rule, Take, charge};
use crate::record::{Group, Key};

/// A node among those that share a limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Member {
    /// Its place among them, from 0.
    pub rank: u64,
    /// How many are known.
    pub count: u64,
}

impl Member {
    /// This node's part of an amount: the parts of all nodes add up to it.
    pub fn part(self, definition: &Definition, amount: u64) -> u64 {
        let nodes = self.count.max(definition.expected_nodes.unwrap_or(1)).max(1);
        amount / nodes + u64::from(self.rank < amount % nodes)
    }

    /// By what this node counts for itself; nothing if it may admit nothing.
    pub fn share(self, definition: &Definition, rule: Rule) -> Option<Rule> {
        let (amount, limit) = match definition.on_failure {
            Policy::Closed => return None,
            Policy::Open => definition.local_cap.map_or((rule.capacity, rule.limit), |cap| (cap, cap)),
            Policy::ClosedLocal | Policy::Local | Policy::Snapshot => {
                (self.part(definition, rule.capacity), self.part(definition, rule.limit).max(1))
            }
        };
        let counts = amount > 0 && rule.algorithm != Algorithm::InFlight;
        counts.then_some(Rule { limit, capacity: amount, ..rule })
    }

    /// The meter at the begin of an outage, of the share's rule: what was used by then stays used. Nothing if the policy doesn't
    /// care, or nothing is known.
    pub fn begin(
        self,
        definition: &Definition,
        share: &Rule,
        remained: Option<u64>,
        now_ms: u64,
    ) -> Option<Meter> {
        if !matches!(definition.on_failure, Policy::Local | Policy::Snapshot) {
            return None;
        }
        let left = self.part(definition, remained?);
        let take = Take::Forced(share.capacity.saturating_sub(left));
        let claim = Claim { key: Key::new(Group(0), []), rule: share.clone(), take, row: None };
        charge(None, &claim, now_ms).ok().map(|effect| effect.meter)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limit::Defined;
    use crate::limit::tests::definitions::plain;
    use crate::record::Revision;
    use alloc::vec::Vec;

    fn shares(definition: &Definition, count: u64) -> Vec<Option<u64>> {
        let rule = Defined { definition: definition.clone(), version: Revision(1) }.rule("k", None);
        let members = (0..count).map(|rank| Member { rank, count });
        members.map(|member| member.share(definition, rule.clone()).map(|share| share.capacity)).collect()
    }

    #[test]
    fn shares_add_up_to_the_limit_and_the_policy_says_of_what() {
        let by = |on_failure, local_cap| Definition { on_failure, local_cap, ..plain(11, 1_000) };
        assert_eq!(shares(&by(Policy::Closed, None), 2), [None, None]);
        assert_eq!(shares(&by(Policy::ClosedLocal, None), 3), [Some(4), Some(4), Some(3)]);
        assert_eq!(shares(&by(Policy::Open, None), 2), [Some(11), Some(11)]);
        assert_eq!(shares(&by(Policy::Open, Some(7)), 2), [Some(7), Some(7)]);
        let expected = Definition { expected_nodes: Some(20), ..by(Policy::Local, None) };
        assert_eq!(shares(&expected, 1), [Some(1)], "those that can't be seen count too");
    }

    #[test]
    fn an_outage_begins_with_a_part_of_what_remained() {
        let definition = Definition { on_failure: Policy::Local, ..plain(100, 1_000) };
        let rule = Defined { definition: definition.clone(), version: Revision(1) }.rule("k", None);
        let member = Member { rank: 0, count: 4 };
        let share = member.share(&definition, rule).unwrap();
        let left = |remained| {
            let meter = member.begin(&definition, &share, remained, 5);
            meter.map(|meter| meter.remaining(&share))
        };
        assert_eq!(left(Some(40)), Some(10));
        assert_eq!(left(Some(0)), Some(0));
        assert_eq!(left(None), None, "a key that was never heard of has a fresh share");
    }
}
