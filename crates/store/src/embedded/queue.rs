//! The one way to the writer: a bounded queue.
//!
//! When it is full a call is refused at once, as not applied and unavailable: whoever offers more than a disk
//! can take should hear so while trying again is still useful, instead of waiting in line.

use super::effect::Entry;
use crate::charge::Charge;
use crate::contract::{Page, Range, Reading, Reason, StoreError};
use baton_core::meter::Charged;
use baton_core::{Bytes, Commit, Key, Outcome};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::SyncSender;
use std::sync::{Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

/// While requests follow each other this closely, the writer waits for the next one awake: to be woken would take as
/// long again. One that hands a lock from client to client at full speed has a request in flight all the time.
const BRISK: Duration = Duration::from_micros(250);

/// What a claim takes while it waits, beside its name: about.
const CLAIM_BYTES: usize = 256;

/// Where an answer goes.
pub(super) type Answer<T> = oneshot::Sender<Result<T, StoreError>>;

/// Who is told of what was appended, on the writer's own thread.
pub(super) type Landed = Box<dyn FnOnce(Result<(), StoreError>) + Send>;

/// What the writer is asked to do.
pub(super) enum Request {
    Commit(Commit, Answer<Outcome>),
    Append(Commit, Landed),
    Charge(Charge, Answer<Charged>),
    Read(Vec<Key>, Answer<Reading>),
    Scan(Range, usize, Answer<Page>),
    /// A snapshot begins: where must the log be read from to complete it?
    Mark(SyncSender<Mark>),
    /// Some records of a group, for a snapshot.
    Copy(u8, Option<Bytes>, SyncSender<Copied>),
    Close,
}

/// A place in the log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Mark {
    /// The last batch whose effects are surely in the state.
    pub sequence: u64,
    /// The segment that holds the batches after it, or one before that.
    pub segment: u64,
    pub clock_us: u64,
    pub revision: u64,
}

/// A piece of a group, with the last batch whose effects it may show.
pub(super) struct Copied {
    pub records: Vec<(Bytes, Entry)>,
    pub mark: Mark,
}

impl Request {
    fn bytes(&self) -> usize {
        match self {
            Self::Commit(commit, _) | Self::Append(commit, _) => commit.bytes(),
            Self::Charge(charge, _) => charge.keys().map(|key| key.name.len() + CLAIM_BYTES).sum(),
            Self::Read(keys, _) => keys.iter().map(|key| key.name.len()).sum(),
            Self::Scan(..) | Self::Mark(_) | Self::Copy(..) | Self::Close => 0,
        }
    }
}

/// A queue with many senders and one receiver.
pub(super) struct Queue {
    inner: Mutex<Inner>,
    arrived: Condvar,
    /// How many requests are waiting, to be looked at without the lock.
    waiting: AtomicUsize,
    requests_max: usize,
    bytes_max: usize,
}

#[derive(Default)]
struct Inner {
    requests: Vec<Request>,
    bytes: usize,
    closed: bool,
    /// Whether the last request came soon: then the next one probably does too.
    brisk: bool,
    /// Whether the writer must be woken: saves a system call when it is busy anyway.
    sleeping: bool,
}

impl Queue {
    pub fn new(requests_max: usize, bytes_max: usize) -> Self {
        Self {
            inner: Mutex::default(),
            arrived: Condvar::new(),
            waiting: AtomicUsize::new(0),
            requests_max,
            bytes_max,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().expect("no panic while held")
    }

    /// Puts a request in line, or says why not.
    pub fn push(&self, request: Request) -> Result<(), StoreError> {
        let bytes = request.bytes();
        let mut inner = self.lock();
        if inner.requests.len() >= self.requests_max || inner.bytes + bytes > self.bytes_max {
            return Err(unavailable("the store's queue is full"));
        }
        inner.bytes += bytes;
        self.add(inner, request)
    }

    /// Like [`Queue::push`], for the store's own few requests: also when the queue is full.
    pub fn push_always(&self, request: Request) -> Result<(), StoreError> {
        self.add(self.lock(), request)
    }

    fn add(&self, mut inner: MutexGuard<'_, Inner>, request: Request) -> Result<(), StoreError> {
        if inner.closed {
            return Err(unavailable("the store is closed"));
        }
        inner.requests.push(request);
        self.waiting.store(inner.requests.len(), Ordering::Release);
        if inner.sleeping {
            inner.sleeping = false;
            drop(inner);
            self.arrived.notify_one();
        }
        Ok(())
    }

    /// Moves all that is waiting to the end of `into`; waits up to `wait` for the first.
    pub fn take(&self, into: &mut Vec<Request>, wait: Duration) {
        let mut inner = self.lock();
        if inner.requests.is_empty() && !wait.is_zero() {
            let since = Instant::now();
            if inner.brisk {
                drop(inner);
                self.linger(since + BRISK);
                inner = self.lock();
            }
            inner.sleeping = true;
            let waiting = self.arrived.wait_timeout_while(inner, wait, |inner| inner.requests.is_empty());
            inner = waiting.expect("no panic while held").0;
            inner.sleeping = false;
            inner.brisk = since.elapsed() < BRISK;
        }
        self.waiting.store(0, Ordering::Release);
        inner.bytes = 0;
        if into.is_empty() {
            std::mem::swap(into, &mut inner.requests);
        } else {
            into.append(&mut inner.requests);
        }
    }

    /// Waits awake until a request comes, giving way to whoever else can run.
    fn linger(&self, until: Instant) {
        while self.waiting.load(Ordering::Acquire) == 0 && Instant::now() < until {
            std::thread::yield_now();
        }
    }

    /// Lets a batch gather: returns when `count` requests are waiting or `patience` is over. It spins: patience is
    /// shorter than any sleep, and a thread that yields to busy others may not be back for a long time.
    pub fn gather(&self, count: usize, patience: Duration) {
        let until = Instant::now() + patience;
        while self.waiting.load(Ordering::Acquire) < count && Instant::now() < until {
            (0..64).for_each(|_| std::hint::spin_loop());
        }
    }

    /// Refuses everything from now on, also what is waiting.
    pub fn close(&self) {
        let mut inner = self.lock();
        inner.closed = true;
        let waiting = std::mem::take(&mut inner.requests);
        drop(inner);
        waiting.into_iter().for_each(|request| refuse(request, "the store is closed"));
    }
}

/// Answers that nothing was done. Whoever no longer listens doesn't mind.
pub(super) fn refuse(request: Request, detail: &str) {
    let error = unavailable(detail);
    match request {
        Request::Commit(_, answer) => drop(answer.send(Err(error))),
        Request::Append(_, landed) => landed(Err(error)),
        Request::Charge(_, answer) => drop(answer.send(Err(error))),
        Request::Read(_, answer) => drop(answer.send(Err(error))),
        Request::Scan(_, _, answer) => drop(answer.send(Err(error))),
        Request::Mark(_) | Request::Copy(..) | Request::Close => {}
    }
}

pub(super) fn unavailable(detail: &str) -> StoreError {
    StoreError::NotApplied { reason: Reason::Unavailable, detail: detail.into() }
}
