//! A job while something is decided about it: read from the view, changed, put back. What every rule shares.

use super::definition::{Definition, Guarantee, Overlap};
use super::id::{RunId, RunPlace};
use super::lease::Lease;
use super::place::{definition_key, index_key, lease_key, limit_key, ready_key, run_key, state_key};
use super::run::{End, MESSAGE_BYTES_MAX, Outcome, Progress, Reason, Run, tail};
use super::state::{Active, Delivery, OUTBOX_MAX, Phase, State};
use crate::commit::Ttl;
use crate::name::Name;
use crate::record::{Bytes, WallTime};
use crate::view::{Pause, Stamp, View};
use alloc::string::String;
use core::time::Duration;
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// What an attempt's lease lasts longer than the attempt may take, for what a node runs itself.
pub const GRACE: Duration = Duration::from_secs(10);
/// What is made up for begins this much after it could: what is due now comes first.
const CATCH_UP_PAUSE: Duration = Duration::from_millis(50);
/// When a run is tried again that no node had room for.
const ROOM_PAUSE: Duration = Duration::from_millis(500);

/// A job, and the moment at which something is decided about it.
pub(super) struct Work<'a> {
    pub name: &'a Name,
    pub definition: Definition,
    pub state: State,
    pub now: WallTime,
}

/// An attempt that was begun: whoever committed it runs it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Begun {
    /// Of which run.
    pub run: RunId,
    /// From 1.
    pub attempt: u32,
    /// When the run was to begin.
    pub due: WallTime,
    /// The fencing token.
    pub token: Stamp,
    /// How long its lease lasts.
    pub lease: Duration,
    /// What the job said then.
    pub definition: Definition,
}

/// How an attempt ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AttemptEnd {
    /// Acknowledged or not.
    pub succeeded: bool,
    /// Why not, if it is known better than that the target said no.
    pub reason: Option<Reason>,
    /// A status, an error.
    pub message: String,
    /// What it wrote.
    pub output: Bytes,
}

impl<'a> Work<'a> {
    /// The job, if there is one. The state is checked, and vouches for the definition: an edit puts both.
    pub fn load(name: &'a Name, now: WallTime, view: &mut View) -> Result<Option<Self>, Pause> {
        let Some(state) = view.get(&state_key(name))? else { return Ok(None) };
        let Some(definition) = view.peek(&definition_key(name))? else { return Ok(None) };
        let definition = Definition::decode(&definition.value)?;
        Ok(Some(Self { name, definition, state: State::decode(&state.value)?, now }))
    }

    pub fn id(&self, place: RunPlace) -> RunId {
        RunId { uid: self.definition.uid, place }
    }

    /// Whether its schedule counts.
    pub fn is_on(&self) -> bool {
        self.definition.enabled && self.state.paused_at.is_none()
    }

    fn deadline(&self, due: WallTime) -> Option<WallTime> {
        self.definition.deadline_ms.map(|ms| due.after(Duration::from_millis(ms)))
    }

    /// Whether it has one attempt and no more: the job says so now, or did when that was sent.
    fn is_once(&self, active: &Active) -> bool {
        active.is_once || self.definition.guarantee == Guarantee::AtMostOnce
    }

    /// Whether an attempt may begin.
    pub fn may_begin(&self, active: &Active) -> bool {
        let is_in_time = self.deadline(active.due).is_none_or(|deadline| self.now < deadline);
        is_in_time && !(self.is_once(active) && active.attempt > 0)
    }

    /// Ends a run under way that no attempt may be begun of any more.
    pub fn give_up(&mut self, index: usize, view: &mut View) -> Result<(), Pause> {
        let active = self.state.active[index];
        match self.get_run(active.place, view)? {
            Some(run) => {
                let said = AttemptEnd { output: run.output.clone(), ..AttemptEnd::failed(&run.message) };
                let (outcome, reason) = match self.is_once(&active) && active.attempt > 0 {
                    // Nobody said how its attempt ended.
                    true if run.token == 0 => (Outcome::Unknown, Reason::AtMostOnceUnknown),
                    true => (Outcome::Failed, Reason::Refused),
                    false => (Outcome::Failed, Reason::Deadline),
                };
                self.end(index, run, outcome, Some(reason), &said, view);
            }
            None => drop(self.state.active.remove(index)),
        }
        Ok(())
    }

