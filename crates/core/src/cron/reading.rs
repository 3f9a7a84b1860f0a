//! A schedule in plain English. It is made from what the schedule means, not from how it was written, so `H` shows what
//! was chosen; and it prefers a list to a phrase that is almost right.

use super::calendar::Calendar;
use super::days::{Days, MONTH, WEEK};
use super::schedule::{Plan, Schedule};
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

/// Times of day that are listed one by one.
const TIMES_LISTED_MAX: u32 = 6;
const ALL_OF_SIXTY: u64 = (1 << 60) - 1;
const ALL_HOURS: u32 = (1 << 24) - 1;
const ALL_MONTHS: u16 = 0b1_1111_1111_1110;
const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
const WEEKDAYS: [&str; 7] = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];

impl Schedule {
    /// What it says, in plain English: `at 02:30 on every Friday, in June`.
    pub fn reading(&self) -> String {
        match &self.plan {
            Plan::Every { seconds, .. } => {
                format!("every {}, counted from the start of 1970 in UTC", period(*seconds))
            }
            Plan::Calendar(calendar) => {
                let time = time(calendar);
                let days = match days(&calendar.days) {
                    Some(days) => format!(" {days}"),
                    None if time.contains("every") => String::new(),
                    None => String::from(" every day"),
                };
                format!("{time}{days}{}", months(calendar.months))
            }
        }
    }
}

fn period(seconds: u64) -> String {
    let parts = [(seconds / 86_400, "day"), (seconds / 3_600 % 24, "hour"), (seconds / 60 % 60, "minute")];
    let parts = parts.into_iter().chain([(seconds % 60, "second")]).filter(|(count, _)| *count > 0);
    let counted = parts.map(|(count, unit)| format!("{count} {unit}{}", if count == 1 { "" } else { "s" }));
    match list(counted.collect(), "and") {
        text if text.starts_with("1 ") && !text.contains(" and ") => text[2..].to_string(),
        text => text,
    }
}

fn time(calendar: &Calendar) -> String {
    let Calendar { seconds, minutes, hours, .. } = *calendar;
    let (second_count, minute_count) = (seconds.count_ones(), minutes.count_ones());
    if second_count * minute_count * hours.count_ones() <= TIMES_LISTED_MAX {
        return format!("at {}", list(times(calendar), "and"));
    }
    if second_count == 1 && minute_count == 1 {
        return hourly(calendar);
    }
    let of_minutes = match (seconds, even(minutes)) {
        (1, Some(1)) => String::from("every minute"),
        (1, Some(step)) => format!("every {step} minutes"),
        (1, None) => format!("at {}", numbered("minute", minutes)),
        (_, every) => {
            let of_seconds = match even(seconds) {
                Some(1) => String::from("every second"),
                Some(step) => format!("every {step} seconds"),
                None => format!("at {}", numbered("second", seconds)),
            };
            match every {
                Some(1) if of_seconds.starts_with("every") => of_seconds,
                Some(1) => format!("{of_seconds} of every minute"),
                _ => format!("{of_seconds} of {}", numbered("minute", minutes)),
            }
        }
    };
    let is_even = of_minutes.starts_with("every") && !of_minutes.contains(" of ");
    match (hours == ALL_HOURS, is_even) {
        (true, true) => of_minutes,
        (true, false) => format!("{of_minutes} of every hour"),
        (false, true) => format!("{of_minutes} {}", hour_ranges(hours)),
        (false, false) => format!("{of_minutes} of every hour {}", hour_ranges(hours)),
    }
}

/// Each time of day.
fn times(calendar: &Calendar) -> Vec<String> {
    let mut times = Vec::new();
    for hour in members(u64::from(calendar.hours)) {
        for minute in members(calendar.minutes) {
            for second in members(calendar.seconds) {
                times.push(match calendar.seconds {
                    1 => format!("{hour:02}:{minute:02}"),
                    _ => format!("{hour:02}:{minute:02}:{second:02}"),
                });
            }
        }
    }
    times
}

/// One minute and second, of many hours.
fn hourly(calendar: &Calendar) -> String {
    let (minute, second) = (calendar.minutes.trailing_zeros(), calendar.seconds.trailing_zeros());
    let place = match second {
        0 => format!("at minute {minute}"),
        _ => format!("at minute {minute} and second {second}"),
    };
    let hours = u64::from(calendar.hours);
    let times = times(calendar);
    match (calendar.hours, progression(hours)) {
        (ALL_HOURS, _) => format!("{place} of every hour"),
        (_, Some(1)) => format!("every hour from {} to {}", times[0], times[times.len() - 1]),
        (_, Some(step)) => format!("every {step} hours from {} to {}", times[0], times[times.len() - 1]),
        _ => format!("{place} of {}", numbered("hour", hours)),
    }
}

/// `from 09:00 to 17:59`, or the hours one by one if there are many such ranges.
fn hour_ranges(hours: u32) -> String {
    let runs = runs(u64::from(hours));
    if runs.len() > 3 {
        return format!("in {}", numbered("hour", u64::from(hours)));
    }
    let ranges = runs.iter().map(|(first, last)| format!("from {first:02}:00 to {last:02}:59"));
    list(ranges.collect(), "and")
}

