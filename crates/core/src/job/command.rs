//! What people ask of a job (J9): run it now, pause and resume it, make up for a range of times, call a run off. And what jobs
//! ask of each other (J13).

use super::apply::come_back;
use super::definition::{Missed, Overlap};
use super::due::just_before;
use super::id::{RunId, RunPlace, Trigger};
use super::place::{memo_key, run_key};
use super::run::{End, Progress, Reason, Run};
use super::state::{Delivery, QUEUED_MAX, SPANS_MAX, Span};
use super::tick::{Looked, Timetables, admit};
use super::work::Work;
use crate::commit::Ttl;
use crate::lock::name::digest;
use crate::name::Name;
use crate::record::WallTime;
use crate::view::{Pause, View};
use core::time::Duration;

/// Times that one backfill may have.
pub const BACKFILL_MAX: usize = 1_000;

/// What came of asking for a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Asked {
    /// It is under way, or waits for others; now, or since the same request came before.
    Run(
        /// Which.
        RunId,
    ),
    /// As many wait as may.
    Full,
    /// There is no such job.
    NoJob,
}

/// Runs a job now, once for each request. It waits for what runs, whatever the job says of overlaps, unless that says to run beside
/// it or to cancel it: whoever asks wants it to run.
pub fn run_now(
    name: &Name,
    request_id: &str,
    memory: Duration,
    now: WallTime,
    view: &mut View,
) -> Result<(Asked, Looked), Pause> {
    let mut looked = Looked::default();
    let Some(mut work) = Work::load(name, now, view)? else { return Ok((Asked::NoJob, looked)) };
    let memo = memo_key(work.definition.uid, digest(&[b"run", request_id.as_bytes()]));
    view.assume_absent(&memo);
    if let Some(seen) = view.get(&memo)? {
        let place = seen.value[..].try_into().ok().and_then(RunPlace::of_bytes);
        let place = place.ok_or(Pause::Unreadable)?;
        return Ok((Asked::Run(work.id(place)), looked));
    }
    let place = RunPlace::manual(now, request_id);
    let is_idle = work.state.active.is_empty() && work.state.queue.is_empty();
    let is_beside = matches!(work.definition.overlap, Overlap::Allow | Overlap::CancelPrevious);
    if is_idle || is_beside {
        admit(&mut work, place, now, &mut looked, view)?;
    } else if work.state.queue.len() < QUEUED_MAX {
        work.enqueue(place, now, view)?;
    } else {
        return Ok((Asked::Full, looked));
    }
    view.put(&memo, place.bytes()[..].into(), Ttl::AtLeast(memory));
    let id = work.id(place);
    work.store(view);
    Ok((Asked::Run(id), looked))
}

/// Its schedule doesn't count until it is resumed; what runs goes on. Whether there is such a job.
pub fn pause(name: &Name, now: WallTime, view: &mut View) -> Result<bool, Pause> {
    let Some(mut work) = Work::load(name, now, view)? else { return Ok(false) };
    if work.state.paused_at.is_none() {
        work.state.paused_at = Some(now);
        (work.state.next, work.state.left_out_at) = (None, None);
        work.store(view);
    }
    Ok(true)
}

/// Its schedule counts again. What passed meanwhile is missed: `policy` says what happens to it, or else the job does. Nothing if
/// there is no such job.
pub fn resume(
    name: &Name,
    policy: Option<Missed>,
    now: WallTime,
    timetables: &Timetables<'_>,
    view: &mut View,
) -> Result<Option<Looked>, Pause> {
    let Some(mut work) = Work::load(name, now, view)? else { return Ok(None) };
    let mut looked = Looked::default();
    if work.state.paused_at.take().is_some() {
        if work.is_on() {
            let timetable = timetables(name, &work.definition);
            let policy = policy.unwrap_or(work.definition.missed);
            come_back(&mut work, timetable.as_deref(), policy, &mut looked, view)?;
        }
        work.store(view);
    }
    Ok(Some(looked))
}

