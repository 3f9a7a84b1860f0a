//! A job's calendars have changed: no time is lost by it, and none runs twice (J13, J15).
//!
//! What is planned for a day comes on that day, or where a calendar moves it. The mark is about when times come. So a change of
//! calendars may move a time over the mark, in either direction:
//!
//! | a time was | and comes by the new calendars | then |
//! |---|---|---|
//! | decided | after the mark | it is done, and doesn't come again |
//! | to come | before the mark | it was missed: the job says what happens to it |
//! | to come, moved | not at all, and its own day is before the mark | it leaves a record, like all that are left out |

use super::definition::{DONE_MAX, Missed};
use super::due::just_before;
use super::id::{RunPlace, Trigger};
use super::run::Reason;
use super::state::{SPANS_MAX, Span};
use super::tick::Looked;
use super::timetable::Timetable;
use super::work::Work;
use crate::cron::MOVED_DAYS_MAX;
use crate::record::WallTime;
use crate::view::{Pause, View};
use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use core::time::Duration;

/// Planned times around the mark that are compared. What comes more often than this in two months isn't: it comes every day
/// anyway, and moving it changes nothing.
const COMPARED_MAX: usize = 2_000;

/// Goes on from the mark by other calendars; gives the times that are done.
pub(super) fn carry_over(
    work: &mut Work<'_>,
    old: &Timetable,
    new: &Timetable,
    looked: &mut Looked,
    view: &mut View,
) -> Result<Vec<WallTime>, Pause> {
    let mark = work.state.mark;
    let window = Duration::from_secs(24 * 60 * 60) * (MOVED_DAYS_MAX as u32 + 1);
    let from = WallTime(mark.0.saturating_sub(window.as_millis() as u64));
    let planned = new.planned(from, mark.after(window), COMPARED_MAX + 1);
    if planned.len() > COMPARED_MAX {
        return Ok(Vec::new());
    }
    let (mut done, mut to_come) = (BTreeSet::new(), BTreeSet::new());
    let (mut late, mut left_out) = (BTreeSet::new(), BTreeSet::new());
    for planned in planned {
        let before = old.place_of(planned).unwrap_or(planned);
        // One that was done before the last change is no time of the old calendars.
        let is_decided = before <= mark || (old.place_of(planned).is_some() && !old.has(before));
        match new.place_of(planned) {
            Some(at) if at > mark && is_decided => drop(done.insert(at)),
            Some(at) if at > mark => drop(to_come.insert(at)),
            Some(at) if !is_decided && !old.has(at) => drop(late.insert(at)),
            None if !is_decided && planned <= mark => drop(left_out.insert(planned)),
            Some(_) | None => {}
        }
    }
    leave_out(work, left_out, Reason::Calendar, looked, view)?;
    make_up_for(work, late, looked, view)?;
    Ok(done.difference(&to_come).copied().take(DONE_MAX).collect())
}

/// Times that have come to lie before the mark: as the job says of those that are missed.
fn make_up_for(
    work: &mut Work<'_>,
    mut late: BTreeSet<WallTime>,
    looked: &mut Looked,
    view: &mut View,
) -> Result<(), Pause> {
    let room = SPANS_MAX.saturating_sub(work.state.spans.len());
    let most = match work.definition.missed {
        _ if !work.is_on() => 0,
        Missed::Skip => 0,
        Missed::Latest => room.min(1),
        Missed::All => room.min(work.definition.missed_max as usize),
    };
    let surplus = late.len().saturating_sub(most);
    let kept = late.iter().nth(surplus).copied();
    let kept = kept.map_or_else(BTreeSet::new, |first| late.split_off(&first));
    for at in kept {
        let after = just_before(at);
        work.state.spans.push(Span { trigger: Trigger::Schedule, after, until: at, left: 1 });
    }
    leave_out(work, late, Reason::Missed, looked, view)
}

/// One record for all of them.
fn leave_out(
    work: &mut Work<'_>,
    times: BTreeSet<WallTime>,
    reason: Reason,
    looked: &mut Looked,
    view: &mut View,
) -> Result<(), Pause> {
    let (Some(first), Some(last)) = (times.first(), times.last()) else { return Ok(()) };
    let count = times.len() as u64;
    looked.skipped.push((reason, count));
    work.skip(RunPlace::scheduled(*last), reason, (count > 1).then_some((*first, count)), view)
}
