//! Which times of a schedule are due, and which of them were missed (J5, J14, J15, J16).
//!
//! All times after the mark and up to now are decided at once, and the mark moves to the last of them: it never goes back,
//! whatever a clock does, so no time is decided twice.

use super::definition::{Definition, Missed};
use super::id::{RunPlace, Trigger};
use super::run::Reason;
use super::state::{Next, SPANS_MAX, Span};
use super::tick::Looked;
use super::timetable::Timetable;
use super::work::Work;
use crate::record::WallTime;
use crate::view::{Pause, View};
use alloc::vec::Vec;
use core::time::Duration;

/// The most recent time is still the present one if it was due this long ago; later it was missed.
pub const PRESENT_WITHIN: Duration = Duration::from_secs(60);
/// How many times that are left out together are counted; a record of this many stands for at least as many.
pub const SKIPPED_COUNT_MAX: usize = 1_000;

/// The schedule's first time after `after`.
pub(super) fn next(timetable: &Timetable, definition: &Definition, after: WallTime) -> Option<Next> {
    let nominal = timetable.next_after(after)?;
    Some(dated(timetable, definition, nominal))
}

fn dated(timetable: &Timetable, definition: &Definition, nominal: WallTime) -> Next {
    Next { nominal, due: nominal.after(timetable.jitter(definition, nominal)) }
}

/// Decides all times that are due. What is missed is left out or planned; gives the one that is to run now.
pub(super) fn decide(
    work: &mut Work<'_>,
    timetable: Option<&Timetable>,
    looked: &mut Looked,
    view: &mut View,
) -> Result<Option<Next>, Pause> {
    let (Some(timetable), true) = (timetable, work.is_on()) else {
        (work.state.next, work.state.left_out_at) = (None, None);
        return Ok(None);
    };
    let (before, now) = (work.state.mark, work.now);
    let first = match work.state.next {
        Some(next) => next,
        None => match next(timetable, &work.definition, before) {
            Some(next) => next,
            None => {
                left_out(work, timetable, before, looked, view)?;
                return Ok(None);
            }
        },
    };
    work.state.next = Some(first);
    if first.due > now {
        left_out(work, timetable, before, looked, view)?;
        return Ok(None);
    }
    let mut newest = first;
    let mut following = next(timetable, &work.definition, first.nominal);
    if following.is_some_and(|following| following.due <= now) {
        let mut nominal = timetable.latest(first.nominal, now).unwrap_or(first.nominal);
        if dated(timetable, &work.definition, nominal).due > now {
            // Its jitter isn't over; that of the one before it is.
            nominal = timetable.latest(first.nominal, just_before(nominal)).unwrap_or(first.nominal);
        }
        newest = dated(timetable, &work.definition, nominal);
        following = next(timetable, &work.definition, nominal);
    }
    work.state.mark = newest.nominal;
    work.state.next = following;
    let is_present = now <= newest.due.after(PRESENT_WITHIN);
    // Those that somebody has to make up for, or nobody: all but the one that is present.
    let until = if is_present { just_before(newest.nominal) } else { newest.nominal };
    if until >= first.nominal {
        missed(work, timetable, before, until, Reason::Missed, work.definition.missed, looked, view)?;
    }
    work.state.left_out_at = None;
    left_out(work, timetable, before, looked, view)?;
    Ok(is_present.then_some(newest))
}

/// Records the times that calendars left out, up to now and to the next time that runs: one record for all of them, or for all of a
/// day if the job isn't looked at for another reason.
pub(super) fn left_out(
    work: &mut Work<'_>,
    timetable: &Timetable,
    after: WallTime,
    looked: &mut Looked,
    view: &mut View,
) -> Result<(), Pause> {
    let Some(times) = timetable.left_out() else {
        work.state.left_out_at = None;
        return Ok(());
    };
    if work.state.left_out_at.is_some_and(|at| at > work.now) {
        return Ok(());
    }
    let next = work.state.next.map(|next| next.nominal);
    let until = next.map_or(work.now, |next| work.now.min(just_before(next)));
    if let Some(last) = times.latest(after, until) {
        leave_out(work, &times, after, last, Reason::Calendar, looked, view)?;
        work.state.mark = work.state.mark.max(last);
    }
    work.state.left_out_at = times.end_of_day(work.state.mark, next);
    Ok(())
}

