//! Change hints: a bounded stream for each watcher, which says so when it had to drop some.

use baton_core::{Bytes, Key, Revision};
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use tokio::sync::mpsc;

/// Hints a watcher may have waiting before they are dropped and it sees [`Change::Lost`].
pub const WATCH_BACKLOG_MAX: usize = 1024;

/// What happened, perhaps.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Change {
    /// A record was put.
    Put {
        /// Where.
        key: Key,
        /// What.
        value: Bytes,
        /// By which commit.
        revision: Revision,
    },
    /// A record was deleted.
    Deleted {
        /// Where.
        key: Key,
        /// By which commit.
        revision: Revision,
    },
    /// A record's time ran out.
    Expired {
        /// Where.
        key: Key,
    },
    /// Some hints are missing: look for yourself.
    Lost,
}

/// A stream of hints.
pub struct Watch {
    changes: mpsc::Receiver<Change>,
    lost: Arc<AtomicBool>,
}

impl Watch {
    /// The next hint; `None` when the store has gone.
    pub async fn next(&mut self) -> Option<Change> {
        if self.lost.swap(false, Ordering::AcqRel) {
            return Some(Change::Lost);
        }
        match self.changes.recv().await {
            None if self.lost.swap(false, Ordering::AcqRel) => Some(Change::Lost),
            change => change,
        }
    }
}

impl Watch {
    /// A hint that is there already.
    pub fn try_next(&mut self) -> Option<Change> {
        if self.lost.swap(false, Ordering::AcqRel) {
            Some(Change::Lost)
        } else {
            self.changes.try_recv().ok()
        }
    }
}

struct Subscriber {
    prefix: Bytes,
    changes: mpsc::Sender<Change>,
    lost: Arc<AtomicBool>,
}

/// Where a store publishes its hints. Publishing never waits: a slow watcher loses hints, and is told.
#[derive(Default)]
pub struct Hub {
    subscribers: Mutex<Vec<Subscriber>>,
    count: AtomicUsize,
}

impl Hub {
    /// A new watcher of names that begin with `prefix`.
    pub fn subscribe(&self, prefix: Bytes) -> Watch {
        let (sender, changes) = mpsc::channel(WATCH_BACKLOG_MAX);
        let lost = Arc::new(AtomicBool::new(false));
        let mut subscribers = self.subscribers.lock().expect("no panic while held");
        subscribers.retain(|subscriber| !subscriber.changes.is_closed());
        subscribers.push(Subscriber { prefix, changes: sender, lost: lost.clone() });
        self.count.store(subscribers.len(), Ordering::Release);
        Watch { changes, lost }
    }

    /// Whether anyone would hear: lets a store skip making hints.
    pub fn is_watched(&self) -> bool {
        self.count.load(Ordering::Acquire) > 0
    }

    /// Tells every watcher whose prefix fits.
    pub fn publish(&self, changes: impl Iterator<Item = Change>) {
        let mut subscribers = self.subscribers.lock().expect("no panic while held");
        let mut gone = false;
        for change in changes {
            let name = match &change {
                Change::Put { key, .. } | Change::Deleted { key, .. } | Change::Expired { key } => {
                    Some(&key.name)
                }
                Change::Lost => None,
            };
            for subscriber in subscribers.iter() {
                if name.is_some_and(|name| !name.starts_with(&subscriber.prefix)) {
                    continue;
                }
                match subscriber.changes.try_send(change.clone()) {
                    Ok(()) => {}
                    Err(mpsc::error::TrySendError::Full(_)) => subscriber.lost.store(true, Ordering::Release),
                    Err(mpsc::error::TrySendError::Closed(_)) => gone = true,
                }
            }
        }
        if gone {
            subscribers.retain(|subscriber| !subscriber.changes.is_closed());
            self.count.store(subscribers.len(), Ordering::Release);
        }
    }
}
