//! A time zone as segments of constant offset. Within one, local time only grows; at its borders clocks are changed.

use crate::record::WallTime;
use alloc::string::{String, ToString};
use core::fmt;
use jiff::Timestamp;
use jiff::tz::TimeZone;

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

/// How much earlier a segment may have ended and still have had later local times than the next: no two offsets are
/// further apart.
const OFFSETS_APART_SECONDS: i64 = 2 * 86_400;
/// Changes within that time; there were never two.
const CHANGES_MAX: usize = 8;

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

    fn offset(&self, second: i64) -> i64 {
        Timestamp::from_second(second).map_or(0, |time| i64::from(self.zone.to_offset(time).seconds()))
    }

    /// When clocks are changed next after a second, and the offset from then on.
    fn change_after(&self, second: i64) -> Option<(i64, i64)> {
        let change = self.zone.following(Timestamp::from_second(second).ok()?).next()?;
        Some((change.timestamp().as_second(), i64::from(change.offset().seconds())))
    }

    /// When clocks were last changed before a second.
    fn change_before(&self, second: i64) -> Option<i64> {
        let change = self.zone.preceding(Timestamp::from_second(second).ok()?).next()?;
        Some(change.timestamp().as_second())
    }
}

/// A time in which the offset stays the same; all in seconds since 1970.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Segment {
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
    /// The one that a second is in. Nothing after the year 9999.
    pub fn containing(zone: &Zone, second: i64) -> Option<Self> {
        Timestamp::from_second(second).ok()?;
        Some(Self::of(zone, zone.change_before(second + 1), zone.offset(second), second))
    }

    /// The one after it.
    pub fn next(self, zone: &Zone) -> Option<Self> {
        Some(Self::of(zone, Some(self.end), self.next_offset?, self.end))
    }

    /// The one before it.
    pub fn previous(self, zone: &Zone) -> Option<Self> {
        // A segment that began with the first second of all times has none before it.
        Self::containing(zone, self.start.checked_sub(1)?)
    }

    fn of(zone: &Zone, start: Option<i64>, offset: i64, within: i64) -> Self {
        let next = zone.change_after(within);
        let first = Timestamp::MIN.as_second();
        Self {
            start: start.unwrap_or(first),
            end: next.map_or(Timestamp::MAX.as_second(), |(end, _)| end),
            offset,
            shown_before: start.map_or(first + offset, |start| shown_before(zone, start)),
            next_offset: next.map(|(_, offset)| offset),
        }
    }

    pub fn local_start(&self) -> i64 {
        self.start + self.offset
    }

    pub fn local_end(&self) -> i64 {
        self.end + self.offset
    }
}

/// The local time that had been reached when clocks were changed.
fn shown_before(zone: &Zone, change: i64) -> i64 {
    let mut reached = change + zone.offset(change - 1);
    let mut earlier = change;
    for _ in 0..CHANGES_MAX {
        match zone.change_before(earlier) {
            Some(before) if before > change - OFFSETS_APART_SECONDS => {
                reached = reached.max(before + zone.offset(before - 1));
                earlier = before;
            }
            _ => break,
        }
    }
    reached
}
