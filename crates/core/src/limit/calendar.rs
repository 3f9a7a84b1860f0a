//! Windows that are days or months somewhere.

use crate::record::WallTime;
use alloc::string::String;
use jiff::civil::Date;
use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan};

/// How long a window is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CalendarUnit {
    /// From midnight to midnight.
    Day,
    /// From the first to the first.
    Month,
}

impl CalendarUnit {
    /// As a number, from 1.
    pub(super) fn number(self) -> u8 {
        match self {
            Self::Day => 1,
            Self::Month => 2,
        }
    }

    pub(super) fn of_number(number: u8) -> Option<Self> {
        match number {
            1 => Some(Self::Day),
            2 => Some(Self::Month),
            _ => None,
        }
    }

    /// Its longest, in milliseconds: a day has 25 hours when clocks go back.
    pub fn longest_ms(self) -> u64 {
        let hour_ms = 3_600_000;
        match self {
            Self::Day => 25 * hour_ms,
            Self::Month => (31 * 24 + 1) * hour_ms,
        }
    }
}

/// Days or months, and where.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Calendar {
    /// Which.
    pub unit: CalendarUnit,
    /// As in the time zone database: `Europe/Berlin`, `UTC`.
    pub time_zone: String,
}

impl Calendar {
    /// Whether its time zone is known.
    pub fn is_known(&self) -> bool {
        TimeZone::get(&self.time_zone).is_ok()
    }

    /// Where the window of this moment began, and the next two begin. Nothing for a zone or a moment that can't be.
    pub fn edges(&self, now: WallTime) -> Option<[u64; 3]> {
        let zone = TimeZone::get(&self.time_zone).ok()?;
        let now = Timestamp::from_millisecond(i64::try_from(now.0).ok()?).ok()?;
        let today = now.to_zoned(zone.clone()).date();
        let first = match self.unit {
            CalendarUnit::Day => today,
            CalendarUnit::Month => today.first_of_month(),
        };
        let step = match self.unit {
            CalendarUnit::Day => 1.day(),
            CalendarUnit::Month => 1.month(),
        };
        let second = first.checked_add(step).ok()?;
        let third = second.checked_add(step).ok()?;
        // Where midnight doesn't exist the day begins when clocks have gone forward.
        let begin = |date: Date| {
            let begin = date.to_zoned(zone.clone()).ok()?.timestamp().as_millisecond();
            u64::try_from(begin).ok()
        };
        Some([begin(first)?, begin(second)?, begin(third)?])
    }
}
