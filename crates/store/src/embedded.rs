//! The embedded store: state in memory, a log on disk, one writer that commits in groups.
//!
//! # Layout
//! - [`Options`]: limits and hooks
//! - `queue`: the bounded way to the writer
//! - `writer`: decides, logs, syncs, then answers
//! - `apply`: one commit against the state
//! - `state`: 256 ordered maps and what expires when
//! - [`log`], `segment`, `effect`: batches on disk, and their bytes
//! - `snapshot`, `checkpoint`: all records on disk, written while commits go on
//! - `recover`: opening a directory
//! - [`disk`], [`time`]: what tests replace
//!
//! # On disk
//! ```text
//! lock                        held by the process that has the directory open
//! format                      the version of all this
//! log-<index>                 segments, in order; the last one or two may be unused
//! snapshot-<sequence>         all records, to be completed by the log after that batch
//! *.tmp                       unfinished: removed when opening
//! ```
//!
//! # Promises
//! - Nobody is answered before what the answer shows is durable; a failed sync ends the process.
//! - Revisions: one more than the last, or the wall clock in microseconds if that is higher.
//! - Leases run on a clock of their own that stands still while the store is down and never goes back. A record
//!   that anybody saw expired stays so, whatever happens.
//! - What can't be kept is refused before anything changes: no memory, no disk, too much waiting.

mod apply;
mod checkpoint;
pub mod disk;
mod effect;
mod home;
pub mod log;
mod options;
mod queue;
mod recover;
mod segment;
mod snapshot;
mod state;
mod table;
pub mod time;
mod writer;

pub use home::Home;
pub use options::{EXIT_DISK_FAILED, Options};
pub use recover::OpenError;

use crate::charge::Charge;
use crate::contract::{Guarantees, Page, Range, Reading, Store, StoreError, StoreFuture, Usage};
use crate::watch::{Hub, Watch};
use baton_core::meter::Charged;
use baton_core::{Bytes, Commit, Key, Outcome, Write};
use disk::{Disk, RealDisk};
use queue::{Answer, Queue, Request};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::sync::oneshot;
use writer::{Gauges, Writer};

/// More segments than this are worth a snapshot, however small: each start begins a new one.
const SEGMENTS_MAX: usize = 16;

