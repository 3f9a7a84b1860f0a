//! Starting, readiness, draining, and what all services of a node share.

use crate::asleep::{Asleep, Moment};
use crate::failure::Failure;
use crate::fence::tallies::Tallies;
use crate::job::{Jobs, scheduler};
use crate::limit::absent::Absent;
use crate::limit::definitions::{self, Definitions};
use crate::limit::fallback::{self, Fallbacks};
use crate::limit::forward::Forwarding;
use crate::limit::gossip::{self, Gossip};
use crate::limit::holding::{self, Rounds};
use crate::limit::hot::{self, HotKeys};
use crate::limit::keys::Keys;
use crate::limit::log::{self, Logs};
use crate::limit::overshoot::Overshoots;
use crate::limit::purses::Purses;
use crate::limit::returning;
use crate::lock::desks::Desks;
use crate::lock::history::History;
use crate::lock::rosters::Rosters;
use crate::members::{self, Members};
use crate::metrics::Metrics;
use crate::once::waiting::Waiting;
use crate::random::Random;
use crate::signal::Signal;
use crate::state::State;
use baton_core::cluster::{Ring, Session};
use baton_core::limit::call_id;
use baton_core::lock::{ClusterKey, Family, NodeId};
use baton_core::{Check, Commit, Group, Key, Outcome, Revision, Ttl, WallTime, Write};
use baton_store::{Reason, Store, StoreError};
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::time::error::Elapsed;
use tokio::time::{Instant, timeout, timeout_at};

/// What can be set.
#[derive(Clone, Debug)]
pub struct Config {
    /// How many may wait for one lock.
    pub queue_max: u64,
    /// How long one call may wait before it is told to call again.
    pub call_max: Duration,
    /// How long a waiter without a call keeps its place.
    pub orphan_kept: Duration,
    /// How long effects are remembered.
    pub memory: Duration,
    /// How long they are remembered while the store is over its memory budget.
    pub memory_when_tight: Duration,
    /// How long the store may take for one answer to a caller.
    pub store_deadline: Duration,
    /// How long a lock's history is kept after its last event.
    pub history_kept: Duration,
    /// How often histories are written.
    pub history_every: Duration,
    /// Where the other nodes reach this one; without it, it owns nothing.
    pub address: Option<Arc<str>>,
    /// Whether this node is kept for hot keys that are pinned, and owns nothing else.
    pub is_dedicated: bool,
    /// Where this node keeps what has to outlive it, for when the store is away; nothing does if there is no such place.
    pub state: Option<State>,
    /// How it is known how long the machine has slept.
    pub asleep: Asleep,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            queue_max: 10_000,
            call_max: Duration::from_secs(60),
            orphan_kept: Duration::from_secs(15),
            memory: Duration::from_secs(600),
            memory_when_tight: Duration::from_secs(60),
            store_deadline: Duration::from_secs(2),
            history_kept: Duration::from_secs(24 * 60 * 60),
            history_every: Duration::from_millis(500),
            address: None,
            is_dedicated: false,
            state: None,
            asleep: Asleep::System,
        }
    }
}

/// A node: serves every primitive on one store. Cheap to clone.
#[derive(Clone)]
pub struct Engine {
    pub(crate) node: Arc<Node>,
}

/// What all services of a node share.
pub(crate) struct Node {
    pub store: Arc<dyn Store>,
    pub config: Config,
    pub random: Random,
    pub id: NodeId,
    key: OnceLock<ClusterKey>,
    pub metrics: Metrics,
    pub desks: Desks,
    pub rosters: Rosters,
    pub history: History,
    pub members: Members,
    pub waiting: Waiting,
    pub tallies: Tallies,
    pub definitions: Definitions,
    pub absent_limits: Absent,
    pub limit_keys: Keys,
    pub limit_logs: Logs,
    pub overshoots: Overshoots,
    pub purses: Purses,
    pub rounds: Rounds,
    pub fallbacks: Fallbacks,
    pub forwarding: Forwarding,
    pub gossip: Gossip,
    pub hot: HotKeys,
    pub jobs: Jobs,
    pub draining: Signal,
    /// The store has been reached.
    pub met: Signal,
    /// Whether other nodes may use the store too.
    pub is_shared: bool,
    /// Whether the store answers as long as this process lives.
    pub answers_always: bool,
    started: Moment,
    /// The store's wall clock less the time since `started`, in milliseconds.
    wall_offset_ms: AtomicI64,
    next_attachment: AtomicU64,
}

impl Engine {
    /// Starts a node on a store. Must be called within a Tokio runtime.
    pub async fn start(store: Arc<dyn Store>, config: Config, random: Random) -> Result<Self, StoreError> {
        let node = Node::new(store.clone(), config, random);
        let joined = node.meet(&*store).await?;
        tokio::spawn(fallback::keep_synced(node.clone()));
        tokio::spawn(gossip::spread::keep(node.clone()));
        node.go_on(joined);
        Ok(Self { node })
    }

