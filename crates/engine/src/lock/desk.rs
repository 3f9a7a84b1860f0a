//! One lock's desk: a task that lives while there is something to do for the lock on this node.
//!
//! Commands for a lock are put on its desk; the desk decides all that have arrived together, commits them once,
//! and answers. Waiting calls are parked here, so a release finds the next one and hands over in its own commit.
//! The desk keeps its view of the lock between commits, and looks again when the holder's lease would end.
//! Most desks live for one command.

use super::calls::Failure;
use super::commit::{Batch, Landed, Poisoned, Witnessed};
use super::desks::{Answer, Job, Taken, Told};
use super::hints::{Hint, PATIENCE};
use super::parking::Parked;
use crate::engine::Node;
use baton_core::lock::command::{Acquire, Attachment};
use baton_core::lock::name::Kind;
use baton_core::lock::roster::Roster;
use baton_core::lock::{Command, Decided, Effect, GrantId, Hold, LockName, Reply};
use baton_core::{Record, Revision, Stamp, View};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;

/// Commands decided for one commit at most: what a commit holds is usually less.
pub(super) const BATCH_MAX: usize = 64;
/// A look at a lock comes this much after its lease should have ended.
const EXPIRY_SLACK: Duration = Duration::from_millis(1);
/// How long those who join a queue wait for company.
const COMPANY_WAIT: Duration = Duration::from_millis(1);
/// Where other nodes may change the lock too, whoever waits looks at least this often.
const SHARED_LOOK: Duration = Duration::from_secs(1);
/// Where other nodes may queue too, a desk counts who waits at most this often.
const CENSUS_EVERY: Duration = Duration::from_secs(5);
/// After a failure of the store, whoever waits looks again this much later.
pub(super) const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// The desk's own task.
pub(super) struct Desk {
    pub node: Arc<Node>,
    pub lock: LockName,
    pub view: View,
    arrived: Arc<Notify>,
    /// Boxed: a tree keeps room for more than it has.
    pub parked: BTreeMap<GrantId, Box<Parked>>,
    /// Waiters without a call, and since when this node knows.
    pub orphans: BTreeMap<GrantId, Instant>,
    /// Waiters of other nodes, when last counted.
    pub elsewhere: u64,
    pub look_at: Option<Instant>,
    /// The store failed the last round: what is known of the lock is nothing.
    pub is_blind: bool,
    /// A commit that nobody waits for any more may still land, and hand the lock over.
    is_in_doubt: bool,
    /// The answer to some commit got lost, and with it who was granted the lock and who lost it.
    pub was_unknown: bool,
    /// A look at the lock failed, and has to be made whoever else is interested.
    pub owes_look: bool,
    /// Since when the lock is free for somebody at another node, at this revision of its roster.
    pub free_since: Option<(Stamp, Instant)>,
    /// The last commit of this desk.
    pub last: Revision,
    /// What another node did, to be looked at.
    hint: Option<Hint>,
    counted_at: Option<Instant>,
    /// Until when somebody waits for what is being done: no call to the store takes longer.
    pub until: Instant,
}

