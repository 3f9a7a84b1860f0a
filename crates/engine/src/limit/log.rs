//! The logs of limits, from the writer's side: lines that wait together are written together.
//!
//! Each limit with lines to write has a *lane*, and one writer at a time. What a caller waits for is written at once, with all that came
//! while the write before was under way; what nobody waits for is written soon. A write that fails is tried again, the very
//! same lines, until the store has them: so a decision that was counted has its line, unless its node ends before.
//!
//! Every line takes a place among those that wait, before anything is decided. At the bound audited calls are refused as
//! overloaded, with nothing counted, and lines about leases are dropped, and counted.

use super::calls::LimitError;
use crate::engine::Node;
use crate::failure::Failure;
use baton_core::limit::log::{Appending, LINES_MAX, append};
use baton_core::limit::{Event, Line, Log};
use baton_core::meter::{Claim, Meter, Take};
use baton_core::{Name, Record, Revision};
use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::task::JoinSet;
use tokio::time::Instant;

/// Lines of decisions that wait to be written, also because the store is away.
const AUDIT_WAITING_MAX: usize = 10_000;
/// The same, of leases.
const LEASES_WAITING_MAX: usize = 10_000;
/// Lanes that are kept although nothing waits in them, for what they know of the head.
const IDLE_LANES_MAX: usize = 1_024;
/// Lanes written at once, of those that nobody waits for.
const WRITTEN_TOGETHER: usize = 64;
/// How long decisions are kept.
const AUDIT_KEPT: Duration = Duration::from_secs(30 * 24 * 60 * 60);

/// What waits to be written.
pub(crate) struct Logs {
    lanes: Mutex<HashMap<(Log, Name), Lane>>,
    audit: Arc<Semaphore>,
    leases: Arc<Semaphore>,
    next: AtomicU64,
}

impl Default for Logs {
    fn default() -> Self {
        Self {
            lanes: Mutex::default(),
            audit: Arc::new(Semaphore::new(AUDIT_WAITING_MAX)),
            leases: Arc::new(Semaphore::new(LEASES_WAITING_MAX)),
            next: AtomicU64::new(1),
        }
    }
}

#[derive(Default)]
struct Lane {
    waiting: VecDeque<Waiting>,
    /// What couldn't be written, or may have been.
    stuck: Option<(Appending, Vec<Room>)>,
    /// The head as this node put it last.
    head: Option<Record>,
    is_written: bool,
}

struct Waiting {
    line: Line,
    room: Room,
    written: Option<oneshot::Sender<()>>,
}

/// A place among the lines that wait.
pub(super) struct Room(#[expect(dead_code, reason = "given back when it is dropped")] OwnedSemaphorePermit);

/// What a line says, beside what every line does.
pub(super) struct Said<'a> {
    pub event: Event,
    pub key: &'a str,
    pub by: &'a str,
    pub reference: &'a str,
    pub source: &'a str,
    pub amount: u64,
    pub remaining: u64,
    pub spent: u64,
    pub ttl_ms: u64,
}

impl Logs {
    fn lanes(&self) -> MutexGuard<'_, HashMap<(Log, Name), Lane>> {
        self.lanes.lock().expect("no panic while held")
    }

    /// A place for a line, before it is known what it says.
    pub(super) fn room(&self, log: Log) -> Result<Room, Failure> {
        let places = match log {
            Log::Audit => &self.audit,
            Log::Leases => &self.leases,
        };
        places.clone().try_acquire_owned().map(Room).map_err(|_| Failure::Overloaded)
    }

    fn push(&self, log: Log, name: &Name, waiting: Waiting) {
        let mut lanes = self.lanes();
        let place = (log, name.clone());
        if lanes.len() >= IDLE_LANES_MAX && !lanes.contains_key(&place) {
            lanes.retain(|_, lane| lane.is_written || lane.stuck.is_some() || !lane.waiting.is_empty());
        }
        lanes.entry(place).or_default().waiting.push_back(waiting);
    }
}

impl Node {
    /// A line, as of now.
    pub(super) fn line(&self, said: Said<'_>) -> Line {
        let Said { event, key, by, reference, source, amount, remaining, spent, ttl_ms } = said;
        let number = self.limit_logs.next.fetch_add(1, Ordering::Relaxed);
        let [key, by, reference, source] = [key, by, reference, source].map(String::from);
        let (at, node) = (self.now(), self.id.0);
        Line { event, at, node, number, key, by, reference, source, amount, remaining, spent, ttl_ms }
    }

    /// Writes lines before anybody is answered.
    pub(super) async fn write_lines(
        self: &Arc<Self>,
        lines: Vec<(Name, Line, Room)>,
        until: Instant,
    ) -> Result<(), LimitError> {
        let mut told = Vec::with_capacity(lines.len());
        for (name, line, room) in lines {
            let (written, is_written) = oneshot::channel();
            self.limit_logs.push(Log::Audit, &name, Waiting { line, room, written: Some(written) });
            tokio::spawn(self.clone().write(Log::Audit, name));
            told.push(is_written);
        }
        for is_written in told {
            // It is dropped without a word if it couldn't be written yet.
            if !matches!(tokio::time::timeout_at(until, is_written).await, Ok(Ok(()))) {
                return Err(Failure::Unavailable { unknown: true }.into());
            }
        }
        Ok(())
    }

    /// Writes a line behind the answer.
    pub(super) fn write_later(&self, log: Log, name: &Name, line: Line, room: Room) {
        self.limit_logs.push(log, name, Waiting { line, room, written: None });
    }

