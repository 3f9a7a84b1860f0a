//! A time zone as segments of constant offset. Within one, local time only grows; at its borders clocks are changed.

use super::calendar::DAY_SECONDS;
use crate::record::WallTime;
use alloc::string::{String, ToString};
use core::fmt;
use jiff::Timestamp;
use jiff::tz::{Offset, TimeZone};

/// A zone of the IANA time zone database, which is built in.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Zone {
    zone: TimeZone,
    name: String,
}

/// There is no such zone.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UnknownZone;

impl fmt::Display for UnknownZone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("there is no such time zone; write it as in the IANA database: Europe/Berlin, America/New_York, UTC")
    }
}

impl core::error::Error for UnknownZone {}

/// No two offsets are further apart: whatever happened longer ago, today's local times were not shown then.
const OFFSETS_APART_SECONDS: i64 = 2 * 86_400;

impl Zone {
    /// The zone of a name, in upper or lower case.
    pub fn parse(name: &str) -> Result<Self, UnknownZone> {
        let zone = TimeZone::get(name).map_err(|_| UnknownZone)?;
        match zone.iana_name() {
            Some(known) if !zone.is_unknown() => Ok(Self { name: known.to_string(), zone }),
            _ => Err(UnknownZone),
        }
    }

    /// Its name, as the database spells it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// A time on this zone's clocks, with their offset: `2026-03-29T03:00:00+02:00`. Nothing after the year 9999.
    pub fn local(&self, time: WallTime) -> Option<String> {
        let time = Timestamp::from_millisecond(i64::try_from(time.0).ok()?).ok()?;
        Some(time.display_with_offset(self.zone.to_offset(time)).to_string())
    }

    /// A second's local day, in days since 1970, and the second of that day.
    pub(super) fn day_of(&self, second: i64) -> Option<(i64, i64)> {
        let local = second + self.offset(second)?;
        Some((local.div_euclid(DAY_SECONDS), local.rem_euclid(DAY_SECONDS)))
    }

    /// When clocks show a second of a local day for the first time. If they never do, it is as much later as they go forward.
    pub(super) fn at(&self, day: i64, second: i64) -> Option<i64> {
        let local = Timestamp::from_second(day.checked_mul(DAY_SECONDS)?.checked_add(second)?).ok()?;
        let found = self.zone.to_ambiguous_timestamp(Offset::UTC.to_datetime(local)).compatible();
        Some(found.ok()?.as_second())
    }

    /// The first second of a local day. If there is no such day, that of the next one.
    pub(super) fn start_of(&self, day: i64) -> Option<i64> {
        let midnight = self.at(day, 0)?;
        // Clocks that go forward over midnight make a day begin later than at midnight.
        match self.change_after(midnight.checked_sub(DAY_SECONDS)?) {
            Some((change, _)) if change < midnight && self.day_of(change)?.0 == day => Some(change),
            _ => Some(midnight),
        }
    }

    /// The last moment of a time's local day, to the second.
    pub fn end_of_day(&self, time: WallTime) -> Option<WallTime> {
        let (day, _) = self.day_of(i64::try_from(time.0 / 1_000).ok()?)?;
        let end = self.start_of(day + 1)?.checked_sub(1)?;
        u64::try_from(end).ok()?.checked_mul(1_000).map(WallTime)
    }

    /// The same local time on another day, if a time's day leads to one.
    pub(crate) fn moved(&self, time: WallTime, to: impl Fn(i64) -> Option<i64>) -> Option<WallTime> {
        let (day, second) = self.day_of(i64::try_from(time.0 / 1_000).ok()?)?;
        let target = to(day)?;
        if target == day {
            return Some(time);
        }
        u64::try_from(self.at(target, second)?).ok()?.checked_mul(1_000).map(WallTime)
    }

    fn offset(&self, second: i64) -> Option<i64> {
        let time = Timestamp::from_second(second).ok()?;
        Some(i64::from(self.zone.to_offset(time).seconds()))
    }

    /// When clocks are changed next after a second, and the offset from then on.
    fn change_after(&self, second: i64) -> Option<(i64, i64)> {
        let change = self.zone.following(Timestamp::from_second(second).ok()?).next()?;
        Some((change.timestamp().as_second(), i64::from(change.offset().seconds())))
    }
}

/// The time that a text like `2026-03-28T00:00:00Z` means. Nothing before 1970, and nothing without an offset.
pub fn time_of(text: &str) -> Option<WallTime> {
    let time: Timestamp = text.parse().ok()?;
    u64::try_from(time.as_millisecond()).ok().map(WallTime)
}

/// A time in which the offset stays the same; all in seconds since 1970.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Segment {
    /// Where it began, or where looking at it began.
    pub start: i64,
    /// The first second of the next.
    pub end: i64,
    /// Local time is this much ahead of UTC.
    pub offset: i64,
    /// Local times before this were shown before this segment. If it is later than the segment's first local time, clocks
    /// were set back; if it is earlier, there is a gap.
    pub shown_before: i64,
    /// The offset of the next; nothing if there is none.
    pub next_offset: Option<i64>,
}

impl Segment {
    /// The one that a second is in, for whoever looks ahead from there. Nothing after the year 9999.
    pub fn ahead(zone: &Zone, second: i64) -> Option<Self> {
        Self::containing(zone, second, OFFSETS_APART_SECONDS)
    }

