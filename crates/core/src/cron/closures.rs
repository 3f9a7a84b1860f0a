//! What calendars do to the days of a schedule (J13).
//!
//! A time of day stays as it is; only days are left out or moved, before anything is said of clocks. So a moved time keeps its
//! local time, changes of clocks are treated as on any other day, and two that are moved to the same day are one.

use super::calendar::{DAY_SECONDS, at};
use super::day_set::DaySet;
use super::days::{Month, bits, within};
use crate::codec::{Decoder, Encoder, Unreadable};
use crate::limit::names::names;
use alloc::vec::Vec;

/// How far a day is moved; one that finds no open day within so many is left out.
pub const MOVED_DAYS_MAX: i64 = 31;

names! {
    /// What becomes of times on days that a calendar has.
    Policy {
        /// They are left out.
        Exclude = 1 "exclude",
        /// They come on the next day that isn't in any calendar of the job.
        MoveToNext = 2 "move_to_next",
        /// They come on the last such day before.
        MoveToPrevious = 3 "move_to_previous",
    }
}

/// Days that calendars close. The first calendar that has a day says what becomes of it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Closures(pub Vec<(Policy, DaySet)>);

/// Which days of a schedule are asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Side {
    /// What is left, and where it was moved.
    Kept,
    /// What doesn't come at all.
    LeftOut,
}

/// A month's closed days, by their bits and by what becomes of them.
#[derive(Clone, Copy, Default)]
struct Closed {
    exclude: u32,
    next: u32,
    previous: u32,
}

impl Closed {
    fn all(self) -> u32 {
        self.exclude | self.next | self.previous
    }
}

/// A day, and what is closed in its month.
#[derive(Clone, Copy)]
struct Place {
    month: Month,
    day: u8,
    closed: Closed,
}

impl Place {
    fn number(&self) -> i64 {
        self.month.first_day + i64::from(self.day) - 1
    }

    fn is_in(&self, days: u32) -> bool {
        days >> self.day & 1 == 1
    }
}

impl Closures {
    /// Whether days are moved, and not only left out.
    pub fn moves(&self) -> bool {
        self.0.iter().any(|(policy, _)| *policy != Policy::Exclude)
    }

    /// The day that what is planned for a day comes on, both in days since 1970. Nothing if it is left out.
    pub(crate) fn target(&self, day: i64) -> Option<i64> {
        let (month, day, _) = at(day * DAY_SECONDS)?;
        self.target_of(Place { month, day, closed: self.of(month) })
    }

    fn target_of(&self, mut place: Place) -> Option<i64> {
        let is_later = match place.closed {
            closed if place.is_in(closed.exclude) => return None,
            closed if place.is_in(closed.next) => true,
            closed if place.is_in(closed.previous) => false,
            _ => return Some(place.number()),
        };
        for _ in 0..MOVED_DAYS_MAX {
            place = self.beside(place, is_later);
            if !place.is_in(place.closed.all()) {
                return Some(place.number());
            }
        }
        None
    }

    /// The days of a month that a schedule has after this, of those that it plans.
    pub(super) fn days(&self, side: Side, planned: &dyn Fn(Month) -> u32, month: Month) -> u32 {
        let (closed, here) = (self.of(month), planned(month));
        match side {
            Side::LeftOut => {
                let is_left_out = |day: &u8| self.target_of(Place { month, day: *day, closed }).is_none();
                bits(here & closed.all()).filter(is_left_out).fold(0, |days, day| days | 1 << day)
            }
            Side::Kept if !self.moves() => here & !closed.all(),
            Side::Kept => {
                let open = within(month.length()) & !closed.all();
                let comes = |day: &u8| {
                    let place = Place { month, day: *day, closed };
                    place.is_in(here)
                        || self.receives(place, true, planned)
                        || self.receives(place, false, planned)
                };
                bits(open).filter(comes).fold(0, |days, day| days | 1 << day)
            }
        }
    }

    /// Whether something is moved to an open day, from the closed days right before or after it.
    fn receives(&self, mut place: Place, from_before: bool, planned: &dyn Fn(Month) -> u32) -> bool {
        for _ in 0..MOVED_DAYS_MAX {
            place = self.beside(place, !from_before);
            let moved = if from_before { place.closed.next } else { place.closed.previous };
            if place.is_in(moved) && place.is_in(planned(place.month)) {
                return true;
            }
            if !place.is_in(place.closed.all()) {
                return false;
            }
        }
        false
    }

    /// The day after a place, or before it.
    fn beside(&self, place: Place, is_later: bool) -> Place {
        let Place { month, day, .. } = place;
        if is_later && day < month.length() {
            return Place { day: day + 1, ..place };
        }
        if !is_later && day > 1 {
            return Place { day: day - 1, ..place };
        }
        let month = if is_later { month.next() } else { month.previous() };
        let day = if is_later { 1 } else { month.length() };
        Place { month, day, closed: self.of(month) }
    }

    fn of(&self, month: Month) -> Closed {
        let mut closed = Closed::default();
        for (policy, days) in &self.0 {
            let new = days.of(month) & !closed.all();
            match policy {
                Policy::Exclude => closed.exclude |= new,
                Policy::MoveToNext => closed.next |= new,
                Policy::MoveToPrevious => closed.previous |= new,
            }
        }
        closed
    }
}

/// A policy and its days, as records have them.
pub(crate) fn write(policy: Policy, days: &DaySet, to: Encoder) -> Encoder {
    days.write(to.byte(policy.number()))
}

/// The same, read again.
pub(crate) fn read(from: &mut Decoder<'_>) -> Result<(Policy, DaySet), Unreadable> {
    let policy = Policy::of_number(from.byte()?)?;
    Ok((policy, DaySet::read(from)?))
}