impl Desk {
    pub fn new(node: Arc<Node>, lock: LockName, arrived: Arc<Notify>) -> Self {
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
            free_since: None,
            last: Revision::default(),
            hint: None,
            counted_at: None,
            until: Instant::now(),
        }
    }

    pub async fn run(mut self) {
        let node = self.node.clone();
        loop {
            let Some(Taken { jobs, hint }) = self.take_up() else { break };
            self.hint = hint.or(self.hint.take());
            if !jobs.is_empty() {
                let jobs = self.with_company(jobs).await;
                self.work(jobs, None).await;
                self.tidy().await;
                continue;
            }
            if let Some(hint) = self.hint.take() {
                self.heed(hint).await;
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
        self.node.desks.closed();
    }

    /// What has arrived; `None` closes the desk because there is nothing left to do or to wait for.
    fn take_up(&self) -> Option<Taken> {
        let is_idle = self.parked.is_empty() && self.orphans.is_empty() && !self.owes_look;
        self.node.desks.take_up(&self.lock, is_idle)
    }

    /// Whoever joins a queue isn't answered before its turn comes. So joins wait a moment for what moves the queue on:
    /// when the next holder's release comes right after, both are one commit instead of two in a row.
    async fn with_company(&mut self, mut jobs: VecDeque<Job>) -> VecDeque<Job> {
        let until = Instant::now() + COMPANY_WAIT;
        while !self.parked.is_empty() && jobs.len() < BATCH_MAX && jobs.iter().all(Job::is_join) {
            tokio::select! {
                biased;
                () = self.arrived.notified() => {}
                () = tokio::time::sleep_until(until) => break,
            }
            let taken = self.node.desks.take_up(&self.lock, false).unwrap_or_default();
            jobs.extend(taken.jobs);
            self.hint = taken.hint.or(self.hint.take());
        }
        jobs
    }

    /// Decides and commits until every job is answered or parked. Begins with the roster, if somebody said what it is.
    pub(super) async fn work(&mut self, mut jobs: VecDeque<Job>, roster: Option<Record>) {
        if self.node.is_shared || self.is_in_doubt {
            let guess = self.guess();
            self.view.clear();
            if let Some(guess) = guess.filter(|_| roster.is_none()) {
                self.view.assume(&self.lock.roster(), Some(guess));
            }
        }
        if let Some(roster) = roster {
            self.view.learn(&self.lock.roster(), Some(roster));
        }
        if !self.view.is_empty() {
            // Leases, delays and memos move by themselves.
            for kind in [Kind::Grant, Kind::Delay, Kind::Memo] {
                self.view.forget(&self.lock.prefix(kind));
            }
            self.view.forget_absences();
        }
        self.is_blind = false;
        self.until = jobs.iter().map(|job| job.deadline).max().unwrap_or(self.until);
        let mut batch = Batch::new(jobs.iter());
        while !jobs.is_empty() {
            match self.commit(&mut jobs, &mut batch).await {
                Ok(Landed { decided, revision, now, witnessed }) => {
                    self.is_in_doubt &= !self.has_moved_on(revision);
                    self.last = self.last.max(revision);
                    let more = decided.iter().any(|decided| decided.more);
                    for Decided { reply, effects, .. } in decided {
                        let job = jobs.pop_front().expect("one for each decision");
                        let told = Told { reply, revision, now };
                        let again = self.deliver(job, told, &effects, &witnessed).await;
                        jobs.extend(again);
                    }
                    if more {
                        // A commit makes one grant: whoever else may go on now does so by the next.
                        let settle = self.internal(Command::Settle);
                        self.until = self.until.max(settle.deadline);
                        jobs.push_back(settle);
                    }
                }
                Err((count, failure)) => {
                    self.view.clear();
                    self.is_blind = true;
                    // Whoever asked for a settled lock would ask again, and again.
                    let last = count.checked_sub(1).and_then(|last| jobs.get(last));
                    let is_settle = last.is_some_and(|job| matches!(job.command, Command::Settle));
                    let count = if is_settle { (count + 1).min(jobs.len()) } else { count };
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

    /// What the roster may be, where other nodes change it too: as this desk left it, or as was heard since.
    fn guess(&self) -> Option<Record> {
        if !self.node.is_shared || self.is_in_doubt {
            return None;
        }
        let heard = self.node.rosters.guess(&self.lock).filter(|heard| heard.revision > self.last);
        heard.or_else(|| {
            self.view.record(&self.lock.roster()).filter(|own| own.revision == self.last).cloned()
        })
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
                    let end = Instant::now() + grant.ttl + EXPIRY_SLACK;
                    self.look_at = match grant.hold {
                        Hold::Exclusive => Some(end),
                        // Others who hold it may end before; if it isn't known when, it is looked at right away.
                        Hold::Shared | Hold::Permit { .. } => self.look_at.map(|others| others.min(end)),
                    };
                    if let Some(parked) = self.parked.remove(&grant.id) {
                        self.node.metrics.parked.dec();
                        if job.as_ref().is_some_and(|job| job.is_acquire_of(grant.id)) {
                            // A later call of the same waiter got it. Were both told, either could go away and
                            // have the other's grant taken back. If it is gone already, so much the better.
                            drop(parked.answer.send(Answer::CallAgain));
                            continue;
                        }
                        let told = Told { reply: Reply::Granted(grant.clone()), ..told.clone() };
                        self.hand(grant.id, parked.answer, told);
                    }
                }
                // Granted by a commit of unknown outcome, and over before anybody knew: its call is to hear so.
                Effect::Ended { id, .. } => again.extend(self.take_back(*id)),
            }
        }
        if matches!(told.reply, Reply::Forced { .. }) {
            // A lock-delay may have begun, whose end nobody has looked at.
            self.look_at = None;
        }
        if let Reply::Settled { look_in, is_free } = &told.reply {
            self.look_at = look_in.map(|left| Instant::now() + left + EXPIRY_SLACK);
            self.owes_look = false;
            self.note_free(*is_free);
            if *is_free && !self.parked.is_empty() {
                // It may be for one of these, who stands too far behind.
                self.look_at.get_or_insert(Instant::now() + SHARED_LOOK);
            }
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
                if self.has_unawares(*attachment, told.revision)
                    && let Some(call) = self.take_back(attachment.id).filter(Job::is_heard)
                {
                    // That is heard first; then there is nothing left to leave.
                    again.extend([call, job]);
                    return again;
                }
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
                            self.unpark(*attachment);
                            // If nobody listens any more, there is nobody to tell.
                            drop(job.tell(Answer::Failed(Failure::Unavailable { unknown: true })));
                            return again;
                        }
                    }
                }
                self.unpark(*attachment);
                // If nobody listens any more, the effect stands all the same.
                drop(job.tell(told.into()));
            }
            Command::Withdraw(withdraw) if !withdraw.again => {
                // Whoever waits for it waits for nothing: it is to hear so.
                again.extend(self.take_back(withdraw.id));
                drop(job.tell(told.into()));
            }
            // As above.
            _ => drop(job.tell(told.into())),
        }
        again
    }

    /// What has to be poisoned before somebody hears that it has left: it was parked by a later attempt, and an
    /// earlier one may still be under way.
    fn doubt_of_leaving(&self, job: &Job) -> Option<Acquire> {
        let Command::Leave(attachment) = &job.command else { return None };
        let parked = self.parked.get(&attachment.id)?;
        let matters = parked.doubtful && parked.is_call(attachment.number) && job.is_heard();
        matters.then(|| parked.acquire.clone())
    }

    /// Whether a waiter has the lock without its call having heard of it: the answer to the commit that handed it over got
    /// lost. What was handed over by the commit at hand is heard in its turn.
    fn has_unawares(&self, attachment: Attachment, at_hand: Revision) -> bool {
        let parked = self.parked.get(&attachment.id);
        let Some(record) = self.view.record(&self.lock.roster()) else { return false };
        let Ok(roster) = Roster::decode(&record.value) else { return false };
        parked.is_some_and(|parked| parked.is_call(attachment.number))
            && roster
                .find(attachment.id)
                .is_some_and(|holder| !holder.closed && holder.fencing.unwrap_or(record.revision) != at_hand)
    }

    /// Gives an answer to a caller. A new grant that nobody is there to take is taken back.
    fn hand(&self, id: GrantId, answer: oneshot::Sender<Answer>, told: Told) {
        let undo = match &told.reply {
            Reply::Granted(grant) if grant.is_new => Some(grant.fencing.resolve(told.revision)),
            _ => None,
        };
        if answer.send(told.into()).is_err()
            && let Some(fencing) = undo
        {
            self.node.undo(&self.lock, id, fencing);
        }
    }

    /// After a round: whoever waits without a call is counted.
    pub(super) async fn tidy(&mut self) {
        self.until = Instant::now() + self.node.config.store_deadline;
        if self.is_blind {
            self.part_from_the_gone();
            self.look_at = Some(Instant::now() + LOOK_AGAIN);
            return;
        }
        let roster = self.view.peek(&self.lock.roster()).ok().flatten();
        let roster = roster.and_then(|seen| Roster::decode(&seen.value).ok()).unwrap_or_default();
        if roster.waiting == 0 {
            self.orphans.clear();
            self.elsewhere = 0;
        }
        for holder in &roster.holders {
            if let Some(job) = self.take_back(holder.id) {
                // Granted by a commit of unknown outcome: its call is to hear so.
                self.node.desks.put_back(&self.lock, job);
            }
        }
        if self.node.is_shared && roster.front.is_whole(roster.waiting) {
            self.count(roster.front.shown());
        }
        let counted = self.parked.len() as u64 + self.orphans.len() as u64 + self.elsewhere;
        let is_due = if self.node.is_shared {
            // Others come and go at their own nodes, and to count them each time would cost more than it tells.
            // Also if the number is right: whoever waited at another node may have lost it since.
            let is_doubtful = roster.waiting != counted || self.elsewhere > 0;
            let is_counted = roster.front.is_whole(roster.waiting);
            is_doubtful && !is_counted && self.counted_at.is_none_or(|at| at.elapsed() >= CENSUS_EVERY)
        } else {
            roster.waiting > counted
        };
        if is_due || self.was_unknown || self.is_in_doubt {
            self.counted_at = Some(Instant::now());
            self.census().await;
        }
        // A free lock needs no look: whoever could have taken it has.
        if self.look_at.is_none() && !roster.holders.is_empty() {
            self.look_at = Some(Instant::now());
        }
    }

    /// The holder's lease should be over, or a place was kept long enough: see what is true.
    pub(super) async fn look(&mut self) {
        self.look_at = None;
        self.part_from_the_gone();
        let job = self.internal(Command::Settle);
        self.work(VecDeque::from([job]), None).await;
        let has_failed = self.is_blind;
        // Also if that failed: it may have, because so many who are to be dropped stand before whoever goes on.
        self.prune().await;
        if has_failed {
            self.look_at = Some(Instant::now() + LOOK_AGAIN);
        }
        self.tidy().await;
    }

    /// When the holder's lease would end, or a place has been kept long enough, or other nodes may have done something.
    fn next_look(&self) -> Instant {
        let next_forgotten = self.orphans.values().min().map(|since| *since + self.node.config.orphan_kept);
        let shared_look =
            self.node.is_shared.then(|| Instant::now() + self.node.random.jittered(SHARED_LOOK));
        let patience_ends =
            self.free_since.map(|(_, since)| since + PATIENCE).filter(|end| *end > Instant::now());
        if self.is_blind {
            return self.look_at.unwrap_or_else(|| Instant::now() + LOOK_AGAIN);
        }
        let doubt_look = self.is_in_doubt.then(|| Instant::now() + SHARED_LOOK);
        let looks = [self.look_at, next_forgotten, shared_look, doubt_look, patience_ends];
        looks.into_iter().flatten().min().unwrap_or_else(|| Instant::now() + SHARED_LOOK)
    }

    pub(super) fn internal(&self, command: Command) -> Job {
        let deadline = Instant::now() + self.node.config.store_deadline;
        Job { command, answer: None, deadline, doubtful: false }
    }
}
