//! Days that a calendar has: by their weekday, by their day of the year, by their date.
//!
//! As text, one of these: `2026-12-25`, `2026-12-24..2027-01-02`, `12-25` and `12-24..01-02` for every year, `SAT` and
//! `SAT..SUN` for every week.

use super::days::{Month, within};
use super::field::Field;
use crate::codec::{Decoder, Encoder, Unreadable};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use core::ops::Range;
use jiff::civil::{Date, date};

/// Bytes of a text.
pub const DAYS_BYTES_MAX: usize = 64;
/// Ranges of dates in one set.
pub const RANGES_MAX: usize = 1_000;
const YEARS: core::ops::RangeInclusive<i16> = 1970..=2999;

/// A set of days.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct DaySet {
    /// Bit 0 is Sunday.
    weekdays: u8,
    /// For each month, from January: bit 1 is its first day.
    yearly: [u32; 12],
    /// First and last, in days since 1970; in order, and none touches another.
    dates: Vec<(i64, i64)>,
}

/// Why a text doesn't name days.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DaysError {
    /// The bytes at fault, within the text and on the borders of characters.
    pub at: Range<usize>,
    /// What is wrong, and what is allowed.
    pub problem: String,
}

impl fmt::Display for DaysError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.problem)
    }
}

impl core::error::Error for DaysError {}

/// One end of a range, or all of it.
#[derive(Clone, Copy)]
enum End {
    Date(Date),
    /// Month and day.
    Yearly(u8, u8),
    Weekday(u8),
}

impl DaySet {
    /// Adds the days that a text names.
    pub fn add(&mut self, text: &str) -> Result<(), DaysError> {
        if text.len() > DAYS_BYTES_MAX {
            return Err(fault(0..text.len(), format!("at most {DAYS_BYTES_MAX} bytes are allowed")));
        }
        let (from, to) = match text.find("..") {
            None => (read(text, 0)?, read(text, 0)?),
            Some(dots) => (read(&text[..dots], 0)?, read(&text[dots + 2..], dots + 2)?),
        };
        match (from, to) {
            (End::Date(from), End::Date(to)) if from <= to => {
                self.add_dates(day_number(from), day_number(to));
                if self.dates.len() > RANGES_MAX {
                    return Err(fault(0..text.len(), format!("at most {RANGES_MAX} dates are allowed")));
                }
            }
            (End::Date(_), End::Date(_)) => {
                return Err(fault(0..text.len(), "the first date is after the last".into()));
            }
            (End::Yearly(month, day), End::Yearly(last_month, last_day)) => {
                let (mut month, mut day) = (month, day);
                loop {
                    self.yearly[usize::from(month) - 1] |= 1 << day;
                    if (month, day) == (last_month, last_day) {
                        break;
                    }
                    // The next day of a leap year; what comes after December is January.
                    (month, day) = match day >= longest(month) {
                        true => (month % 12 + 1, 1),
                        false => (month, day + 1),
                    };
                }
            }
            (End::Weekday(from), End::Weekday(to)) => {
                let days = (to + 7 - from) % 7;
                (0..=days).for_each(|day| self.weekdays |= 1 << ((from + day) % 7));
            }
            _ => {
                let problem =
                    "a range is from date to date, from day to day of the year, or from weekday to weekday";
                return Err(fault(0..text.len(), problem.into()));
            }
        }
        Ok(())
    }

    fn add_dates(&mut self, mut from: i64, mut to: i64) {
        // Those that it touches become one with it.
        self.dates.retain(|&(other_from, other_to)| {
            let touches = other_from <= to + 1 && from <= other_to + 1;
            if touches {
                (from, to) = (from.min(other_from), to.max(other_to));
            }
            !touches
        });
        let place = self.dates.partition_point(|&(other, _)| other < from);
        self.dates.insert(place, (from, to));
    }

    /// Its days of a month, by their bits.
    pub(super) fn of(&self, month: Month) -> u32 {
        let length = month.length();
        let mut days = self.yearly[usize::from(month.month) - 1] & within(length);
        if self.weekdays != 0 {
            for day in 1..=length {
                days |= u32::from(self.weekdays >> month.day_of_week(day) & 1) << day;
            }
        }
        let last = month.first_day + i64::from(length) - 1;
        let place = self.dates.partition_point(|&(_, to)| to < month.first_day);
        for &(from, to) in self.dates[place..].iter().take_while(|(from, _)| *from <= last) {
            let from = from.max(month.first_day) - month.first_day + 1;
            let to = to.min(last) - month.first_day + 1;
            days |= (u32::MAX >> (31 - to)) & (u32::MAX << from);
        }
        days
    }

    pub(super) fn write(&self, to: Encoder) -> Encoder {
        let to = self.yearly.iter().fold(to.byte(self.weekdays), |to, days| to.number((*days).into()));
        let to = to.number(self.dates.len() as u64);
        let range =
            |to: Encoder, &(from, last): &(i64, i64)| to.number(from as u64).number((last - from) as u64);
        self.dates.iter().fold(to, range)
    }

    pub(super) fn read(from: &mut Decoder<'_>) -> Result<Self, Unreadable> {
        let mut set = Self { weekdays: from.byte()?, ..Self::default() };
        for days in &mut set.yearly {
            *days = u32::try_from(from.number()?).map_err(|_| Unreadable)?;
        }
        let count = from.number()?;
        if count > RANGES_MAX as u64 {
            return Err(Unreadable);
        }
        for _ in 0..count {
            let small = |number: u64| i64::from(u32::try_from(number).unwrap_or(u32::MAX));
            let (first, length) = (small(from.number()?), small(from.number()?));
            set.dates.push((first, first + length));
        }
        Ok(set)
    }
}

fn read(text: &str, at: usize) -> Result<End, DaysError> {
    let problem = || {
        let problem = format!(
            "{text:?} names no day; allowed are a date (2026-12-25), a day of every year (12-25) and a weekday (SAT)"
        );
        fault(at..at + text.len(), problem)
    };
    if let Some(weekday) = Field::DayOfWeek.of_name(text) {
        return Ok(End::Weekday(weekday));
    }
    let number = |part: &str, digits: usize| {
        let is_number = part.len() == digits && part.bytes().all(|byte| byte.is_ascii_digit());
        is_number.then(|| part.parse::<i16>().ok()).flatten().ok_or_else(problem)
    };
    let mut parts = text.split('-');
    let (Some(one), Some(two), three, None) = (parts.next(), parts.next(), parts.next(), parts.next()) else {
        return Err(problem());
    };
    match three {
        Some(three) => {
            let (year, month, day) = (number(one, 4)?, number(two, 2)? as i8, number(three, 2)? as i8);
            let found = Date::new(year, month, day).ok().filter(|date| YEARS.contains(&date.year()));
            let no_date = || fault(at..at + text.len(), format!("there is no date {text} from 1970 to 2999"));
            Ok(End::Date(found.ok_or_else(no_date)?))
        }
        None => {
            let (month, day) = (number(one, 2)? as u8, number(two, 2)? as u8);
            if !(1..=12).contains(&month) || day == 0 || day > longest(month) {
                return Err(fault(at..at + text.len(), format!("no year has a day {text}")));
            }
            Ok(End::Yearly(month, day))
        }
    }
}

/// How many days a month has in a leap year.
fn longest(month: u8) -> u8 {
    Month { year: 2000, month, first_day: 0 }.length()
}

fn day_number(of: Date) -> i64 {
    date(1970, 1, 1).duration_until(of).as_secs() / 86_400
}

fn fault(at: Range<usize>, problem: String) -> DaysError {
    DaysError { at, problem }
}