    /// Keeps what became of a lease, behind the answers. At the bound, or where memory is short, it is dropped, and counted.
    fn log_lease(&self, name: &Name, said: Said<'_>) {
        match self.limit_logs.room(Log::Leases) {
            Ok(room) if !self.store.usage().is_tight() => {
                self.write_later(Log::Leases, name, self.line(said), room);
            }
            _ => {
                self.metrics.history_dropped.inc();
            }
        }
    }

    /// The same, of what a holder said and what it has then. Who asked for more and got nothing has nothing to be written down.
    pub(super) fn log_lease_message(&self, name: &Name, key: &str, claim: &Claim, meter: &Meter) {
        let Some(row) = &claim.row else { return };
        let amount = meter.row(&row.id).map_or(0, |row| row.amount);
        let event = match (amount, row.sequence) {
            (0, 2..) if claim.take == Take::Nothing => Event::Returned,
            (0, _) => return,
            (_, 1) => Event::Granted,
            _ => Event::Renewed,
        };
        let said = Said {
            event,
            key,
            by: &row.owner,
            reference: &row.id,
            source: "",
            amount,
            remaining: meter.remaining(&claim.rule),
            spent: row.spent,
            ttl_ms: if amount > 0 { row.ttl_ms } else { 0 },
        };
        self.log_lease(name, said);
    }

    /// Keeps that a lease of this node ended with something left in it.
    pub(super) fn log_lapse(&self, name: &Name, key: &str, lease_id: &str, amount: u64) {
        let (event, source) = (Event::Lapsed, "");
        let by = &format!("{:016x}", self.id.0);
        let (remaining, spent, ttl_ms) = (0, 0, 0);
        let reference = lease_id;
        self.log_lease(name, Said { event, key, by, reference, source, amount, remaining, spent, ttl_ms });
    }

    /// Writes what waits in a lane, until nothing does or the store can't. One at a time: who comes while another writes finds its
    /// lines written by that one.
    async fn write(self: Arc<Self>, log: Log, name: Name) {
        let place = (log, name);
        loop {
            let (mut appending, rooms, told, head) = {
                let mut lanes = self.limit_logs.lanes();
                let Some(lane) = lanes.get_mut(&place).filter(|lane| !lane.is_written) else { return };
                let Some((appending, rooms, told)) = lane.take() else { return };
                lane.is_written = true;
                (appending, rooms, told, lane.head.clone())
            };
            let name = &place.1;
            let kept = match log {
                Log::Audit => AUDIT_KEPT,
                Log::Leases => self.config.history_kept,
            };
            let decided = self
                .decide(name.group(), self.deadline(), |view| {
                    append(log, name, &mut appending, head.as_ref(), kept, view)
                })
                .await;
            let mut lanes = self.limit_logs.lanes();
            let Some(lane) = lanes.get_mut(&place) else { return };
            lane.is_written = false;
            match decided {
                Ok(decided) => {
                    let (key, value, revision) = (log.head(name), decided.reply, decided.revision);
                    let (touches, expires_in) = (0, None);
                    let head = Record { key, value, created: revision, revision, touches, expires_in };
                    // What an earlier try had written has another revision, which isn't known here.
                    lane.head = (revision != Revision::default()).then_some(head);
                    for written in told.into_iter().flatten() {
                        // Nobody may be waiting any more.
                        written.send(()).ok();
                    }
                }
                Err(_) if log == Log::Leases => {
                    // Like a lock's history it follows, it doesn't lead.
                    self.metrics.history_dropped.inc_by(appending.lines.len() as u64);
                    return;
                }
                Err(_) => {
                    lane.stuck = Some((appending, rooms));
                    // Those behind it hear at once that theirs isn't written either.
                    lane.waiting.iter_mut().for_each(|waiting| waiting.written = None);
                    return;
                }
            }
        }
    }
}

type Taken = (Appending, Vec<Room>, Vec<Option<oneshot::Sender<()>>>);

impl Lane {
    /// What to write next; nothing if nothing waits.
    fn take(&mut self) -> Option<Taken> {
        if let Some((appending, rooms)) = self.stuck.take() {
            return Some((appending, rooms, Vec::new()));
        }
        let count = self.waiting.len().min(LINES_MAX);
        let (mut appending, mut rooms, mut told) = (Appending::default(), Vec::new(), Vec::new());
        for Waiting { line, room, written } in self.waiting.drain(..count) {
            appending.lines.push(line);
            rooms.push(room);
            told.push(written);
        }
        (count > 0).then_some((appending, rooms, told))
    }
}

/// Writes what nobody waits for, and what couldn't be written before, until the node drains.
pub(crate) async fn keep(node: Arc<Node>) {
    loop {
        tokio::select! {
            biased;
            () = node.draining.wait() => return,
            () = tokio::time::sleep(node.config.history_every) => flush(&node).await,
        }
    }
}

/// Writes what waits, as far as the store can.
pub(crate) async fn flush(node: &Arc<Node>) {
    let places: Vec<_> = {
        let lanes = node.limit_logs.lanes();
        let waiting = lanes.iter().filter(|(_, lane)| lane.stuck.is_some() || !lane.waiting.is_empty());
        waiting.map(|(place, _)| place.clone()).collect()
    };
    let mut places = places.into_iter().peekable();
    while places.peek().is_some() {
        // Side by side, so that the store can sync them together.
        let some = places.by_ref().take(WRITTEN_TOGETHER);
        some.map(|(log, name)| node.clone().write(log, name)).collect::<JoinSet<_>>().join_all().await;
    }
}
