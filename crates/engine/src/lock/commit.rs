//! The loop that all decisions go through: draft what has arrived, commit it, and on a conflict decide again.
//!
//! A commit of unknown outcome is sent again, identically, until the store has decided; then everything is decided
//! anew from what is there, which is safe because every command is idempotent by its id. Before an acquire that
//! may still be under way is refused, its id is poisoned, so that the late commit stays out.

use super::calls::Failure;
use super::desk::{BATCH_MAX, Desk};
use super::desks::Job;
use crate::decide::CONFLICTS_MAX;
use baton_core::lock::command::Acquire;
use baton_core::lock::memo::{Fate, Memo};
use baton_core::lock::name::{GrantId, Kind};
use baton_core::lock::roster::Roster;
use baton_core::lock::{Command, Context, Decided, Liveness, NodeId, Reply, decide};
use baton_core::{Bytes, Check, Commit, Key, Outcome, Pause, Record, Revision, Ttl, View, WallTime, Write};
use baton_store::{Range, StoreError};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// How often one command may stop to read: far above what any needs.
const READS_MAX: u32 = 4096;
/// Names of a queue read at once: most that are looked for are among the first.
const SCAN_PAGE: usize = 128;
/// The same, once it is known that they weren't.
const NEXT_PAGE: usize = 512;
/// Waiters read together with the first page of the queue's order.
const NEXT_IN_LINE: usize = 8;
/// How often an id is poisoned again because its memo changed meanwhile.
const POISONINGS_MAX: usize = 4;

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
                && job.is_heard()
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
            if self.node.is_shared && !self.parked.is_empty() {
                self.recollect();
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
            match self.send(jobs, count).await {
                Ok(Outcome::Committed { revision, now, witnessed }) => {
                    self.node.note_time(now);
                    self.forget_who_was_dropped();
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
                    let keys = self.with_fellows(key, &forgotten);
                    let found = self.read(keys.clone()).await;
                    let records = found.map_err(|failure| (decided.len() + 1, failure))?;
                    keys.iter().zip(records).for_each(|(key, record)| self.view.learn(key, record));
                }
                Pause::Scan { prefix, after } => {
                    let (limit, known) = match after {
                        None => (SCAN_PAGE, NEXT_IN_LINE),
                        Some(_) => (NEXT_PAGE, NEXT_PAGE),
                    };
                    let range = Range { group: self.lock.group(), prefix: prefix.clone(), after };
                    let scan = self.node.store.scan(range, limit);
                    let page = self.in_time(scan).await.map_err(|failure| (decided.len() + 1, failure))?;
                    let next = self.next_in_line(&prefix, &page.records, known);
                    self.view.learn_page(&prefix, page.records, page.more);
                    if !next.is_empty() {
                        let found = self.read(next.clone()).await;
                        let records = found.map_err(|failure| (decided.len() + 1, failure))?;
                        next.iter().zip(records).for_each(|(key, record)| self.view.learn(key, record));
                    }
                }
                Pause::SettleFirst => jobs.insert(decided.len(), self.internal(Command::Settle)),
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

    /// Who comes first in a page of the queue's order and isn't known yet: one of them is going to be asked for, and then
    /// the next, one store call each.
    fn next_in_line(&self, prefix: &Bytes, page: &[Record], limit: usize) -> Vec<Key> {
        if *prefix != self.lock.prefix(Kind::Order) {
            return Vec::new();
        }
        let ids = page.iter().take(limit).filter_map(|order| GrantId::from_suffix(&order.value));
        ids.map(|id| self.lock.waiting(id)).filter(|key| self.view.peek(key).is_err()).collect()
    }

    /// Whoever asks for one of several records is going to ask for the others, one store call each.
    fn with_fellows(&self, key: Key, forgotten: &[GrantId]) -> Vec<Key> {
        let mut keys = match Kind::of_name(&key.name) {
            Some(Kind::Grant | Kind::Delay) => self.leases(),
            Some(Kind::Waiting) => self.waiters(&key, forgotten),
            _ => Vec::new(),
        };
        keys.retain(|key| self.view.peek(key).is_err());
        if !keys.contains(&key) {
            keys.push(key);
        }
        keys
    }

    /// Of all who hold the lock, if there are several.
    fn leases(&self) -> Vec<Key> {
        let roster = self.view.peek(&self.lock.roster()).ok().flatten();
        let roster = roster.and_then(|seen| Roster::decode(&seen.value).ok()).unwrap_or_default();
        if roster.holders.len() < 2 {
            return Vec::new();
        }
        let leases = roster.holders.iter().map(|holder| match holder.closed {
            true => self.lock.delay(holder.id),
            false => self.lock.grant(holder.id),
        });
        leases.collect()
    }

    /// Of all who are forgotten, if it is one of them; else of those whose places in the queue are known.
    fn waiters(&self, key: &Key, forgotten: &[GrantId]) -> Vec<Key> {
        let forgotten: Vec<_> = forgotten.iter().map(|id| self.lock.waiting(*id)).collect();
        if forgotten.contains(key) {
            return forgotten;
        }
        let (mut waiters, mut after) = (Vec::new(), None);
        let prefix = self.lock.prefix(Kind::Order);
        while waiters.len() < NEXT_PAGE
            && let Ok(Some((name, order))) = self.view.next(&prefix, after.as_ref())
        {
            let waiter = GrantId::from_suffix(&order.value).map(|id| self.lock.waiting(id));
            waiters.extend(waiter.filter(|key| self.view.peek(key).is_err()));
            after = Some(name);
        }
        waiters
    }

    /// Decides one command on the view, after what is drafted there.
    fn decide(&mut self, command: &Command, batch: &Batch, forgotten: &[GrantId]) -> Result<Decided, Pause> {
        let mut view = std::mem::replace(&mut self.view, View::new(self.lock.group()));
        let liveness = |id: GrantId, node: NodeId, attachment: u64| {
            if node == self.node.id && batch.arriving.contains(&(id, attachment)) {
                return Liveness::Here;
            }
            self.liveness(id, node, attachment)
        };
        let context = Context {
            node: self.node.id,
            now: self.node.now(),
            memory: self.node.memory(),
            queue_max: self.node.config.queue_max,
            liveness: &liveness,
            is_shared: self.node.is_shared,
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

    async fn read(&self, keys: Vec<Key>) -> Result<Vec<Option<Record>>, Failure> {
        Ok(self.node.read(keys, self.until).await?.records)
    }

    /// A call that changes nothing, within the store's deadline.
    pub(super) async fn in_time<T>(
        &self,
        call: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, Failure> {
        self.node.asked(call, self.until).await
    }

    /// Sends the draft, identically again while its outcome is unknown and someone still waits for it.
    async fn send(&mut self, jobs: &mut VecDeque<Job>, count: usize) -> Result<Outcome, Failure> {
        let batch = || jobs.iter().take(count);
        let deadline = batch().map(|job| job.deadline).max().unwrap_or(self.until);
        let doubtful = batch().any(|job| job.doubtful);
        let sent = self.node.send(|| self.view.commit(), self.until, deadline, doubtful).await;
        if sent.lost {
            self.was_unknown = true;
            jobs.iter_mut().take(count).for_each(|job| job.doubtful = true);
        }
        sent.outcome
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
            let outcome = self.node.in_time_until(self.until, self.node.store.commit(commit)).await;
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
