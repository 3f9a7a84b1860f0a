//! When a job is due: its schedule, where, and how it takes daylight saving.

use super::definition::{DaylightSaving, Definition};
use crate::cron::{Dst, Occurrence, Schedule, Zone, full_name, jitter};
use crate::name::Name;
use crate::record::WallTime;
use alloc::vec::Vec;
use core::time::Duration;

/// A schedule that was read once.
#[derive(Clone, Debug)]
pub struct Timetable {
    schedule: Schedule,
    zone: Zone,
    dst: Dst,
}

impl Timetable {
    /// Of a job with a schedule. Nothing if it has none, or one that can't be read: then it is never due.
    pub fn of(name: &Name, definition: &Definition) -> Option<Self> {
        let hashed = full_name(name.namespace(), name.key());
        let schedule = Schedule::parse(definition.schedule.as_deref()?, &hashed).ok()?;
        let dst = match definition.daylight_saving {
            DaylightSaving::Vixie => Dst::Vixie,
            DaylightSaving::Literal => Dst::Literal,
        };
        Some(Self { schedule, zone: Zone::parse(&definition.time_zone).ok()?, dst })
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
        self.schedule.next_after(after, &self.zone, self.dst).map(|occurrence| occurrence.at)
    }

    /// The last time in a range that begins after `after`.
    pub fn latest(&self, after: WallTime, until: WallTime) -> Option<WallTime> {
        let latest = self.schedule.latest_at_or_before(until, after, &self.zone, self.dst);
        latest.map(|occurrence| occurrence.at)
    }

    /// The first `max` times in a range that begins after `after`.
    pub fn between(&self, after: WallTime, until: WallTime, max: usize) -> Vec<WallTime> {
        let times = self.schedule.between(after, until, max, &self.zone, self.dst);
        times.iter().map(|Occurrence { at, .. }| *at).collect()
    }

    /// Where its times are.
    pub fn zone(&self) -> &Zone {
        &self.zone
    }
}
