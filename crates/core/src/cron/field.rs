//! The fields of an expression: what each is called and may contain.

/// One of the fields.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Field {
    /// Of a minute; only in expressions of six fields.
    Second,
    /// Of an hour.
    Minute,
    /// Of a day.
    Hour,
    /// From 1.
    DayOfMonth,
    /// From 1.
    Month,
    /// From 0, Sunday, which is also 7.
    DayOfWeek,
}

const MONTHS: [&str; 12] =
    ["JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"];
const DAYS: [&str; 7] = ["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"];

impl Field {
    /// In the order in which they are written.
    pub const ALL: [Self; 6] =
        [Self::Second, Self::Minute, Self::Hour, Self::DayOfMonth, Self::Month, Self::DayOfWeek];

    /// As people call it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Second => "second",
            Self::Minute => "minute",
            Self::Hour => "hour",
            Self::DayOfMonth => "day of month",
            Self::Month => "month",
            Self::DayOfWeek => "day of week",
        }
    }

    /// Its lowest and highest number, as `*` means them.
    pub(super) fn bounds(self) -> (u8, u8) {
        match self {
            Self::Second | Self::Minute => (0, 59),
            Self::Hour => (0, 23),
            Self::DayOfMonth => (1, 31),
            Self::Month => (1, 12),
            Self::DayOfWeek => (0, 6),
        }
    }

    /// The highest that may be written: Sunday also as 7.
    pub(super) fn highest_written(self) -> u8 {
        match self {
            Self::DayOfWeek => 7,
            _ => self.bounds().1,
        }
    }

    /// What `H` picks from: a day that every month has.
    pub(super) fn hash_bounds(self) -> (u8, u8) {
        match self {
            Self::DayOfMonth => (1, 28),
            _ => self.bounds(),
        }
    }

    pub(super) fn is_day(self) -> bool {
        matches!(self, Self::DayOfMonth | Self::DayOfWeek)
    }

    /// The number that a name stands for.
    pub(super) fn of_name(self, name: &str) -> Option<u8> {
        let (names, first): (&[&str], u8) = match self {
            Self::Month => (&MONTHS, 1),
            Self::DayOfWeek => (&DAYS, 0),
            _ => return None,
        };
        let place = names.iter().position(|known| known.eq_ignore_ascii_case(name))?;
        Some(place as u8 + first)
    }

    /// What may be written in it.
    pub(super) fn allowed(self) -> &'static str {
        match self {
            Self::Second | Self::Minute => "0 to 59",
            Self::Hour => "0 to 23",
            Self::DayOfMonth => "1 to 31, L, L-1 to L-30, LW, and 1W to 31W",
            Self::Month => "1 to 12, and JAN to DEC",
            Self::DayOfWeek => "0 to 7 (0 and 7 are Sunday), SUN to SAT, 5L, and 5#1 to 5#5",
        }
    }
}
