//! One lock's desk: a task that lives while there is something to do for the lock on this node.
//!
//! Commands for a lock are put on its desk; the desk decides all that have arrived together, commits them once,
//! and answers. Waiting calls are parked here, so a release finds the next one and hands over in its own commit.
//! The desk keeps its view of the lock between commits, and looks again when the holder's lease would end.
//! Most desks live for one command.

use super::calls::Failure;
use super::commit::{Batch, Landed, Poisoned, Witnessed};
use crate::engine::Node;
use baton_core::lock::command::{Acquire, Attachment};
use baton_core::lock::name::Kind;
use baton_core::lock::roster::Roster;
use baton_core::lock::waiting::Waiting;
use baton_core::lock::{Command, Decided, Effect, GrantId, Liveness, LockName, Reply};
use baton_core::{Revision, Stamp, View, WallTime};
use baton_store::Range;
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;

/// Commands waiting at one desk; beyond it a caller hears `Overloaded`.
const PENDING_MAX: usize = 16 * 1024;
/// Commands decided for one commit at most: what a commit holds is usually less.
pub(super) const BATCH_MAX: usize = 64;
/// A look at a lock comes this much after its lease should have ended.
const EXPIRY_SLACK: Duration = Duration::from_millis(1);
/// Where other nodes may change the lock too, whoever waits looks at least this often.
const SHARED_LOOK: Duration = Duration::from_secs(1);
/// After a failure of the store, whoever waits looks again this much later.
const LOOK_AGAIN: Duration = Duration::from_millis(100);
/// Waiters read at once when a desk counts who is waiting without a call.
const CENSUS_PAGE: usize = 256;

/// What a command was answered, and by which commit.
#[derive(Clone, Debug)]
pub(crate) struct Told {
    pub reply: Reply,
    pub revision: Revision,
    pub now: WallTime,
}

/// What a caller hears from a desk.
pub(crate) enum Answer {
    Told(Told),
    /// Another call has taken this one's place, or the node stops: call again.
    CallAgain,
    Failed(Failure),
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
    arrived: Arc<Notify>,
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

/// Puts a command on its lock's desk, and opens the desk if it is closed.
pub(crate) fn submit(node: &Arc<Node>, lock: &LockName, job: Job) {
    let mut shard = node.desks.shard(lock).lock().expect("no panic while held");
    if let Some(tray) = shard.get_mut(lock) {
        if tray.pending.len() >= PENDING_MAX && matches!(job.command, Command::Acquire(_)) {
            drop(shard);
            // If nobody listens any more, nothing is lost.
            drop(job.tell(Answer::Failed(Failure::Overloaded)));
            return;
        }
        tray.pending.push_back(job);
        tray.arrived.notify_one();
        return;
    }
    let arrived = Arc::new(Notify::new());
    shard.insert(lock.clone(), Tray { pending: VecDeque::from([job]), arrived: arrived.clone() });
    drop(shard);
    node.metrics.desks.inc();
    tokio::spawn(Desk::new(node.clone(), lock.clone(), arrived).run());
}

/// A call that waits for the lock.
struct Parked {
    /// To be decided again if it turns out that the waiter was granted by a commit of unknown outcome.
    acquire: Acquire,
    attachment: u64,
    answer: oneshot::Sender<Answer>,
    /// Whether a commit that grants it may still be under way: as of its job.
    doubtful: bool,
}

/// The desk's own task.
pub(super) struct Desk {
    pub node: Arc<Node>,
    pub lock: LockName,
    pub view: View,
    arrived: Arc<Notify>,
    parked: BTreeMap<GrantId, Parked>,
    /// Waiters without a call, and since when this node knows.
    orphans: BTreeMap<GrantId, Instant>,
    /// Waiters of other nodes, when last counted.
    elsewhere: u64,
    look_at: Option<Instant>,
    /// The store failed the last round: what is known of the lock is nothing.
    is_blind: bool,
    /// A commit that nobody waits for any more may still land, and hand the lock over.
    is_in_doubt: bool,
    /// The answer to some commit got lost, and with it who was granted the lock and who lost it.
    pub was_unknown: bool,
    /// A look at the lock failed, and has to be made whoever else is interested.
    owes_look: bool,
}

impl Desk {
    fn new(node: Arc<Node>, lock: LockName, arrived: Arc<Notify>) -> Self {
        let view = View::new(lock.group());
        let (parked, orphans) = (BTreeMap::new(), BTreeMap::new());
        Self {
            node,
            lock,
            view,
            arrived,
            parked,
            orphans,
            elsewhere: 0,
            look_at: None,
            is_blind: false,
            is_in_doubt: false,
            was_unknown: false,
            owes_look: false,
        }
    }