    /// The one that a second is in, for whoever looks back from there: a year of it at most.
    pub fn back(zone: &Zone, second: i64) -> Option<Self> {
        const YEAR_SECONDS: i64 = 366 * 86_400;
        Self::containing(zone, second, YEAR_SECONDS)
    }

    /// The one after it.
    pub fn next(self, zone: &Zone) -> Option<Self> {
        let offset = self.next_offset?;
        let next = zone.change_after(self.end);
        Some(Self {
            start: self.end,
            end: next.map_or(Timestamp::MAX.as_second(), |(end, _)| end),
            offset,
            shown_before: self.local_end().max(self.shown_before),
            next_offset: next.map(|(_, offset)| offset),
        })
    }

    /// The one before it; it may be a part of the same.
    pub fn previous(self, zone: &Zone) -> Option<Self> {
        Self::back(zone, self.start.checked_sub(1)?)
    }

    /// Goes forward from a while before: asked for the change before a time, jiff may name one that never was, shortly
    /// after the last one that is tabulated (America/Ciudad_Juarez, December 2022).
    fn containing(zone: &Zone, second: i64, back: i64) -> Option<Self> {
        let looked_at_from = second.checked_sub(back)?;
        let mut at = looked_at_from.checked_sub(OFFSETS_APART_SECONDS)?;
        let mut offset = zone.offset(at)?;
        let mut shown = at + offset;
        let mut began = None;
        let next = loop {
            match zone.change_after(at) {
                Some((change, next_offset)) if change <= second => {
                    shown = shown.max(change + offset);
                    if change > looked_at_from {
                        began = Some((change, shown));
                    }
                    (at, offset) = (change, next_offset);
                }
                next => break next,
            }
        };
        let (start, shown_before) = began.unwrap_or((looked_at_from, looked_at_from + offset));
        Some(Self {
            start,
            end: next.map_or(Timestamp::MAX.as_second(), |(end, _)| end),
            offset,
            shown_before,
            next_offset: next.map(|(_, offset)| offset),
        })
    }

    pub fn local_start(&self) -> i64 {
        self.start + self.offset
    }

    pub fn local_end(&self) -> i64 {
        self.end + self.offset
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cron::{Dst, Schedule, Touched};
    use alloc::vec;

    #[test]
    fn zones_are_those_of_the_database_as_it_spells_them() {
        for (name, known) in
            [("Europe/Berlin", "Europe/Berlin"), ("europe/BERLIN", "Europe/Berlin"), ("utc", "UTC")]
        {
            assert_eq!(Zone::parse(name).unwrap().name(), known);
        }
        for name in
            ["", "Berlin", "Etc/Unknown", "+01:00", "CET-1CEST", "Europe/Berlin ", "Europe/Berl\u{fc}n"]
        {
            assert_eq!(Zone::parse(name), Err(UnknownZone), "{name}");
        }
        let berlin = Zone::parse("Europe/Berlin").unwrap();
        assert_eq!(berlin.local(WallTime(1_774_746_000_000)).unwrap(), "2026-03-29T03:00:00+02:00");
        assert_eq!(berlin.local(WallTime(u64::MAX)), None);
    }

    #[test]
    fn a_time_is_read_with_its_offset_and_not_without() {
        for text in ["2026-03-29T01:00:00Z", "2026-03-29T03:00:00+02:00", "2026-03-29 01:00:00.000Z"] {
            assert_eq!(time_of(text), Some(WallTime(1_774_746_000_000)), "{text}");
        }
        for text in ["", "2026-03-29", "2026-03-29T01:00:00", "1969-12-31T23:59:59Z", "now"] {
            assert_eq!(time_of(text), None, "{text}");
        }
    }

    #[test]
    fn a_second_change_within_minutes_makes_nothing_come_twice() {
        // On 10 April clocks go from 03:00 back to 02:00, and a quarter of an hour later from 02:15 to 03:15. No zone
        // has had such a day yet.
        let zone = TimeZone::posix("XXX0YYY-1,J100/2:15,J100/3").unwrap();
        let zone = Zone { zone, name: String::new() };
        let found = |text: &str| {
            let schedule = Schedule::parse(text, "").unwrap();
            let (from, until) = (WallTime(1_775_779_200_000), WallTime(1_775_779_200_000 + 6 * 3_600_000));
            let found = schedule.between(from, until, 10, &zone, Dst::Vixie);
            let latest = schedule.latest_at_or_before(until, from, &zone, Dst::Vixie);
            assert_eq!(latest.as_ref(), found.last());
            for found in &found {
                assert_eq!(schedule.latest_at_or_before(found.at, from, &zone, Dst::Vixie), Some(*found));
            }
            found.iter().map(|found| (zone.local(found.at).unwrap(), found.touched)).collect::<vec::Vec<_>>()
        };
        let at = |text: &str, touched| (String::from(text), touched);
        assert_eq!(found("5 2 * * *"), [at("2026-04-10T02:05:00+01:00", Some(Touched::RepeatSkipped))]);
        // It came, and isn't owed. That it would have come again is what the first change alone would have brought.
        assert_eq!(found("30 2 * * *"), [at("2026-04-10T02:30:00+01:00", Some(Touched::RepeatSkipped))]);
        assert_eq!(found("10 3 * * *"), [at("2026-04-10T03:15:00+01:00", Some(Touched::MovedFromGap))]);
    }
}
