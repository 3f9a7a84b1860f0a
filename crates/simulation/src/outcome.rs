//! What came of a simulation.

use crate::plan::Plan;
use crate::sharp::Closest;
use baton_core::limit::{Definition, bound};
use serde::Serialize;

/// What a mechanism made of a plan's traffic.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Outcome {
    /// Which.
    pub mechanism: &'static str,
    /// Checks.
    pub offered: u64,
    /// Of them, admitted.
    pub admitted: u64,
    /// What one counter would have admitted that every check reaches at once.
    pub allowed: u64,
    /// How much less was admitted than allowed, as a part of that.
    pub under_admission: f64,
    /// The most that one key had in any interval as long as the window.
    pub worst: u64,
    /// What that may be at most; nothing if there is no number for it.
    pub bound: Option<u64>,
    /// Of the store, charges of any kind.
    pub store_operations: u64,
    /// The same, by second of the run.
    pub store_operations_per_second: f64,
    /// What part of the checks was decided without asking the store.
    pub local_share: f64,
    /// How long a check waited on average.
    pub added_latency_micros: f64,
    /// What part of its checks the node admitted that admitted the smallest.
    pub worst_node_share: f64,
    /// Of all that was admitted, what outage policies did.
    #[serde(skip)]
    pub by_policies: u64,
    /// Where the rest of it came nearest to what the algorithm allows at once; nothing if there is no number for that, or no rest.
    #[serde(skip)]
    pub closest: Option<Closest>,
    /// By second.
    pub seconds: Vec<Second>,
}

impl Outcome {
    /// Whether no interval had more than the bound, and what policies didn't admit was never more than the algorithm allows at once; a
    /// bound without a number is kept.
    pub fn keeps_its_bound(&self) -> bool {
        self.bound.is_none_or(|bound| self.worst <= bound) && self.closest.is_none_or(Closest::is_within)
    }
}

/// One second of it.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Second {
    /// Checks.
    pub offered: u64,
    /// Of them, admitted.
    pub admitted: u64,
    /// What one counter would have admitted.
    pub allowed: u64,
    /// Charges at the store.
    pub store_operations: u64,
}

/// How much may pass of a key, at most, in an interval as long as the window. Where nodes are cut off, also what the policy adds.
pub(crate) fn bound_of(plan: &Plan, definition: &Definition) -> Option<u64> {
    let bounds = bound(definition, "", plan.places(), "nothing");
    let outage = bounds.items.iter().find(|item| item.source == "outage" && plan.partitions > 0);
    Some(bounds.worst()?.saturating_add(outage.map_or(Some(0), |item| item.amount)?))
}
