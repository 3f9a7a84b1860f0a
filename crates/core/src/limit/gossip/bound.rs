//! How much more than the limit may pass where counts spread, at worst, and why.

use super::EVERY_MS;
use crate::limit::bound::{Bound, BoundItem, algorithm_item};
use crate::limit::definition::Definition;
use alloc::format;
use alloc::string::String;
use alloc::vec;

/// How counts spread, as far as is known.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Spread {
    /// Nodes that count; at least 1.
    pub nodes: u64,
    /// How long a node gathers what it counted.
    pub every_ms: u64,
    /// How long it took to write that down, the last time.
    pub written_ms: u64,
    /// For how long one of the others, of those that can be reached, has not had all.
    pub lag_ms: u64,
    /// What is admitted of the key in a second, as measured; nothing if that isn't known.
    pub rate: Option<u64>,
}

impl Spread {
    /// Of which nothing was measured.
    pub fn unmeasured(definition: &Definition, nodes: u64) -> Self {
        let every_ms = definition.sync_ms.unwrap_or(EVERY_MS);
        Self { nodes, every_ms, written_ms: 0, lag_ms: 0, rate: None }
    }

    /// How long it takes until all know.
    pub fn time_ms(&self) -> u64 {
        self.every_ms.saturating_add(self.written_ms).saturating_add(self.lag_ms)
    }
}

/// The worst case of a key's limit.
pub fn bound(definition: &Definition, key: &str, spread: &Spread) -> Bound {
    let limit = definition.limit_of(key);
    let nodes = definition.expected_nodes.unwrap_or(1).max(spread.nodes).max(1);
    // Nobody admits more than the limit by itself.
    let apart = limit.saturating_mul(nodes - 1);
    let Spread { every_ms, written_ms, lag_ms, .. } = *spread;
    let time_ms = spread.time_ms();
    let within = format!(
        "gossip: a count is known to all within about {time_ms} ms ({every_ms} gathered, {written_ms} to write it, {lag_ms} behind)"
    );
    let (amount, rate): (u64, String) = match spread.rate {
        _ if nodes == 1 => (0, "there is one node, which knows all of it".into()),
        Some(rate) => {
            let spread = u64::try_from(u128::from(rate) * u128::from(time_ms) / 1_000).unwrap_or(u64::MAX);
            (
                spread.min(apart),
                format!("at {rate} a second, as measured; a burst may be faster, up to {apart}"),
            )
        }
        None => (
            apart,
            format!("how much comes in that time isn't known, so each of {nodes} nodes may admit all of it"),
        ),
    };
    let item = |source, amount, because| BoundItem { source, amount, each: None, because };
    let mechanism = item("mechanism", Some(amount), format!("{within}; {rate}"));
    let partition = format!(
        "nodes that can't hear each other each admit up to the limit: of {nodes}, {apart} more in every window if nobody hears anybody. What all of them admitted counts when they do"
    );
    let clocks = "windows are by each node's own clock: a node whose clock is apart from the others' by some time counts as if it couldn't be \
                  heard for as long, at the end of every window";
    let items = vec![
        mechanism,
        algorithm_item(definition, key),
        item("store", Some(0), "the store isn't asked, so nothing is lost with it".into()),
        item("partition", Some(apart), partition),
        item("clocks", None, clocks.into()),
    ];
    Bound { limit, items }
}
