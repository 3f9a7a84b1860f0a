//! What is counted. Labels are few and fixed: never a key, an owner or a token (O4).

use crate::job::metrics::JobMetrics;
use crate::lock::calls::{LockError, Refusal};
use baton_core::limit::Policy;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};

/// How something ended.
#[derive(Clone, PartialEq, Eq, Hash, Debug, EncodeLabelSet)]
pub struct OutcomeLabel {
    /// In a word.
    pub outcome: &'static str,
}

/// The engine's metrics.
pub struct Metrics {
    /// Acquires by how they ended.
    pub acquires: Family<OutcomeLabel, Counter>,
    /// How long acquires that were granted took, waiting included.
    pub acquire_seconds: Histogram,
    /// How long granted waiters had waited in the queue.
    pub wait_seconds: Histogram,
    /// How long released locks had been held.
    pub hold_seconds: Histogram,
    /// Grants ended, by how.
    pub ended: Family<OutcomeLabel, Counter>,
    /// Renewals by how they ended.
    pub renewals: Family<OutcomeLabel, Counter>,
    /// Several locks at once, by how that ended.
    pub bundles: Family<OutcomeLabel, Counter>,
    /// Claims of a once key by how they ended.
    pub once_claims: Family<OutcomeLabel, Counter>,
    /// Claims completed or given up, or that couldn't be.
    pub once_ended: Family<OutcomeLabel, Counter>,
    /// Checks of fencing tokens by how they ended.
    pub fence_checks: Family<OutcomeLabel, Counter>,
    /// Checks of limits by how they ended.
    pub limit_checks: Family<OutcomeLabel, Counter>,
    /// Checks of limits by who decided.
    pub limit_sources: Family<OutcomeLabel, Counter>,
    /// Of the two before, how most checks end: at hand, since finding them takes as long as a check.
    pub limit_allowed: Counter,
    /// As above.
    pub limit_local: Counter,
    /// What holders of leases said to the store, by what they got.
    pub lease_renewals: Family<OutcomeLabel, Counter>,
    /// Checks forwarded to the owners of their keys, by what came of it.
    pub forwards: Family<OutcomeLabel, Counter>,
    /// Nodes that went by another ring than this one, by which of both was behind.
    pub other_rings: Family<OutcomeLabel, Counter>,
    /// Keys that are used far more than others now.
    pub hot_keys: Gauge,
    /// Checks of hot keys refused because those are capped.
    pub hot_key_capped: Counter,
    /// Counts that spread, written down, by how that ended.
    pub gossip_writes: Family<OutcomeLabel, Counter>,
    /// Keys whose counts wait to be written down.
    pub gossip_waiting: Gauge,
    /// How much a lease had after it.
    pub lease_size: Histogram,
    /// Checks decided without the store, by policy.
    pub fallbacks: Family<OutcomeLabel, Counter>,
    /// What was admitted without the store and written there afterwards.
    pub overage: Counter,
    /// How much more than it might a meter had, as a part of its limit.
    pub overshoot: Histogram,
    /// What of it is still to be written, in debts.
    pub debts: Gauge,
    /// Bytes of the file in which that is kept.
    pub spool_bytes: Gauge,
    /// Checks refused because what they'd add could not be written down.
    pub spool_refusals: Counter,
    /// How long the store took for a charge.
    pub charge_seconds: Histogram,
    /// Calls parked on this node.
    pub parked: Gauge,
    /// Locks that this node is working on or has waiters for.
    pub desks: Gauge,
    /// Commits that met other records than expected and were decided again.
    pub conflicts: Counter,
    /// Commands decided together.
    pub batch_commands: Histogram,
    /// How long the store took for a commit.
    pub commit_seconds: Histogram,
    /// Calls that the store failed, by how.
    pub store_errors: Family<OutcomeLabel, Counter>,
    /// About jobs.
    pub jobs: JobMetrics,
    /// Lines of history, of locks and of leases, dropped because too many were waiting or the store couldn't take them.
    pub history_dropped: Counter,
}

const SECONDS: [f64; 14] =
    [0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0, 30.0, 300.0];

impl Default for Metrics {
    fn default() -> Self {
        let (limit_checks, limit_sources) = (Family::default(), Family::default());
        Self {
            limit_allowed: Self::member(&limit_checks, "allowed"),
            limit_local: Self::member(&limit_sources, "local"),
            acquires: Family::default(),
            acquire_seconds: Histogram::new(SECONDS),
            wait_seconds: Histogram::new(SECONDS),
            hold_seconds: Histogram::new(SECONDS),
            ended: Family::default(),
            renewals: Family::default(),
            bundles: Family::default(),
            once_claims: Family::default(),
            once_ended: Family::default(),
            fence_checks: Family::default(),
            limit_checks,
            limit_sources,
            lease_renewals: Family::default(),
            forwards: Family::default(),
            other_rings: Family::default(),
            gossip_writes: Family::default(),
            gossip_waiting: Gauge::default(),
            hot_keys: Gauge::default(),
            hot_key_capped: Counter::default(),
            lease_size: Histogram::new([0.0, 1.0, 10.0, 50.0, 100.0, 500.0, 1_000.0, 5_000.0, 10_000.0]),
            fallbacks: Family::default(),
            overshoot: Histogram::new([0.0, 0.001, 0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 5.0]),
            overage: Counter::default(),
            debts: Gauge::default(),
            spool_bytes: Gauge::default(),
            spool_refusals: Counter::default(),
            charge_seconds: Histogram::new(SECONDS),
            parked: Gauge::default(),
            desks: Gauge::default(),
            conflicts: Counter::default(),
            batch_commands: Histogram::new([1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0]),
            commit_seconds: Histogram::new(SECONDS),
            store_errors: Family::default(),
            jobs: JobMetrics::default(),
            history_dropped: Counter::default(),
        }
    }
}

