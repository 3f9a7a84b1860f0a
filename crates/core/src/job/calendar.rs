//! Calendars: named sets of days that jobs share, and what changing one does to a job (J13).
//!
//! A job's definition has a copy of the days of its calendars, so that whoever looks at the job reads nothing else, and a change
//! of a calendar is an edit of each job that uses it: in one commit that keeps the job's number and its mark.
//!
//! Layout of a calendar's record, version 1: how many entries, each with its days as text and its note; changed at.

use super::apply::{Put, edit};
use super::definition::Definition;
use super::place::{calendar_key, definition_key};
use super::tick::{Looked, Timetables};
use super::work::Work;
use crate::codec::{Decoder, Encoder, Unreadable};
use crate::commit::Ttl;
use crate::cron::closures;
use crate::cron::{DaySet, DaysError, Policy};
use crate::name::Name;
use crate::record::{Bytes, Revision, WallTime};
use crate::view::{Pause, Stamp, View};
use alloc::string::String;
use alloc::vec::Vec;

/// Entries of a calendar.
pub const ENTRIES_MAX: usize = 1_000;
/// Calendars that one job uses.
pub const CALENDARS_MAX: usize = 4;

/// A calendar record's value.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Calendar {
    /// Its days.
    pub entries: Vec<Entry>,
    /// When it was put; for display.
    pub changed_at: WallTime,
}

/// Some days of a calendar.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry {
    /// Which, as [`DaySet`] reads it.
    pub days: String,
    /// Why.
    pub note: String,
}

/// A calendar as a job uses it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CalendarUse {
    /// Which, of the job's namespace.
    pub name: String,
    /// What becomes of times on its days.
    pub policy: Policy,
    /// The calendar's, when its days were copied.
    pub revision: Revision,
    /// Its days then.
    pub days: DaySet,
}

const VERSION: u8 = 1;

impl Calendar {
    /// All its days, or which entry can't be read and why.
    pub fn days(&self) -> Result<DaySet, (usize, DaysError)> {
        let mut days = DaySet::default();
        for (place, entry) in self.entries.iter().enumerate() {
            days.add(&entry.days).map_err(|error| (place, error))?;
        }
        Ok(days)
    }

    /// The record's value.
    pub fn encode(&self) -> Bytes {
        let to = Encoder::new(VERSION).number(self.entries.len() as u64);
        let entry = |to: Encoder, entry: &Entry| to.bytes(entry.days.as_bytes()).bytes(entry.note.as_bytes());
        self.entries.iter().fold(to, entry).number(self.changed_at.0).finish()
    }

    /// Reads a record's value.
    pub fn decode(value: &[u8]) -> Result<Self, Unreadable> {
        let mut from = Decoder::new(value, VERSION)?;
        let count = from.number()?;
        if count > ENTRIES_MAX as u64 {
            return Err(Unreadable);
        }
        let mut calendar = Self::default();
        for _ in 0..count {
            calendar.entries.push(Entry { days: from.string()?, note: from.string()? });
        }
        calendar.changed_at = from.time()?;
        from.finish()?;
        Ok(calendar)
    }
}

impl CalendarUse {
    pub(super) fn closed(&self) -> (Policy, DaySet) {
        (self.policy, self.days.clone())
    }

    pub(super) fn write(&self, to: Encoder) -> Encoder {
        closures::write(self.policy, &self.days, to.bytes(self.name.as_bytes()).number(self.revision.0))
    }

    pub(super) fn read(from: &mut Decoder<'_>) -> Result<Self, Unreadable> {
        let (name, revision) = (from.string()?, from.revision()?);
        let (policy, days) = closures::read(from)?;
        Ok(Self { name, policy, revision, days })
    }
}

/// Puts a calendar; one that says the same is left as it is. The jobs that use it are told with [`refresh`], each by itself.
pub fn put(
    name: &Name,
    entries: &[Entry],
    now: WallTime,
    view: &mut View,
) -> Result<(Put, Calendar, Stamp), Pause> {
    let key = calendar_key(name);
    let seen = view.get(&key)?;
    let before = seen.as_ref().map(|seen| Calendar::decode(&seen.value)).transpose()?;
    let put = match (&before, seen) {
        (Some(before), Some(seen)) if before.entries == entries => {
            return Ok((Put::Same, before.clone(), seen.revision));
        }
        (Some(_), _) => Put::Changed,
        (None, _) => Put::Made,
    };
    let calendar = Calendar { entries: entries.to_vec(), changed_at: now };
    view.put(&key, calendar.encode(), Ttl::Forever);
    Ok((put, calendar, Stamp::ThisCommit))
}

/// Removes a calendar. Whether there was one.
pub fn remove(name: &Name, view: &mut View) -> Result<bool, Pause> {
    let key = calendar_key(name);
    let is_there = view.get(&key)?.is_some();
    if is_there {
        view.delete(&key);
    }
    Ok(is_there)
}

/// A job uses a calendar as it is at a revision, if it uses it and doesn't know a newer one. Whether it uses it.
pub fn refresh(
    name: &Name,
    calendar: &str,
    revision: Revision,
    days: &DaySet,
    now: WallTime,
    timetables: &Timetables<'_>,
    view: &mut View,
) -> Result<Option<Looked>, Pause> {
    let Some(mut work) = Work::load(name, now, view)? else { return Ok(None) };
    let mut definition = work.definition.clone();
    let mut uses = definition.calendars.iter_mut().filter(|used| used.name == calendar);
    let Some(used) = uses.next() else { return Ok(None) };
    if used.revision >= revision {
        return Ok(Some(Looked::default()));
    }
    (used.revision, used.days) = (revision, days.clone());
    let looked = edit(&mut work, &definition, timetables, view)?;
    view.put(&definition_key(name), work.definition.encode(), Ttl::Forever);
    work.store(view);
    Ok(Some(looked))
}

/// What an edit says of its calendars, but never older days of one than are known.
pub(super) fn newest(definition: &mut Definition, before: &Definition) {
    for used in &mut definition.calendars {
        let known = before.calendars.iter().find(|known| known.name == used.name);
        if let Some(known) = known.filter(|known| known.revision > used.revision) {
            (used.revision, used.days) = (known.revision, known.days.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_calendar_is_read_as_it_was_written(entries: Vec<(String, String)>, changed_at: u64) {
            let entries = entries.into_iter().map(|(days, note)| Entry { days, note }).collect();
            let calendar = Calendar { entries, changed_at: WallTime(changed_at) };
            prop_assert_eq!(Calendar::decode(&calendar.encode()), Ok(calendar));
        }

        #[test]
        fn damaged_bytes_are_unreadable_and_never_a_panic(value: Vec<u8>) {
            drop(Calendar::decode(&value));
            drop(CalendarUse::read(&mut Decoder::new(&[&[VERSION], &value[..]].concat(), VERSION).unwrap()));
        }
    }
}
