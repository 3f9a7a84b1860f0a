//! Checks on their way to the node that owns their key (M3).
//!
//! The first goes at once; what comes while it is under way goes together behind it. A window of time to gather in would cost a lone
//! check that time, and under load gathers no more than this.

use super::calls::CheckCall;
use crate::engine::Node;
use crate::metrics::Metrics;
use crate::peers::{Peer, PeerVerdict, Peers};
use baton_core::cluster::prove;
use baton_core::lock::NodeId;
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::Instant;

/// Checks that go together.
const BATCH_MAX: usize = 1_000;
/// Checks that wait for one owner; more are decided without it.
const WAITING_MAX: usize = 10_000;
/// An owner that takes longer is done without.
const ANSWER_MAX: Duration = Duration::from_millis(500);
/// How long an owner takes to decide at most: the rest is for the way there and back.
pub(super) const DECIDE_MAX: Duration = Duration::from_millis(400);
/// For how long an owner that didn't answer isn't asked.
const AWAY: Duration = Duration::from_secs(1);

/// What is on its way to other nodes.
#[derive(Default)]
pub(crate) struct Forwarding {
    peers: OnceLock<Arc<dyn Peers>>,
    lines: Mutex<HashMap<NodeId, Line>>,
}

#[derive(Default)]
struct Line {
    waiting: VecDeque<(CheckCall, oneshot::Sender<PeerVerdict>)>,
    is_under_way: bool,
    away_until: Option<Instant>,
}

impl Forwarding {
    fn lines(&self) -> MutexGuard<'_, HashMap<NodeId, Line>> {
        self.lines.lock().expect("no panic while held")
    }

    /// Forgets who doesn't live any more. What is under way there ends by itself.
    pub fn retain(&self, lives: impl Fn(NodeId) -> bool) {
        self.lines().retain(|peer, line| line.is_under_way || lives(*peer));
    }

    /// From when on others can be reached.
    pub fn connect(&self, peers: Arc<dyn Peers>) {
        // Once: the way to others doesn't change.
        drop(self.peers.set(peers));
    }
}

impl Node {
    /// What the owner says; nothing if it can't be asked, or doesn't answer in time.
    pub(super) async fn forward(
        self: &Arc<Self>,
        owner: NodeId,
        call: &CheckCall,
        until: Instant,
    ) -> Option<PeerVerdict> {
        let peers = self.forwarding.peers.get()?;
        let (key, address) = (self.key().ok()?, self.members.session(owner)?.address.clone()?);
        let (said, heard) = oneshot::channel();
        let is_first = {
            let mut lines = self.forwarding.lines();
            let line = lines.entry(owner).or_default();
            if line.away_until.is_some_and(|until| Instant::now() < until)
                || line.waiting.len() >= WAITING_MAX
            {
                Metrics::count(&self.metrics.forwards, "not_asked");
                return None;
            }
            line.waiting.push_back((call.clone(), said));
            !std::mem::replace(&mut line.is_under_way, true)
        };
        if is_first {
            let peer = Peer { id: owner, address, proof: prove(key, owner) };
            tokio::spawn(self.clone().carry(peers.clone(), peer));
        }
        // Who waits behind a batch may wait for two.
        let until = until.min(Instant::now() + 2 * ANSWER_MAX);
        tokio::time::timeout_at(until, heard).await.ok()?.ok()
    }

    /// Carries what waits for a peer, until nothing does.
    async fn carry(self: Arc<Self>, peers: Arc<dyn Peers>, peer: Peer) {
        while let Some((calls, waiting)) = self.next_batch(peer.id) {
            let asking = peers.check(&peer, self.members.ring().revision(), &calls);
            match tokio::time::timeout(ANSWER_MAX, asking).await {
                Ok(Ok(verdicts)) if verdicts.len() == calls.len() => {
                    for (verdict, heard) in verdicts.into_iter().zip(waiting) {
                        let label = match &verdict {
                            PeerVerdict::Decided { .. } => "decided",
                            PeerVerdict::NotOwner { .. } => "not_owner",
                            PeerVerdict::Undecided => "undecided",
                        };
                        Metrics::count(&self.metrics.forwards, label);
                        // Somebody who has gone doesn't hear of it.
                        drop(heard.send(verdict));
                    }
                }
                _ => {
                    Metrics::count(&self.metrics.forwards, "no_answer");
                    let mut lines = self.forwarding.lines();
                    let line = lines.entry(peer.id).or_default();
                    line.away_until = Some(Instant::now() + AWAY);
                    // Who waits hears that nobody will answer.
                    line.waiting.clear();
                }
            }
        }
    }

    fn next_batch(&self, peer: NodeId) -> Option<(Vec<CheckCall>, Vec<oneshot::Sender<PeerVerdict>>)> {
        let mut lines = self.forwarding.lines();
        let line = lines.get_mut(&peer)?;
        // Whoever has gone needs no answer, and must not be counted for one.
        line.waiting.retain(|(_, heard)| !heard.is_closed());
        let count = line.waiting.len().min(BATCH_MAX);
        if count > 0 {
            return Some(line.waiting.drain(..count).unzip());
        }
        line.is_under_way = false;
        let is_away = line.away_until.is_some_and(|until| Instant::now() < until);
        // One that answers needs no line while nobody waits; of one that is gone, what is known of it goes with its session.
        if !is_away || !self.members.may_live(peer) {
            lines.remove(&peer);
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_kept_of_a_node_that_is_gone_unless_something_is_under_way_to_it() {
        let forwarding = Forwarding::default();
        let away_until = Some(Instant::now() + AWAY);
        for (node, is_under_way) in [(1, false), (2, true), (3, false)] {
            forwarding.lines().insert(NodeId(node), Line { is_under_way, away_until, ..Line::default() });
        }
        forwarding.retain(|node| node == NodeId(3));
        let mut kept: Vec<_> = forwarding.lines().keys().copied().collect();
        kept.sort_unstable();
        assert_eq!(kept, [NodeId(2), NodeId(3)]);
    }
}
