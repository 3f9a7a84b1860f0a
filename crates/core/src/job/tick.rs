//! A look at a job whose time has come: what ended unheard is settled, what is due is decided, and what can begin begins, all in
//! one commit.
//!
//! Who looks doesn't matter. Two that look at once decide on the same state, and the store takes one of them.

use super::definition::Overlap;
use super::due;
use super::id::{RunPlace, Uid};
use super::place::{index_key, ready_key, state_key};
use super::run::{Outcome, Reason};
use super::state::{ACTIVE_MAX, Delivery, Phase, QUEUED_MAX};
use super::timetable::Timetable;
use super::work::{AttemptEnd, Beginner, Begun, Work};
use crate::name::Name;
use crate::record::WallTime;
use crate::view::{Pause, View};
use alloc::sync::Arc;
use alloc::vec::Vec;

/// Runs settled or called off in one look, so that a commit stays small; the others are in the next one.
const SETTLED_MAX: usize = 6;
/// How much later than allowed the number of ended runs is brought down.
const KEPT_SLACK: u32 = 16;

/// Reads schedules, and remembers what was read.
pub type Timetables<'a> = dyn Fn(&Name, &super::Definition) -> Option<Arc<Timetable>> + 'a;

/// A look.
#[derive(Clone, Copy, Debug)]
pub struct Look<'a> {
    /// The store's time.
    pub now: WallTime,
    /// The index entry that asked for it.
    pub entry: WallTime,
    /// Who looks.
    pub by: Beginner<'a>,
    /// Whether one that is made up for may begin.
    pub may_catch_up: bool,
}

/// What came of a look.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Looked {
    /// To be run by whoever commits this.
    pub begun: Option<Begun>,
    /// That was made up for.
    pub caught_up: bool,
    /// Times left out, and why.
    pub skipped: Vec<(Reason, u64)>,
    /// Runs that ended because of it.
    pub ended: Vec<Outcome>,
    /// Jobs that have to be told of a success, with [`super::chain`], before [`super::told`].
    pub deliveries: Vec<Delivery>,
    /// It has become overdue (J17).
    pub overdue: bool,
    /// More ended runs are there than this, which is how many are kept.
    pub kept_max: Option<u32>,
    /// The job's.
    pub uid: Uid,
    /// When to look again.
    pub next: Option<WallTime>,
    /// Runs that it ended, or lets wait for another attempt: as many as fit into a commit beside what else it decides.
    settled: usize,
}

impl Looked {
    fn ended(&mut self, outcome: Outcome) {
        self.ended.push(outcome);
        self.settled += 1;
    }

    fn may_settle(&self) -> bool {
        self.settled < SETTLED_MAX
    }
}

/// Looks at a job.
pub fn tick(
    name: &Name,
    look: &Look<'_>,
    timetables: &Timetables<'_>,
    view: &mut View,
) -> Result<Looked, Pause> {
    let Some(mut work) = Work::load(name, look.now, view)? else {
        // It was removed, and this entry with it: the commit checks that it still is.
        if view.peek(&state_key(name))?.is_none() {
            view.delete(&index_key(name, look.entry));
        }
        return Ok(Looked::default());
    };
    if work.state.index_at != Some(look.entry) {
        // Left behind by nobody that we know of; but then nobody would ever take it away.
        view.delete(&index_key(name, look.entry));
        return Ok(Looked { next: work.state.index_at, ..Looked::default() });
    }
    let mut looked = Looked::default();
    settle(&mut work, &mut looked, view)?;
    let timetable = timetables(name, &work.definition);
    let due = due::decide(&mut work, timetable.as_deref(), &mut looked, view)?;
    if let Some(due) = due {
        admit(&mut work, RunPlace::scheduled(due.nominal), due.due, &mut looked, view)?;
    }
    go_on(&mut work, timetable.as_deref(), look, &mut looked, view)?;
    let waiting = |phase| matches!(phase, Phase::Waiting(until) if until <= look.now);
    if let Some(index) = work.state.active.iter().position(|active| waiting(active.phase)) {
        let (before, failed) = (work.state.active.len(), work.state.counts.failed);
        looked.begun = work.begin(index, &look.by, view)?;
        if work.state.active.len() < before {
            let is_failed = work.state.counts.failed > failed;
            looked.ended(if is_failed { Outcome::Failed } else { Outcome::Unknown });
        }
    }
    if work.success_by().is_some_and(|by| by <= look.now) && !work.state.is_overdue {
        work.state.is_overdue = true;
        looked.overdue = true;
    }
    looked.deliveries.clone_from(&work.state.outbox);
    let allowed = work.definition.kept_max;
    let is_too_many = work.state.kept > allowed.saturating_add(KEPT_SLACK.max(allowed / 8));
    looked.kept_max = is_too_many.then_some(allowed);
    looked.uid = work.definition.uid;
    looked.next = work.store(view);
    Ok(looked)
}

