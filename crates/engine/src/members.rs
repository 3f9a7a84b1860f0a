//! Which nodes live, where several share a store: each keeps a session there, and looks at the others'.
//!
//! Whether a node lives decides about order only, never about who holds what: a waiter whose node is taken for dead by
//! mistake loses its turn, and nobody gets a second lock by it.

mod peaks;

use crate::engine::Node;
use crate::metrics::Metrics;
use baton_core::cluster::{Ring, SESSION, Session, node_of, session_key};
use baton_core::lock::NodeId;
use baton_core::{Check, Commit, Group, Outcome, Record, Revision, Ttl, Write};
use baton_store::watch::Change;
use baton_store::{Range, Store, StoreError};
use peaks::Peaks;
use std::collections::{BTreeMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, RwLock};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;

/// How long a node that has vanished is taken to live.
const LIFE: Duration = Duration::from_secs(10);
/// How often a session is renewed and the others' are looked at.
const LOOK_EVERY: Duration = Duration::from_millis(2500);
/// Looking because somebody asked happens at most this often.
const LOOK_PAUSE: Duration = Duration::from_millis(20);
/// Looking because another node goes by another ring happens at most this often: it may stay so, if one of both can't see all sessions.
const COMPARE_PAUSE: Duration = Duration::from_millis(500);
/// Sessions read at once.
const PAGE: usize = 256;
/// Dead nodes remembered; beyond it all are forgotten, and looked for again if somebody asks.
const GONE_MAX: usize = 4096;

/// What this node knows of the others.
pub(crate) struct Members {
    known: Mutex<Known>,
    /// Who owns what, of those that live and can be reached.
    ring: RwLock<Arc<Ring>>,
    /// Somebody wants to know of a node that hasn't been looked for.
    asked: Notify,
    /// Sessions have been looked at, or couldn't be.
    looked: Notify,
    /// A node was found dead: whoever waited there may be left in queues that no other node has a reason to look at.
    pub buried: Notify,
}

#[derive(Default)]
struct Known {
    /// With what they say of themselves: nothing yet, of those that were only heard of.
    alive: BTreeMap<NodeId, Arc<Session>>,
    /// Looked for and not found. Ids are never used again.
    gone: HashSet<NodeId>,
    /// To be looked for.
    asked: HashSet<NodeId>,
    /// How many lived lately, once all sessions were read.
    peaks: Option<Peaks>,
    compared: Option<Compared>,
}

/// Another node went by another ring.
struct Compared {
    theirs: u64,
    at: Instant,
    /// Whether it was found out since which of both was behind.
    is_known: bool,
}

impl Default for Members {
    fn default() -> Self {
        Self {
            known: Mutex::default(),
            ring: RwLock::new(Arc::new(Ring::of(&Default::default()))),
            asked: Notify::new(),
            looked: Notify::new(),
            buried: Notify::new(),
        }
    }
}

