//! The loop that all decisions go through: draft what has arrived, commit it, and on a conflict decide again.
//!
//! A commit of unknown outcome is sent again, identically, until the store has decided; then everything is decided
//! anew from what is there, which is safe because every command is idempotent by its id. Before an acquire that
//! may still be under way is refused, its id is poisoned, so that the late commit stays out.

use super::calls::Failure;
use super::desk::{BATCH_MAX, Desk};
use super::desks::Job;
use baton_core::lock::command::Acquire;
use baton_core::lock::memo::{Fate, Memo};
use baton_core::lock::name::GrantId;
use baton_core::lock::waiting::Waiting;
use baton_core::lock::{Command, Context, Decided, Liveness, Reply, decide};
use baton_core::{Bytes, Check, Commit, Outcome, Pause, Record, Revision, Ttl, View, WallTime, Write};
use baton_store::{Range, Reason, StoreError};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;
use tokio::time::Instant;

/// How often a batch is decided again before its callers hear `Overloaded`.
const CONFLICTS_MAX: u32 = 64;
/// How often one command may stop to read: far above what any needs.
const READS_MAX: u32 = 4096;
/// Names of a queue read at once.
const SCAN_PAGE: usize = 128;
/// How often an id is poisoned again because its memo changed meanwhile.
const POISONINGS_MAX: usize = 4;
/// The first pause before a commit of unknown outcome is sent again.
const RESEND_FIRST: Duration = Duration::from_millis(5);

/// What a commit touched or deleted, by name.
pub(crate) type Witnessed = BTreeMap<Bytes, Record>;

/// Decisions that are true now.
pub(super) struct Landed {
    pub decided: Vec<Decided>,
    pub revision: Revision,
    pub now: WallTime,
    pub witnessed: Witnessed,
}

/// What is known about the jobs at hand while they are decided.
pub(super) struct Batch {
    /// Waiting calls that are just arriving: they count as parked, also two for one waiter.
    arriving: BTreeSet<(GrantId, u64)>,
    /// One at a time, after the store refused several together for want of room.
    one_by_one: bool,
    conflicts: u32,
}

impl Batch {
    pub fn new<'a>(jobs: impl Iterator<Item = &'a Job>) -> Self {
        let mut arriving = BTreeSet::new();
        for job in jobs {
            if let Command::Acquire(acquire) = &job.command
                && let Some(attachment) = acquire.attachment
                && job.answer.as_ref().is_some_and(|answer| !answer.is_closed())
            {
                arriving.insert((acquire.id, attachment));
            }
        }
        Self { arriving, one_by_one: false, conflicts: 0 }
    }
}

/// How many jobs failed, and how.
type Failed = (usize, Failure);

impl Desk {
    /// Commits as many of the first jobs as fit in one commit.
    pub(super) async fn commit(
        &mut self,
        jobs: &mut VecDeque<Job>,
        batch: &mut Batch,
    ) -> Result<Landed, Failed> {
        loop {
            if self.view.peek(&self.lock.roster()).is_err() {
                // What is known of a queue is only as good as the roster that vouches for it.
                self.view.clear();
            }
            let decided = self.draft(jobs, batch).await?;
            let count = decided.len();
            self.node.metrics.batch_commands.observe(count as f64);
            if !self.view.is_dirty() {
                if self.view.is_assuming() {
                    self.verify().await.map_err(|failure| (count, failure))?;
                    continue;
                }
                let (revision, now) = (Revision::default(), self.node.now());
                return Ok(Landed { decided, revision, now, witnessed: Witnessed::new() });
            }
            let commit = self.view.commit();
            match self.send(jobs, count, &commit).await {
                Ok(Outcome::Committed { revision, now, witnessed }) => {
                    self.node.note_time(now);
                    self.view.committed(revision);
                    let witnessed = witnessed.into_iter().flatten();
                    let witnessed = witnessed.map(|record| (record.key.name.clone(), record)).collect();
                    return Ok(Landed { decided, revision, now, witnessed });
                }
                Ok(Outcome::Conflict { found, now }) => {
                    self.node.note_time(now);
                    self.node.metrics.conflicts.inc();
                    self.view.clear();
                    for (key, record) in found {
                        self.view.learn(&key, record);
                    }
                    batch.conflicts += 1;
                    if batch.conflicts > CONFLICTS_MAX {
                        batch.conflicts = 0;
                        return Err((count, Failure::Overloaded));
                    }
                }
                Err(Failure::Full) if count > 1 => {
                    self.view.clear();
                    batch.one_by_one = true;
                }
                Err(failure) => {
                    self.view.clear();
                    return Err((count, failure));
                }
            }
        }
    }

