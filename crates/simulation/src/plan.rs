//! What is simulated, and what is refused because it would take too long or make no sense.

use baton_core::limit::{Definition, slack};
use baton_core::meter::Algorithm;
use std::fmt;

/// Nodes at a time, with those that join.
pub const NODES_MAX: u64 = 1_000;
/// Keys.
pub const KEYS_MAX: u64 = 10_000;
/// Checks in one run: some tens of seconds of computing.
pub const CHECKS_MAX: u64 = 50_000_000;
/// Simulated time.
pub const DURATION_MS_MAX: u64 = 3_600_000;
/// Crashes, joins, partitions and changes of the definition, each.
pub const MISHAPS_MAX: u64 = 1_000;
/// The slowest store.
pub const LATENCY_US_MAX: u64 = 10_000_000;

/// How checks follow each other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pattern {
    /// At equal distances.
    Steady,
    /// At any moment alike, as many independent callers do.
    Poisson,
    /// The same, four times as often for a fifth of the time and a quarter as often for the rest.
    Bursty,
}

/// What is simulated.
#[derive(Clone, PartialEq, Debug)]
pub struct Plan {
    /// Where all chance comes from.
    pub seed: u64,
    /// How long.
    pub duration_ms: u64,
    /// Nodes at the start.
    pub nodes: u64,
    /// Keys that share the traffic, each with a limit of its own.
    pub keys: u64,
    /// Checks a second, of all keys at all nodes.
    pub rate: u64,
    /// How they follow each other.
    pub pattern: Pattern,
    /// How unequal keys are: 0 for alike, 1 as words in a text.
    pub key_skew: f64,
    /// How unequal nodes are.
    pub node_skew: f64,
    /// The limit. Who decides is said apart.
    pub definition: Definition,
    /// There and back, on average.
    pub latency_us: u64,
    /// Nodes that die, to come back empty-handed.
    pub crashes: u64,
    /// Nodes that come later.
    pub joins: u64,
    /// How often a node is cut off from the store.
    pub partitions: u64,
    /// For how long.
    pub partition_ms: u64,
    /// How often the definition changes: the limit is halved, and then what it was.
    pub changes: u64,
}

/// Why a plan isn't simulated.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Unfit(pub String);

impl fmt::Display for Unfit {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(&self.0)
    }
}

impl Plan {
    /// Poisson traffic of one key at a healthy cluster, a minute of it.
    pub fn new(rate: u64, nodes: u64, definition: Definition) -> Self {
        Self {
            seed: 1,
            duration_ms: 60_000,
            nodes,
            keys: 1,
            rate,
            pattern: Pattern::Poisson,
            key_skew: 0.0,
            node_skew: 0.0,
            definition,
            latency_us: 1_000,
            crashes: 0,
            joins: 0,
            partitions: 0,
            partition_ms: 5_000,
            changes: 0,
        }
    }

    /// Nodes that are ever there.
    pub fn places(&self) -> u64 {
        self.nodes + self.joins
    }

    /// Refuses what takes too long, or makes no sense.
    pub fn check(&self) -> Result<(), Unfit> {
        let within = |name: &str, value: u64, low: u64, high: u64| match (low..=high).contains(&value) {
            true => Ok(()),
            false => Err(Unfit(format!("{name} must be {low} to {high}, and is {value}"))),
        };
        let definition = &self.definition;
        within("the number of nodes", self.nodes, 1, NODES_MAX)?;
        within("the number of nodes with those that join", self.places(), 1, NODES_MAX)?;
        within("the number of keys", self.keys, 1, KEYS_MAX)?;
        within("the rate", self.rate, 1, CHECKS_MAX)?;
        within("the duration in milliseconds", self.duration_ms, 1_000, DURATION_MS_MAX)?;
        within("the store's latency in microseconds", self.latency_us, 1, LATENCY_US_MAX)?;
        within(
            "the time between syncs in milliseconds",
            definition.sync_ms.unwrap_or(1),
            1,
            DURATION_MS_MAX,
        )?;
        within("the length of a partition in milliseconds", self.partition_ms, 1, DURATION_MS_MAX)?;
        within("the number of crashes", self.crashes, 0, MISHAPS_MAX)?;
        within("the number of partitions", self.partitions, 0, MISHAPS_MAX)?;
        within("the number of changes", self.changes, 0, MISHAPS_MAX)?;
        for (name, part) in [("epsilon", definition.epsilon), ("the low watermark", definition.low_watermark)]
        {
            within(&format!("{name} in millionths"), part.unwrap_or(0), 0, slack::MILLIONTHS)?;
        }
        within("the window in milliseconds", definition.window_ms, 1, 31_622_400_000)?;
        let most = definition.algorithm.amount_max(definition.window_ms);
        within("the limit", definition.limit, 1, most)?;
        within("the burst", definition.capacity_of(""), 1, most)?;
        if self.rate * self.duration_ms / 1_000 > CHECKS_MAX {
            let most = CHECKS_MAX;
            return Err(Unfit(format!(
                "{most} checks are simulated at most: lower the rate or the duration"
            )));
        }
        if definition.algorithm == Algorithm::SlidingLog && definition.limit > 1_000 {
            return Err(Unfit("sliding_log counts exactly up to a limit of 1,000".into()));
        }
        if definition.algorithm == Algorithm::InFlight {
            return Err(Unfit("what is in flight has no rate to be simulated".into()));
        }
        if [self.key_skew, self.node_skew].iter().any(|skew| !(0.0..=5.0).contains(skew)) {
            return Err(Unfit("a skew must be 0 to 5".into()));
        }
        Ok(())
    }
}

/// A limit with nothing special about it.
pub fn definition(algorithm: Algorithm, limit: u64, window_ms: u64) -> Definition {
    Definition {
        mechanism: baton_core::limit::Mechanism::Leased,
        ..Definition::plain(algorithm, limit, window_ms)
    }
}