impl Members {
    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().expect("no panic while held")
    }

    /// Whether a node lives. One that nobody has looked for is taken to live, and looked for at once.
    pub fn may_live(&self, node: NodeId) -> bool {
        let mut known = self.known();
        if known.gone.contains(&node) {
            return false;
        }
        if !known.alive.contains_key(&node) && known.asked.insert(node) {
            self.asked.notify_one();
        }
        true
    }

    /// How many live, this one among them.
    pub fn count(&self) -> usize {
        self.known().alive.len()
    }

    /// Which place this node had among the most that lived at once in the last while, and how many those were. Nothing if the
    /// others' sessions were never read.
    pub fn highest(&self, node: NodeId, recent: Duration) -> Option<(usize, usize)> {
        self.known().peaks.as_ref()?.highest(node, recent, Instant::now())
    }

    /// Who owns what, as far as this node knows.
    pub fn ring(&self) -> Arc<Ring> {
        self.ring.read().expect("no panic while held").clone()
    }

    /// Another node goes by the ring with this revision. If this one doesn't, one of both is behind: it looks whether it is the one.
    pub fn compare(&self, theirs: u64) {
        if theirs == self.ring().revision() {
            return;
        }
        let (mut known, now) = (self.known(), Instant::now());
        let is_pausing = |last: &Compared| now.saturating_duration_since(last.at) < COMPARE_PAUSE;
        if !known.compared.as_ref().is_some_and(is_pausing) {
            known.compared = Some(Compared { theirs, at: now, is_known: false });
            self.asked.notify_one();
        }
    }

    /// After a look: whether this node was behind another that went by another ring, or that one is; if there was such a one.
    fn was_behind(&self) -> Option<bool> {
        let revision = self.ring().revision();
        let mut known = self.known();
        let compared = known.compared.as_mut().filter(|compared| !compared.is_known)?;
        compared.is_known = true;
        Some(compared.theirs == revision)
    }

    /// Waits until a node is known that another one named, or it is known that there is none.
    pub async fn meet(&self, node: NodeId, until: Instant) {
        let looked = self.looked.notified();
        // Of one that is known and says nowhere where it is reached, a look says no more.
        if self.session(node).is_none() && self.may_live(node) {
            // Whoever can't be met is done without.
            drop(tokio::time::timeout_at(until, looked).await);
        }
    }

    /// What a node that lives says of itself.
    pub fn session(&self, node: NodeId) -> Option<Arc<Session>> {
        self.known().alive.get(&node).cloned()
    }

    /// All that live, and what they say of themselves.
    pub fn sessions(&self) -> Vec<(NodeId, Arc<Session>)> {
        self.known().alive.iter().map(|(node, session)| (*node, session.clone())).collect()
    }

    /// A node, with what it says of itself now.
    fn says(&self, node: NodeId, session: Session) {
        {
            let mut known = self.known();
            known.gone.remove(&node);
            known.alive.insert(node, Arc::new(session));
            known.note_peak();
        }
        self.reckon();
    }

    /// A node has said something, and it isn't known what: that is looked up.
    fn came(&self, node: NodeId) {
        let mut known = self.known();
        known.gone.remove(&node);
        known.alive.entry(node).or_default();
        known.note_peak();
        self.asked.notify_one();
    }

    /// Finds out who owns what now.
    fn reckon(&self) {
        let reached =
            |(_, session): &(&NodeId, &Arc<Session>)| session.address.is_some() && !session.is_leaving;
        let known = self.known();
        let (dedicated, owners): (Vec<_>, Vec<_>) =
            known.alive.iter().filter(reached).partition(|(_, session)| session.is_dedicated);
        let ids = |nodes: Vec<(&NodeId, _)>| nodes.into_iter().map(|(node, _)| *node).collect();
        let ring = Ring::of(&ids(owners)).and_dedicated(&ids(dedicated));
        drop(known);
        let mut known = self.ring.write().expect("no panic while held");
        if **known != ring {
            *known = Arc::new(ring);
        }
    }

    fn went(&self, node: NodeId) {
        let mut known = self.known();
        // As many as there were until now.
        known.note_peak();
        known.alive.remove(&node);
        known.note_peak();
        known.bury(node);
        drop(known);
        self.buried.notify_one();
        self.reckon();
    }

    /// Who is taken to live.
    fn supposed(&self) -> HashSet<NodeId> {
        let known = self.known();
        known.alive.keys().chain(&known.asked).copied().collect()
    }

    /// Every session there was at some moment after `supposed` were taken to live, and this node's own as it is now. Whoever came
    /// meanwhile stays.
    fn found(
        &self,
        mut alive: BTreeMap<NodeId, Arc<Session>>,
        supposed: &HashSet<NodeId>,
        own: impl FnOnce() -> (NodeId, Session),
    ) {
        let mut known = self.known();
        known.note_peak();
        // Asked while nobody else says anything of it: what is said after it began to leave comes last.
        let (node, session) = own();
        alive.insert(node, Arc::new(session));
        for node in supposed {
            known.asked.remove(node);
            known.alive.remove(node);
            if !alive.contains_key(node) {
                known.bury(*node);
                self.buried.notify_one();
            }
        }
        for node in alive.keys() {
            // It was taken for dead by mistake, and the hint that it came back didn't get here.
            known.gone.remove(node);
        }
        known.alive.extend(alive);
        known.peaks.get_or_insert_default();
        known.note_peak();
        drop(known);
        self.reckon();
    }
}

impl Known {
    fn note_peak(&mut self) {
        if let Some(peaks) = &mut self.peaks {
            peaks.note(self.alive.keys().copied(), Instant::now());
        }
    }

    fn bury(&mut self, node: NodeId) {
        if self.gone.len() >= GONE_MAX {
            self.gone.clear();
        }
        self.gone.insert(node);
    }
}

/// What this node says of itself.
fn own_session(node: &Node) -> Session {
    Session {
        address: node.config.address.clone(),
        version: env!("CARGO_PKG_VERSION").into(),
        started: node.started_at(),
        is_leaving: node.is_draining(),
        is_dedicated: node.config.is_dedicated,
    }
}

fn say(node: &Node) -> (Session, Commit) {
    let session = own_session(node);
    let put = Write::Put { key: session_key(node.id), value: session.encode(), ttl: Ttl::Exactly(LIFE) };
    (session, Commit { checks: Vec::new(), writes: vec![put] })
}

/// Makes this node's session: before it puts anything into the store that names it.
pub(crate) async fn join(node: &Node, store: &dyn Store) -> Result<Revision, StoreError> {
    let (_, commit) = say(node);
    match store.commit(commit).await? {
        Outcome::Committed { revision, .. } => {
            // It may have begun to leave meanwhile.
            node.members.says(node.id, own_session(node));
            Ok(revision)
        }
        Outcome::Conflict { .. } => unreachable!("nothing was checked"),
    }
}

/// A store that nobody shares needs no session: this node owns everything.
pub(crate) fn be_alone(node: &Node) {
    let address = Some(node.config.address.clone().unwrap_or_default());
    node.members.says(node.id, Session { address, ..own_session(node) });
}