    /// Decides the first jobs, as many as fit in one commit.
    async fn draft(&mut self, jobs: &mut VecDeque<Job>, batch: &Batch) -> Result<Vec<Decided>, Failed> {
        let limit = if batch.one_by_one { 1 } else { BATCH_MAX };
        let mut decided = Vec::new();
        let mut reads = 0;
        let forgotten = self.forgotten();
        while let Some(job) = jobs.get_mut(decided.len()).filter(|_| decided.len() < limit) {
            let result = self.decide(&job.command, batch, &forgotten);
            let pause = match result {
                Ok(decision) if self.view.fits() => {
                    if let (Command::Force(force), Reply::Forced { id, .. }) =
                        (&mut job.command, &decision.reply)
                    {
                        // From now on it is this grant or none, however often it has to be decided again.
                        force.target = Some(*id);
                    }
                    decided.push(decision);
                    continue;
                }
                Ok(_) => Pause::NextCommit,
                Err(pause) => pause,
            };
            self.view.roll_back();
            reads += 1;
            match pause {
                _ if reads > READS_MAX => return Err((decided.len() + 1, Failure::Internal)),
                Pause::Read(key) => {
                    let found = self.read(vec![key.clone()]).await;
                    let mut records = found.map_err(|failure| (decided.len() + 1, failure))?;
                    self.view.learn(&key, records.pop().flatten());
                }
                Pause::Scan { prefix, after } => {
                    let range = Range { group: self.lock.group(), prefix: prefix.clone(), after };
                    let scan = self.node.store.scan(range, SCAN_PAGE);
                    let page = self.in_time(scan).await.map_err(|failure| (decided.len() + 1, failure))?;
                    self.view.learn_page(&prefix, page.records, page.more);
                }
                Pause::NextCommit if !decided.is_empty() => break,
                Pause::NextCommit => return Err((1, Failure::Internal)),
                Pause::Unreadable if !decided.is_empty() => break,
                Pause::Unreadable => {
                    tracing::error!(lock = ?self.lock, "a record of this lock can't be read by this version");
                    return Err((1, Failure::Internal));
                }
            }
        }
        Ok(decided)
    }

    /// Decides one command on the view, after what is drafted there.
    fn decide(&mut self, command: &Command, batch: &Batch, forgotten: &[GrantId]) -> Result<Decided, Pause> {
        let mut view = std::mem::replace(&mut self.view, View::new(self.lock.group()));
        let liveness = |id: GrantId, waiting: &Waiting| {
            let arriving = batch.arriving.contains(&(id, waiting.attachment));
            if arriving && waiting.node == self.node.id {
                return Liveness::Here;
            }
            self.liveness(id, waiting)
        };
        let context = Context {
            node: self.node.id,
            now: self.node.now(),
            memory: self.node.memory(),
            queue_max: self.node.config.queue_max,
            liveness: &liveness,
            forgotten,
        };
        view.save();
        let result = decide(&self.lock, command, &mut view, &context);
        self.view = view;
        result
    }

    /// Reads what was assumed, so that an answer without a commit rests on facts.
    async fn verify(&mut self) -> Result<(), Failure> {
        let checks = self.view.commit().checks;
        let keys: Vec<_> = checks.iter().map(|check| check.key().clone()).collect();
        let records = self.read(keys.clone()).await?;
        self.view.clear();
        for (key, record) in keys.iter().zip(records) {
            self.view.learn(key, record);
        }
        Ok(())
    }

    async fn read(&self, keys: Vec<baton_core::Key>) -> Result<Vec<Option<Record>>, Failure> {
        let reading = self.in_time(self.node.store.read(keys)).await?;
        self.node.note_time(reading.now);
        Ok(reading.records)
    }