/// A store in a directory of this machine. Dropping it closes it.
pub struct Embedded {
    queue: Arc<Queue>,
    hub: Arc<Hub>,
    expirations: Arc<Hub>,
    gauges: Arc<Gauges>,
    budget_bytes: u64,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl Embedded {
    /// Opens the store in `directory`, which is made if it isn't there.
    pub fn open(directory: &Path, options: Options) -> Result<Self, OpenError> {
        match RealDisk::open(directory)? {
            Some(disk) => Self::open_on(Arc::new(disk), options),
            None => Err(OpenError::InUse { directory: directory.display().to_string() }),
        }
    }

    /// Opens the store on a given disk.
    pub fn open_on(disk: Arc<dyn Disk>, options: Options) -> Result<Self, OpenError> {
        let recovered = recover::recover(&*disk)?;
        let mark = recovered.mark;
        let log =
            log::Log::start(disk.clone(), options.segment_bytes, recovered.next_segment, mark.sequence)?;
        let snapshot_at = options.snapshot_bytes.max(recovered.snapshot_bytes);
        let snapshot_at = Arc::new(AtomicU64::new(snapshot_at));
        let (snapshot_due, due) = sync_channel(1);
        let queue = Arc::new(Queue::new(options.queue_max, options.queue_bytes_max));
        let (hub, expirations) = (Arc::new(Hub::default()), Arc::new(Hub::default()));
        let gauges = Arc::new(Gauges::default());
        let writer = Writer {
            log,
            clock: time::LeaseClock::continuing(mark.clock_us, &*options.time),
            time: options.time,
            durable_us: mark.clock_us,
            revision: mark.revision,
            full_bytes: options.full_bytes,
            hub: hub.clone(),
            expirations: expirations.clone(),
            runtime: tokio::runtime::Handle::try_current().ok(),
            gauges: gauges.clone(),
            on_fatal: options.on_fatal,
            log_bytes: if recovered.segments > SEGMENTS_MAX { u64::MAX / 2 } else { recovered.log_bytes },
            snapshot_at: snapshot_at.clone(),
            snapshot_due,
            batch: log::Batch::default(),
            hints: Vec::new(),
            must_sync: false,
            dead: None,
            is_line_broken: false,
            state: recovered.state,
        };
        writer.publish_gauges();
        let snapshot_bytes_min = options.snapshot_bytes;
        let checkpoint =
            checkpoint::Checkpoint { disk, queue: queue.clone(), snapshot_at, snapshot_bytes_min, due };
        let threads = vec![
            spawn("baton-store", {
                let queue = queue.clone();
                move || {
                    // Also when the writer panics, nobody must wait for it.
                    let closing = Closing(queue);
                    writer.run(&closing.0);
                }
            })?,
            spawn("baton-snapshot", move || checkpoint.run())?,
        ];
        let (budget_bytes, threads) = (options.budget_bytes, Mutex::new(threads));
        Ok(Self { queue, hub, expirations, gauges, budget_bytes, threads })
    }

    /// Serves what is waiting, makes the lease clock durable and lets go of the directory. Calls after it are
    /// refused.
    pub fn close(&self) {
        let mut threads = self.threads.lock().expect("no panic while held");
        // An error means that the writer has ended already.
        drop(self.queue.push_always(Request::Close));
        for thread in threads.drain(..) {
            if thread.join().is_err() {
                tracing::error!("a thread of the store panicked");
            }
        }
    }

    /// For whoever has the store to itself, and has nothing to check.
    pub fn appender(&self) -> Appender {
        Appender(self.queue.clone())
    }

    async fn ask<T>(&self, request: impl FnOnce(Answer<T>) -> Request) -> Result<T, StoreError> {
        let (answer, answered) = oneshot::channel();
        self.queue.push(request(answer))?;
        answered.await.map_err(gone)?
    }
}

/// Appends to a store, until that is closed.
pub struct Appender(Arc<Queue>);

impl Appender {
    /// Puts and deletes, as many as fit in [`COMMIT_BYTES_MAX`](baton_core::COMMIT_BYTES_MAX), as one commit. They are in line when this returns, in the
    /// order of calls. `landed` is told when they are durable, or why they are not, in that order too, on the thread that writes: while it takes its
    /// time nothing is written. When one isn't done, none that was appended after it is, so that what comes later may rely on what came before
    /// without waiting for it.
    pub fn append(
        &self,
        writes: Vec<Write>,
        landed: impl FnOnce(Result<(), StoreError>) + Send + 'static,
    ) -> Result<(), StoreError> {
        self.0.push(Request::Append(Commit { checks: Vec::new(), writes }, Box::new(landed)))
    }
}

fn gone(_: oneshot::error::RecvError) -> StoreError {
    StoreError::Unknown { detail: "the store's writer has gone".into() }
}

fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> std::io::Result<JoinHandle<()>> {
    std::thread::Builder::new().name(name.into()).spawn(run)
}

struct Closing(Arc<Queue>);

impl Drop for Closing {
    fn drop(&mut self) {
        self.0.close();
    }
}

impl Drop for Embedded {
    fn drop(&mut self) {
        self.close();
    }
}

impl Store for Embedded {
    fn commit(&self, commit: Commit) -> StoreFuture<'_, Outcome> {
        Box::pin(self.ask(|answer| Request::Commit(commit, answer)))
    }

    fn read(&self, keys: Vec<Key>) -> StoreFuture<'_, Reading> {
        Box::pin(self.ask(|answer| Request::Read(keys, answer)))
    }

    fn scan(&self, range: Range, limit: usize) -> StoreFuture<'_, Page> {
        Box::pin(self.ask(move |answer| Request::Scan(range, limit, answer)))
    }

    fn charge(&self, charge: Charge) -> StoreFuture<'_, Charged> {
        Box::pin(async move {
            charge.validate(true)?;
            self.ask(|answer| Request::Charge(charge, answer)).await
        })
    }

    fn watch(&self, prefix: Bytes) -> Watch {
        self.hub.subscribe(prefix)
    }

    fn expirations(&self, prefix: Bytes) -> Watch {
        self.expirations.subscribe(prefix)
    }

    fn guarantees(&self) -> Guarantees {
        Guarantees {
            store: "embedded",
            shared: false,
            answers_always: true,
            charge_spans_groups: true,
            ttl_min: Duration::from_millis(1),
            ttl_granularity: Duration::from_millis(1),
            on_crash: "nothing acknowledged is lost; leases don't run while the store is down",
            on_failover: "there is no replica",
            on_partition: "there is none: the store is in the node's own process",
            on_clock_step: "leases run on the monotonic clock; revisions only grow",
            warnings: Vec::new(),
        }
    }

    fn usage(&self) -> Usage {
        Usage {
            records: self.gauges.records.load(Ordering::Relaxed),
            used_bytes: self.gauges.bytes.load(Ordering::Relaxed),
            budget_bytes: self.budget_bytes,
        }
    }
}
