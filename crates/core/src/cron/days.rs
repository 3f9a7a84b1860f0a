//! Which days of a month are meant.

use super::item::{DayItem, Values};

/// A month of a year.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Month {
    pub year: i16,
    /// From 1.
    pub month: u8,
    /// Its first day, in days since 1970.
    pub first_day: i64,
}

impl Month {
    pub fn length(self) -> u8 {
        match self.month {
            2 if self.year % 4 == 0 && (self.year % 100 != 0 || self.year % 400 == 0) => 29,
            2 => 28,
            4 | 6 | 9 | 11 => 30,
            _ => 31,
        }
    }

    pub fn next(self) -> Self {
        let first_day = self.first_day + i64::from(self.length());
        match self.month {
            12 => Self { year: self.year + 1, month: 1, first_day },
            month => Self { year: self.year, month: month + 1, first_day },
        }
    }

    pub fn previous(self) -> Self {
        let (year, month) = match self.month {
            1 => (self.year - 1, 12),
            month => (self.year, month - 1),
        };
        let before = Self { year, month, first_day: 0 };
        Self { first_day: self.first_day - i64::from(before.length()), ..before }
    }

    /// The day of the week of a day, from 1; Sunday is 0. The first day of 1970 was a Thursday.
    pub fn day_of_week(self, day: u8) -> u8 {
        (self.first_day + i64::from(day) + 3).rem_euclid(7) as u8
    }
}

/// The two fields for days. Bit 1 is the first of the month.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Days {
    pub of_month: u32,
    /// Bit n: n days before the month's last.
    pub before_last: u32,
    pub nearest_working: u32,
    pub last_working: bool,
    /// Bit 0 is Sunday.
    pub of_week: u8,
    /// For each day of the week, bit n: its n-th in the month.
    pub nth: [u8; 7],
    /// Bit 0 is Sunday.
    pub last_of: u8,
    /// Whether a day has to be in both fields; otherwise one is enough. As Vixie cron has it: both, if one of them begins
    /// with `*`.
    pub both: bool,
}

/// Every day of the week.
pub(super) const WEEK: u8 = 0x7f;
/// Every day of the longest month.
pub(super) const MONTH: u32 = 0xffff_fffe;

impl Days {
    pub fn none() -> Self {
        Self {
            of_month: 0,
            before_last: 0,
            nearest_working: 0,
            last_working: false,
            of_week: 0,
            nth: [0; 7],
            last_of: 0,
            both: false,
        }
    }

    pub fn new(of_month: &Values, of_week: &Values) -> Self {
        let mut days = Self {
            of_month: of_month.bits as u32,
            of_week: of_week.bits as u8,
            both: of_month.is_star || of_week.is_star,
            ..Self::none()
        };
        for item in of_month.days.iter().chain(&of_week.days) {
            match *item {
                DayItem::BeforeLast(by) => days.before_last |= 1 << by,
                DayItem::LastWorking => days.last_working = true,
                DayItem::NearestWorking(day) => days.nearest_working |= 1 << day,
                DayItem::LastOf(day) => days.last_of |= 1 << day,
                DayItem::Nth(day, nth) => days.nth[usize::from(day)] |= 1 << nth,
            }
        }
        days
    }

    /// The days of a month that are meant, by their bits.
    pub fn of(&self, month: Month) -> u32 {
        let (of_month, of_week) = (self.by_month(month), self.by_week(month));
        if self.both { of_month & of_week } else { of_month | of_week }
    }

    fn by_month(&self, month: Month) -> u32 {
        let length = month.length();
        let mut days = self.of_month & within(length);
        for by in bits(self.before_last).filter(|by| *by < length) {
            days |= 1 << (length - by);
        }
        for day in bits(self.nearest_working).filter(|day| *day <= length) {
            days |= 1 << nearest_working(month, day);
        }
        if self.last_working {
            days |= 1 << nearest_working(month, length);
        }
        days
    }

    fn by_week(&self, month: Month) -> u32 {
        if self.of_week == WEEK {
            return within(month.length());
        }
        let length = month.length();
        let mut days = 0;
        for day_of_week in 0..7 {
            let first = 1 + (7 + day_of_week - month.day_of_week(1)) % 7;
            let nth = self.nth[usize::from(day_of_week)];
            for (place, day) in (first..=length).step_by(7).enumerate() {
                let all = self.of_week >> day_of_week & 1 == 1;
                let this = nth >> (place + 1) & 1 == 1;
                let last = self.last_of >> day_of_week & 1 == 1 && day + 7 > length;
                if all || this || last {
                    days |= 1 << day;
                }
            }
        }
        days
    }
}

/// The day from Monday to Friday nearest to a day, in the same month.
fn nearest_working(month: Month, day: u8) -> u8 {
    match month.day_of_week(day) {
        6 if day == 1 => 3,
        6 => day - 1,
        0 if day == month.length() => day - 2,
        0 => day + 1,
        _ => day,
    }
}

/// Every day of a month of this length.
pub(super) fn within(length: u8) -> u32 {
    MONTH & (u32::MAX >> (31 - length))
}

pub(super) fn bits(set: u32) -> impl Iterator<Item = u8> {
    (0..32).filter(move |bit| set >> bit & 1 == 1)
}