    /// The store it runs on.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.node.store
    }

    /// This node.
    pub fn node(&self) -> NodeId {
        self.node.id
    }

    /// What is counted.
    pub fn metrics(&self) -> &Metrics {
        &self.node.metrics
    }

    /// Whether the store can commit, tried out.
    pub async fn is_ready(&self) -> bool {
        let key = Key::new(Group(0), b"Nready".as_slice());
        let ttl = Ttl::AtLeast(Duration::from_secs(60));
        let value = self.node.id.0.to_be_bytes()[..].into();
        let writes = vec![Write::Put { key, value, ttl }];
        let commit = self.node.store.commit(Commit { checks: Vec::new(), writes });
        matches!(timeout(self.node.config.store_deadline, commit).await, Ok(Ok(_)))
    }

    /// Whether the store has been reached since the start.
    pub fn has_met_its_store(&self) -> bool {
        self.node.met.is_raised()
    }

    /// The store's wall clock, for display; not known until the store was reached.
    pub fn now(&self) -> Result<WallTime, Failure> {
        if self.has_met_its_store() {
            Ok(self.node.now())
        } else {
            Err(Failure::Unavailable { unknown: false })
        }
    }

    /// Before stopping: waiting calls are told to call again (their places are kept for them), and what is kept
    /// behind the answers is written.
    pub async fn drain(&self) {
        self.node.draining.raise();
        let empties = async {
            self.node.desks.emptied().await;
            returning::return_all(&self.node).await;
            holding::settled(&self.node).await;
            gossip::spread::settle(&self.node).await;
            self.node.jobs.dispatch.settled().await;
        };
        if self.node.is_shared {
            tokio::join!(members::retire(&self.node), empties);
        } else {
            empties.await;
        }
        fallback::settle_all(&self.node).await;
        log::flush(&self.node).await;
        crate::lock::history::flush(&self.node).await;
        if self.node.is_shared {
            members::leave(&self.node).await;
        }
    }

    /// What all nodes that share the store know and nobody else does; nothing until the store was reached.
    pub fn cluster_key(&self) -> Option<ClusterKey> {
        self.node.key().ok().cloned()
    }

    /// Who owns what, as far as this node knows.
    pub fn ring(&self) -> Arc<Ring> {
        self.node.members.ring()
    }

    /// The nodes that live, as far as this one knows, and what they say of themselves.
    pub fn members(&self) -> Vec<(NodeId, Arc<Session>)> {
        self.node.members.sessions()
    }

    /// How many nodes share the store, as far as this one knows.
    pub fn nodes(&self) -> usize {
        if self.node.is_shared { self.node.members.count() } else { 1 }
    }
}

impl Node {
    pub(crate) fn new(store: Arc<dyn Store>, config: Config, random: Random) -> Arc<Self> {
        let guarantees = store.guarantees();
        let id = NodeId(random.number().max(1));
        let fallbacks = Fallbacks::new(config.state.as_ref(), id.0);
        Arc::new(Self {
            is_shared: guarantees.shared,
            answers_always: guarantees.answers_always,
            store,
            id,
            gossip: Gossip::new(&random),
            random,
            key: OnceLock::new(),
            metrics: Metrics::default(),
            desks: Desks::default(),
            rosters: Rosters::default(),
            history: History::default(),
            members: Members::default(),
            waiting: Waiting::default(),
            tallies: Tallies::default(),
            definitions: Definitions::new(config.state.as_ref()),
            absent_limits: Absent::default(),
            limit_keys: Keys::default(),
            limit_logs: Logs::default(),
            overshoots: Overshoots::default(),
            purses: Purses::default(),
            rounds: Rounds::default(),
            fallbacks,
            forwarding: Forwarding::default(),
            hot: HotKeys::default(),
            jobs: Jobs::default(),
            draining: Signal::default(),
            met: Signal::default(),
            started: Moment::now(&config.asleep),
            wall_offset_ms: AtomicI64::new(0),
            next_attachment: AtomicU64::new(1),
            config,
        })
    }

    /// Learns what has to be known of a store before anybody is served from it, and makes itself known there. Gives its session,
    /// if it has one.
    pub(crate) async fn meet(&self, store: &dyn Store) -> Result<Option<Revision>, StoreError> {
        let key = cluster_key(store, &self.random).await?;
        let first = store.read(vec![cluster_key_place()]).await?;
        self.note_time(first.now);
        let cluster = call_id(&[b"cluster".as_slice(), &key.0]);
        self.fallbacks.know_cluster(cluster);
        self.definitions.know_cluster(cluster);
        // The others are to know that this node lives before anybody can wait here.
        let joined = if self.is_shared {
            Some(members::join(self, store).await?)
        } else {
            members::be_alone(self);
            None
        };
        // Before the first call can be answered, and the same whenever this is done again.
        self.key.get_or_init(|| key);
        Ok(joined)
    }