    // Runs.

    /// A record for a run that is about to be made.
    pub fn run(&self, due: WallTime, progress: Progress) -> Run {
        Run {
            namespace: self.name.namespace().into(),
            job: self.name.key().into(),
            progress,
            due,
            attempt: 0,
            made_at: self.now,
            started_at: None,
            token: 0,
            runner: String::new(),
            message: String::new(),
            output: Bytes::default(),
            stands_for: None,
        }
    }

    pub fn put_run(&self, place: RunPlace, run: &Run, view: &mut View) {
        // One that nobody ever ended is forgotten with the others.
        view.put(&run_key(self.id(place)), run.encode(), Ttl::AtLeast(self.definition.kept()));
    }

    pub fn get_run(&self, place: RunPlace, view: &mut View) -> Result<Option<Run>, Pause> {
        let seen = view.peek(&run_key(self.id(place)))?;
        Ok(seen.map(|seen| Run::decode(&seen.value)).transpose()?)
    }

    /// Whether the run's id is free. The commit checks it, so no two schedulers make one run (J4).
    pub fn is_new(&self, place: RunPlace, view: &mut View) -> Result<bool, Pause> {
        let key = run_key(self.id(place));
        view.assume_absent(&key);
        Ok(view.get(&key)?.is_none())
    }

    /// A run under way from now on: its first attempt begins as soon as there is room.
    pub fn enter(&mut self, place: RunPlace, due: WallTime, view: &mut View) -> Result<(), Pause> {
        if self.is_new(place, view)? {
            self.put_run(place, &self.run(due, Progress::Waiting(self.now)), view);
            self.activate(place, due);
        }
        Ok(())
    }

    fn activate(&mut self, place: RunPlace, due: WallTime) {
        self.state.counts.started += 1;
        let phase = Phase::Waiting(self.now);
        self.state.active.push(Active { place, attempt: 0, due, phase, is_once: false });
    }

    /// A run that waits for others of its job.
    pub fn enqueue(&mut self, place: RunPlace, due: WallTime, view: &mut View) -> Result<(), Pause> {
        if self.is_new(place, view)? {
            self.put_run(place, &self.run(due, Progress::Queued), view);
            self.state.queue.push(place);
        }
        Ok(())
    }

    /// The first that waits is under way from now on. One whose record is gone was kept for as long as it may be.
    pub fn dequeue(&mut self, view: &mut View) -> Result<(), Pause> {
        let place = self.state.queue.remove(0);
        if let Some(run) = self.get_run(place, view)? {
            let run = Run { progress: Progress::Waiting(self.now), ..run };
            self.put_run(place, &run, view);
            // Its deadline counts from when it could begin.
            self.activate(place, self.now);
        }
        Ok(())
    }

    /// A time that doesn't run, and why (J14); or several, of which it is the last.
    pub fn skip(
        &mut self,
        place: RunPlace,
        reason: Reason,
        stands_for: Option<(WallTime, u64)>,
        view: &mut View,
    ) -> Result<(), Pause> {
        if !self.is_new(place, view)? {
            return Ok(());
        }
        let end = End { at: self.now, outcome: Outcome::Skipped, reason: Some(reason) };
        let run = Run { stands_for, ..self.run(place.nominal, Progress::Ended(end)) };
        self.put_run(place, &run, view);
        self.state.kept = self.state.kept.saturating_add(1);
        self.state.counts.skipped += stands_for.map_or(1, |(_, count)| count);
        Ok(())
    }

    // Attempts.