/// Ends attempts that nobody is heard of any more, and those that have taken too long.
fn settle(work: &mut Work<'_>, looked: &mut Looked, view: &mut View) -> Result<(), Pause> {
    let mut index = 0;
    while index < work.state.active.len() && looked.may_settle() {
        let active = work.state.active[index];
        let before = work.state.active.len();
        let failed = work.state.counts.failed;
        let mut waits_again = false;
        match active.phase {
            Phase::Running { look_at, over_at } if look_at.min(over_at) <= work.now => {
                if let Some(reason) = work.lapsed(index, over_at, view)? {
                    let end = AttemptEnd { reason: Some(reason), ..AttemptEnd::failed("") };
                    work.attempted(index, 0, &end, view)?;
                    waits_again = true;
                }
            }
            Phase::Ready if !work.may_begin(&active) => {
                if let Some(queue) = work.definition.target.queue() {
                    let id = work.id(active.place);
                    view.delete(&ready_key(work.name.namespace(), queue, active.due, id));
                }
                work.give_up(index, view)?;
            }
            _ => {}
        }
        if work.state.active.len() < before {
            let is_failed = work.state.counts.failed > failed;
            looked.ended(if is_failed { Outcome::Failed } else { Outcome::Unknown });
        } else {
            index += 1;
            looked.settled += usize::from(waits_again);
        }
    }
    Ok(())
}

/// A run whose time has come, while others of its job may be under way (J6).
pub(super) fn admit(
    work: &mut Work<'_>,
    place: RunPlace,
    due: WallTime,
    looked: &mut Looked,
    view: &mut View,
) -> Result<(), Pause> {
    let is_idle = work.state.active.is_empty() && work.state.queue.is_empty();
    let queued = work.state.queue.len();
    match work.definition.overlap {
        _ if is_idle => work.enter(place, due, view),
        Overlap::Allow if work.state.active.len() < ACTIVE_MAX => work.enter(place, due, view),
        Overlap::QueueOne if queued == 0 => work.enqueue(place, due, view),
        Overlap::QueueAll if queued < QUEUED_MAX => work.enqueue(place, due, view),
        Overlap::CancelPrevious => {
            // As many wait as may, whatever was settled: this one has the place of one of them.
            let is_full = |work: &Work<'_>| work.state.queue.len() >= QUEUED_MAX;
            while !work.state.queue.is_empty() && (looked.may_settle() || is_full(work)) {
                work.cancel_queued(0, Reason::Superseded, view)?;
                looked.ended(Outcome::Cancelled);
            }
            supersede(work, looked, view)?;
            if work.state.active.is_empty() && work.state.queue.is_empty() {
                work.enter(place, due, view)
            } else {
                work.enqueue(place, due, view)
            }
        }
        Overlap::Skip | Overlap::Allow | Overlap::QueueOne | Overlap::QueueAll => {
            looked.skipped.push((Reason::Overlap, 1));
            work.skip(place, Reason::Overlap, None, view)
        }
    }
}

/// Calls off what runs, because its job's time has come again.
fn supersede(work: &mut Work<'_>, looked: &mut Looked, view: &mut View) -> Result<(), Pause> {
    while !work.state.active.is_empty() && looked.may_settle() {
        work.cancel(0, Reason::Superseded, view)?;
        looked.ended(Outcome::Cancelled);
    }
    Ok(())
}

/// Lets the next one in: one that waits, or else one that is made up for.
fn go_on(
    work: &mut Work<'_>,
    timetable: Option<&Timetable>,
    look: &Look<'_>,
    looked: &mut Looked,
    view: &mut View,
) -> Result<(), Pause> {
    if work.definition.overlap == Overlap::CancelPrevious && !work.state.queue.is_empty() {
        supersede(work, looked, view)?;
    }
    if work.state.active.is_empty() && !work.state.queue.is_empty() {
        return work.dequeue(view);
    }
    let is_idle = work.state.active.is_empty() && work.state.queue.is_empty();
    if is_idle && look.may_catch_up && due::catch_up(work, timetable, view)? {
        looked.caught_up = true;
    }
    Ok(())
}