/// Says that this node is about to leave: from then on it owns nothing. What it holds of what it owned goes back.
pub(crate) async fn retire(node: &Node) {
    let (session, commit) = say(node);
    node.members.says(node.id, session);
    if let Ok(Err(error)) = node.in_time(node.store.commit(commit)).await {
        node.store_failed(&error);
    }
}

/// Ends this node's session: the others needn't wait until it runs out, which it does if this fails.
pub(crate) async fn leave(node: &Node) {
    let delete = Write::Delete { key: session_key(node.id) };
    if let Ok(Err(error)) =
        node.in_time(node.store.commit(Commit { checks: Vec::new(), writes: vec![delete] })).await
    {
        node.store_failed(&error);
    }
}

/// Renews this node's session and follows the others', until the node drains.
pub(crate) async fn keep(node: Arc<Node>, mut joined: Revision) {
    let mut changes = node.store.watch(SESSION.into());
    let mut renew_at = Instant::now();
    loop {
        if Instant::now() >= renew_at {
            renew_at = Instant::now() + LOOK_EVERY;
            renew(&node, &mut joined).await;
        }
        look(&node).await;
        node.members.looked.notify_waiters();
        tokio::select! {
            biased;
            () = node.draining.wait() => return,
            () = tokio::time::sleep_until(renew_at) => {}
            () = node.members.asked.notified() => tokio::time::sleep(LOOK_PAUSE).await,
            () = follow(&node.members, &mut changes) => {}
        }
    }
}

/// Takes hints until some are missing.
async fn follow(members: &Members, changes: &mut baton_store::watch::Watch) {
    loop {
        match changes.next().await {
            Some(Change::Put { key, .. }) => {
                node_of(&key.name).into_iter().for_each(|node| members.came(node))
            }
            Some(Change::Deleted { key, .. } | Change::Expired { key }) => {
                node_of(&key.name).into_iter().for_each(|node| members.went(node));
            }
            Some(Change::Lost) => return,
            // The store has gone: there is nothing more to hear.
            None => std::future::pending().await,
        }
    }
}

/// Gives the session's record as it is, if it isn't the one that was made by `joined`.
async fn touch(node: &Node, joined: Revision) -> Option<Option<Record>> {
    let key = session_key(node.id);
    let checks = vec![Check::Created(key.clone(), joined)];
    let writes = vec![Write::Touch { key, ttl: LIFE }];
    match node.in_time(node.store.commit(Commit { checks, writes })).await {
        Ok(Ok(Outcome::Conflict { found, .. })) => Some(found.into_iter().find_map(|(_, record)| record)),
        Ok(Ok(Outcome::Committed { .. })) | Err(_) => None,
        Ok(Err(error)) => {
            node.store_failed(&error);
            None
        }
    }
}

async fn renew(node: &Node, joined: &mut Revision) {
    let Some(found) = touch(node, *joined).await else { return };
    if let Some(own) = found {
        // Nobody else makes it, and no other start of this node: it was made by a commit whose answer got lost. To put it again
        // would leave it the same age, and each renewal would find so.
        *joined = own.created;
        touch(node, *joined).await;
        return;
    }
    // It ran out: the store was away for longer than it lasts.
    match node.in_time(join(node, &*node.store)).await {
        Ok(Ok(revision)) => *joined = revision,
        Ok(Err(error)) => node.store_failed(&error),
        Err(_) => {}
    }
}

/// Reads all sessions.
async fn look(node: &Node) {
    let supposed = node.members.supposed();
    let mut alive = BTreeMap::new();
    let mut after = None;
    loop {
        let range = Range { group: Group(0), prefix: SESSION.into(), after };
        let page = match node.in_time(node.store.scan(range, PAGE)).await {
            Ok(Ok(page)) => page,
            Ok(Err(error)) => return node.store_failed(&error),
            Err(_) => return,
        };
        for record in page.records.iter().filter(|record| record.key != session_key(node.id)) {
            // One that can't be read is a newer version's: it lives, and that is all that is known of it.
            let session = Session::decode(&record.value).unwrap_or_default();
            alive.extend(node_of(&record.key.name).map(|node| (node, Arc::new(session))));
        }
        after = page.records.last().map(|record| record.key.name.clone());
        if !page.more {
            break;
        }
    }
    // What this node says by now: it may have begun to leave meanwhile.
    node.members.found(alive, &supposed, || (node.id, own_session(node)));
    node.forwarding.retain(|peer| node.members.session(peer).is_some());
    if let Some(was_behind) = node.members.was_behind() {
        let label = if was_behind { "behind" } else { "ahead" };
        Metrics::count(&node.metrics.other_rings, label);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_that_was_taken_for_dead_lives_again_once_its_session_is_found() {
        let (members, node) = (Members::default(), NodeId(7));
        assert!(members.may_live(node));
        let own = || (NodeId(1), Session::default());
        members.found(BTreeMap::new(), &members.supposed(), own);
        assert!(!members.may_live(node), "it was looked for");
        members.found(BTreeMap::from([(node, Arc::default())]), &members.supposed(), own);
        assert!(members.may_live(node), "also if no hint said that it came");
    }
}
