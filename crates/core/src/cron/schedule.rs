//! When a schedule is due: its local times on the clocks of a zone.
//!
//! Local time only grows within a segment of constant offset, so a question is answered segment by segment. What clock
//! changes do is decided at their borders, by one number: the local time that had been reached before.
//!
//! | | local times of a segment that count |
//! |---|---|
//! | follows the clock, or `literal` | all that it shows |
//! | fixed time, `vixie` | those that were not reached before; if some were leapt over, the segment's start stands for them |

use super::calendar::{Calendar, DAY_SECONDS};
use super::closures::{Closures, Side};
use super::error::ScheduleError;
use super::parse;
use super::zone::{Segment, Zone};
use crate::record::WallTime;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;

/// How far is searched. The calendar repeats after 400 years, and by the year 2100 all that is known of zones are rules that
/// repeat with it; so what is not found never comes.
pub const SEARCH_YEARS: u32 = 500;
const SEARCH_SECONDS: i64 = SEARCH_YEARS as i64 * 366 * 86_400;

/// How often a period goes over days that don't count; more than its own length can make it miss the day that does.
const LEAPS_MAX: usize = 1_000;

/// When something is due.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Schedule {
    text: String,
    pub(super) plan: Plan,
    is_hashed: bool,
    never_fires: bool,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Plan {
    Calendar(Calendar),
    /// Counted from the start of 1970 in UTC, so that neither a restart nor an edit moves it.
    Every {
        seconds: u64,
        /// The days on which it counts; all of them if there are no calendars.
        open: Option<Calendar>,
    },
}

/// What happens to local times that a change of clocks skips or repeats.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Dst {
    /// As in Vixie's cron. A fixed time that is skipped comes right after the gap, once, and a repeated one only the first
    /// time. If the hour's or the minute's field begins with `*`, the clock is followed: skipped times are skipped, and
    /// repeated times come twice.
    #[default]
    Vixie,
    /// All follow the clock.
    Literal,
}

impl Dst {
    /// As it is written.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Vixie => "vixie",
            Self::Literal => "literal",
        }
    }
}

/// One time at which a schedule is due.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Occurrence {
    /// When.
    pub at: WallTime,
    /// What a change of clocks did to it.
    pub touched: Option<Touched>,
}

/// What a change of clocks did to an occurrence.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Touched {
    /// At least one of its local times did not exist, and comes right after the gap.
    MovedFromGap,
    /// Its local time comes for the second time.
    Repeated,
    /// Its local time will come a second time, and then be passed over.
    RepeatSkipped,
}

impl Schedule {
    /// Reads an expression. `name_for_hash` is what an `H` in it is a hash of: the job's [full name](super::full_name).
    pub fn parse(text: &str, name_for_hash: &str) -> Result<Self, ScheduleError> {
        let (plan, is_hashed) = parse::parse(text, name_for_hash)?;
        let never_fires = match &plan {
            Plan::Calendar(calendar) => calendar.first_in(0, SEARCH_SECONDS, &mut 0).is_none(),
            Plan::Every { .. } => false,
        };
        Ok(Self { text: text.to_string(), plan, is_hashed, never_fires })
    }

    /// What is left of it by calendars: without the days that they leave out, and with those that they move where they are
    /// moved.
    pub fn kept_by(&self, closures: &Arc<Closures>) -> Self {
        self.on_side(closures, Side::Kept)
    }

    /// What calendars leave out of it.
    pub fn left_out_by(&self, closures: &Arc<Closures>) -> Self {
        self.on_side(closures, Side::LeftOut)
    }

    fn on_side(&self, closures: &Arc<Closures>, side: Side) -> Self {
        let plan = match &self.plan {
            Plan::Calendar(calendar) => {
                Plan::Calendar(Calendar { closures: Some((closures.clone(), side)), ..calendar.clone() })
            }
            Plan::Every { seconds, .. } => {
                let open = Some(Calendar::midnights(closures.clone(), side));
                Plan::Every { seconds: *seconds, open }
            }
        };
        let days = match &plan {
            Plan::Calendar(calendar) | Plan::Every { open: Some(calendar), .. } => calendar,
            Plan::Every { open: None, .. } => return self.clone(),
        };
        let never_fires = days.first_in(0, SEARCH_SECONDS, &mut 0).is_none();
        Self { plan, never_fires, ..self.clone() }
    }