    async fn run(mut self) {
        let node = self.node.clone();
        loop {
            let jobs = match self.take_up() {
                Some(jobs) => jobs,
                None => break,
            };
            if !jobs.is_empty() {
                self.work(jobs).await;
                self.tidy().await;
                continue;
            }
            let look_at = self.next_look();
            tokio::select! {
                biased;
                () = self.arrived.notified() => {}
                () = node.draining.wait() => self.dismiss(),
                () = tokio::time::sleep_until(look_at) => self.look().await,
            }
        }
        self.node.metrics.desks.dec();
        self.node.desks.gone.notify_waiters();
    }

    /// What has arrived; `None` closes the desk because there is nothing left to do or to wait for.
    fn take_up(&self) -> Option<VecDeque<Job>> {
        let mut shard = self.node.desks.shard(&self.lock).lock().expect("no panic while held");
        let tray = shard.get_mut(&self.lock)?;
        let is_idle = self.parked.is_empty() && self.orphans.is_empty() && !self.owes_look;
        if tray.pending.is_empty() && is_idle {
            shard.remove(&self.lock);
            return None;
        }
        Some(std::mem::take(&mut tray.pending))
    }

    /// Decides and commits until every job is answered or parked.
    async fn work(&mut self, mut jobs: VecDeque<Job>) {
        if self.node.store.guarantees().shared || self.is_in_doubt {
            self.view.clear();
        }
        self.is_blind = false;
        let mut batch = Batch::new(jobs.iter());
        while !jobs.is_empty() {
            match self.commit(&mut jobs, &mut batch).await {
                Ok(Landed { decided, revision, now, witnessed }) => {
                    self.is_in_doubt &= !self.has_moved_on(revision);
                    for Decided { reply, effects } in decided {
                        let job = jobs.pop_front().expect("one for each decision");
                        let told = Told { reply, revision, now };
                        let again = self.deliver(job, told, &effects, &witnessed).await;
                        jobs.extend(again);
                    }
                }
                Err((count, failure)) => {
                    self.view.clear();
                    self.is_blind = true;
                    for job in jobs.drain(..count) {
                        self.is_in_doubt |= job.doubtful;
                        self.owes_look |= matches!(job.command, Command::Settle);
                        // Whatever failed now, what was sent before may still land.
                        let unknown = job.doubtful && failure != Failure::Internal;
                        let failure = if unknown { Failure::Unavailable { unknown } } else { failure };
                        // If nobody listens any more, there is nobody to tell.
                        drop(job.tell(Answer::Failed(failure)));
                    }
                }
            }
        }
    }

    /// Whether a commit rewrote the roster: then nothing that was decided on the old one can land any more.
    fn has_moved_on(&self, revision: Revision) -> bool {
        let roster = self.view.peek(&self.lock.roster()).ok().flatten();
        revision != Revision::default() && roster.is_none_or(|seen| seen.revision == Stamp::At(revision))
    }