/// What happens to the times of a range of which nobody took notice.
#[allow(clippy::too_many_arguments, reason = "a range, why nobody took notice, and what to do about it")]
pub(super) fn missed(
    work: &mut Work<'_>,
    timetable: &Timetable,
    after: WallTime,
    until: WallTime,
    reason: Reason,
    policy: Missed,
    looked: &mut Looked,
    view: &mut View,
) -> Result<(), Pause> {
    let Some(newest) = timetable.latest(after, until) else { return Ok(()) };
    let is_newest_the_latest = newest == work.state.mark;
    let is_room = work.state.spans.len() < SPANS_MAX;
    let planned = match policy {
        Missed::Latest if is_room && is_newest_the_latest => {
            Some(Span { trigger: Trigger::Schedule, after: just_before(newest), until: newest, left: 1 })
        }
        Missed::All if is_room => all(work, timetable, after, newest),
        Missed::Skip | Missed::Latest | Missed::All => None,
    };
    work.state.spans.extend(planned);
    let until = planned.map_or(until, |span| span.after);
    leave_out(work, timetable, after, until, reason, looked, view)
}

/// The most recent times of a range, as many as the definition allows and as far back.
fn all(work: &Work<'_>, timetable: &Timetable, after: WallTime, newest: WallTime) -> Option<Span> {
    let most = work.definition.missed_max.max(1) as usize;
    let window = work.definition.missed_window_ms;
    let mut from = WallTime(after.0.max(work.now.0.saturating_sub(window)));
    // The most recent ones are found by looking from ever later, until there aren't more than can be counted.
    loop {
        let times = timetable.between(from, newest, SKIPPED_COUNT_MAX);
        if times.len() < SKIPPED_COUNT_MAX || from >= newest {
            let times = &times[times.len().saturating_sub(most)..];
            let first = *times.first()?;
            let (after, left) = (just_before(first), times.len() as u32);
            return Some(Span { trigger: Trigger::Schedule, after, until: newest, left });
        }
        from = WallTime(from.0 + (newest.0 - from.0).div_ceil(2));
    }
}

/// One record for all times of a range that don't run.
pub(super) fn leave_out(
    work: &mut Work<'_>,
    timetable: &Timetable,
    after: WallTime,
    until: WallTime,
    reason: Reason,
    looked: &mut Looked,
    view: &mut View,
) -> Result<(), Pause> {
    let Some(last) = timetable.latest(after, until) else { return Ok(()) };
    let times = timetable.between(after, until, SKIPPED_COUNT_MAX);
    let count = times.len() as u64;
    let stands_for = times.first().filter(|_| count > 1).map(|first| (*first, count));
    looked.skipped.push((reason, count));
    work.skip(RunPlace::scheduled(last), reason, stands_for, view)
}

/// What was to be made up for is of a schedule that is over: one record for all of it, so that it is one however many ranges there are.
pub(super) fn drop_planned(
    work: &mut Work<'_>,
    timetable: Option<&Timetable>,
    looked: &mut Looked,
    view: &mut View,
) -> Result<(), Pause> {
    let planned = work.state.spans.extract_if(.., |span| span.trigger == Trigger::Schedule);
    let planned: Vec<_> = planned.collect();
    let Some(timetable) = timetable else { return Ok(()) };
    let (mut first, mut last, mut count) = (None, None, 0);
    for span in planned {
        let Some(latest) = timetable.latest(span.after, span.until).filter(|_| span.left > 0) else {
            continue;
        };
        last = last.max(Some(latest));
        let most = SKIPPED_COUNT_MAX.saturating_sub(count).min(span.left as usize).max(1);
        let times = timetable.between(span.after, span.until, most);
        first = [first, times.first().copied()].into_iter().flatten().min();
        count = (count + times.len()).min(SKIPPED_COUNT_MAX);
    }
    let (Some(first), Some(last)) = (first, last) else { return Ok(()) };
    let stands_for = (count > 1).then_some((first, count as u64));
    looked.skipped.push((Reason::Missed, count as u64));
    work.skip(RunPlace::scheduled(last), Reason::Missed, stands_for, view)
}

/// Begins the next of those that are made up for, if there is one.
pub(super) fn catch_up(
    work: &mut Work<'_>,
    timetable: Option<&Timetable>,
    view: &mut View,
) -> Result<bool, Pause> {
    while let Some(span) = work.state.spans.first_mut() {
        let nominal = timetable.and_then(|timetable| timetable.next_after(span.after));
        let Some(nominal) = nominal.filter(|nominal| *nominal <= span.until && span.left > 0) else {
            work.state.spans.remove(0);
            continue;
        };
        let trigger = span.trigger;
        (span.after, span.left) = (nominal, span.left - 1);
        if span.left == 0 || nominal >= span.until {
            work.state.spans.remove(0);
        }
        let place = RunPlace { trigger, ..RunPlace::scheduled(nominal) };
        if work.is_new(place, view)? {
            work.enter(place, work.now, view)?;
            return Ok(true);
        }
        // It has run: one that is made up for twice runs once. The next look goes on.
        return Ok(false);
    }
    Ok(false)
}

pub(super) fn just_before(time: WallTime) -> WallTime {
    WallTime(time.0.saturating_sub(1))
}
