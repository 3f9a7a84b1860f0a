//! The writer: the one thread that owns the state and the log.
//!
//! It takes what is waiting, decides each request in turn, writes all effects as one batch, syncs once, and only
//! then answers: also reads and conflicts, which may have seen what wasn't durable yet.

use super::apply::{self, Application};
use super::log::{Batch, Log};
use super::queue::{Answer, Copied, Landed, Mark, Queue, Request, refuse};
use super::state::{self, State, View};
use super::time::{LeaseClock, Time};
use crate::charge::{self, Charge};
use crate::contract::{Page, Range, Reading, Reason, StoreError};
use crate::watch::{Change, Hub};
use baton_core::meter::{Charged, settle};
use baton_core::{Commit, Key, Outcome, Record, Revision, WallTime};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::SyncSender;
use std::time::Duration;
use tokio::runtime::Handle;

/// A batch is closed when it has this many bytes.
const BATCH_BYTES_MAX: usize = 1 << 20;
/// A scan's page is cut when it has this many bytes.
const PAGE_BYTES_MAX: usize = 4 << 20;
/// Records copied for a snapshot in one go, and about how many bytes.
const COPY_RECORDS_MAX: usize = 256;
const COPY_BYTES_MAX: usize = 256 << 10;
/// Expired records taken back in one batch.
const COLLECT_MAX: usize = 256;
/// How far the durable lease clock may fall behind while there are leases.
const CLOCK_LAG_US_MAX: u64 = 1_000_000;
/// What is kept in the log for commits that free memory, or only renew, once the disk is full.
const LOG_RESERVE_BYTES: usize = 4 << 10;
const TICK: Duration = Duration::from_secs(1);
/// How long a batch may gather when there is company.
const GATHER: Duration = Duration::from_micros(30);

/// What a store shows of itself without asking the writer.
#[derive(Default)]
pub(super) struct Gauges {
    pub records: AtomicU64,
    pub bytes: AtomicU64,
}

pub(super) struct Writer {
    pub state: State,
    pub log: Log,
    pub time: Arc<dyn Time>,
    pub clock: LeaseClock,
    /// What the log has of the lease clock.
    pub durable_us: u64,
    pub revision: u64,
    pub full_bytes: u64,
    pub hub: Arc<Hub>,
    pub expirations: Arc<Hub>,
    /// Where callers are told, if there is one.
    pub runtime: Option<Handle>,
    pub gauges: Arc<Gauges>,
    pub on_fatal: Arc<dyn Fn(&str) + Send + Sync>,
    /// Log bytes since the last snapshot began, and where to say that it is time for another.
    pub log_bytes: u64,
    pub snapshot_at: Arc<AtomicU64>,
    pub snapshot_due: SyncSender<()>,
    pub batch: Batch,
    pub hints: Vec<Change>,
    /// Whether this batch must be synced even if it has no effects.
    pub must_sync: bool,
    pub dead: Option<String>,
    /// Whether something that was appended wasn't done: then nothing after it is.
    pub is_line_broken: bool,
}

/// An answer that waits for the sync.
enum Reply {
    Commit(Answer<Outcome>, Result<Outcome, StoreError>),
    Append(Landed, Result<(), StoreError>),
    Charge(Answer<Charged>, Result<Charged, StoreError>),
    Read(Answer<Reading>, Result<Reading, StoreError>),
    Scan(Answer<Page>, Result<Page, StoreError>),
    Mark(SyncSender<Mark>),
    Copy(SyncSender<Copied>, Vec<(baton_core::Bytes, super::effect::Entry)>),
}

impl Reply {
    /// Whoever no longer listens doesn't mind.
    fn send(self) {
        match self {
            Self::Commit(answer, outcome) => drop(answer.send(outcome)),
            Self::Charge(answer, charged) => drop(answer.send(charged)),
            Self::Read(answer, reading) => drop(answer.send(reading)),
            Self::Scan(answer, page) => drop(answer.send(page)),
            Self::Append(..) | Self::Mark(_) | Self::Copy(..) => {}
        }
    }

