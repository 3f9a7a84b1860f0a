//! When a job is due: its schedule, where, how it takes daylight saving, and what its calendars leave of it.

use super::calendar::CalendarUse;
use super::definition::{DaylightSaving, Definition};
use super::due::just_before;
use crate::cron::{Closures, Dst, MOVED_DAYS_MAX, Occurrence, Schedule, Zone, full_name, jitter};
use crate::name::Name;
use crate::record::WallTime;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::time::Duration;

/// A schedule that was read once.
#[derive(Clone, Debug)]
pub struct Timetable {
    schedule: Schedule,
    zone: Zone,
    dst: Dst,
    calendars: Option<Calendars>,
}

/// What calendars make of a schedule.
#[derive(Clone, Debug)]
struct Calendars {
    closures: Arc<Closures>,
    /// The schedule as it would be without them.
    planned: Schedule,
    /// What they leave out of it.
    left_out: Schedule,
    /// Times that ran elsewhere, before a calendar was changed.
    done: Vec<WallTime>,
}

impl Timetable {
    /// Of a job with a schedule. Nothing if it has none, or one that can't be read: then it is never due.
    pub fn of(name: &Name, definition: &Definition) -> Option<Self> {
        Self::in_zone(name, definition, Zone::parse(&definition.time_zone).ok()?)
    }

    /// The same, where the zone is at hand: what is read of one takes some kilobytes, which its clones share.
    pub fn in_zone(name: &Name, definition: &Definition, zone: Zone) -> Option<Self> {
        let hashed = full_name(name.namespace(), name.key());
        let schedule = Schedule::parse(definition.schedule.as_deref()?, &hashed).ok()?;
        let dst = match definition.daylight_saving {
            DaylightSaving::Vixie => Dst::Vixie,
            DaylightSaving::Literal => Dst::Literal,
        };
        let closed = definition.calendars.iter().map(CalendarUse::closed).collect();
        Some(Self::new(schedule, zone, dst, Closures(closed), definition.done.clone()))
    }

    /// Of its parts.
    pub fn new(schedule: Schedule, zone: Zone, dst: Dst, closures: Closures, done: Vec<WallTime>) -> Self {
        if closures.0.is_empty() && done.is_empty() {
            return Self { schedule, zone, dst, calendars: None };
        }
        let closures = Arc::new(closures);
        let (kept, left_out) = (schedule.kept_by(&closures), schedule.left_out_by(&closures));
        let calendars = Some(Calendars { closures, planned: schedule, left_out, done });
        Self { schedule: kept, zone, dst, calendars }
    }

    /// How much after its nominal time a run is due: always before the next one.
    pub fn jitter(&self, definition: &Definition, nominal: WallTime) -> Duration {
        if definition.jitter_ms == 0 {
            return Duration::ZERO;
        }
        let most = Duration::from_millis(definition.jitter_ms);
        jitter(definition.uid.0, nominal, most, self.next_after(nominal))
    }

    /// The first time after this one.
    pub fn next_after(&self, after: WallTime) -> Option<WallTime> {
        self.next_occurrence(after).map(|occurrence| occurrence.at)
    }

    /// The same, with what a change of clocks did to it.
    pub fn next_occurrence(&self, mut after: WallTime) -> Option<Occurrence> {
        loop {
            let next = self.schedule.next_after(after, &self.zone, self.dst)?;
            if !self.is_done(next.at) {
                return Some(next);
            }
            after = next.at;
        }
    }

    /// The last time in a range that begins after `after`.
    pub fn latest(&self, after: WallTime, mut until: WallTime) -> Option<WallTime> {
        loop {
            let latest = self.schedule.latest_at_or_before(until, after, &self.zone, self.dst)?.at;
            if !self.is_done(latest) {
                return Some(latest);
            }
            until = just_before(latest);
        }
    }

    /// The first `max` times in a range that begins after `after`.
    pub fn between(&self, after: WallTime, until: WallTime, max: usize) -> Vec<WallTime> {
        let done = self.calendars.as_ref().map_or(0, |calendars| calendars.done.len());
        let times = self.schedule.between(after, until, max.saturating_add(done), &self.zone, self.dst);
        let times = times.iter().map(|Occurrence { at, .. }| *at);
        times.filter(|at| !self.is_done(*at)).take(max).collect()
    }

    /// Where its times are.
    pub fn zone(&self) -> &Zone {
        &self.zone
    }

    // What calendars do.

    fn is_done(&self, time: WallTime) -> bool {
        self.calendars.as_ref().is_some_and(|calendars| calendars.done.contains(&time))
    }

    /// The times that its calendars leave out, if it has any.
    pub fn left_out(&self) -> Option<Self> {
        let schedule = self.calendars.as_ref()?.left_out.clone();
        (!schedule.never_fires()).then(|| Self {
            schedule,
            zone: self.zone.clone(),
            dst: self.dst,
            calendars: None,
        })
    }

    /// The last of its times on the local day of its first time after `after`, and before `before`.
    pub(super) fn end_of_day(&self, after: WallTime, before: Option<WallTime>) -> Option<WallTime> {
        let first = self.next_after(after).filter(|first| before.is_none_or(|before| *first < before))?;
        let end = self.zone.end_of_day(first).unwrap_or(first);
        let end = before.map_or(end, |before| end.min(just_before(before)));
        Some(self.latest(just_before(first), end).unwrap_or(first))
    }

    /// The first `max` times that it would have without calendars, in a range that begins after `after`.
    pub(super) fn planned(&self, after: WallTime, until: WallTime, max: usize) -> Vec<WallTime> {
        let planned = self.calendars.as_ref().map_or(&self.schedule, |calendars| &calendars.planned);
        let times = planned.between(after, until, max, &self.zone, self.dst);
        times.iter().map(|Occurrence { at, .. }| *at).collect()
    }

    /// When a time comes that is planned for `planned`. Nothing if it is left out.
    pub(super) fn place_of(&self, planned: WallTime) -> Option<WallTime> {
        let Some(calendars) = &self.calendars else { return Some(planned) };
        let moved = self.zone.moved(planned, |day| calendars.closures.target(day))?;
        if moved == planned {
            return Some(planned);
        }
        if calendars.planned.is_period() {
            return None;
        }
        // Where clocks are changed that day, it is wherever the schedule has it.
        let day_before = WallTime(moved.0.saturating_sub(24 * 60 * 60 * 1_000));
        let found = self.schedule.latest_at_or_before(moved, day_before, &self.zone, self.dst);
        Some(found.map_or(moved, |found| found.at))
    }

    /// Whether this is one of its times.
    pub(super) fn has(&self, time: WallTime) -> bool {
        self.next_after(just_before(time)) == Some(time)
    }

    /// The local day, like `2026-12-25`, that a time of it was moved from.
    pub fn moved_from(&self, time: WallTime) -> Option<alloc::string::String> {
        let planned = &self.calendars.as_ref()?.planned;
        let is_planned = |time| planned.next_after(just_before(time), &self.zone, self.dst);
        if is_planned(time).is_some_and(|planned| planned.at == time) {
            return None;
        }
        let window = Duration::from_secs(24 * 60 * 60) * (MOVED_DAYS_MAX as u32 + 1);
        let (from, until) = (WallTime(time.0.saturating_sub(window.as_millis() as u64)), time.after(window));
        let times = self.planned(from, until, 1_000);
        let source = times.into_iter().find(|planned| self.place_of(*planned) == Some(time))?;
        self.zone.local(source).map(|local| local.chars().take(10).collect())
    }
}