/// Which days, with `on`; nothing if it is all of them.
fn days(days: &Days) -> Option<String> {
    let (all_of_month, all_of_week) = (days.of_month == MONTH, days.of_week == WEEK);
    match (days.both, all_of_month, all_of_week) {
        (true, true, true) => None,
        (false, true, _) | (false, _, true) => None,
        (true, true, false) => Some(format!("on {}", list(of_week(days), "and on"))),
        (true, false, true) => Some(format!("on {} of the month", list(of_month(days, true), "and"))),
        (true, false, false) => Some(format!(
            "on {}, but only if that is {} of the month",
            list(of_week(days), "and on"),
            list(of_month(days, false), "or")
        )),
        (false, false, false) => Some(format!(
            "on {} of the month, and also on {}",
            list(of_month(days, true), "and"),
            list(of_week(days), "and on")
        )),
    }
}

/// The days of the month, also as "every 2nd day" where that fits the sentence.
fn of_month(days: &Days, stepwise: bool) -> Vec<String> {
    let bits = u64::from(days.of_month);
    let mut parts = Vec::new();
    match progression(bits) {
        Some(step @ 2..) if stepwise && bits.count_ones() > 3 => {
            let (first, last) = (bits.trailing_zeros(), 63 - bits.leading_zeros());
            parts.push(format!("every {} day from the {} to the {}", nth(step), nth(first), nth(last)));
        }
        _ => parts.extend(ranges(bits, |day| format!("the {}", nth(day)))),
    }
    for day in members(u64::from(days.nearest_working)) {
        parts.push(format!("the day from Monday to Friday that is nearest to the {}", nth(day)));
    }
    for by in members(u64::from(days.before_last)).rev() {
        parts.push(match by {
            0 => String::from("the last day"),
            1 => String::from("the day before the last"),
            by => format!("the day {by} days before the last"),
        });
    }
    if days.last_working {
        parts.push(String::from("the last day from Monday to Friday"));
    }
    parts
}

fn of_week(days: &Days) -> Vec<String> {
    let name = |day: u32| WEEKDAYS[day as usize].to_string();
    let mut parts = Vec::new();
    if days.of_week != 0 {
        // From Monday on, so that a weekend is together.
        let monday_first = u64::from(days.of_week >> 1 | (days.of_week & 1) << 6);
        let named = ranges(monday_first, |day| name((day + 1) % 7));
        parts.push(format!("every {}", list(named, "and")));
    }
    for (day, places) in days.nth.iter().enumerate() {
        for place in members(u64::from(*places)) {
            parts.push(format!("the {} {} of the month", nth(place), WEEKDAYS[day]));
        }
    }
    for day in members(u64::from(days.last_of)) {
        parts.push(format!("the last {} of the month", name(day)));
    }
    parts
}

fn months(months: u16) -> String {
    if months == ALL_MONTHS {
        return String::new();
    }
    let named = ranges(u64::from(months), |month| MONTHS[month as usize - 1].to_string());
    format!(", in {}", list(named, "and"))
}

/// `minute 5`, `minutes 5, 10 and 20 to 25`.
fn numbered(noun: &str, bits: u64) -> String {
    let plural = if bits.count_ones() == 1 { "" } else { "s" };
    format!("{noun}{plural} {}", list(ranges(bits, |number| number.to_string()), "and"))
}

/// The step of a set of sixty that begins with 0 and goes on evenly over the next hour or minute.
fn even(bits: u64) -> Option<u32> {
    if bits == ALL_OF_SIXTY {
        return Some(1);
    }
    let step = (bits & !1).trailing_zeros();
    let is_even = step < 60 && 60 % step == 0 && (0..60).all(|at| (bits >> at & 1 == 1) == (at % step == 0));
    is_even.then_some(step)
}

/// The step of three or more numbers that are evenly apart.
fn progression(bits: u64) -> Option<u32> {
    let members: Vec<u32> = members(bits).collect();
    let [first, second, .., _] = members[..] else { return None };
    let step = second - first;
    (members.len() > 2 && members.windows(2).all(|two| two[1] - two[0] == step)).then_some(step)
}

/// The members of a set, three or more in a row as `a to b`.
fn ranges(bits: u64, show: impl Fn(u32) -> String) -> Vec<String> {
    let mut shown = Vec::new();
    for (first, last) in runs(bits) {
        match last - first {
            0 => shown.push(show(first)),
            1 => shown.extend([show(first), show(last)]),
            _ => shown.push(format!("{} to {}", show(first), show(last))),
        }
    }
    shown
}

/// The first and last of each run of numbers in a set.
fn runs(bits: u64) -> Vec<(u32, u32)> {
    let mut runs: Vec<(u32, u32)> = Vec::new();
    for member in members(bits) {
        match runs.last_mut() {
            Some((_, last)) if *last + 1 == member => *last = member,
            _ => runs.push((member, member)),
        }
    }
    runs
}

fn members(bits: u64) -> impl DoubleEndedIterator<Item = u32> {
    (0..64).filter(move |bit| bits >> bit & 1 == 1)
}

/// `a`, `a and b`, `a, b and c`.
fn list(mut parts: Vec<String>, word: &str) -> String {
    let last = parts.pop().unwrap_or_default();
    if parts.is_empty() { last } else { format!("{} {word} {last}", parts.join(", ")) }
}

/// `1st`, `2nd`, `11th`.
fn nth(number: u32) -> String {
    let ending = match (number % 10, number % 100) {
        (_, 11..=13) => "th",
        (1, _) => "st",
        (2, _) => "nd",
        (3, _) => "rd",
        _ => "th",
    };
    format!("{number}{ending}")
}