    fn withhold(&mut self) {
        let full = || StoreError::NotApplied {
            reason: Reason::Full,
            detail: "no disk space to make an expiry durable".into(),
        };
        match self {
            Self::Commit(_, outcome) if outcome.is_ok() => *outcome = Err(full()),
            Self::Append(_, done) if done.is_ok() => *done = Err(full()),
            Self::Charge(_, charged) if charged.is_ok() => *charged = Err(full()),
            Self::Read(_, reading) => *reading = Err(full()),
            Self::Scan(_, page) => *page = Err(full()),
            Self::Commit(..) | Self::Append(..) | Self::Charge(..) | Self::Mark(_) | Self::Copy(..) => {}
        }
    }
}

impl Writer {
    /// Serves the queue until asked to close.
    pub fn run(mut self, queue: &Queue) {
        let mut waiting = Vec::new();
        let mut company = 0;
        loop {
            let wait = if self.collects() { Duration::ZERO } else { TICK };
            queue.take(&mut waiting, wait);
            if company > 1 && waiting.len() < company {
                queue.gather(company - waiting.len(), GATHER);
                queue.take(&mut waiting, Duration::ZERO);
            }
            company = waiting.len();
            let mut requests = waiting.drain(..).peekable();
            let mut open = true;
            while open {
                open = self.serve(&mut requests);
                if requests.peek().is_none() {
                    break;
                }
            }
            requests.for_each(|request| refuse(request, "the store is closed"));
            if !open {
                return;
            }
        }
    }

    /// One batch: decide, write, sync, answer. `false` when asked to close.
    fn serve(&mut self, requests: &mut std::iter::Peekable<impl Iterator<Item = Request>>) -> bool {
        if let Some(why) = &self.dead {
            for request in requests {
                if matches!(request, Request::Close) {
                    return false;
                }
                refuse(request, why);
            }
            return true;
        }
        let wall = self.time.wall();
        let now = WallTime(u64::try_from(wall.as_millis()).unwrap_or(u64::MAX));
        let wall_us = u64::try_from(wall.as_micros()).unwrap_or(u64::MAX);
        let now_us = self.clock.now_us(&*self.time);
        let mut view = View { now_us, durable_us: self.durable_us, saw_fresh_expiry: false };
        let trouble = self.log.trouble();
        let mut replies = Vec::new();
        let mut open = true;
        while let Some(request) = requests.peek() {
            let log_bytes_max = match request {
                Request::Commit(commit, _) | Request::Append(commit, _) => apply::log_bytes_max(commit),
                Request::Charge(charge, _) => apply::charge_bytes_max(&self.state, charge),
                _ => 0,
            };
            if log_bytes_max > 0 && !self.batch.is_empty() && !self.admits(log_bytes_max) {
                break;
            }
            let Some(request) = requests.next() else { break };
            replies.push(match request {
                Request::Commit(commit, answer) => {
                    let outcome = self.commit(commit, &mut view, now, wall_us, trouble.as_deref());
                    Reply::Commit(answer, outcome)
                }
                Request::Append(commit, landed) => {
                    Reply::Append(landed, self.append(commit, now_us, wall_us, trouble.as_deref()))
                }
                Request::Charge(charge, answer) => {
                    let charged = self.charge(&charge, &mut view, now, wall_us, trouble.as_deref());
                    Reply::Charge(answer, charged)
                }
                Request::Read(keys, answer) => Reply::Read(answer, Ok(self.read(&keys, &mut view, now))),
                Request::Scan(range, limit, answer) => {
                    Reply::Scan(answer, Ok(self.scan(&range, limit, &mut view, now)))
                }
                Request::Mark(answer) => Reply::Mark(answer),
                Request::Copy(group, after, answer) => {
                    let records = self.state.copy(group, after.as_ref(), COPY_RECORDS_MAX, COPY_BYTES_MAX);
                    Reply::Copy(answer, records)
                }
                Request::Close => {
                    open = false;
                    break;
                }
            });
        }
        self.must_sync |= view.saw_fresh_expiry;
        let lag_us = now_us.saturating_sub(self.durable_us);
        let clock_due =
            self.state.has_leases() && (lag_us >= CLOCK_LAG_US_MAX || !open) && self.log.has_room(0);
        if !self.batch.is_empty() || self.must_sync || clock_due {
            if self.log.has_room(self.batch.len()) || self.log.wait_for_room(self.batch.len()) {
                self.persist(now_us);
            } else {
                // Commits have looked for room: this batch only saw an expiry that can't be made durable.
                self.must_sync = false;
                replies.iter_mut().for_each(Reply::withhold);
            }
        }
        self.publish_gauges();
        self.answer(replies);
        open
    }

