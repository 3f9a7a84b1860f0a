//! A node's own copy of what needs no agreement: it reads and writes without the store and without other nodes, and merges what
//! they tell it.
//!
//! # Layout
//! - `open`: from a directory to a replica
//! - `write`: local writes; [`Written`]
//! - `read`: local reads; [`Reading`]
//! - `names`: what there is; [`Names`]
//! - `merge`: what other replicas tell; [`Merged`]
//! - `renew`: rows let go of runs that are over; [`Renewed`]
//! - `retire`: runs that are over for good; [`Run`]
//! - `lineage`: the runs that this directory had before; `inherit`: what they counted becomes this run's
//! - `ahead`: what was decided and isn't durable yet; `durable`: what is
//! - `flush`: how it becomes so; `held`: what waits for its time to come near
//! - `memo`: requests that were answered
//! - `records`: names and layouts on the disk
//!
//! # Promises
//! - A write is answered when it is on this node's disk, as one commit. Readers, other replicas and those who watch hear of it
//!   then and not before.
//! - Writes of one row are decided one after the other, also while earlier ones are on their way to the disk. Those that arrive
//!   together go there together.
//! - A write with a request id counts once on this replica, also over a restart, as long as it is remembered (see `memo`).
//! - If the disk can't take a commit, nothing more is written until the replica is opened again, and what was on its way is answered
//!   as unknown. Reads go on.

mod ahead;
mod durable;
mod flush;
mod held;
mod inherit;
mod lineage;
mod memo;
mod merge;
mod names;
mod open;
mod read;
mod records;
mod renew;
mod retire;
mod write;

pub use baton_store::embedded::Home;
pub use merge::Merged;
pub use names::Names;
pub use open::{OpenError, Options};
pub use read::{Part, Reading};
pub use renew::Renewed;
pub use retire::Run;
pub use write::{EDITS_MAX, Request, Written};

use ahead::Ahead;
use baton_core::crdt::context::SPANS_MAX;
use baton_core::crdt::{Actor, Context, Delta, EditRefused};
use baton_store::embedded::time::Time;
use baton_store::embedded::{Appender, Embedded};
use durable::Durable;
use flush::Flusher;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex, MutexGuard, RwLock, RwLockReadGuard};
use tokio::runtime::Handle;
use tokio::sync::{Notify, broadcast, oneshot, watch};

/// Changes that a slow listener may be behind: after that it is told that it lost some, and has to compare.
const CHANGES_MAX: usize = 4 * 1024;

/// How much a replica takes from its own callers. What is merged is not refused by these: replicas that differ would be worse, and
/// every other replica has bounds of its own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Rows in all.
    pub rows_max: usize,
    /// Bytes in all, about.
    pub bytes_max: usize,
    /// Elements of one set, or rows of one map.
    pub collection_max: usize,
    /// Gaps in what was seen of one run, as far as others tell of it; beyond it what was missed is told of when all of it is there.
    pub gaps_max: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { rows_max: 4_000_000, bytes_max: 512 << 20, collection_max: 1_000_000, gaps_max: SPANS_MAX }
    }
}

/// Why a call was not done.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Failure {
    /// An edit makes no sense, or not now.
    #[error("refused: {0:?}")]
    Refused(EditRefused),
    /// More edits than one write may have, or more bytes.
    #[error("too much for one write")]
    TooLarge,
    /// One of the [`Limits`] is reached. Removing works.
    #[error("the replica is full")]
    Full,
    /// Too much is on its way to the disk, or the replica is closing.
    #[error("too many writes at once")]
    Busy,
    /// It ends too much of a run of which this replica has only parts. It can when it has compared itself with a replica that has all.
    #[error("this replica has only parts of what another wrote, and can't remember more of it as ended")]
    Partial,
    /// The request id was used for other edits.
    #[error("the request id was used before, for something else")]
    RequestReused,
    /// It may be on the disk or not. Sending it again, with its request id, tells.
    #[error("the outcome is unknown")]
    Unknown,
    /// The disk refused an earlier commit; nothing is written any more.
    #[error("the replica's disk failed")]
    Broken,
}

/// Where a change came from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Origin {
    /// It was written here.
    Local,
    /// Another replica told of it.
    Merged,
}

/// Something that is durable now.
#[derive(Clone, Debug)]
pub struct Told {
    /// What changed.
    pub delta: Delta,
    /// Who changed it.
    pub origin: Origin,
}

/// How much a replica has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Size {
    /// Durable rows.
    pub rows: usize,
    /// Writes on their way to the disk.
    pub pending: usize,
    /// Changes from others that wait for their time to come near: more than none means that some clock is wrong.
    pub held: usize,
    /// Runs of replicas that were ever heard of.
    pub actors: usize,
}

