//! One simulation while it runs: the store, the live node, every call that was made and what was heard of it, and
//! what each client believes.

use crate::nodes::Live;
use crate::scenarios::Plan;
use baton_core::Revision;
use baton_core::lock::{Family, GrantId, Hold, LockName};
use baton_engine::lock::{Failure, LockError, Refusal};
use baton_engine::signal::Signal;
use baton_testkit::simulated::Simulated;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use tokio::sync::Notify;

/// Everything of one simulation.
pub struct World {
    /// What the seed is about.
    pub plan: Plan,
    /// The store.
    pub store: Simulated,
    /// The locks.
    pub locks: Vec<LockName>,
    /// The nodes that are up, each in its place.
    nodes: Mutex<Vec<Option<Arc<Live>>>>,
    node_is_up: Notify,
    /// From when on nothing goes wrong any more.
    pub calm: Signal,
    records: Mutex<Records>,
}

/// What was written down.
#[derive(Default)]
pub struct Records {
    /// Every call, in the order they were made.
    pub calls: Vec<Call>,
    /// Every belief to hold a lock.
    pub beliefs: Vec<Belief>,
    /// Every node that was started.
    pub nodes: Vec<NodeLife>,
    /// What else happened, for the trace: the length of the store's history then, when, and what.
    pub notes: Vec<(usize, Duration, String)>,
    /// What a client saw that can't be.
    pub absurdities: Vec<String>,
}

/// A node, from its start to its end.
#[derive(Clone, Copy, Debug)]
pub struct NodeLife {
    /// As the store counts.
    pub number: u32,
    /// As records name it.
    pub id: u64,
}

/// A call of a client.
#[derive(Clone, Debug)]
pub struct Call {
    /// Whose.
    pub client: usize,
    /// Which lock.
    pub lock: usize,
    /// To which node.
    pub node: u32,
    /// What.
    pub ask: Ask,
    /// When it was made.
    pub start: Duration,
    /// When it was answered or given up.
    pub end: Option<Duration>,
    /// What was answered; `None` when it was given up.
    pub told: Option<Told>,
    /// Whether the client got the answer.
    pub heard: bool,
}

/// What was asked.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Ask {
    /// Take the lock.
    Acquire {
        /// The request's id in records.
        id: GrantId,
        /// For how long.
        ttl: Duration,
        /// The number of the call at its node, if it waits.
        attachment: Option<u64>,
        /// How many releases the client expects it to take.
        expects: u32,
        /// Where it would stand in the queue: behind lower ranks. 0 for locks.
        rank: u16,
    },
    /// Make it last.
    Renew {
        /// The grant's token.
        fencing: u64,
        /// For how long.
        ttl: Duration,
    },
    /// Give it back.
    Release {
        /// The grant.
        id: GrantId,
        /// The grant's token.
        fencing: u64,
        /// How many releases it takes after this one.
        left: u32,
        /// Whether that is sure.
        certain: bool,
        /// The client who is to have it next.
        successor: Option<usize>,
    },
    /// Take it away.
    Force,
}

/// What was answered.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Told {
    /// The lock is the caller's.
    Granted {
        /// The token.
        fencing: u64,
        /// How many releases it takes.
        count: u32,
        /// How it is held.
        hold: Hold,
    },
    /// It was done: renewed or released.
    Done,
    /// It was taken from these grants.
    Forced {
        /// Their tokens.
        fencing: Vec<u64>,
    },
    /// The rules say no.
    Refused(Refusal),
    /// It couldn't be done, or nobody knows.
    Failed(Failure),
}

impl From<LockError> for Told {
    fn from(error: LockError) -> Self {
        match error {
            LockError::Refused(refusal) => Self::Refused(refusal),
            LockError::Failed(failure) => Self::Failed(failure),
        }
    }
}

/// A client thinks that it holds a lock.
#[derive(Clone, Copy, Debug)]
pub struct Belief {
    /// Who.
    pub client: usize,
    /// Which lock.
    pub lock: usize,
    /// The token.
    pub fencing: u64,
    /// How.
    pub hold: Hold,
    /// From when on.
    pub from: Duration,
    /// Until when, by the client's own deadline.
    pub until: Duration,
}