    /// Whether it is a period, which has no times of day.
    pub fn is_period(&self) -> bool {
        matches!(self.plan, Plan::Every { .. })
    }

    /// As it was written.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Whether it has an `H`, and so depends on the job's name.
    pub fn is_hashed(&self) -> bool {
        self.is_hashed
    }

    /// Whether there is no such day: `0 0 30 2 *`.
    pub fn never_fires(&self) -> bool {
        self.never_fires
    }

    /// The first occurrence after a time. Nothing if there is none, ever.
    pub fn next_after(&self, time: WallTime, zone: &Zone, dst: Dst) -> Option<Occurrence> {
        self.next_counted(time, zone, dst, &mut 0)
    }

    /// The last occurrence at or before `time`, and after `after`.
    pub fn latest_at_or_before(
        &self,
        time: WallTime,
        after: WallTime,
        zone: &Zone,
        dst: Dst,
    ) -> Option<Occurrence> {
        self.latest_counted(time, after, zone, dst, &mut 0)
    }

    /// The occurrences after one time and up to another, that included; the first `max` of them.
    pub fn between(
        &self,
        after_exclusive: WallTime,
        until_inclusive: WallTime,
        max: usize,
        zone: &Zone,
        dst: Dst,
    ) -> Vec<Occurrence> {
        let mut found: Vec<Occurrence> = Vec::new();
        while found.len() < max {
            let after = found.last().map_or(after_exclusive, |last| last.at);
            match self.next_after(after, zone, dst) {
                Some(next) if next.at <= until_inclusive => found.push(next),
                _ => break,
            }
        }
        found
    }

    pub(super) fn next_counted(
        &self,
        time: WallTime,
        zone: &Zone,
        dst: Dst,
        steps: &mut u64,
    ) -> Option<Occurrence> {
        let first = second_of(time)?.checked_add(1)?;
        match &self.plan {
            _ if self.never_fires => None,
            Plan::Every { seconds, open } => {
                let seconds = *seconds as i64;
                let mut next = first.checked_add(seconds - 1)? / seconds * seconds;
                for _ in 0..LEAPS_MAX {
                    let Some(start) = closed_until(open.as_ref(), next, zone, steps)? else {
                        return occurrence(next, None);
                    };
                    next = start.checked_add(seconds - 1)? / seconds * seconds;
                }
                None
            }
            Plan::Calendar(calendar) => {
                let walk = Walk { calendar, zone, once: dst == Dst::Vixie && !calendar.follows_clock };
                walk.first_from(first, steps)
            }
        }
    }

    pub(super) fn latest_counted(
        &self,
        time: WallTime,
        after: WallTime,
        zone: &Zone,
        dst: Dst,
        steps: &mut u64,
    ) -> Option<Occurrence> {
        let (last, after) = (second_of(time)?, second_of(after)?);
        match &self.plan {
            _ if self.never_fires => None,
            Plan::Every { seconds, open } => {
                let seconds = *seconds as i64;
                let mut latest = last / seconds * seconds;
                for _ in 0..LEAPS_MAX {
                    if latest <= after {
                        return None;
                    }
                    let Some(end) = closed_since(open.as_ref(), latest, zone, steps)? else {
                        return occurrence(latest, None);
                    };
                    latest = end / seconds * seconds;
                }
                None
            }
            Plan::Calendar(calendar) => {
                let walk = Walk { calendar, zone, once: dst == Dst::Vixie && !calendar.follows_clock };
                walk.last_until(last, after, steps)
            }
        }
    }
}

