//! Schedules: when a job is due (J2), and how that reads in plain English (J11).
//!
//! A [`Schedule`] is a set of local times, or a period. Where a time zone's clocks are changed, local times are missing or
//! come twice; [`Dst`] says what becomes of those. All answers are exact, and each takes bounded work: a question looks at
//! most [`SEARCH_YEARS`] ahead, which is longer than the calendar and all rules about clocks need to repeat, so "nothing
//! found" means never.
//!
//! # Layout
//! - [`error`]: what is wrong with an expression, and where
//! - `field`, `item`, `parse`: from text to sets of numbers
//! - `days`: which days of a month are meant; `calendar`: the next and the last time in a calendar without clock changes
//! - [`day_set`]: days that a calendar has; [`closures`]: what calendars do to the days of a schedule
//! - [`zone`]: a time zone as segments of constant offset, in which local time only grows
//! - [`schedule`]: the two together
//! - `reading`: plain English
//! - `jitter`: how far a run is moved from its time

mod calendar;
pub mod closures;
pub mod day_set;
mod days;
pub mod error;
mod field;
mod item;
mod jitter;
mod parse;
mod reading;
pub mod schedule;
pub mod zone;

#[cfg(test)]
mod tests;

pub use closures::{Closures, MOVED_DAYS_MAX, Policy};
pub use day_set::{DAYS_BYTES_MAX, DaySet, DaysError};
pub use error::ScheduleError;
pub use field::Field;
pub use jitter::jitter;
pub use parse::EXPRESSION_BYTES_MAX;
pub use schedule::{Dst, Occurrence, SEARCH_YEARS, Schedule, Touched};
pub use zone::{UnknownZone, Zone, time_of};

use alloc::format;
use alloc::string::String;

/// What `H` is a hash of: jobs of the same name in two namespaces are two jobs.
pub fn full_name(namespace: &str, job: &str) -> String {
    format!("{namespace}/{job}")
}