    /// Carries out a decision that has been committed. Gives back what has to be decided again.
    async fn deliver(&mut self, job: Job, told: Told, effects: &[Effect], witnessed: &Witnessed) -> Vec<Job> {
        let mut again = Vec::new();
        let is_parked = told.reply == Reply::Parked;
        let job = if is_parked { self.park(job) } else { Some(job) };
        for effect in effects {
            self.node.record(&self.lock, effect, &told, witnessed);
            match effect {
                Effect::Granted { grant, .. } => {
                    self.look_at = Some(Instant::now() + grant.ttl + EXPIRY_SLACK);
                    if let Some(parked) = self.parked.remove(&grant.id) {
                        self.node.metrics.parked.dec();
                        let told = Told { reply: Reply::Granted(grant.clone()), ..told.clone() };
                        self.hand(grant.id, parked.answer, told);
                    }
                }
                // Granted by a commit of unknown outcome, and over before anybody knew: its call is to hear so.
                Effect::Ended { id, .. } => again.extend(self.take_back(*id)),
            }
        }
        if let Reply::Settled { holder_expires_in, .. } = &told.reply {
            self.look_at = holder_expires_in.map(|left| Instant::now() + left + EXPIRY_SLACK);
            self.owes_look = false;
        }
        let Some(job) = job else { return again };
        match &job.command {
            Command::Acquire(acquire) => {
                let is_refusal = !matches!(told.reply, Reply::Granted(_));
                if job.doubtful && is_refusal {
                    match self.poison(acquire).await {
                        Poisoned::Yes => {}
                        Poisoned::Landed => {
                            self.view.clear();
                            again.push(job);
                            return again;
                        }
                        Poisoned::Unknown => {
                            // If nobody listens any more, there is nobody to tell.
                            drop(job.tell(Answer::Failed(Failure::Unavailable { unknown: true })));
                            return again;
                        }
                    }
                }
                let id = acquire.id;
                if let Some(answer) = job.answer {
                    self.hand(id, answer, told);
                }
            }
            Command::Leave(attachment) | Command::Detach(attachment) => {
                if let Some(acquire) = self.doubt_of_leaving(&job) {
                    match self.poison(&acquire).await {
                        Poisoned::Yes => {}
                        Poisoned::Landed => {
                            // It has the lock after all: that is heard first.
                            self.view.clear();
                            again.extend(self.take_back(acquire.id));
                            again.push(job);
                            return again;
                        }
                        Poisoned::Unknown => {
                            // If nobody listens any more, there is nobody to tell.
                            drop(job.tell(Answer::Failed(Failure::Unavailable { unknown: true })));
                            return again;
                        }
                    }
                }
                self.unpark(*attachment);
                // If nobody listens any more, the effect stands all the same.
                drop(job.tell(Answer::Told(told)));
            }
            // As above.
            _ => drop(job.tell(Answer::Told(told))),
        }
        again
    }

    /// What has to be poisoned before somebody hears that it has left: it was parked by a later attempt, and an
    /// earlier one may still be under way.
    fn doubt_of_leaving(&self, job: &Job) -> Option<Acquire> {
        let Command::Leave(attachment) = &job.command else { return None };
        let parked = self.parked.get(&attachment.id)?;
        let is_heard = job.answer.as_ref().is_some_and(|answer| !answer.is_closed());
        let matters = parked.doubtful && parked.attachment == attachment.number && is_heard;
        matters.then(|| parked.acquire.clone())
    }

    /// The call of a parked waiter, to be decided anew.
    fn take_back(&mut self, id: GrantId) -> Option<Job> {
        let Parked { acquire, answer, doubtful, .. } = self.parked.remove(&id)?;
        self.node.metrics.parked.dec();
        let deadline = Instant::now() + self.node.config.store_deadline;
        Some(Job { command: Command::Acquire(acquire), answer: Some(answer), deadline, doubtful })
    }

