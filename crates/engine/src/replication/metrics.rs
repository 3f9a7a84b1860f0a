//! What is counted about replication (O4). Which peer it was is not a label: `GET /v1/replication` says it.

use crate::metrics::OutcomeLabel;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;

/// Counters of replication.
#[derive(Clone, Default)]
pub struct Metrics {
    /// Deltas that others took.
    pub pushes: Counter,
    /// Changes that weren't told as they happened.
    pub dropped: Counter,
    /// Rounds by how they ended.
    pub rounds: Family<OutcomeLabel, Counter>,
    /// Changes that a repair brought.
    pub repaired_changes: Counter,
    /// Bytes of questions, without what HTTP adds.
    pub sent_bytes: Counter,
    /// Bytes of answers to them.
    pub received_bytes: Counter,
}

impl Metrics {
    /// Shows them under the registry's prefix.
    pub fn register(&self, registry: &mut Registry) {
        let registry = registry.sub_registry_with_prefix("replication");
        registry.register("pushes", "Deltas that other replicas took", self.pushes.clone());
        let help =
            "Changes not told as they happened: another replica was away or slow, and asks for them later";
        registry.register("dropped_changes", help, self.dropped.clone());
        registry.register(
            "rounds",
            "Rounds of asking another replica, by how they ended",
            self.rounds.clone(),
        );
        registry.register(
            "repaired_changes",
            "Changes that were missed and asked for",
            self.repaired_changes.clone(),
        );
        registry.register("sent_bytes", "Bytes said to other replicas", self.sent_bytes.clone());
        registry.register("received_bytes", "Bytes that they answered", self.received_bytes.clone());
    }

    pub(super) fn repaired(&self, outcome: &'static str) {
        self.rounds.get_or_create(&OutcomeLabel { outcome }).inc();
    }
}
