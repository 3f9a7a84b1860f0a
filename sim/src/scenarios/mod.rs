//! What a seed is about. A scenario is a file with one function that draws a [`Plan`] from the dice; to add one,
//! write it and put it into [`ALL`].

mod calm;
mod elections;
mod everything;
mod expiry;
mod forced;
mod modes;
mod nodes;
mod queue;
mod reentrant;
mod restarts;
mod retries;

use crate::broken::Broken;
use baton_engine::Config;
use baton_testkit::Dice;
use baton_testkit::simulated::Faults;
use std::time::Duration;

/// Draws a plan.
pub type Scenario = fn(&mut Dice) -> Plan;

/// Every scenario: seeds take turns.
pub const ALL: [(&str, Scenario); 15] = [
    ("calm", calm::plan),
    ("queue", queue::plan),
    ("retries", retries::plan),
    ("expiry", expiry::plan),
    ("restarts", restarts::plan),
    ("reentrant", reentrant::plan),
    ("forced", forced::plan),
    ("everything", everything::plan),
    ("nodes", nodes::plan),
    ("everything with nodes", nodes::everything),
    ("read and write", modes::read_and_write),
    ("permits", modes::permits),
    ("lock-delay", modes::lock_delay),
    ("elections", elections::plan),
    ("elections with nodes", elections::with_nodes),
];

/// Who is there, how they behave, what goes wrong, and for how long. Chances are of a thousand.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Whether everything is written down.
    pub is_traced: bool,
    /// A check that is left out on purpose.
    pub broken: Option<Broken>,
    /// How many nodes at the same time.
    pub nodes: usize,
    /// How many locks.
    pub locks: usize,
    /// What they are used as.
    pub kind: LockKind,
    /// How many clients.
    pub clients: usize,
    /// How clients behave.
    pub habits: Habits,
    /// Whether the locks are elections, and what clients do then.
    pub elections: Option<Electing>,
    /// The nodes' settings.
    pub config: Config,
    /// What goes wrong between node and store.
    pub faults: Faults,
    /// How long a node lives; for ever if absent.
    pub node_lives_ms: Option<(u64, u64)>,
    /// How long there is no node after that.
    pub node_down_ms: (u64, u64),
    /// Nodes that end by draining.
    pub drained: u32,
    /// How often an administrator forces a lock free.
    pub forced_ms: Option<(u64, u64)>,
    /// For how long things go wrong.
    pub active: Duration,
}

/// What a lock is used as.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LockKind {
    /// By one at a time.
    Plain,
    /// By many readers or one writer.
    ReadWrite,
    /// By as many as there are permits.
    Semaphore(u16),
}

/// What candidates and leaders do besides. Chances are of a thousand.
#[derive(Clone, Copy, Debug)]
pub struct Electing {
    /// Candidates with a priority.
    pub ranked: u32,
    /// Leaders that name a successor, who may not be there.
    pub names: u32,
    /// Leaders that proclaim.
    pub proclaims: u32,
}

/// How clients behave. Chances are of a thousand.
#[derive(Clone, Debug)]
pub struct Habits {
    /// Between one lock and the next.
    pub think_ms: (u64, u64),
    /// Leases.
    pub ttl_ms: (u64, u64),
    /// How long a lock is needed.
    pub hold_ms: (u64, u64),
    /// Acquires that wait for ever.
    pub waits: u32,
    /// Acquires that wait for at most `wait_ms`.
    pub waits_limited: u32,
    /// How long.
    pub wait_ms: (u64, u64),
    /// Calls whose connection breaks before the answer.
    pub breaks: u32,
    /// After how long.
    pub breaks_ms: (u64, u64),
    /// Answers that get lost on the way to the client.
    pub unheard: u32,
    /// Acquires that are made twice at once.
    pub doubled: u32,
    /// Clients that are gone for good while they wait.
    pub dies_waiting: u32,
    /// Clients that are gone for good while they hold.
    pub dies_holding: u32,
    /// Holders that stop for longer than their lease.
    pub sleeps: u32,
    /// Holders that renew.
    pub renews: u32,
    /// Clients that take the lock reentrantly.
    pub reentrant: u32,
    /// Acquires that are repeated after their end.
    pub repeats: u32,
    /// Acquires that reuse a requestId with other parameters.
    pub reuses: u32,
    /// Of the acquires of a read/write lock, those that share it.
    pub reads: u32,
    /// Acquires of another kind than the lock is used as.
    pub mistakes: u32,
    /// Acquires with a lock-delay.
    pub delayed: u32,
    /// How long.
    pub delay_ms: (u64, u64),
}

/// A world without trouble: scenarios change what they are about.
fn base() -> Plan {
    Plan {
        is_traced: false,
        broken: None,
        nodes: 1,
        locks: 2,
        kind: LockKind::Plain,
        clients: 5,
        habits: Habits {
            think_ms: (0, 300),
            ttl_ms: (300, 2000),
            hold_ms: (0, 400),
            waits: 500,
            waits_limited: 300,
            wait_ms: (5, 1500),
            breaks: 0,
            breaks_ms: (0, 400),
            unheard: 0,
            doubled: 0,
            dies_waiting: 0,
            dies_holding: 0,
            sleeps: 0,
            renews: 500,
            reentrant: 0,
            repeats: 50,
            reuses: 20,
            reads: 650,
            mistakes: 0,
            delayed: 0,
            delay_ms: (50, 1200),
        },
        elections: None,
        config: Config { call_max: Duration::from_secs(8), queue_max: 8, ..Config::default() },
        faults: Faults::none(),
        node_lives_ms: None,
        node_down_ms: (0, 1500),
        drained: 250,
        forced_ms: None,
        active: Duration::from_secs(8),
    }
}

/// A bad way to the store; how bad differs.
pub(crate) fn bad_way(dice: &mut Dice) -> Faults {
    let level = dice.between((1, 4)) as u32;
    Faults {
        there_ms: (0, dice.between((1, 15))),
        back_ms: (0, dice.between((1, 15))),
        slow: 8 * level,
        slow_ms: (20, *[200, 900, 2600].get(dice.below(3) as usize).unwrap_or(&200)),
        refused: 8 * level,
        lost: 8 * level,
        answer_lost: 20 * level,
        late: 20 * level,
        late_ms: (0, dice.between((20, 4000))),
        hints_lost: 100 * level,
        spares_reads: false,
        lost_at_death: 500,
    }
}