    /// Gives an answer to a caller. A new grant that nobody is there to take is taken back.
    fn hand(&self, id: GrantId, answer: oneshot::Sender<Answer>, told: Told) {
        let undo = match &told.reply {
            Reply::Granted(grant) if grant.is_new => Some(grant.fencing.resolve(told.revision)),
            _ => None,
        };
        if answer.send(Answer::Told(told)).is_err()
            && let Some(fencing) = undo
        {
            self.node.undo(&self.lock, id, fencing);
        }
    }

    /// Keeps the call of a waiter; an older call for the same waiter is sent away.
    fn park(&mut self, job: Job) -> Option<Job> {
        let attachment = match &job.command {
            Command::Acquire(acquire) => acquire.attachment,
            _ => None,
        };
        let (Some(attachment), Command::Acquire(acquire)) = (attachment, job.command.clone()) else {
            return Some(job);
        };
        let id = acquire.id;
        self.orphans.remove(&id);
        let parked = Parked { acquire, attachment, answer: job.answer?, doubtful: job.doubtful };
        match self.parked.insert(id, parked) {
            // If it is gone already, so much the better.
            Some(older) => drop(older.answer.send(Answer::CallAgain)),
            None => {
                self.node.metrics.parked.inc();
            }
        }
        None
    }

    /// After a round: leases and memos are forgotten (they move by themselves), and whoever waits without a call is
    /// counted.
    async fn tidy(&mut self) {
        self.view.forget(&self.lock.prefix(Kind::Grant));
        self.view.forget(&self.lock.prefix(Kind::Memo));
        self.view.forget_absences();
        self.part_from_the_gone();
        if self.is_blind {
            self.look_at = Some(Instant::now() + LOOK_AGAIN);
            return;
        }
        let roster = self.view.peek(&self.lock.roster()).ok().flatten();
        let roster = roster.and_then(|seen| Roster::decode(&seen.value).ok()).unwrap_or_default();
        if roster.waiting == 0 {
            self.orphans.clear();
            self.elsewhere = 0;
        }
        if let Some(holder) = &roster.holder
            && let Some(job) = self.take_back(holder.id)
        {
            // Granted by a commit of unknown outcome: its call is to hear so.
            submit(&self.node, &self.lock, job);
        }
        let counted = self.parked.len() as u64 + self.orphans.len() as u64 + self.elsewhere;
        if roster.waiting > counted || self.was_unknown || self.is_in_doubt {
            self.census().await;
        }
        // A free lock needs no look: whoever could have taken it has.
        if self.look_at.is_none() && roster.holder.is_some() {
            self.look_at = Some(Instant::now());
        }
    }

    /// Waiters whose callers have gone keep their place without a call, should their leaving have failed.
    fn part_from_the_gone(&mut self) {
        let gone = self.parked.iter().filter(|(_, parked)| parked.answer.is_closed());
        let gone: Vec<_> = gone.map(|(id, _)| *id).collect();
        for id in gone {
            self.parked.remove(&id);
            self.node.metrics.parked.dec();
            self.orphans.entry(id).or_insert_with(Instant::now);
        }
    }

    /// Reads the whole queue for waiters that have no call, and for calls whose waiter is no more: granted or ended
    /// by a commit of unknown outcome.
    async fn census(&mut self) {
        let mut orphans = BTreeMap::new();
        let mut gone: BTreeSet<_> = self.parked.keys().copied().collect();
        let mut after = None;
        let mut elsewhere = 0;
        let prefix = self.lock.prefix(Kind::Waiting);
        loop {
            let range = Range { group: self.lock.group(), prefix: prefix.clone(), after };
            let Ok(page) = self.in_time(self.node.store.scan(range, CENSUS_PAGE)).await else {
                (self.is_blind, self.owes_look) = (true, true);
                self.look_at = Some(Instant::now() + LOOK_AGAIN);
                return;
            };
            for record in &page.records {
                let Some((_, suffix)) = LockName::of_record(Kind::Waiting, &record.key.name) else {
                    continue;
                };
                let (Some(id), Ok(waiting)) = (GrantId::from_suffix(suffix), Waiting::decode(&record.value))
                else {
                    continue;
                };
                gone.remove(&id);
                match self.liveness(id, &waiting) {
                    Liveness::Here => {}
                    Liveness::Elsewhere => elsewhere += 1,
                    Liveness::Orphan => {
                        let since = self.orphans.get(&id).copied().unwrap_or_else(Instant::now);
                        orphans.insert(id, since);
                    }
                }
            }
            after = page.records.last().map(|record| record.key.name.clone());
            if !page.more {
                break;
            }
        }
        (self.elsewhere, self.orphans, self.was_unknown) = (elsewhere, orphans, false);
        for id in gone {
            if let Some(job) = self.take_back(id) {
                submit(&self.node, &self.lock, job);
            }
        }
    }