/// If a second is on a day that doesn't count: the first of the next day that does. Nothing if there is no such day.
fn closed_until(open: Option<&Calendar>, second: i64, zone: &Zone, steps: &mut u64) -> Option<Option<i64>> {
    let Some(open) = open else { return Some(None) };
    let (day, _) = zone.day_of(second)?;
    let midnight = day * DAY_SECONDS;
    let found = open.first_in(midnight, midnight.saturating_add(SEARCH_SECONDS), steps)?;
    if found == midnight { Some(None) } else { zone.start_of(found / DAY_SECONDS).map(Some) }
}

/// The same backwards: the last of the day before that does.
fn closed_since(open: Option<&Calendar>, second: i64, zone: &Zone, steps: &mut u64) -> Option<Option<i64>> {
    let Some(open) = open else { return Some(None) };
    let (day, _) = zone.day_of(second)?;
    let midnight = day * DAY_SECONDS;
    let found = open.last_in(midnight.saturating_sub(SEARCH_SECONDS), midnight + 1, steps)?;
    if found == midnight { Some(None) } else { Some(Some(zone.start_of(found / DAY_SECONDS + 1)? - 1)) }
}

/// A calendar on a zone's clocks.
struct Walk<'a> {
    calendar: &'a Calendar,
    zone: &'a Zone,
    /// Whether each local time counts once, and also if it is skipped.
    once: bool,
}

impl Walk<'_> {
    fn first_from(&self, first: i64, steps: &mut u64) -> Option<Occurrence> {
        let limit = first.saturating_add(SEARCH_SECONDS);
        let mut segment = Segment::ahead(self.zone, first)?;
        loop {
            *steps += 1;
            let lowest = self.lowest(&segment);
            let from = if first <= segment.start { lowest } else { lowest.max(first + segment.offset) };
            let before = segment.local_end().min(limit);
            if let Some(local) = self.calendar.first_in(from, before, steps) {
                return self.occurrence(&segment, local, steps);
            }
            if segment.end >= limit {
                return None;
            }
            segment = segment.next(self.zone)?;
        }
    }

    fn last_until(&self, last: i64, after: i64, steps: &mut u64) -> Option<Occurrence> {
        let limit = after.max(last.saturating_sub(SEARCH_SECONDS));
        let mut segment = Segment::back(self.zone, last)?;
        loop {
            *steps += 1;
            let before = segment.local_end().min(last + 1 + segment.offset);
            // No offset is as large as two days.
            let from = self.lowest(&segment).max(limit - 2 * 86_400);
            if let Some(local) = self.calendar.last_in(from, before, steps) {
                let found = self.occurrence(&segment, local, steps);
                return found.filter(|found| found.at > WallTime(after as u64 * 1_000));
            }
            if segment.start <= limit {
                return None;
            }
            segment = segment.previous(self.zone)?;
        }
    }

    /// The first local time that counts in a segment.
    fn lowest(&self, segment: &Segment) -> i64 {
        if self.once { segment.shown_before } else { segment.local_start() }
    }

    fn occurrence(&self, segment: &Segment, local: i64, steps: &mut u64) -> Option<Occurrence> {
        let start = segment.local_start();
        let skipped = |steps: &mut u64| {
            segment.shown_before < start
                && self.calendar.first_in(segment.shown_before, start, steps).is_some()
        };
        let comes_again = || segment.next_offset.is_some_and(|offset| local >= segment.end + offset);
        let touched = match self.once {
            true if local <= start && skipped(steps) => Some(Touched::MovedFromGap),
            true if comes_again() => Some(Touched::RepeatSkipped),
            false if local < segment.shown_before => Some(Touched::Repeated),
            _ => None,
        };
        occurrence(local.max(start) - segment.offset, touched)
    }
}

fn second_of(time: WallTime) -> Option<i64> {
    i64::try_from(time.0 / 1_000).ok()
}

fn occurrence(second: i64, touched: Option<Touched>) -> Option<Occurrence> {
    let at = WallTime(u64::try_from(second).ok()?.checked_mul(1_000)?);
    Some(Occurrence { at, touched })
}