    /// A call that changes nothing, within the store's deadline.
    pub(super) async fn in_time<T>(
        &self,
        call: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, Failure> {
        match self.node.in_time(call).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(error)) => {
                self.node.store_failed(&error);
                Err(Failure::Unavailable { unknown: false })
            }
            Err(_) => Err(Failure::Unavailable { unknown: false }),
        }
    }

    /// Sends a commit, identically again while its outcome is unknown and someone still waits for it.
    async fn send(
        &mut self,
        jobs: &mut VecDeque<Job>,
        count: usize,
        commit: &Commit,
    ) -> Result<Outcome, Failure> {
        let mut pause = RESEND_FIRST;
        loop {
            let started = Instant::now();
            let outcome = self.node.in_time(self.node.store.commit(commit.clone())).await;
            self.node.metrics.commit_seconds.observe(started.elapsed().as_secs_f64());
            let unknown = jobs.iter().take(count).any(|job| job.doubtful);
            match outcome {
                Ok(Ok(outcome)) => return Ok(outcome),
                Ok(Err(error @ StoreError::NotApplied { reason, .. })) => {
                    self.node.store_failed(&error);
                    return Err(match reason {
                        Reason::Full if !unknown => Failure::Full,
                        Reason::Invalid => Failure::Internal,
                        Reason::Full | Reason::Unavailable => Failure::Unavailable { unknown },
                    });
                }
                Ok(Err(error @ StoreError::Unknown { .. })) => self.node.store_failed(&error),
                Err(_) => {}
            }
            self.was_unknown = true;
            let batch = jobs.iter_mut().take(count);
            batch.for_each(|job| job.doubtful = true);
            let deadline = jobs.iter().take(count).map(|job| job.deadline).max();
            if deadline.is_none_or(|deadline| Instant::now() + pause >= deadline) {
                return Err(Failure::Unavailable { unknown: true });
            }
            tokio::time::sleep(pause).await;
            pause *= 2;
        }
    }

    /// Before an acquire is refused of which a commit may still be under way, its id is made unusable for that
    /// commit.
    pub(super) async fn poison(&self, acquire: &Acquire) -> Poisoned {
        let memo = Memo {
            fate: Fate::Void,
            fencing: Revision::default(),
            at: self.node.now(),
            digest: acquire.digest,
            owner: acquire.terms.owner.clone(),
        };
        let (memo_key, grant_key) = (self.lock.memo(acquire.id), self.lock.grant(acquire.id));
        let ttl = Ttl::AtLeast(self.node.config.memory);
        let mut check = Check::Absent(memo_key.clone());
        for _ in 0..POISONINGS_MAX {
            let commit = Commit {
                checks: vec![check, Check::Absent(grant_key.clone())],
                writes: vec![Write::Put { key: memo_key.clone(), value: memo.encode(), ttl }],
            };
            let outcome = self.node.in_time(self.node.store.commit(commit)).await;
            let Ok(Ok(outcome)) = outcome else { return Poisoned::Unknown };
            let found = match outcome {
                Outcome::Committed { .. } => return Poisoned::Yes,
                Outcome::Conflict { found, .. } => found,
            };
            if found.get(1).is_some_and(|(_, grant)| grant.is_some()) {
                return Poisoned::Landed;
            }
            check = match found.into_iter().next().and_then(|(_, memo)| memo) {
                None => Check::Absent(memo_key.clone()),
                // The commit may have been decided on a void memo, and check that it is the same still: so it
                // mustn't be.
                Some(memo) if Memo::decode(&memo.value).is_ok_and(|memo| memo.fate == Fate::Void) => {
                    Check::At(memo_key.clone(), memo.revision)
                }
                Some(_) => return Poisoned::Yes,
            };
        }
        Poisoned::Unknown
    }
}

/// Whether a commit that may be under way has been kept out.
pub(super) enum Poisoned {
    /// It can't land any more, or something else already stands under its id.
    Yes,
    /// It has landed.
    Landed,
    /// The store didn't say.
    Unknown,
}