    /// Begins the attempt of a run under way, if a node runs it and has room; or lets a worker take it.
    pub fn begin(
        &mut self,
        index: usize,
        by: &Beginner<'_>,
        view: &mut View,
    ) -> Result<Option<Begun>, Pause> {
        let active = self.state.active[index];
        if !self.may_begin(&active) {
            self.give_up(index, view)?;
            return Ok(None);
        }
        let Some(mut run) = self.get_run(active.place, view)? else {
            self.state.active.remove(index);
            return Ok(None);
        };
        let id = self.id(active.place);
        if let Some(queue) = self.definition.target.queue() {
            let ready = ready_key(self.name.namespace(), queue, active.due, id);
            view.put(&ready, [1][..].into(), Ttl::AtLeast(self.definition.kept()));
            run.progress = Progress::Ready;
            self.state.active[index].phase = Phase::Ready;
            self.put_run(active.place, &run, view);
            return Ok(None);
        }
        if !by.has_room {
            self.state.active[index].phase = Phase::Waiting(self.now.after(ROOM_PAUSE));
            return Ok(None);
        }
        let lease = Duration::from_millis(self.definition.timeout_ms) + GRACE;
        Ok(Some(self.lease(index, run, by, lease, view)))
    }

    /// An attempt begins now, with a lease of this length.
    pub fn lease(
        &mut self,
        index: usize,
        run: Run,
        by: &Beginner<'_>,
        lease: Duration,
        view: &mut View,
    ) -> Begun {
        let now = self.now;
        let timeout = Duration::from_millis(self.definition.timeout_ms);
        // What a node runs itself it ends itself; should it not, the lease is over soon after.
        let is_elsewhere = self.definition.target.queue().is_some();
        let over_at = now.after(if is_elsewhere { timeout } else { lease });
        let active = &mut self.state.active[index];
        active.attempt += 1;
        active.phase = Phase::Running { look_at: now.after(lease), over_at };
        let Active { place, attempt, due, .. } = *active;
        let id = self.id(place);
        let value = Lease { nonce: by.nonce, attempt, runner: by.runner.into() };
        view.put(&lease_key(id), value.encode(), Ttl::Exactly(lease));
        if is_elsewhere {
            view.put(&limit_key(id), [1][..].into(), Ttl::Exactly(timeout));
        }
        let started_at = Some(now);
        // What the attempt before it wrote is over.
        let (runner, output) = (by.runner.into(), Bytes::default());
        let run = Run { progress: Progress::Running, attempt, started_at, runner, output, ..run };
        self.put_run(place, &run, view);
        Begun { run: id, attempt, due, token: Stamp::ThisCommit, lease, definition: self.definition.clone() }
    }

    /// An attempt was never made: it doesn't count, and is made when there is room.
    pub fn give_back(&mut self, index: usize, view: &mut View) -> Result<(), Pause> {
        let again_at = self.now.after(ROOM_PAUSE);
        let active = &mut self.state.active[index];
        active.attempt = active.attempt.saturating_sub(1);
        (active.phase, active.is_once) = (Phase::Waiting(again_at), false);
        let active = *active;
        view.delete(&lease_key(self.id(active.place)));
        view.delete(&limit_key(self.id(active.place)));
        if let Some(run) = self.get_run(active.place, view)? {
            let run = Run { progress: Progress::Waiting(again_at), attempt: active.attempt, ..run };
            self.put_run(active.place, &run, view);
        }
        Ok(())
    }

    /// Why an attempt has ended that nobody says anything of, if it has. Else it is looked at again.
    ///
    /// Its lease says so, and its limit, by the store's clock for leases. Civil time doesn't: it may have stepped, be that of a node with another
    /// clock, or have gone on while the store was down.
    pub fn lapsed(
        &mut self,
        index: usize,
        over_at: WallTime,
        view: &mut View,
    ) -> Result<Option<Reason>, Pause> {
        let id = self.id(self.state.active[index].place);
        let again = |left: Duration| self.now.after(left.max(Duration::from_millis(1)));
        let lease = view.lease(&lease_key(id))?;
        let Some((left, touches)) = lease.and_then(|lease| Some((lease.expires_in?, lease.touches))) else {
            view.delete(&limit_key(id));
            return Ok(Some(Reason::LeaseExpired));
        };
        let look_at = again(left);
        let over_at = if over_at > self.now {
            over_at
        } else if touches == 0 && self.definition.target.queue().is_none() {
            // Of what a node makes itself the lease lasts as long as it may take, unless its target is heard of.
            look_at
        } else {
            match view.lease(&limit_key(id))?.and_then(|limit| limit.expires_in) {
                Some(left) => again(left),
                None => return Ok(Some(Reason::Timeout)),
            }
        };
        self.state.active[index].phase = Phase::Running { look_at, over_at };
        Ok(None)
    }

