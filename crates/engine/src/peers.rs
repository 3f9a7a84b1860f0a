//! How nodes speak with each other.

use crate::limit::{CheckCall, Denial};
use baton_core::lock::NodeId;
use std::pin::Pin;
use std::sync::Arc;

/// Another node, and what to show it.
#[derive(Clone, PartialEq, Eq)]
pub struct Peer {
    /// Which.
    pub id: NodeId,
    /// Where it is reached.
    pub address: Arc<str>,
    /// That the caller belongs to the same cluster.
    pub proof: String,
}

/// What remained of a key at the store, without what the owner has debited.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Remained {
    /// How much.
    pub amount: u64,
    /// How long ago that was heard.
    pub ago_ms: u64,
}

/// What an owner says to a check that was forwarded to it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum PeerVerdict {
    /// Yes or no.
    Decided {
        /// Why not, if not.
        denial: Option<Denial>,
        /// How much the key may use at once.
        capacity: u64,
        /// What is left.
        remaining: u64,
        /// In how many milliseconds all of it is available again.
        reset_ms: u64,
        /// Whether the store had to be asked.
        by_store: bool,
        /// Whether the key is hot: whoever forwards it does for a while what its definition says about that.
        is_hot: bool,
        /// What remains of it at the store, where the policy of an outage divides that.
        remained: Option<Remained>,
    },
    /// It doesn't own the key; who does, as far as it knows.
    NotOwner {
        /// The owner.
        owner: Option<NodeId>,
        /// The revision of the ring by which it says so; nothing from a node of a version that didn't say it.
        ring: Option<u64>,
    },
    /// It couldn't decide. Whoever forwarded it does so as if there were no owner.
    Undecided,
}

/// There was no answer, or none that can be used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NoAnswer;

/// Verdicts to come, one for each call, in their order.
pub type Verdicts<'a> = Pin<Box<dyn Future<Output = Result<Vec<PeerVerdict>, NoAnswer>> + Send + 'a>>;

/// The way to other nodes: over HTTP in the server.
pub trait Peers: Send + Sync {
    /// Asks an owner, as it is one by the ring with this revision. The caller bounds the time.
    fn check<'a>(&'a self, peer: &'a Peer, ring: u64, calls: &'a [CheckCall]) -> Verdicts<'a>;
}