    /// Begins what runs beside the calls, on a store that was met.
    pub(crate) fn go_on(self: &Arc<Self>, joined: Option<Revision>) {
        let node = self;
        if let Some(joined) = joined {
            for family in Family::ALL {
                let hints = node.store.watch(crate::lock::hints::prefix(family));
                tokio::spawn(crate::lock::hints::keep(node.clone(), hints));
            }
            tokio::spawn(members::keep(node.clone(), joined));
            tokio::spawn(definitions::keep_copy(node.clone()));
        }
        let changes = node.store.watch(baton_core::limit::DEFINITION[..].into());
        tokio::spawn(definitions::keep(node.clone(), changes));
        tokio::spawn(returning::keep(node.clone()));
        tokio::spawn(fallback::keep(node.clone()));
        tokio::spawn(fallback::keep_snapshots(node.clone()));
        tokio::spawn(hot::keep(node.clone()));
        let index = node.store.watch(baton_core::job::place::index_prefix());
        tokio::spawn(scheduler::keep(node.clone(), index));
        tokio::spawn(crate::job::runner::keep(node.clone()));
        tokio::spawn(log::keep(node.clone()));
        tokio::spawn(crate::lock::history::keep(node.clone()));
        tokio::spawn(crate::lock::sweep::keep(node.clone()));
        node.met.raise();
    }

    /// The secret behind tokens and receipts; not known until the store was reached.
    pub fn key(&self) -> Result<&ClusterKey, Failure> {
        self.key.get().ok_or(Failure::Unavailable { unknown: false })
    }

    /// The store's wall clock, for display, as of the last answer plus the time since.
    pub fn now(&self) -> WallTime {
        let since = self.started.elapsed().as_millis() as i64;
        WallTime(self.wall_offset_ms.load(Ordering::Relaxed).saturating_add(since).max(0) as u64)
    }

    /// When this node was started, by the store's wall clock.
    pub fn started_at(&self) -> WallTime {
        WallTime(self.wall_offset_ms.load(Ordering::Relaxed).max(0) as u64)
    }

    /// Remembers what the store's clock said.
    pub fn note_time(&self, now: WallTime) {
        let since = self.started.elapsed().as_millis() as i64;
        self.wall_offset_ms.store(now.0 as i64 - since, Ordering::Relaxed);
    }

    /// This moment, for whoever has to know later how long ago it was.
    pub fn moment(&self) -> Moment {
        Moment::now(&self.config.asleep)
    }

    /// Milliseconds since it was started, by its own monotonic clock, and asleep.
    pub fn uptime_ms(&self) -> u64 {
        self.uptime_ms_at(Instant::now())
    }

    /// The same, at a moment that is known: reading a clock takes as long as deciding a check.
    pub fn uptime_ms_at(&self, at: Instant) -> u64 {
        (at.saturating_duration_since(self.started.at) + self.started.slept_since()).as_millis() as u64
    }

    /// A number that no other call on this node has.
    pub fn attachment(&self) -> u64 {
        self.next_attachment.fetch_add(1, Ordering::Relaxed)
    }

    /// How long effects are remembered now.
    pub fn memory(&self) -> Duration {
        if self.store.usage().is_tight() { self.config.memory_when_tight } else { self.config.memory }
    }

    /// A call to the store, for as long as it may take. Where an answer is sure, a timer for every call would be a cost
    /// for nothing.
    pub async fn in_time<T>(&self, call: impl Future<Output = T>) -> Result<T, Elapsed> {
        self.in_time_until(Instant::now() + self.config.store_deadline, call).await
    }

    /// The same, for as long as somebody waits for it.
    pub async fn in_time_until<T>(
        &self,
        until: Instant,
        call: impl Future<Output = T>,
    ) -> Result<T, Elapsed> {
        if self.answers_always { Ok(call.await) } else { timeout_at(until, call).await }
    }

    /// Whether the node is about to stop.
    pub fn is_draining(&self) -> bool {
        self.draining.is_raised()
    }
}

fn cluster_key_place() -> Key {
    Key::new(Group(0), b"Nkey".as_slice())
}

/// The secret behind lock tokens: made by the first node, read by all.
async fn cluster_key(store: &dyn Store, random: &Random) -> Result<ClusterKey, StoreError> {
    let key = cluster_key_place();
    let value: [u8; 32] = random.bytes();
    let put = Write::Put { key: key.clone(), value: value[..].into(), ttl: Ttl::Forever };
    let commit = Commit { checks: vec![Check::Absent(key.clone())], writes: vec![put] };
    let found = match store.commit(commit).await? {
        Outcome::Committed { .. } => return Ok(ClusterKey(value)),
        Outcome::Conflict { found, .. } => found.into_iter().next().and_then(|(_, record)| record),
    };
    let stored = found.and_then(|record| record.value[..].try_into().ok());
    stored.map(ClusterKey).ok_or_else(|| StoreError::NotApplied {
        reason: Reason::Invalid,
        detail: "the cluster key in the store can't be read by this version".into(),
    })
}
