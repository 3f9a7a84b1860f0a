//! Owned limits (M3): one node decides a key, and the others forward to it.
//!
//! An owner spends from a purse as a holder of a lease does (M2): what it admits was debited at the store before. That is the ceiling it
//! persists ahead of what it admits, and it is all that safety rests on. Two nodes that both take themselves for the owner each spend
//! what they debited; an owner that was stopped and wakes finds its purse closed. So who owns what needs no
//! agreement: it follows from the sessions that a node sees, and a mistake costs a detour.
//!
//! What is forwarded says by which ring, and so does who answers that it isn't the owner. Where these differ one of both nodes is behind: both look
//! at the sessions again, instead of when it is time to, and the one that was behind goes by the others' ring from then on.

use super::calls::{Answered, CheckCall, Checked, Denial, Source};
use super::check::Wanted;
use super::definitions::Current;
use super::forward::DECIDE_MAX;
use crate::engine::{Engine, Node};
use crate::peers::{PeerVerdict, Peers, Remained};
use baton_core::Key;
use baton_core::cluster::is_proved;
use baton_core::limit::holder::terms;
use baton_core::limit::{Mechanism, meter_key};
use baton_core::lock::NodeId;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// How long a check waits until this node knows the owner that another one named.
const MEET_MAX: Duration = Duration::from_millis(500);

/// Who decides a check.
pub(super) enum Way {
    /// This node, if it has something to spend.
    Here,
    /// Another one.
    To(NodeId),
    /// The store.
    Store,
}

impl Engine {
    /// From here on other nodes can be asked.
    pub fn connect_peers(&self, peers: Arc<dyn Peers>) {
        self.node.forwarding.connect(peers);
    }

    /// Whether somebody shows that it is a node of the same cluster, and means this one.
    pub fn is_peer(&self, proof: &str) -> bool {
        self.node.key().is_ok_and(|key| is_proved(key, self.node.id, proof))
    }

    /// Decides checks that another node has forwarded by the ring with that revision; none of them is forwarded again.
    pub async fn check_for_peer(&self, ring: Option<u64>, calls: &[CheckCall]) -> Vec<PeerVerdict> {
        if let Some(ring) = ring {
            self.node.members.compare(ring);
        }
        // Each by itself, and for no longer than its answer is waited for: one that has to ask a slow store is left to whoever
        // forwarded it, and keeps none of the others from being answered. What it was about to spend stays unspent.
        let one = |call: &CheckCall| {
            let deciding = self.node.clone().decide_as_owner(call.clone());
            tokio::spawn(tokio::time::timeout(DECIDE_MAX, deciding))
        };
        let deciding: Vec<_> = calls.iter().map(one).collect();
        let mut verdicts = Vec::with_capacity(calls.len());
        for deciding in deciding {
            let decided = deciding.await.ok().and_then(Result::ok);
            verdicts.push(decided.unwrap_or(PeerVerdict::Undecided));
        }
        verdicts
    }
}

impl Node {
    /// Whether this node owns a meter, as far as it knows.
    pub(super) fn owns(&self, place: &Key) -> bool {
        self.members.ring().owner(place.group) == Some(self.id)
    }

    /// Who decides a check that may be decided without the store.
    pub(super) fn way(&self, call: &CheckCall, current: &Current, metered: &str) -> Way {
        let definition = &current.defined.definition;
        if definition.mechanism != Mechanism::Owned {
            return Way::Here;
        }
        if terms(definition, metered, call.identity).is_none() {
            return Way::Store;
        }
        let place = meter_key(&call.limit, metered);
        let ring = self.members.ring();
        let owner = ring.owner(place.group);
        let is_hot =
            self.hot.is_told(&place, self.uptime_ms()) || (owner == Some(self.id) && self.hot.is_hot(&place));
        let decider =
            if is_hot { definition.hot_key.decider(&ring, &place, self.id, self.hot.turn()) } else { owner };
        match decider {
            Some(decider) if decider == self.id => Way::Here,
            Some(decider) => Way::To(decider),
            None => Way::Store,
        }
    }

