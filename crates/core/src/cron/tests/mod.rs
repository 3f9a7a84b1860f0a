//! Schedules: what they accept, when they are due, and how they read.

mod closures;
mod due;
mod expressions;
mod oracle;
mod random;
mod readings;

use super::{Dst, Occurrence, Schedule, Touched, Zone};
use crate::record::WallTime;
use alloc::string::String;
use alloc::vec::Vec;
use jiff::Timestamp;

fn schedule(text: &str) -> Schedule {
    Schedule::parse(text, "default/job").unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn zone(name: &str) -> Zone {
    Zone::parse(name).unwrap()
}

/// `2026-03-29T00:59:59Z`
fn time(text: &str) -> WallTime {
    let time: Timestamp = text.parse().unwrap();
    WallTime(u64::try_from(time.as_millisecond()).unwrap())
}

/// Each occurrence in local time, without seconds, and what touched it.
fn shown(found: &[Occurrence], zone: &Zone) -> Vec<(String, Option<Touched>)> {
    let local = |at| zone.local(at).unwrap().replace(":00+", "+").replace(":00-", "-").replace('T', " ");
    found.iter().map(|occurrence| (local(occurrence.at), occurrence.touched)).collect()
}

/// All in a range of UTC.
fn all(text: &str, zone: &Zone, dst: Dst, from: &str, until: &str) -> Vec<Occurrence> {
    schedule(text).between(time(from), time(until), 10_000, zone, dst)
}
