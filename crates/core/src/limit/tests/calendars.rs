//! Days and months in a time zone.

use crate::limit::{Calendar, CalendarUnit};
use crate::record::WallTime;
use alloc::string::ToString;

const HOUR: u64 = 3_600_000;

fn edges(unit: CalendarUnit, zone: &str, at: &str) -> [u64; 3] {
    let calendar = Calendar { unit, time_zone: zone.to_string() };
    calendar.edges(WallTime(millis(at))).unwrap()
}

fn millis(at: &str) -> u64 {
    at.parse::<jiff::Timestamp>().unwrap().as_millisecond() as u64
}

#[test]
fn a_day_begins_at_midnight_there_and_may_have_23_or_25_hours() {
    let plain = edges(CalendarUnit::Day, "UTC", "2026-11-16T12:34:56Z");
    assert_eq!(plain[0], millis("2026-11-16T00:00:00Z"));
    assert_eq!([plain[1] - plain[0], plain[2] - plain[1]], [24 * HOUR, 24 * HOUR]);
    let back = edges(CalendarUnit::Day, "Europe/Berlin", "2026-10-24T23:30:00Z");
    assert_eq!(back[0], millis("2026-10-24T22:00:00Z"));
    assert_eq!([back[1] - back[0], back[2] - back[1]], [25 * HOUR, 24 * HOUR]);
    let forward = edges(CalendarUnit::Day, "Europe/Berlin", "2026-03-28T23:30:00Z");
    assert_eq!(forward[1] - forward[0], 23 * HOUR);
    // Where clocks go forward at midnight the day begins at one.
    let skipped = edges(CalendarUnit::Day, "America/Santiago", "2026-09-06T12:00:00Z");
    assert_eq!(skipped[0], millis("2026-09-06T04:00:00Z"));
}

#[test]
fn a_month_begins_on_the_first_there() {
    let month = edges(CalendarUnit::Month, "Pacific/Auckland", "2026-02-28T10:59:59Z");
    assert_eq!(month[0], millis("2026-01-31T11:00:00Z"));
    assert_eq!(month[1], millis("2026-02-28T11:00:00Z"));
    assert_eq!(edges(CalendarUnit::Month, "Pacific/Auckland", "2026-02-28T11:00:00Z")[0], month[1]);
}

#[test]
fn no_window_is_longer_than_is_said_and_each_moment_is_in_its_own() {
    for zone in ["UTC", "Europe/Berlin", "America/New_York", "Pacific/Apia", "Australia/Lord_Howe"] {
        for unit in [CalendarUnit::Day, CalendarUnit::Month] {
            let mut now = millis("2026-01-01T00:00:00Z");
            while now < millis("2027-02-01T00:00:00Z") {
                let calendar = Calendar { unit, time_zone: zone.to_string() };
                let edges = calendar.edges(WallTime(now)).unwrap();
                assert!(
                    (edges[0]..edges[1]).contains(&now) && edges[1] < edges[2],
                    "{zone} {now}: {edges:?}"
                );
                assert!(edges[1] - edges[0] <= unit.longest_ms(), "{zone} {now}");
                now += 7 * HOUR + 1;
            }
        }
    }
}

#[test]
fn a_zone_that_is_not_known_has_no_windows() {
    let calendar = Calendar { unit: CalendarUnit::Day, time_zone: "Mars/Olympus".into() };
    assert!(!calendar.is_known() && calendar.edges(WallTime(0)).is_none());
    let calendar = Calendar { unit: CalendarUnit::Day, time_zone: "UTC".into() };
    assert!(calendar.is_known() && calendar.edges(WallTime(u64::MAX)).is_none());
}
