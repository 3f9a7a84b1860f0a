//! How much a node may admit by itself: its share of the limit, or of what remained.

use super::snapshot;
use super::table::{Own, kept_ms};
use crate::engine::Node;
use crate::limit::definitions::Current;
use baton_core::Key;
use baton_core::limit::{Definition, Policy};
use baton_core::meter::{Algorithm, Claim, Meter, Rule, Take, charge};
use std::time::Duration;

impl Node {
    /// By what this node counts for itself; nothing if it may admit nothing.
    pub(super) fn share_of(&self, current: &Current, metered: &str) -> Option<Rule> {
        let definition = &current.defined.definition;
        let rule = current.defined.exact_rule(metered, current.edges);
        let (amount, limit) = match definition.on_failure {
            Policy::Closed => return None,
            Policy::Open => definition.local_cap.map_or((rule.capacity, rule.limit), |cap| (cap, cap)),
            Policy::ClosedLocal | Policy::Local | Policy::Snapshot => {
                (self.part(definition, rule.capacity)?, self.part(definition, rule.limit)?.max(1))
            }
        };
        let counts = amount > 0 && rule.algorithm != Algorithm::InFlight;
        counts.then_some(Rule { limit, capacity: amount, ..rule })
    }

    /// This node's part of an amount: the parts of all nodes add up to it, or less. Nothing if nobody knows how many there are.
    fn part(&self, definition: &Definition, amount: u64) -> Option<u64> {
        let recent = Duration::from_millis(kept_ms(definition.window_ms));
        let seen = if self.is_shared { self.members.highest(self.id, recent) } else { Some((0, 1)) };
        let Some((rank, count)) = seen else {
            // Which of them it is nobody knows either, so nobody gets the remainder.
            return definition.expected_nodes.map(|nodes| amount / nodes.max(1));
        };
        let nodes = (count as u64).max(definition.expected_nodes.unwrap_or(1));
        Some(amount / nodes + u64::from((rank as u64) < amount % nodes))
    }

    /// The meter at the begin of an outage: what was used by then stays used. Nothing at all if nothing may be admitted without
    /// knowing that; no meter if nothing was used.
    pub(super) fn begin(
        &self,
        definition: &Definition,
        rule: &Rule,
        own: Option<&Own>,
        now_ms: u64,
    ) -> Option<Option<Meter>> {
        let remained = match definition.on_failure {
            Policy::Snapshot => Some(snapshot::usable(own, self.uptime_ms())?),
            Policy::Local => own.and_then(|own| own.remained).map(|(remained, _)| remained),
            Policy::Closed | Policy::ClosedLocal | Policy::Open => None,
        };
        let left = remained.and_then(|remained| self.part(definition, remained));
        let used = left.map_or(0, |left| rule.capacity.saturating_sub(left));
        // What a node owed that was here before counts as this one's.
        let used = used.saturating_add(own.map_or(0, |own| own.left));
        let take = Take::Forced(used.min(rule.algorithm.amount_max(rule.window_ms)));
        let claim = Claim { key: Key::new(baton_core::Group(0), []), rule: rule.clone(), take, row: None };
        let counted = || charge(None, &claim, now_ms).ok().map(|effect| effect.meter);
        Some(if used > 0 { counted() } else { None })
    }
}
