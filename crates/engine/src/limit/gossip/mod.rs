//! Limits whose counts spread (M5): decided here, by what this node knows of all nodes' counts, without a store, a disk or a peer in the path.
//!
//! What was admitted is counted in memory at once, and written into the node's replica every so often, from where it spreads like any other change. What
//! others counted is read from there whenever the replica has grown. A key's count is the core's (`baton_core::limit::gossip`).
//!
//! # Layout
//! - this file: where the replica is, and deciding a check
//! - `table`: keys, and their bound
//! - `spread`: the task that writes counts down, and removes those that are over
//! - `inspect`: usage, the bound, and what is given back
//!
//! # Promises
//! - A check waits for nothing. If the replica can't be opened or written, counts stay in memory, and that shows.
//! - Where there are more keys than there is room for, those that are written down make way; if none are, keys that come new share a count.

mod inspect;
pub(crate) mod spread;
mod table;

use super::calls::{CheckCall, Checked, Denial, Source};
use super::check::Wanted;
use super::definitions::Current;
use crate::engine::{Engine, Node};
use crate::random::Random;
use crate::replica::{OpenError, Replica};
use crate::replication::PeerStatus;
use baton_core::crdt::Actor;
use baton_core::limit::gossip::{EVERY_MS, Window};
use baton_core::limit::{Mechanism, Metered, Receipt, overflow_key};
use baton_core::meter::Rule;
use baton_core::{Name, WallTime};
use baton_store::embedded::time::{RealTime, Time};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use table::{Entry, Learnt, Table};
use tokio::sync::Notify;

/// A replica that is being opened.
pub type Opening<'a> = Pin<Box<dyn Future<Output = Result<Arc<Replica>, OpenError>> + Send + 'a>>;

/// Where this node's replica is: the server has it, and opens it when somebody needs it.
pub trait ReplicaSource: Send + Sync {
    /// It, open.
    fn open(&self) -> Opening<'_>;
    /// How far the others are; nothing if it isn't open.
    fn peers(&self) -> Vec<PeerStatus>;
}

/// What a node knows of counts that spread.
pub(crate) struct Gossip {
    /// This run's slot in every count.
    writer: Actor,
    source: OnceLock<Arc<dyn ReplicaSource>>,
    replica: OnceLock<Arc<Replica>>,
    table: Table,
    /// There is something to write down, or the replica is needed.
    wake: Notify,
    time: RealTime,
    /// The latest that the wall clock has shown.
    highest_ms: AtomicU64,
    /// How long it took the last time to write counts down, in milliseconds.
    written_ms: AtomicU64,
    /// Whether it was said that counts can't be written.
    is_told: AtomicBool,
}

/// What was counted for a check, to be taken back if that comes to nothing.
pub(super) struct Ticket {
    metered: Metered,
    window: Window,
    amount: u64,
}

/// What became of a check.
pub(super) struct Counted {
    pub checked: Checked,
    pub denial: Option<Denial>,
    pub ticket: Option<Ticket>,
}

impl Engine {
    /// Where this node's replica is, and the replica if it is open.
    pub fn connect_replica(&self, source: Arc<dyn ReplicaSource>, opened: Option<Arc<Replica>>) {
        let gossip = &self.node.gossip;
        // The first stays: there is one.
        drop(gossip.source.set(source));
        if let Some(replica) = opened {
            drop(gossip.replica.set(replica));
        }
        gossip.wake.notify_one();
    }
}

impl Gossip {
    pub fn new(random: &Random) -> Self {
        Self {
            writer: Actor(random.bytes()),
            source: OnceLock::new(),
            replica: OnceLock::new(),
            table: Table::default(),
            wake: Notify::new(),
            time: RealTime::default(),
            highest_ms: AtomicU64::new(0),
            written_ms: AtomicU64::new(0),
            is_told: AtomicBool::new(false),
        }
    }

    /// A limit of this kind is known: what others have counted will be needed.
    pub fn want(&self) {
        if self.replica.get().is_none() {
            self.table.want();
            self.wake.notify_one();
        }
    }

    /// By this node's wall clock, which doesn't go back here.
    fn now_ms(&self) -> u64 {
        let now_ms = u64::try_from(self.time.wall().as_millis()).unwrap_or(u64::MAX);
        self.highest_ms.fetch_max(now_ms, Ordering::Relaxed).max(now_ms)
    }
}

/// Whether nobody but nodes decides it.
pub(super) fn is_spread(current: &Current) -> bool {
    current.defined.definition.mechanism == Mechanism::Gossip
}

