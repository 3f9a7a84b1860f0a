//! Schedules that were read: reading one takes longer than asking it when it is due. Those of one zone share what was read of that.

use baton_core::cron::Zone;
use baton_core::job::{CalendarUse, DaylightSaving, Definition, Timetable};
use baton_core::{Name, WallTime};
use std::collections::HashMap;
use std::sync::{Arc, Mutex};

/// Schedules that are remembered; beyond it all are forgotten, and read again when they are due.
const KNOWN_MAX: usize = 20_000;

/// Zones that are remembered, by their names as jobs spell them; beyond it all are forgotten. The database has some 600.
const ZONES_MAX: usize = 1_000;

#[derive(Default)]
pub(crate) struct TimetableCache {
    known: Mutex<HashMap<Name, Known>>,
    zones: Mutex<HashMap<String, Zone>>,
}

struct Known {
    schedule: Option<String>,
    time_zone: String,
    daylight_saving: DaylightSaving,
    calendars: Vec<CalendarUse>,
    done: Vec<WallTime>,
    timetable: Option<Arc<Timetable>>,
}

impl TimetableCache {
    /// The timetable of a job, if it has one.
    pub fn of(&self, name: &Name, definition: &Definition) -> Option<Arc<Timetable>> {
        let mut known = self.known.lock().expect("no panic while held");
        if let Some(known) = known.get(name)
            && known.schedule == definition.schedule
            && known.time_zone == definition.time_zone
            && known.daylight_saving == definition.daylight_saving
            && known.calendars == definition.calendars
            && known.done == definition.done
        {
            return known.timetable.clone();
        }
        drop(known);
        let zone = self.zone(&definition.time_zone);
        let timetable = zone.and_then(|zone| Timetable::in_zone(name, definition, zone)).map(Arc::new);
        known = self.known.lock().expect("no panic while held");
        if known.len() >= KNOWN_MAX {
            known.clear();
        }
        let (schedule, time_zone) = (definition.schedule.clone(), definition.time_zone.clone());
        let daylight_saving = definition.daylight_saving;
        let (calendars, done) = (definition.calendars.clone(), definition.done.clone());
        let timetable_kept = timetable.clone();
        let remembered =
            Known { schedule, time_zone, daylight_saving, calendars, done, timetable: timetable_kept };
        known.insert(name.clone(), remembered);
        timetable
    }
    fn zone(&self, name: &str) -> Option<Zone> {
        let mut zones = self.zones.lock().expect("no panic while held");
        if let Some(zone) = zones.get(name) {
            return Some(zone.clone());
        }
        let zone = Zone::parse(name).ok()?;
        if zones.len() >= ZONES_MAX {
            zones.clear();
        }
        zones.insert(name.into(), zone.clone());
        Some(zone)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use baton_core::job::Target;

    #[test]
    fn jobs_of_a_zone_share_what_was_read_of_it() {
        let cache = TimetableCache::default();
        let target = Target::Worker { queue: "q".into(), payload: String::new() };
        let definition = |zone: &str| Definition {
            time_zone: zone.into(),
            ..Definition::plain(Some("0 2 * * *".into()), target.clone())
        };
        for job in ["a", "b"] {
            assert!(cache.of(&Name::new("n", job), &definition("Europe/Berlin")).is_some());
        }
        assert!(cache.of(&Name::new("n", "c"), &definition("Europe/Atlantis")).is_none());
        let sizes = (cache.known.lock().unwrap().len(), cache.zones.lock().unwrap().len());
        assert_eq!(sizes, (3, 1), "one zone for both, and none that there isn't");
    }
}
