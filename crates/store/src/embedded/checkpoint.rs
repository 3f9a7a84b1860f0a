//! The thread that takes snapshots, so that the log stays bounded and starting stays fast.
//!
//! It copies the state through the writer's queue, a small piece at a time, like any other reader; the writer
//! never waits for it. When the snapshot is durable, the log before it and older snapshots are removed.
//!
//! The log is at most twice the larger of `snapshot_bytes` and the last snapshot, plus what is written during a
//! snapshot, plus two segments; unless snapshots fail, which is logged, and tried again.

use super::disk::Disk;
use super::queue::{Mark, Queue, Request};
use super::{log, snapshot};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::Duration;

const RETRY_AFTER: Duration = Duration::from_secs(5);

pub(super) struct Checkpoint {
    pub disk: Arc<dyn Disk>,
    pub queue: Arc<Queue>,
    /// The log's bytes at which the writer asks for a snapshot.
    pub snapshot_at: Arc<AtomicU64>,
    pub snapshot_bytes_min: u64,
    /// Closed by the writer when it ends.
    pub due: Receiver<()>,
}

impl Checkpoint {
    /// Takes a snapshot whenever one is due, until the writer ends.
    pub fn run(self) {
        while self.due.recv().is_ok() {
            loop {
                match self.snapshot() {
                    Ok(Some(bytes)) => {
                        self.snapshot_at.store(bytes.max(self.snapshot_bytes_min), Ordering::Relaxed);
                        break;
                    }
                    Ok(None) => return,
                    Err(error) => tracing::error!(%error, "can't take a snapshot: the log keeps growing"),
                }
                if self.due.recv_timeout(RETRY_AFTER) == Err(RecvTimeoutError::Disconnected) {
                    return;
                }
            }
        }
    }

    /// The snapshot's size; `None` when the writer has ended.
    fn snapshot(&self) -> io::Result<Option<u64>> {
        let Some(begun) = self.ask(Request::Mark) else { return Ok(None) };
        let mut snapshot = snapshot::Snapshot::begin(&*self.disk, begun)?;
        let mut reached = begun;
        for group in 0..=u8::MAX {
            let mut after = None;
            loop {
                let Some(page) = self.ask(|answer| Request::Copy(group, after.take(), answer)) else {
                    return Ok(None);
                };
                reached = page.mark;
                let Some((last, _)) = page.records.last() else { break };
                snapshot.add(group, &page.records)?;
                after = Some(last.clone());
            }
        }
        let bytes = snapshot.finish(reached)?;
        remove_obsolete(&*self.disk, begun)?;
        Ok(Some(bytes))
    }

    fn ask<T>(&self, request: impl FnOnce(std::sync::mpsc::SyncSender<T>) -> Request) -> Option<T> {
        let (answer, answered) = sync_channel(1);
        self.queue.push_always(request(answer)).ok()?;
        answered.recv().ok()
    }
}

/// Removes what a durable snapshot makes superfluous.
pub(super) fn remove_obsolete(disk: &dyn Disk, begun: Mark) -> io::Result<()> {
    for name in disk.list()? {
        let obsolete = log::index_of(&name).is_some_and(|index| index < begun.segment)
            || snapshot::sequence_of(&name).is_some_and(|sequence| sequence < begun.sequence);
        if obsolete {
            disk.remove(&name)?;
        }
    }
    Ok(())
}
