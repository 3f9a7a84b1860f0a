//! Who waits at a desk: calls that are parked there, and waiters that have lost theirs.

use super::desk::{Desk, LOOK_AGAIN};
use super::desks::{Answer, Job};
use baton_core::Record;
use baton_core::lock::command::{Acquire, Attachment, FORGOTTEN_MAX};
use baton_core::lock::front::Next;
use baton_core::lock::name::Kind;
use baton_core::lock::roster::Roster;
use baton_core::lock::waiting::Waiting;
use baton_core::lock::{Command, GrantId, Liveness, LockName, NodeId};
use baton_store::Range;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use tokio::sync::oneshot;
use tokio::time::Instant;

/// Waiters read at once when a desk counts who is waiting without a call.
const CENSUS_PAGE: usize = 256;
/// Commits made in a row to drop waiters who have been forgotten.
const PRUNINGS_MAX: usize = 16;

/// A call that waits for the lock. Kept small: there are thousands.
pub(super) struct Parked {
    /// To be decided again if it turns out that the waiter was granted by a commit of unknown outcome.
    pub acquire: Acquire,
    pub answer: oneshot::Sender<Answer>,
    /// Whether a commit that grants it may still be under way: as of its job.
    pub doubtful: bool,
    /// Its record, as this node put it, and where other nodes may decide meanwhile: what the roster shows of it tells
    /// whether it is the same still.
    pub record: Option<Box<Record>>,
}

impl Parked {
    /// Whether it is this call, and not another of the same waiter.
    pub fn is_call(&self, attachment: u64) -> bool {
        self.acquire.attachment == Some(attachment)
    }
}

impl Desk {
    /// Keeps the call of a waiter; an older call for the same waiter is sent away.
    pub(super) fn park(&mut self, job: Job) -> Option<Job> {
        if !job.is_join() {
            return Some(job);
        }
        let Job { command: Command::Acquire(acquire), answer, doubtful, .. } = job else { return None };
        let id = acquire.id;
        self.orphans.remove(&id);
        let key = self.lock.waiting(id);
        let seen = self.node.is_shared.then(|| self.view.record(&key)).flatten();
        let record = seen.cloned().map(Box::new);
        let parked = Parked { acquire, answer: answer?, doubtful, record };
        match self.parked.insert(id, Box::new(parked)) {
            // If it is gone already, so much the better.
            Some(older) => drop(older.answer.send(Answer::CallAgain)),
            None => {
                self.node.metrics.parked.inc();
            }
        }
        None
    }

    /// The call of a parked waiter, to be decided anew.
    pub(super) fn take_back(&mut self, id: GrantId) -> Option<Job> {
        let Parked { acquire, answer, doubtful, .. } = *self.parked.remove(&id)?;
        self.node.metrics.parked.dec();
        let deadline = Instant::now() + self.node.config.store_deadline;
        Some(Job { command: Command::Acquire(acquire), answer: Some(answer), deadline, doubtful })
    }

    /// The call of a waiter has ended by itself.
    pub(super) fn unpark(&mut self, attachment: Attachment) {
        match self.parked.get(&attachment.id) {
            Some(parked) if parked.is_call(attachment.number) => {
                self.parked.remove(&attachment.id);
                self.node.metrics.parked.dec();
            }
            Some(_) => {}
            None => {
                self.orphans.remove(&attachment.id);
            }
        }
    }

    /// Waiters whose callers have gone keep their place without a call, should their leaving have failed.
    pub(super) fn part_from_the_gone(&mut self) {
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
    pub(super) async fn census(&mut self) {
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
                match self.liveness(id, waiting.node, waiting.attachment) {
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
                self.node.desks.put_back(&self.lock, job);
            }
        }
    }

    /// Counts who is waiting without a call, if the roster shows all who wait.
    pub(super) fn count(&mut self, shown: &[Next]) {
        let (mut orphans, mut elsewhere) = (BTreeMap::new(), 0);
        for next in shown {
            match self.liveness(next.id, next.node, next.attachment) {
                Liveness::Here => {}
                Liveness::Elsewhere => elsewhere += 1,
                Liveness::Orphan => {
                    let since = self.orphans.get(&next.id).copied().unwrap_or_else(Instant::now);
                    orphans.insert(next.id, since);
                }
            }
        }
        (self.elsewhere, self.orphans) = (elsewhere, orphans);
    }

    /// Lets the view know the records of those parked here whom the roster shows: nobody else has changed them.
    pub(super) fn recollect(&mut self) {
        let roster = self.view.record(&self.lock.roster());
        let Some(roster) = roster.and_then(|record| Roster::decode(&record.value).ok()) else { return };
        for next in roster.front.shown().iter().filter(|next| next.node == self.node.id) {
            if let Some(record) = self.parked.get(&next.id).and_then(|parked| parked.record.as_ref())
                && Waiting::decode(&record.value).is_ok_and(|waiting| next.is_of(&waiting))
            {
                self.view.learn(&self.lock.waiting(next.id), Some(Record::clone(record)));
            }
        }
    }

    /// Where a waiter's call is, as far as this desk knows.
    pub(super) fn liveness(&self, id: GrantId, node: NodeId, attachment: u64) -> Liveness {
        if node == self.node.id {
            let parked = self.parked.get(&id);
            let is_here =
                parked.is_some_and(|parked| parked.is_call(attachment) && !parked.answer.is_closed());
            return if is_here { Liveness::Here } else { Liveness::Orphan };
        }
        let may_live = self.node.is_shared
            && node != NodeId::NONE
            && !self.is_out_of_patience()
            && self.node.members.may_live(node);
        if may_live { Liveness::Elsewhere } else { Liveness::Orphan }
    }

    /// Waiters whose place has been kept long enough: as many as one commit drops.
    pub(super) fn forgotten(&self) -> Vec<GrantId> {
        let (kept, now) = (self.node.config.orphan_kept, Instant::now());
        let old = self.orphans.iter().filter(|(_, since)| now.saturating_duration_since(**since) >= kept);
        old.map(|(id, _)| *id).take(FORGOTTEN_MAX).collect()
    }

    /// The draft at hand is true now: whoever it dropped is no orphan any more.
    pub(super) fn forget_who_was_dropped(&mut self) {
        let mut dropped = self.forgotten();
        dropped.retain(|id| self.view.deletes(&self.lock.waiting(*id)));
        for id in dropped {
            self.orphans.remove(&id);
        }
    }

    /// Drops those whose place has been kept long enough, as many as whoever comes to the desk meanwhile can wait for.
    pub(super) async fn prune(&mut self) {
        for _ in 0..PRUNINGS_MAX {
            let forgotten = self.forgotten();
            if forgotten.is_empty() {
                return;
            }
            self.work(VecDeque::from([self.internal(Command::Prune)]), None).await;
            if self.is_blind {
                return;
            }
            // Whoever is still there has a call again.
            self.orphans.retain(|id, _| !forgotten.contains(id));
        }
    }

    /// The node stops: every parked call is told to call again. Places are kept for them by the next node.
    pub(super) fn dismiss(&mut self) {
        for (_, parked) in std::mem::take(&mut self.parked) {
            self.node.metrics.parked.dec();
            // If it is gone already, it will not call again.
            drop(parked.answer.send(Answer::CallAgain));
        }
        self.orphans.clear();
        self.owes_look = false;
    }
}
