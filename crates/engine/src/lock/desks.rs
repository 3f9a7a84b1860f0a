//! All desks of a node: where commands are put down, and who runs the desk that takes them up.

use super::calls::Failure;
use super::desk::Desk;
use super::hints::Hint;
use crate::engine::Node;
use baton_core::lock::{Command, GrantId, LockName, Reply};
use baton_core::{Revision, WallTime};
use std::collections::VecDeque;
use std::collections::hash_map::{Entry, HashMap};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use tokio::sync::oneshot::error::RecvError;
use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;

/// Commands waiting at one desk; beyond it a caller hears `Overloaded`.
const PENDING_MAX: usize = 16 * 1024;

/// What a command was answered, and by which commit.
#[derive(Clone, Debug)]
pub(crate) struct Told {
    pub reply: Reply,
    pub revision: Revision,
    pub now: WallTime,
}

/// What a caller hears from a desk.
pub(crate) enum Answer {
    /// Boxed: whoever waits keeps room for an answer all the while.
    Told(Box<Told>),
    /// Another call has taken this one's place, or the node stops: call again.
    CallAgain,
    Failed(Failure),
}

impl From<Told> for Answer {
    fn from(told: Told) -> Self {
        Self::Told(Box::new(told))
    }
}

/// A command and where its answer goes.
pub(crate) struct Job {
    pub command: Command,
    pub answer: Option<oneshot::Sender<Answer>>,
    /// When the caller must have heard something.
    pub deadline: Instant,
    /// Whether a commit with this command in it may still be under way somewhere.
    pub doubtful: bool,
}

impl Job {
    /// Whether it would rather queue than be refused.
    pub fn is_join(&self) -> bool {
        matches!(&self.command, Command::Acquire(acquire) if acquire.attachment.is_some())
    }

    pub fn is_acquire_of(&self, id: GrantId) -> bool {
        matches!(&self.command, Command::Acquire(acquire) if acquire.id == id)
    }

    /// Whether somebody waits for its answer.
    pub fn is_heard(&self) -> bool {
        self.answer.as_ref().is_some_and(|answer| !answer.is_closed())
    }

    pub fn tell(mut self, answer: Answer) -> Result<(), Answer> {
        self.answer.take().map_or(Ok(()), |sender| sender.send(answer))
    }
}

/// All desks of a node.
pub(crate) struct Desks {
    shards: Vec<Mutex<HashMap<LockName, Tray>>>,
    gone: Notify,
}

/// What has been put on a desk and not yet been taken up.
struct Tray {
    pending: VecDeque<Job>,
    /// What another node may have done; the last hint says it all.
    hint: Option<Hint>,
    arrived: Arc<Notify>,
}

/// What lay on a desk.
#[derive(Default)]
pub(super) struct Taken {
    pub jobs: VecDeque<Job>,
    pub hint: Option<Hint>,
}

impl Default for Desks {
    fn default() -> Self {
        Self { shards: (0..64).map(|_| Mutex::default()).collect(), gone: Notify::new() }
    }
}

impl Desks {
    fn shard(&self, lock: &LockName) -> &Mutex<HashMap<LockName, Tray>> {
        &self.shards[usize::from(lock.group().0) % self.shards.len()]
    }

    /// What was put on a desk; `None` closes an idle one on which there is nothing.
    pub(super) fn take_up(&self, lock: &LockName, is_idle: bool) -> Option<Taken> {
        let mut shard = self.shard(lock).lock().expect("no panic while held");
        let Entry::Occupied(mut place) = shard.entry(lock.clone()) else { return None };
        let tray = place.get_mut();
        if tray.pending.is_empty() && is_idle {
            place.remove();
            return None;
        }
        Some(Taken { jobs: std::mem::take(&mut tray.pending), hint: tray.hint.take() })
    }

    /// Tells the desk of a lock, if it is open, that another node may have done something.
    pub(super) fn nudge(&self, lock: &LockName, hint: Hint) {
        let mut shard = self.shard(lock).lock().expect("no panic while held");
        if let Some(tray) = shard.get_mut(lock) {
            tray.hint = Some(hint);
            tray.arrived.notify_one();
        }
    }