    /// An attempt has ended: with it the run, or another follows.
    pub fn attempted(
        &mut self,
        index: usize,
        token: u64,
        end: &AttemptEnd,
        view: &mut View,
    ) -> Result<(), Pause> {
        let active = self.state.active[index];
        view.delete(&lease_key(self.id(active.place)));
        let Some(run) = self.get_run(active.place, view)? else {
            self.state.active.remove(index);
            return Ok(());
        };
        let run = Run { token, ..run };
        // If nobody said how it ended, there is what it wrote while it was heard of.
        let written = if token == 0 { run.output.clone() } else { end.output.clone() };
        let end = &AttemptEnd { output: written, ..end.clone() };
        if end.succeeded {
            self.end(index, run, Outcome::Succeeded, None, end, view);
            return Ok(());
        }
        let reason = end.reason.unwrap_or(Reason::Refused);
        let is_vanished = reason == Reason::LeaseExpired;
        let is_once = self.is_once(&active);
        if is_vanished && is_once {
            let reason = Some(Reason::AtMostOnceUnknown);
            self.end(index, run, Outcome::Unknown, reason, end, view);
            return Ok(());
        }
        let again_at = self.now.after(self.pause(active.place, active.attempt));
        let is_in_time = self.deadline(active.due).is_none_or(|deadline| again_at < deadline);
        if is_once || active.attempt >= self.definition.attempts() || !is_in_time {
            self.end(index, run, Outcome::Failed, Some(reason), end, view);
            return Ok(());
        }
        self.state.active[index].phase = Phase::Waiting(again_at);
        let (message, output) = (bounded(&end.message), tail(&end.output));
        let run = Run { progress: Progress::Waiting(again_at), message, output, ..run };
        self.put_run(active.place, &run, view);
        Ok(())
    }

    /// Between an attempt and the next: twice as long each time, half of it by a hash, so that many that failed together don't
    /// come back together. Never none at all: what is ended and begun by one commit would go on with its old lease.
    fn pause(&self, place: RunPlace, attempt: u32) -> Duration {
        let doubled = 1_u64.checked_shl(attempt.saturating_sub(1)).unwrap_or(u64::MAX);
        let longest = self.definition.retry_first_ms.saturating_mul(doubled);
        let longest = longest.min(self.definition.retry_most_ms.max(self.definition.retry_first_ms));
        let hash = xxh3_64_with_seed(&place.bytes(), self.definition.uid.0 as u64 ^ u64::from(attempt));
        let half = longest / 2;
        Duration::from_millis((half + if half > 0 { hash % half } else { 0 }).max(1))
    }

    /// A run under way is over.
    fn end(
        &mut self,
        index: usize,
        run: Run,
        outcome: Outcome,
        reason: Option<Reason>,
        said: &AttemptEnd,
        view: &mut View,
    ) {
        let active = self.state.active.remove(index);
        let end = End { at: self.now, outcome, reason };
        let (message, output) = (bounded(&said.message), tail(&said.output));
        let run = Run { progress: Progress::Ended(end), message, output, ..run };
        self.put_run(active.place, &run, view);
        self.ended(active.place, outcome);
    }

    fn ended(&mut self, place: RunPlace, outcome: Outcome) {
        let state = &mut self.state;
        state.kept = state.kept.saturating_add(1);
        match outcome {
            Outcome::Succeeded => {
                state.counts.succeeded += 1;
                state.last_success_at = Some(self.now);
                state.success_from = self.now;
                state.is_overdue = false;
                for to in &self.definition.then {
                    if state.outbox.len() >= OUTBOX_MAX {
                        state.outbox.remove(0);
                        state.counts.untold += 1;
                    }
                    state.outbox.push(Delivery { place, to: to.clone() });
                }
            }
            Outcome::Failed => state.counts.failed += 1,
            Outcome::Unknown => state.counts.unknown += 1,
            Outcome::Skipped => state.counts.skipped += 1,
            Outcome::Cancelled => {}
        }
    }