impl Metrics {
    /// Makes them visible.
    pub fn register(&self, registry: &mut Registry) {
        let locks = registry.sub_registry_with_prefix("lock");
        locks.register("acquires", "Acquires by outcome", self.acquires.clone());
        let seconds = Unit::Seconds;
        let help = "Time from an acquire to its grant";
        locks.register_with_unit("acquire", help, seconds.clone(), self.acquire_seconds.clone());
        let help = "Time in the queue of those granted";
        locks.register_with_unit("wait", help, seconds.clone(), self.wait_seconds.clone());
        let help = "Time from grant to release";
        locks.register_with_unit("hold", help, seconds.clone(), self.hold_seconds.clone());
        locks.register("grants_ended", "Grants that ended, by how", self.ended.clone());
        locks.register("renewals", "Renewals by outcome", self.renewals.clone());
        locks.register("parked", "Waiting calls parked on this node", self.parked.clone());
        locks.register("desks", "Locks being worked on or waited for", self.desks.clone());
        locks.register(
            "history_dropped",
            "History events dropped at the bound",
            self.history_dropped.clone(),
        );
        let bundles = registry.sub_registry_with_prefix("bundle");
        bundles.register("acquires", "Acquires of several locks at once, by outcome", self.bundles.clone());
        let once = registry.sub_registry_with_prefix("once");
        once.register("claims", "Claims by outcome", self.once_claims.clone());
        once.register("ended", "Claims completed or given up, by outcome", self.once_ended.clone());
        let fences = registry.sub_registry_with_prefix("fence");
        fences.register("checks", "Checks of fencing tokens by outcome", self.fence_checks.clone());
        let limits = registry.sub_registry_with_prefix("limit");
        limits.register("checks", "Checks of limits by outcome", self.limit_checks.clone());
        limits.register("decisions", "Checks of limits by who decided", self.limit_sources.clone());
        limits.register("lease_renewals", "Renewals of leases by what they got", self.lease_renewals.clone());
        limits.register("forwards", "Checks forwarded to owners, by what came of it", self.forwards.clone());
        let help = "Times that another node went by another ring: behind if this one was, else ahead";
        limits.register("other_rings", help, self.other_rings.clone());
        limits.register("hot_keys", "Keys that are used far more than others now", self.hot_keys.clone());
        let help = "Checks of hot keys refused because those are capped";
        limits.register("hot_key_capped", help, self.hot_key_capped.clone());
        let help = "Counts of gossip limits written down, by outcome";
        limits.register("gossip_writes", help, self.gossip_writes.clone());
        let help = "Keys of gossip limits whose counts wait to be written down";
        limits.register("gossip_waiting", help, self.gossip_waiting.clone());
        limits.register("lease_size", "What leases had after a renewal", self.lease_size.clone());
        for policy in Policy::ALL {
            // There from the start, so that the first of them shows as an increase.
            drop(self.fallbacks.get_or_create(&OutcomeLabel { outcome: policy.as_str() }));
        }
        limits.register("fallbacks", "Checks decided without the store, by policy", self.fallbacks.clone());
        limits.register(
            "overage",
            "Admitted without the store, written there afterwards",
            self.overage.clone(),
        );
        let help = "What charged meters had beyond what they may, as a part of the limit";
        limits.register("overshoot_ratio", help, self.overshoot.clone());
        limits.register("debts", "Admitted without the store, to be written there", self.debts.clone());
        let help = "The file of what is to be written to the store";
        limits.register_with_unit("spool", help, Unit::Bytes, self.spool_bytes.clone());
        let help = "Checks refused because they could not be written down";
        limits.register("spool_refusals", help, self.spool_refusals.clone());
        self.jobs.register(registry.sub_registry_with_prefix("job"));
        let store = registry.sub_registry_with_prefix("store");
        store.register("conflicts", "Commits decided again", self.conflicts.clone());
        store.register("batch_commands", "Commands decided in one commit", self.batch_commands.clone());
        store.register_with_unit("commit", "Time of a commit", seconds, self.commit_seconds.clone());
        let help = "Time of a charge of meters";
        store.register_with_unit("charge", help, Unit::Seconds, self.charge_seconds.clone());
        store.register("errors", "Store calls that failed, by how", self.store_errors.clone());
    }

    fn member(family: &Family<OutcomeLabel, Counter>, outcome: &'static str) -> Counter {
        family.get_or_create(&OutcomeLabel { outcome }).clone()
    }

    /// Counts one.
    pub fn count(family: &Family<OutcomeLabel, Counter>, outcome: &'static str) {
        family.get_or_create(&OutcomeLabel { outcome }).inc();
    }
}

impl LockError {
    /// In a word, for a metric's label.
    pub fn label(&self) -> &'static str {
        match self {
            Self::Refused(refusal) => match refusal {
                Refusal::Held(_) => "held",
                Refusal::WaitTimeout(_) => "wait_timeout",
                Refusal::StillWaiting { .. } => "still_waiting",
                Refusal::QueueFull(_) => "queue_full",
                Refusal::Delayed(_) => "delayed",
                Refusal::ModeMismatch { .. } => "mode_mismatch",
                Refusal::AlreadyReleased => "already_released",
                Refusal::Expired => "expired",
                Refusal::RequestIdReused => "request_id_reused",
                Refusal::RequestIdMissing => "request_id_missing",
                Refusal::NotOwner => "not_owner",
                Refusal::NotFound => "not_found",
                Refusal::BadCursor => "bad_cursor",
                Refusal::NoSuchSuccessor => "no_such_successor",
            },
            Self::Failed(failure) => failure.label(),
        }
    }
}