    /// What the owner says, or the one that it takes for the owner. Nothing if neither decides: then the store does.
    pub(super) async fn ask_owner(
        self: &Arc<Self>,
        owner: NodeId,
        call: &CheckCall,
        current: &Current,
        until: Instant,
    ) -> Option<Answered> {
        let mut verdict = self.forward(owner, call, until).await?;
        if let PeerVerdict::NotOwner { owner: other, ring } = verdict {
            if let Some(ring) = ring {
                self.members.compare(ring);
            }
            let other = other.filter(|other| *other != owner && *other != self.id)?;
            self.members.meet(other, until.min(Instant::now() + MEET_MAX)).await;
            verdict = self.forward(other, call, until).await?;
        }
        let PeerVerdict::Decided { denial, capacity, remaining, reset_ms, by_store, is_hot, remained } =
            verdict
        else {
            return None;
        };
        if is_hot || remained.is_some() {
            let definition = &current.defined.definition;
            let metered = self.limit_keys.metered(&call.limit, definition, &call.key);
            let place = meter_key(&call.limit, metered);
            if let Some(remained) = remained {
                // When the store is away this node has a share too: of what remains, not of the whole.
                self.note_remained(&call.limit, definition, &place, remained);
            }
            if is_hot {
                self.hot.tell(place, self.uptime_ms());
            }
        }
        let source = if by_store { Source::Central } else { Source::Owner };
        let checked = Checked {
            defined: current.defined.clone(),
            capacity,
            remaining,
            reset_ms,
            source,
            would_refuse: false,
            receipt: None,
            place: None,
        };
        let refused = denial.map(|denial| (0, denial));
        Some(Answered { allowed: refused.is_none(), indices: vec![0], checks: vec![checked], refused })
    }

    async fn decide_as_owner(self: Arc<Self>, call: CheckCall) -> PeerVerdict {
        let Ok(current) = self.definition(&call.limit, self.deadline()).await else {
            return PeerVerdict::Undecided;
        };
        let current = current.of(call.identity);
        let metered = self.limit_keys.metered(&call.limit, &current.defined.definition, &call.key);
        let place = meter_key(&call.limit, metered);
        let hot_key = current.defined.definition.hot_key;
        if !self.owns(&place) && hot_key.is_taken_by(&self.members.ring(), &place, self.id) {
            // Whoever sends it here knows that it is hot; else it would have gone to its owner.
            self.hot.tell(place.clone(), self.uptime_ms());
        }
        match self.way(&call, &current, metered) {
            Way::Here => {}
            Way::To(owner) => return self.not_owner(Some(owner)),
            Way::Store => return self.not_owner(None),
        }
        let answered = self.check_limits(std::slice::from_ref(&call), &Wanted::default(), true).await;
        match answered {
            Ok(answered) => {
                let remained = self.remained(&call.limit, &current.defined.definition, &place);
                verdict(&answered, self.hot.is_hot(&place), remained)
            }
            Err(_) => PeerVerdict::Undecided,
        }
    }

    fn not_owner(&self, owner: Option<NodeId>) -> PeerVerdict {
        PeerVerdict::NotOwner { owner, ring: Some(self.members.ring().revision()) }
    }
}

fn verdict(answered: &Answered, is_hot: bool, remained: Option<Remained>) -> PeerVerdict {
    let Some(found) = answered.checks.first() else { return PeerVerdict::Undecided };
    let denial = answered.refused.map(|(_, denial): (usize, Denial)| denial);
    PeerVerdict::Decided {
        denial,
        capacity: found.capacity,
        remaining: found.remaining,
        reset_ms: found.reset_ms,
        by_store: found.source == Source::Central,
        is_hot,
        remained,
    }
}