    pub fn publish_gauges(&self) {
        self.gauges.records.store(self.state.records, Ordering::Relaxed);
        self.gauges.bytes.store(self.state.bytes, Ordering::Relaxed);
    }

    /// Whether so much may join the batch as it is.
    fn admits(&self, log_bytes_max: usize) -> bool {
        let bytes = self.batch.len() + log_bytes_max;
        bytes <= BATCH_BYTES_MAX && self.log.has_room(bytes + LOG_RESERVE_BYTES)
    }

    fn commit(
        &mut self,
        commit: Commit,
        view: &mut View,
        now: WallTime,
        wall_us: u64,
        trouble: Option<&str>,
    ) -> Result<Outcome, StoreError> {
        crate::valid::validate(&commit)?;
        if let Err(found) = apply::check(&self.state, &commit, view) {
            return Ok(Outcome::Conflict { found, now });
        }
        let (revision, witnessed) = self.carry_out(commit, view.now_us, wall_us, trouble, true)?;
        Ok(Outcome::Committed { revision, now, witnessed })
    }

    fn append(
        &mut self,
        commit: Commit,
        now_us: u64,
        wall_us: u64,
        trouble: Option<&str>,
    ) -> Result<(), StoreError> {
        if self.is_line_broken {
            return Err(super::queue::unavailable("what was appended before this was not done"));
        }
        let done = crate::valid::validate_appended(&commit)
            .and_then(|()| self.carry_out(commit, now_us, wall_us, trouble, true).map(drop));
        self.is_line_broken = done.is_err();
        done
    }

    fn charge(
        &mut self,
        charge: &Charge,
        view: &mut View,
        now: WallTime,
        wall_us: u64,
        trouble: Option<&str>,
    ) -> Result<Charged, StoreError> {
        let mut value = |key: &Key| self.state.get(key, view).map(|(_, entry)| entry.value.clone());
        if let Some(memo) = &charge.memo
            && let Some(charged) = charge::remembered(value(&memo.key).as_ref())?
        {
            return Ok(charged);
        }
        let found: Vec<_> = charge.claims.iter().map(|claim| value(&claim.key)).collect();
        let settled = settle(&charge.claims, &found, now.0).map_err(|_| charge::unreadable())?;
        let commit = Commit { checks: Vec::new(), writes: charge::writes(charge, &settled, now.0) };
        if !commit.writes.is_empty() {
            self.carry_out(commit, view.now_us, wall_us, trouble, false)?;
        }
        charge::charged(settled, now.0)
    }

    /// Does what was found to hold: its revision, and what it witnessed.
    fn carry_out(
        &mut self,
        commit: Commit,
        now_us: u64,
        wall_us: u64,
        trouble: Option<&str>,
        hints: bool,
    ) -> Result<(Revision, Vec<Option<Record>>), StoreError> {
        self.find_room(&commit, trouble)?;
        let next = self.revision + 1;
        let revision = Revision(if wall_us > Revision::MAX.0 { next } else { next.max(wall_us) });
        if revision > Revision::MAX {
            return Err(super::queue::unavailable("revisions are used up"));
        }
        self.revision = revision.0;
        self.must_sync = true;
        let hints = (hints && self.hub.is_watched()).then_some(&mut self.hints);
        let (state, log) = (&mut self.state, self.batch.payload());
        let mut application = Application { state, log, hints, revision, now_us };
        Ok((revision, application.apply(commit.writes)))
    }

    /// Refuses a commit for which there is no memory or no disk, before anything has changed.
    fn find_room(&self, commit: &Commit, trouble: Option<&str>) -> Result<(), StoreError> {
        let full = |detail: String| Err(StoreError::NotApplied { reason: Reason::Full, detail });
        let bytes = self.batch.len() + apply::log_bytes_max(commit);
        let bytes_at_most = self.state.bytes.saturating_add(apply::growth_max(commit));
        if trouble.is_none()
            && bytes_at_most <= self.full_bytes
            && self.log.has_room(bytes + LOG_RESERVE_BYTES)
        {
            // Nearly always: there is room even if all of it is new.
            return Ok(());
        }
        let growth = apply::growth(&self.state, commit);
        if growth > 0 {
            if let Some(why) = trouble {
                return full(format!("no disk space for the log: {why}"));
            }
            if self.state.bytes.saturating_add_signed(growth) > self.full_bytes {
                return full(format!("{} of {} bytes in use", self.state.bytes, self.full_bytes));
            }
        }
        let bytes = if growth > 0 { bytes + LOG_RESERVE_BYTES } else { bytes };
        if !self.log.has_room(bytes) && !self.log.wait_for_room(bytes) {
            let why = self.log.trouble().unwrap_or_else(|| "a segment is smaller than this commit".into());
            return full(format!("no room in the log: {why}"));
        }
        Ok(())
    }