/// A replica in a directory of this machine.
pub struct Replica {
    shared: Arc<Shared>,
    /// Not in what is shared: its own thread has that too, and couldn't wait for its own end.
    store: Embedded,
}

struct Shared {
    store: Appender,
    time: Arc<dyn Time>,
    /// Always locked before `durable`.
    ahead: Mutex<Ahead>,
    durable: RwLock<Durable>,
    lineage: Mutex<lineage::Lineage>,
    /// How many were taken out of the line, to be looked at without a lock.
    batches: AtomicUsize,
    /// Locked before `ahead`, and never while that is.
    flusher: Mutex<Flusher>,
    /// Where callers are told.
    callers: Handle,
    /// Something is held, or the replica is closed.
    holds: Arc<Notify>,
    /// Moves when the durable context grows.
    grown: watch::Sender<u64>,
    changes: broadcast::Sender<Arc<Told>>,
}

/// What is ahead, for whoever looks at it or decides. When it is let go, what it is time for is sent.
struct Deciding<'a> {
    shared: &'a Arc<Shared>,
    /// There until the end.
    ahead: Option<MutexGuard<'a, Ahead>>,
}

impl Deref for Deciding<'_> {
    type Target = Ahead;

    fn deref(&self) -> &Ahead {
        self.ahead.as_ref().expect("there until the end")
    }
}

impl DerefMut for Deciding<'_> {
    fn deref_mut(&mut self) -> &mut Ahead {
        self.ahead.as_mut().expect("there until the end")
    }
}

impl Drop for Deciding<'_> {
    fn drop(&mut self) {
        let is_due = std::mem::take(&mut self.is_due);
        self.ahead = None;
        if is_due {
            flush::send(self.shared);
        }
    }
}

impl Shared {
    /// `durable` must be let go before it.
    fn ahead(self: &Arc<Self>) -> Deciding<'_> {
        Deciding { shared: self, ahead: Some(self.line()) }
    }

    /// What is ahead, for whoever sends it.
    fn line(&self) -> MutexGuard<'_, Ahead> {
        self.ahead.lock().expect("no panic while held")
    }

    fn flusher(&self) -> MutexGuard<'_, Flusher> {
        self.flusher.lock().expect("no panic while held")
    }

    fn durable(&self) -> RwLockReadGuard<'_, Durable> {
        self.durable.read().expect("no panic while held")
    }

    fn now_ms(&self) -> u64 {
        u64::try_from(self.time.wall().as_millis()).unwrap_or(u64::MAX)
    }
}

impl Replica {
    /// This run.
    pub fn actor(&self) -> Actor {
        self.shared.ahead().actor
    }

    /// All that this replica has seen, durably.
    pub fn context(&self) -> Arc<Context> {
        self.shared.durable().context().clone()
    }

    /// Grows with everything that becomes durable: whoever has read since it was this much has read the newest.
    pub fn growth(&self) -> u64 {
        *self.shared.grown.borrow()
    }

    /// Whether this replica has seen as much, durably: also what it doesn't tell of yet, since its reads say that they have seen it.
    pub fn has_seen(&self, context: &Context) -> bool {
        self.shared.durable().has_seen(context)
    }

    /// Waits until this replica has seen as much. The caller bounds the time: it may never come.
    pub async fn after(&self, context: &Context) {
        let mut grown = self.shared.grown.subscribe();
        // The sender lives as long as the replica, so waiting can't fail.
        while !self.has_seen(context) && grown.changed().await.is_ok() {}
    }

    /// What becomes durable from now on, local and merged. Whoever is too slow hears that it lost some.
    pub fn changes(&self) -> broadcast::Receiver<Arc<Told>> {
        self.shared.changes.subscribe()
    }

    /// How much there is.
    pub fn size(&self) -> Size {
        let ahead = self.shared.ahead();
        let actors = ahead.seen.context().actor_count();
        let (pending, held) = (ahead.pending.len(), ahead.held.len());
        Size { rows: self.shared.durable().len(), pending, held, actors }
    }

    /// Makes what is on its way durable, and lets go of the directory.
    pub async fn close(&self) {
        let settled = self.stop();
        if settled.await.is_err() {
            tracing::error!("what was on its way when the replica was closed may be lost");
        }
        self.store.close();
    }

    /// Nothing more is written. Answered when what is in line is durable.
    fn stop(&self) -> oneshot::Receiver<()> {
        let mut ahead = self.shared.ahead();
        ahead.closed = true;
        self.shared.holds.notify_one();
        ahead.barrier()
    }
}

impl Drop for Replica {
    fn drop(&mut self) {
        // Nobody waits for what isn't on its way yet.
        drop(self.stop());
    }
}