/// What came of asking for a range of times.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Backfilled {
    /// So many are going to run, one after the other.
    Planned(
        /// How many.
        usize,
    ),
    /// There are more than may be asked for at once.
    TooMany,
    /// As many ranges wait as may.
    Full,
    /// The job has no schedule that can be read.
    NoSchedule,
    /// There is no such job.
    NoJob,
}

/// Runs the times of a half-open range, one after the other. One that was backfilled before, and whose record is kept, isn't again.
pub fn backfill(
    name: &Name,
    from: WallTime,
    to: WallTime,
    now: WallTime,
    timetables: &Timetables<'_>,
    view: &mut View,
) -> Result<Backfilled, Pause> {
    let Some(mut work) = Work::load(name, now, view)? else { return Ok(Backfilled::NoJob) };
    let Some(timetable) = timetables(name, &work.definition) else { return Ok(Backfilled::NoSchedule) };
    let (after, until) = (just_before(from), just_before(to));
    let count = timetable.between(after, until, BACKFILL_MAX + 1).len();
    let span = Span { trigger: Trigger::Backfill, after, until, left: count as u32 };
    if count > BACKFILL_MAX {
        return Ok(Backfilled::TooMany);
    }
    if count == 0 || work.state.spans.contains(&span) {
        return Ok(Backfilled::Planned(count));
    }
    if work.state.spans.len() >= SPANS_MAX {
        return Ok(Backfilled::Full);
    }
    work.state.spans.push(span);
    work.store(view);
    Ok(Backfilled::Planned(count))
}

/// What came of calling a run off.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cancelled {
    /// It is over, now or since it was called off before.
    Yes,
    /// It had ended otherwise.
    Ended(
        /// How.
        End,
    ),
    /// There is no such run.
    NoRun,
}

/// Calls a run off. Whoever runs it finds its lease gone.
pub fn cancel(id: RunId, now: WallTime, view: &mut View) -> Result<Cancelled, Pause> {
    let Some(seen) = view.get(&run_key(id))? else { return Ok(Cancelled::NoRun) };
    let run = Run::decode(&seen.value)?;
    if let Progress::Ended(end) = run.progress {
        let is_cancelled = end.outcome == super::Outcome::Cancelled;
        return Ok(if is_cancelled { Cancelled::Yes } else { Cancelled::Ended(end) });
    }
    let name = Name::new(&run.namespace, &run.job);
    let Some(mut work) = Work::load(&name, now, view)?.filter(|work| work.definition.uid == id.uid) else {
        return Ok(Cancelled::NoRun);
    };
    if let Some(index) = work.state.active.iter().position(|active| active.place == id.place) {
        work.cancel(index, Reason::Requested, view)?;
    } else if let Some(index) = work.state.queue.iter().position(|place| *place == id.place) {
        work.cancel_queued(index, Reason::Requested, view)?;
    }
    work.store(view);
    Ok(Cancelled::Yes)
}

/// A job's run succeeded, and `name` is to run after it: once for that run, by the id that follows from it. Nothing if there is no such
/// job.
pub fn chain(name: &Name, after: RunId, now: WallTime, view: &mut View) -> Result<Option<Looked>, Pause> {
    let Some(mut work) = Work::load(name, now, view)? else { return Ok(None) };
    let mut looked = Looked::default();
    let place = RunPlace::after(after);
    if work.definition.enabled && work.is_new(place, view)? {
        admit(&mut work, place, now, &mut looked, view)?;
        work.store(view);
    }
    Ok(Some(looked))
}

/// These were told of the success, or there is nobody to tell.
pub fn told(name: &Name, deliveries: &[Delivery], now: WallTime, view: &mut View) -> Result<(), Pause> {
    if let Some(mut work) = Work::load(name, now, view)? {
        let before = work.state.outbox.len();
        work.state.outbox.retain(|delivery| !deliveries.contains(delivery));
        if work.state.outbox.len() < before {
            work.store(view);
        }
    }
    Ok(())
}

/// So many ended runs are kept.
pub fn counted(name: &Name, kept: u32, now: WallTime, view: &mut View) -> Result<(), Pause> {
    if let Some(mut work) = Work::load(name, now, view)? {
        work.state.kept = kept;
        work.store(view);
    }
    Ok(())
}