    /// Calls a run under way off. Whoever runs it finds its lease gone.
    pub fn cancel(&mut self, index: usize, reason: Reason, view: &mut View) -> Result<(), Pause> {
        let active = self.state.active[index];
        let id = self.id(active.place);
        match (active.phase, self.definition.target.queue()) {
            (Phase::Running { .. }, _) => {
                view.delete(&lease_key(id));
                view.delete(&limit_key(id));
            }
            (Phase::Ready, Some(queue)) => {
                view.delete(&ready_key(self.name.namespace(), queue, active.due, id));
            }
            (Phase::Ready, None) | (Phase::Waiting(_), _) => {}
        }
        match self.get_run(active.place, view)? {
            Some(run) => {
                let said = AttemptEnd {
                    succeeded: false,
                    reason: None,
                    message: run.message.clone(),
                    output: run.output.clone(),
                };
                self.end(index, run, Outcome::Cancelled, Some(reason), &said, view);
            }
            None => drop(self.state.active.remove(index)),
        }
        Ok(())
    }

    /// A queued run is called off.
    pub fn cancel_queued(&mut self, index: usize, reason: Reason, view: &mut View) -> Result<(), Pause> {
        let place = self.state.queue.remove(index);
        if let Some(run) = self.get_run(place, view)? {
            let end = End { at: self.now, outcome: Outcome::Cancelled, reason: Some(reason) };
            self.put_run(place, &Run { progress: Progress::Ended(end), ..run }, view);
            self.ended(place, Outcome::Cancelled);
        }
        Ok(())
    }

    // Its end.

    /// When it has to be looked at again.
    fn look_at(&self) -> Option<WallTime> {
        let state = &self.state;
        let active = state.active.iter().filter_map(|active| match active.phase {
            Phase::Waiting(until) => Some(until),
            Phase::Ready => self.deadline(active.due),
            Phase::Running { look_at, over_at } => Some(look_at.min(over_at)),
        });
        let is_idle = state.active.is_empty();
        let next = state.next.filter(|_| self.is_on()).map(|next| next.due);
        let left_out = state.left_out_at.filter(|_| self.is_on());
        let told = (!state.outbox.is_empty()).then_some(self.now);
        let goes_on = is_idle || self.definition.overlap == Overlap::CancelPrevious;
        let queued = (goes_on && !state.queue.is_empty()).then_some(self.now);
        let caught_up = is_idle && state.queue.is_empty() && !state.spans.is_empty();
        let caught_up = caught_up.then(|| self.now.after(CATCH_UP_PAUSE));
        let success = self.success_by().filter(|_| !state.is_overdue);
        active.chain([next, left_out, told, queued, caught_up, success].into_iter().flatten()).min()
    }

    /// By when a success is expected.
    pub fn success_by(&self) -> Option<WallTime> {
        let within = self.definition.success_within_ms.filter(|_| self.is_on())?;
        Some(self.state.success_from.after(Duration::from_millis(within)))
    }

    /// Puts the state, and moves the job in the index; says when it has to be looked at again.
    pub fn store(mut self, view: &mut View) -> Option<WallTime> {
        // The same moment twice is one entry: what is put again is not deleted.
        let at = self.look_at().map(|at| WallTime(at.0.max(1)));
        if at != self.state.index_at {
            if let Some(before) = self.state.index_at {
                view.delete(&index_key(self.name, before));
            }
            if let Some(at) = at {
                view.put(&index_key(self.name, at), [1][..].into(), Ttl::Forever);
            }
            self.state.index_at = at;
        }
        view.put(&state_key(self.name), self.state.encode(), Ttl::Forever);
        at
    }
}

/// Who begins attempts.
#[derive(Clone, Copy, Debug)]
pub struct Beginner<'a> {
    /// As runs show it.
    pub runner: &'a str,
    /// Random, for each commit.
    pub nonce: u64,
    /// Whether it can take one more.
    pub has_room: bool,
}

impl AttemptEnd {
    /// One that failed, and says this.
    pub fn failed(message: &str) -> Self {
        Self { succeeded: false, reason: None, message: message.into(), output: Bytes::default() }
    }

    /// One that was acknowledged.
    pub fn succeeded() -> Self {
        Self { succeeded: true, ..Self::failed("") }
    }
}

fn bounded(message: &str) -> String {
    message[..message.floor_char_boundary(MESSAGE_BYTES_MAX)].into()
}
