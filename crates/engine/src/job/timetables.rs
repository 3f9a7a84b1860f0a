//! Schedules that were read: reading one takes longer than asking it when it is due.

use baton_core::job::{CalendarUse, DaylightSaving, Definition, Timetable};
use baton_core::{Name, WallTime};
use std::collections::HashMap;
use std::sync::{Arc, Mutex};

/// Schedules that are remembered; beyond it all are forgotten, and read again when they are due.
const KNOWN_MAX: usize = 20_000;

#[derive(Default)]
pub(crate) struct TimetableCache(Mutex<HashMap<Name, Known>>);

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
        let mut known = self.0.lock().expect("no panic while held");
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
        let timetable = Timetable::of(name, definition).map(Arc::new);
        known = self.0.lock().expect("no panic while held");
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
}