    /// Where a waiter's call is, as far as this desk knows.
    pub(super) fn liveness(&self, id: GrantId, waiting: &Waiting) -> Liveness {
        if waiting.node == self.node.id {
            let parked = self.parked.get(&id);
            let here =
                |parked: &Parked| parked.attachment == waiting.attachment && !parked.answer.is_closed();
            return if parked.is_some_and(here) { Liveness::Here } else { Liveness::Orphan };
        }
        let may_live = self.node.store.guarantees().shared && waiting.node != baton_core::lock::NodeId::NONE;
        if may_live { Liveness::Elsewhere } else { Liveness::Orphan }
    }

    /// Waiters whose place has been kept long enough.
    pub(super) fn forgotten(&self) -> Vec<GrantId> {
        let kept = self.node.config.orphan_kept;
        let old = self.orphans.iter().filter(|(_, since)| since.elapsed() >= kept);
        old.map(|(id, _)| *id).collect()
    }

    /// The holder's lease should be over, or a place was kept long enough: see what is true.
    async fn look(&mut self) {
        self.look_at = None;
        let are_forgotten = !self.forgotten().is_empty();
        let job = self.internal(Command::Settle);
        self.work(VecDeque::from([job])).await;
        if are_forgotten && !self.is_blind {
            // One commit drops only so many: who is still there is dropped by the next.
            self.census().await;
        }
        self.tidy().await;
    }

    /// When the holder's lease would end, or a place has been kept long enough, or other nodes may have done something.
    fn next_look(&self) -> Instant {
        let next_forgotten = self.orphans.values().min().map(|since| *since + self.node.config.orphan_kept);
        let shared_look = self.node.store.guarantees().shared.then(|| Instant::now() + SHARED_LOOK);
        if self.is_blind {
            return self.look_at.unwrap_or_else(|| Instant::now() + LOOK_AGAIN);
        }
        let doubt_look = self.is_in_doubt.then(|| Instant::now() + SHARED_LOOK);
        let looks = [self.look_at, next_forgotten, shared_look, doubt_look];
        looks.into_iter().flatten().min().unwrap_or_else(|| Instant::now() + SHARED_LOOK)
    }

    /// The node stops: every parked call is told to call again. Places are kept for them by the next node.
    fn dismiss(&mut self) {
        for (_, parked) in std::mem::take(&mut self.parked) {
            self.node.metrics.parked.dec();
            // If it is gone already, it will not call again.
            drop(parked.answer.send(Answer::CallAgain));
        }
        self.orphans.clear();
        self.owes_look = false;
    }

    fn internal(&self, command: Command) -> Job {
        let deadline = Instant::now() + self.node.config.store_deadline;
        Job { command, answer: None, deadline, doubtful: false }
    }

    /// The call of a waiter has ended by itself.
    pub(super) fn unpark(&mut self, attachment: Attachment) {
        match self.parked.get(&attachment.id) {
            Some(parked) if parked.attachment == attachment.number => {
                self.parked.remove(&attachment.id);
                self.node.metrics.parked.dec();
            }
            Some(_) => {}
            None => {
                self.orphans.remove(&attachment.id);
            }
        }
    }
}
