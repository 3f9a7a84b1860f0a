//! The times of a schedule in a calendar whose clocks are never changed. Times are seconds since 1970 on such a clock.

use super::closures::{Closures, Side};
use super::days::{Days, MONTH, Month, WEEK};
use alloc::sync::Arc;
use jiff::Timestamp;
use jiff::tz::Offset;

/// Sets of seconds, minutes, hours, months, and days.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Calendar {
    pub seconds: u64,
    pub minutes: u64,
    pub hours: u32,
    /// Bit 1 is January.
    pub months: u16,
    pub days: Days,
    /// Whether the hour's or the minute's field begins with `*`: then it isn't a fixed time of day.
    pub follows_clock: bool,
    /// Days that calendars close, and which of the two is asked for: what is left to run, or what is left out.
    pub closures: Option<(Arc<Closures>, Side)>,
}

pub(super) const DAY_SECONDS: i64 = 86_400;

impl Calendar {
    /// The first second of every day that calendars leave, or leave out.
    pub fn midnights(closures: Arc<Closures>, side: Side) -> Self {
        let days = Days { of_month: MONTH, of_week: WEEK, both: true, ..Days::none() };
        let closures = Some((closures, side));
        Self { seconds: 1, minutes: 1, hours: 1, months: u16::MAX, days, follows_clock: true, closures }
    }

    /// The first time in a half-open range. Counts the months that were looked at.
    pub fn first_in(&self, from: i64, before: i64, steps: &mut u64) -> Option<i64> {
        let (mut month, day, second) = at(from)?;
        // The first day that can be is today, if there is a time left.
        let (mut lowest_day, mut today) = match self.time_from(second) {
            Some(time) => (day, Some(time)),
            None => (day + 1, None),
        };
        while month.first_day * DAY_SECONDS < before {
            *steps += 1;
            let days = self.days_of(month) & (u32::MAX.checked_shl(u32::from(lowest_day)).unwrap_or(0));
            if days != 0 {
                let found = days.trailing_zeros() as u8;
                let time = match today.filter(|_| found == day) {
                    Some(time) => time,
                    None => self.time_from(0)?,
                };
                let time = (month.first_day + i64::from(found) - 1) * DAY_SECONDS + time;
                return (time < before).then_some(time);
            }
            (month, lowest_day, today) = (month.next(), 1, None);
        }
        None
    }

    /// The last time in a half-open range.
    pub fn last_in(&self, from: i64, before: i64, steps: &mut u64) -> Option<i64> {
        let (mut month, day, second) = at(before.checked_sub(1)?)?;
        let (mut highest_day, mut today) = match self.time_until(second) {
            Some(time) => (day, Some(time)),
            None => (day - 1, None),
        };
        while (month.first_day + i64::from(month.length())) * DAY_SECONDS > from {
            *steps += 1;
            let days = self.days_of(month) & (u32::MAX >> (31 - highest_day));
            if days != 0 {
                let found = 31 - days.leading_zeros() as u8;
                let time = match today.filter(|_| found == day) {
                    Some(time) => time,
                    None => self.time_until(DAY_SECONDS - 1)?,
                };
                let time = (month.first_day + i64::from(found) - 1) * DAY_SECONDS + time;
                return (time >= from).then_some(time);
            }
            (month, highest_day, today) = (month.previous(), 31, None);
        }
        None
    }

    fn days_of(&self, month: Month) -> u32 {
        let planned =
            |month: Month| if self.months >> month.month & 1 == 0 { 0 } else { self.days.of(month) };
        match &self.closures {
            None => planned(month),
            Some((closures, side)) => closures.days(*side, &planned, month),
        }
    }

    /// The first time of day at or after a second of the day.
    fn time_from(&self, second: i64) -> Option<i64> {
        let (hour, minute, second) = (second / 3_600, second / 60 % 60, second % 60);
        let hours = u64::from(self.hours);
        if hours >> hour & 1 == 1 {
            if self.minutes >> minute & 1 == 1
                && let Some(second) = lowest(self.seconds, second)
            {
                return Some(hour * 3_600 + minute * 60 + second);
            }
            if let Some(minute) = lowest(self.minutes, minute + 1) {
                return Some(hour * 3_600 + minute * 60 + lowest(self.seconds, 0)?);
            }
        }
        let hour = lowest(hours, hour + 1)?;
        Some(hour * 3_600 + lowest(self.minutes, 0)? * 60 + lowest(self.seconds, 0)?)
    }

    /// The last time of day at or before a second of the day.
    fn time_until(&self, second: i64) -> Option<i64> {
        let (hour, minute, second) = (second / 3_600, second / 60 % 60, second % 60);
        let hours = u64::from(self.hours);
        if hours >> hour & 1 == 1 {
            if self.minutes >> minute & 1 == 1
                && let Some(second) = highest(self.seconds, second)
            {
                return Some(hour * 3_600 + minute * 60 + second);
            }
            if let Some(minute) = highest(self.minutes, minute - 1) {
                return Some(hour * 3_600 + minute * 60 + highest(self.seconds, 59)?);
            }
        }
        let hour = highest(hours, hour - 1)?;
        Some(hour * 3_600 + highest(self.minutes, 59)? * 60 + highest(self.seconds, 59)?)
    }
}

/// The lowest of a set from a number on.
fn lowest(set: u64, from: i64) -> Option<i64> {
    let rest = set & (u64::MAX << from);
    (rest != 0).then(|| i64::from(rest.trailing_zeros()))
}

/// The highest of a set up to a number.
fn highest(set: u64, to: i64) -> Option<i64> {
    let rest = if to < 0 { 0 } else { set & (u64::MAX >> (63 - to)) };
    (rest != 0).then(|| i64::from(63 - rest.leading_zeros()))
}

/// The month, the day in it and the second of that day. Nothing beyond the years -9999 to 9999.
pub(super) fn at(seconds: i64) -> Option<(Month, u8, i64)> {
    let date = Offset::UTC.to_datetime(Timestamp::from_second(seconds).ok()?).date();
    let day = date.day() as u8;
    let first_day = seconds.div_euclid(DAY_SECONDS) - i64::from(day) + 1;
    let month = Month { year: date.year(), month: date.month() as u8, first_day };
    Some((month, day, seconds.rem_euclid(DAY_SECONDS)))
}