impl World {
    /// A world in which nothing has happened.
    pub fn new(plan: Plan, seed: u64) -> Arc<Self> {
        let family = if plan.elections.is_some() { Family::Election } else { Family::Lock };
        let name = |index| LockName::of(family, "sim", &format!("lock-{index}"));
        let locks = (0..plan.locks).map(name).collect();
        Arc::new(Self {
            store: if plan.nodes > 1 { Simulated::for_many(seed) } else { Simulated::new(seed) },
            locks,
            nodes: Mutex::new(vec![None; plan.nodes]),
            node_is_up: Notify::new(),
            calm: Signal::default(),
            records: Mutex::default(),
            plan,
        })
    }

    /// What was written down.
    pub fn records(&self) -> MutexGuard<'_, Records> {
        self.records.lock().expect("no panic while held")
    }

    /// The time.
    pub fn now(&self) -> Duration {
        self.store.now()
    }

    /// Whether nothing goes wrong any more.
    pub fn is_calm(&self) -> bool {
        self.calm.is_raised()
    }

    /// The store's last revision.
    pub fn revision(&self) -> Revision {
        self.store.revision()
    }

    /// Writes a line for the trace.
    pub fn note(&self, line: impl FnOnce() -> String) {
        if self.plan.is_traced {
            let (index, at) = (self.store.happened(), self.now());
            self.records().notes.push((index, at, line()));
        }
    }

    /// A client saw what can't be.
    pub fn absurd(&self, what: String) {
        self.note(|| format!("absurd: {what}"));
        self.records().absurdities.push(what);
    }

    /// A client makes a call.
    pub fn begin(self: &Arc<Self>, client: usize, lock: usize, node: u32, ask: Ask) -> Open {
        let start = self.now();
        self.note(|| format!("client {client} asks node {node} lock-{lock}: {ask:?}"));
        let mut records = self.records();
        records.calls.push(Call { client, lock, node, ask, start, end: None, told: None, heard: false });
        let index = records.calls.len() - 1;
        drop(records);
        Open { world: self.clone(), index, is_open: true }
    }

    /// Writes a belief down; says where.
    pub fn believe(&self, belief: Belief) -> usize {
        let mut records = self.records();
        records.beliefs.push(belief);
        records.beliefs.len() - 1
    }

    /// The nodes that are up.
    pub fn nodes(&self) -> Vec<Arc<Live>> {
        self.nodes.lock().expect("no panic while held").iter().flatten().cloned().collect()
    }

    /// Another node is up in this place, or none; gives the last.
    pub fn replace_node(&self, place: usize, node: Option<Arc<Live>>) -> Option<Arc<Live>> {
        let last = std::mem::replace(&mut self.nodes.lock().expect("no panic while held")[place], node);
        self.node_is_up.notify_waiters();
        last
    }

    /// The node in this place if it is up, else another; waits for one if need be.
    pub async fn live(&self, place: u64) -> Arc<Live> {
        loop {
            let changed = self.node_is_up.notified();
            let up = self.nodes.lock().expect("no panic while held")[place as usize].clone();
            if let Some(live) = up.or_else(|| self.nodes().into_iter().next()) {
                return live;
            }
            changed.await;
        }
    }
}

/// A call that is under way. Dropping it is giving it up.
pub struct Open {
    world: Arc<World>,
    index: usize,
    is_open: bool,
}

impl Open {
    /// The answer came, and the client hears it or not.
    pub fn end(mut self, told: Told, heard: bool) -> Duration {
        self.is_open = false;
        let now = self.world.now();
        let mut records = self.world.records();
        let call = &mut records.calls[self.index];
        (call.end, call.told, call.heard) = (Some(now), Some(told.clone()), heard);
        let (client, start) = (call.client, call.start);
        drop(records);
        let unheard = if heard { "" } else { " (unheard)" };
        self.world.note(|| format!("client {client} is told{unheard}: {told:?}"));
        start
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        if self.is_open {
            let now = self.world.now();
            let mut records = self.world.records();
            let call = &mut records.calls[self.index];
            call.end = Some(now);
            let client = call.client;
            drop(records);
            self.world.note(|| format!("client {client} gives its call up"));
        }
    }
}