    fn read(&self, keys: &[Key], view: &mut View, now: WallTime) -> Reading {
        Reading { records: keys.iter().map(|key| apply::read(&self.state, key, view)).collect(), now }
    }

    fn scan(&mut self, range: &Range, limit: usize, view: &mut View, now: WallTime) -> Page {
        let now_us = view.now_us;
        let mut page = Page { records: Vec::new(), more: false, now };
        let mut bytes = 0;
        for (name, entry) in self.state.scan(range.group, &range.prefix, range.after.as_deref(), view) {
            if page.records.len() >= limit || bytes > PAGE_BYTES_MAX {
                page.more = true;
                break;
            }
            bytes += name.len() + entry.value.len();
            page.records.push(state::record(range.group, name, entry, now_us));
        }
        page
    }

    /// One write, one sync. When either fails nobody can say what the disk holds: that is the end.
    fn persist(&mut self, now_us: u64) {
        let appended = self.log.append(&mut self.batch, now_us, self.revision);
        match appended.and_then(|bytes| self.log.sync().map(|()| bytes)) {
            Ok(bytes) => {
                self.durable_us = now_us;
                self.log_bytes += bytes as u64;
                if self.log_bytes >= self.snapshot_at.load(Ordering::Relaxed) {
                    self.snapshot_at.store(u64::MAX, Ordering::Relaxed);
                    // A full channel means that it has been said already.
                    self.snapshot_due.try_send(()).ok();
                }
            }
            Err(error) => {
                let why = format!("can't write the log: {error}");
                (self.on_fatal)(&why);
                self.dead = Some(why);
            }
        }
        self.must_sync = false;
        self.batch.clear();
    }

    fn answer(&mut self, replies: Vec<Reply>) {
        if self.dead.is_none() && !self.hints.is_empty() {
            self.hub.publish(self.hints.drain(..));
        }
        let mark = Mark {
            sequence: self.log.sequence(),
            segment: self.log.segment(),
            clock_us: self.durable_us,
            revision: self.revision,
        };
        let (mut callers, mut landed) = (Vec::with_capacity(replies.len()), Vec::new());
        for reply in replies {
            match reply {
                Reply::Mark(answer) => {
                    self.log_bytes = 0;
                    answer.send(mark).ok();
                }
                Reply::Copy(answer, records) => drop(answer.send(Copied { records, mark })),
                Reply::Commit(answer, outcome) => {
                    callers.push(Reply::Commit(answer, self.unless_dead(outcome)))
                }
                Reply::Append(tell, done) => landed.push((tell, self.unless_dead(done))),
                Reply::Charge(answer, charged) => {
                    callers.push(Reply::Charge(answer, self.unless_dead(charged)))
                }
                Reply::Read(answer, reading) => callers.push(Reply::Read(answer, self.unless_dead(reading))),
                Reply::Scan(answer, page) => callers.push(Reply::Scan(answer, self.unless_dead(page))),
            }
        }
        match &self.runtime {
            // One wake-up for the whole batch instead of one for each, and this thread is free for the next one.
            Some(runtime) if callers.len() > 1 => {
                runtime.spawn(async move { callers.into_iter().for_each(Reply::send) });
            }
            _ => callers.into_iter().for_each(Reply::send),
        }
        landed.into_iter().for_each(|(tell, done)| tell(done));
    }

    /// Nobody hears of what may not be durable.
    fn unless_dead<T>(&self, answer: Result<T, StoreError>) -> Result<T, StoreError> {
        match &self.dead {
            Some(why) => answer.and(Err(StoreError::Unknown { detail: why.clone() })),
            None => answer,
        }
    }

    /// Takes back memory of the expired; whether there may be more.
    fn collects(&mut self) -> bool {
        let hub = self.expirations.clone();
        let tell = |key| {
            if hub.is_watched() {
                hub.publish(std::iter::once(Change::Expired { key }));
            }
        };
        self.state.collect(self.durable_us, COLLECT_MAX, tell) == COLLECT_MAX
    }
}