    /// Tells every open desk that other nodes may have done something.
    pub(super) fn nudge_all(&self) {
        for shard in &self.shards {
            for tray in shard.lock().expect("no panic while held").values_mut() {
                tray.hint = Some(Hint::Look);
                tray.arrived.notify_one();
            }
        }
    }

    /// Puts back what was taken up before what lies there now: whoever asked first is answered first. The desk is open.
    pub(super) fn put_back(&self, lock: &LockName, job: Job) {
        let mut shard = self.shard(lock).lock().expect("no panic while held");
        if let Some(tray) = shard.get_mut(lock) {
            tray.pending.push_front(job);
            tray.arrived.notify_one();
        }
    }

    /// A desk has closed.
    pub fn closed(&self) {
        self.gone.notify_waiters();
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().expect("no panic while held").len()).sum()
    }

    /// Waits until there is none.
    pub async fn emptied(&self) {
        loop {
            let gone = self.gone.notified();
            if self.count() == 0 {
                return;
            }
            gone.await;
        }
    }
}

/// Puts a command on its lock's desk. If that was closed, it is opened, and somebody has to run it.
#[must_use]
fn put(node: &Arc<Node>, lock: &LockName, job: Job) -> Option<Running> {
    let mut shard = node.desks.shard(lock).lock().expect("no panic while held");
    let place = match shard.entry(lock.clone()) {
        Entry::Vacant(place) => place,
        Entry::Occupied(mut place) => {
            let tray = place.get_mut();
            if tray.pending.len() >= PENDING_MAX && matches!(job.command, Command::Acquire(_)) {
                // If nobody listens any more, nothing is lost.
                drop(job.tell(Answer::Failed(Failure::Overloaded)));
                return None;
            }
            tray.pending.push_back(job);
            tray.arrived.notify_one();
            return None;
        }
    };
    let arrived = Arc::new(Notify::new());
    place.insert(Tray { pending: VecDeque::from([job]), hint: None, arrived: arrived.clone() });
    drop(shard);
    node.metrics.desks.inc();
    Some(Running(Some(Box::pin(Desk::new(node.clone(), lock.clone(), arrived).run()))))
}

/// Puts a command on its lock's desk, whose answer nobody waits for.
pub(crate) fn submit(node: &Arc<Node>, lock: &LockName, job: Job) {
    // Dropping it lets it run by itself.
    drop(put(node, lock, job));
}

/// A desk that is run by whoever opened it, while that one waits for its answer: a lone call is then made without a
/// task of its own, and its answer comes without a detour. Dropped before its end, it goes on as a task: a client that
/// goes away never cuts a commit short.
struct Running(Option<Pin<Box<dyn Future<Output = ()> + Send>>>);

impl Running {
    fn poll(&mut self, context: &mut Context<'_>) {
        if let Some(desk) = &mut self.0
            && desk.as_mut().poll(context).is_ready()
        {
            self.0 = None;
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Without a runtime the process is at its end, and the store decides what became of the commit.
        if let (Some(desk), Ok(runtime)) = (self.0.take(), tokio::runtime::Handle::try_current()) {
            runtime.spawn(desk);
        }
    }
}

/// A command on a desk, and its answer to come.
pub(crate) struct Asked {
    answered: oneshot::Receiver<Answer>,
    desk: Option<Running>,
}

impl Asked {
    /// Puts a command on its lock's desk.
    pub fn new(node: &Arc<Node>, lock: &LockName, command: Command) -> Self {
        let (answer, answered) = oneshot::channel();
        let deadline = Instant::now() + node.config.store_deadline;
        let job = Job { command, answer: Some(answer), deadline, doubtful: false };
        Self { desk: put(node, lock, job), answered }
    }

    /// Whoever waits for something else first must not keep others at the desk waiting.
    pub fn step_back(&mut self) {
        self.desk = None;
    }

    /// No answer is wanted any more; the one that came in spite of it.
    pub fn close(&mut self) -> Option<Answer> {
        self.answered.close();
        self.answered.try_recv().ok()
    }
}

impl Future for Asked {
    type Output = Result<Answer, RecvError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if let Some(desk) = &mut self.desk {
            desk.poll(context);
        }
        let answer = Pin::new(&mut self.answered).poll(context);
        if answer.is_ready() {
            // If others are waiting at the desk, it goes on without us.
            self.desk = None;
        }
        answer
    }
}