/// The rule of a key's count. A calendar's windows are those of this node's clock, whatever the store's says.
fn rule(current: &Current, metered: &str, now_ms: u64) -> Rule {
    let calendar = current.defined.definition.calendar.as_ref();
    let edges = calendar.and_then(|calendar| match current.edges {
        Some(edges) if (edges[0]..edges[2]).contains(&now_ms) => Some(edges),
        edges => calendar.edges(WallTime(now_ms)).or(edges),
    });
    current.defined.exact_rule(metered, edges)
}

impl Node {
    /// Decides a check by what is known here, and counts it if it may go on. What only looks is refused nothing unless it is alone.
    pub(super) fn count(
        &self,
        call: &CheckCall,
        current: &Current,
        wanted: &Wanted,
        only_looks: bool,
    ) -> Counted {
        let definition = &current.defined.definition;
        let decide = |entry: &mut Entry, rule: &Rule| {
            let known = &mut entry.known;
            let fits = known.admit(rule, call.cost);
            let meter = known.meter(rule);
            let remaining = meter.remaining(rule);
            let is_short = if call.cost == 0 { remaining == 0 } else { !fits };
            let retry_ms = if is_short { meter.retry_ms(rule, call.cost.max(1)) } else { None };
            (known.window, remaining, meter.reset_ms(rule), is_short, retry_ms)
        };
        let (metered, (window, remaining, reset_ms, is_short, retry_after_ms)) =
            self.with_count(&call.limit, current, &call.key, decide);
        let mut checked = Checked::plain(current, metered.key(&call.key), remaining, reset_ms, Source::Local);
        checked.would_refuse = definition.dry_run && is_short;
        let refuses = is_short && !definition.dry_run && (call.cost > 0 || only_looks);
        let denial = refuses.then_some(Denial { reason: "budget_exhausted", retry_after_ms });
        let amount = if is_short { 0 } else { call.cost };
        if wanted.receipt && amount > 0 {
            checked.receipt = self.receipt(call, window, amount, metered);
        }
        let ticket = (amount > 0).then_some(Ticket { metered, window, amount });
        Counted { checked, denial, ticket }
    }

    /// Looks at a key's count, brought up to date, or makes one. What is then to be told is noted.
    fn with_count<T>(
        &self,
        limit: &Name,
        current: &Current,
        key: &str,
        act: impl FnOnce(&mut Entry, &Rule) -> T,
    ) -> (Metered, T) {
        let (gossip, definition) = (&self.gossip, &current.defined.definition);
        let now_ms = gossip.now_ms();
        let mut metered = Metered::Own;
        let mut shard = gossip.table.shard(limit, key);
        if !shard.has(limit, key) {
            if self.limit_keys.metered(limit, definition, key) != key || !shard.make_room(now_ms) {
                metered = Metered::Shared;
                drop(shard);
                shard = gossip.table.shard(limit, overflow_key());
            }
            gossip.want();
        }
        let whose = metered.key(key);
        let rule = rule(current, whose, now_ms);
        let entry = shard.entry(limit, whose, &rule, now_ms);
        let Learnt { is_news, has_turned } = entry.learn(
            gossip.replica.get().map(|replica| &**replica),
            gossip.writer,
            (limit, whose),
            &rule,
            now_ms,
        );
        if has_turned {
            // It is still used: nobody asks for it while it is in the table.
            self.limit_keys.metered(limit, definition, key);
        }
        if is_news {
            self.note_overshoot_of(limit, entry.known.overshoot(&rule), rule.limit, WallTime(now_ms));
        }
        let done = act(entry, &rule);
        entry.pace.note(entry.known.current.count(), now_ms);
        if entry.must_be_told() {
            let every_ms = definition.sync_ms.unwrap_or(EVERY_MS);
            if gossip.table.tell(limit, whose, self.uptime_ms(), every_ms) {
                gossip.wake.notify_one();
            }
        }
        (metered, done)
    }

    /// Takes back what was counted for a check that didn't pass.
    pub(super) fn uncount(&self, call: &CheckCall, Ticket { metered, window, amount }: Ticket) {
        let Some(current) = self.known_definition(&call.limit) else { return };
        self.with_count(&call.limit, &current, metered.key(&call.key), |entry, _| {
            entry.known.take_back(window, amount);
        });
    }

    /// What a check is given back with: it says which window it was counted in, so that it is given back in no other.
    fn receipt(&self, call: &CheckCall, window: Window, amount: u64, metered: Metered) -> Option<String> {
        let mut id = [0; 16];
        id[..8].copy_from_slice(&self.random.bytes::<8>());
        id[8..].copy_from_slice(&window.digest());
        let receipt = Receipt { id, amount, at: WallTime(window.start_ms), metered };
        // Before the store was ever reached there is nothing to seal it with.
        Some(receipt.issue(self.key().ok()?, &call.limit, &call.key))
    }
}
