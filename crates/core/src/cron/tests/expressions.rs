//! What is accepted, what it means, and what is said of the rest.

use super::{schedule, time, zone};
use crate::cron::{Dst, EXPRESSION_BYTES_MAX, Field, Schedule, ScheduleError};
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

/// The first days from 2026-01-01 on, all of them at midnight UTC.
fn days(text: &str, count: usize) -> Vec<String> {
    let (from, until) = (time("2025-12-31T23:59:59Z"), time("2100-01-01T00:00:00Z"));
    let utc = zone("UTC");
    let found = schedule(text).between(from, until, count, &utc, Dst::Vixie);
    found
        .iter()
        .map(|found| {
            let local = utc.local(found.at).unwrap();
            let (day, time) = local.split_once('T').unwrap();
            assert_eq!(time, "00:00:00+00:00", "{text}");
            day.to_string()
        })
        .collect()
}

fn error(text: &str) -> ScheduleError {
    Schedule::parse(text, "default/job").expect_err(text)
}

#[test]
fn days_are_those_that_the_calendar_has() {
    for (text, expected) in [
        ("0 0 * * *", "2026-01-01 2026-01-02"),
        ("0 0 31 * *", "2026-01-31 2026-03-31 2026-05-31 2026-07-31"),
        ("0 0 29 2 *", "2028-02-29 2032-02-29"),
        ("0 0 * * 7", "2026-01-04 2026-01-11"),
        ("0 0 * * sun", "2026-01-04 2026-01-11"),
        ("0 0 * feb,Dec 1", "2026-02-02 2026-02-09 2026-02-16 2026-02-23 2026-12-07"),
        ("0 0 * * FRI-SUN", "2026-01-02 2026-01-03 2026-01-04 2026-01-09"),
        ("0 0 * * 5-7", "2026-01-02 2026-01-03 2026-01-04 2026-01-09"),
        ("0 0 1-10/4 * *", "2026-01-01 2026-01-05 2026-01-09 2026-02-01"),
        ("0 0 20/5 * *", "2026-01-20 2026-01-25 2026-01-30 2026-02-20"),
        ("0 0 L * *", "2026-01-31 2026-02-28 2026-03-31"),
        ("0 0 L-3 2 *", "2026-02-25 2027-02-25 2028-02-26"),
        ("0 0 L-30 * *", "2026-01-01 2026-03-01 2026-05-01"),
        ("0 0 1,L * ?", "2026-01-01 2026-01-31 2026-02-01 2026-02-28"),
        // The 15th is a Sunday in February and March, a Saturday in August.
        ("0 0 15W * *", "2026-01-15 2026-02-16 2026-03-16 2026-04-15"),
        ("0 0 15w 8 *", "2026-08-14"),
        // The first is a Saturday in August, a Sunday in November; the last a Sunday in May, a Saturday in October.
        ("0 0 1W 8,11 *", "2026-08-03 2026-11-02"),
        ("0 0 31W * *", "2026-01-30 2026-03-31 2026-05-29 2026-07-31"),
        ("0 0 LW 5,10,11 *", "2026-05-29 2026-10-30 2026-11-30"),
        ("0 0 ? * 5L", "2026-01-30 2026-02-27 2026-03-27"),
        ("0 0 ? * FRIL", "2026-01-30 2026-02-27 2026-03-27"),
        ("0 0 ? * 0L", "2026-01-25 2026-02-22 2026-03-29"),
        ("0 0 ? * 5#3", "2026-01-16 2026-02-20 2026-03-20"),
        ("0 0 ? * fri#5", "2026-01-30 2026-05-29 2026-07-31"),
        ("0 0 * * 7#1", "2026-01-04 2026-02-01 2026-03-01"),
        ("0 0 * * 1,5#3", "2026-01-05 2026-01-12 2026-01-16 2026-01-19"),
        ("@yearly", "2026-01-01 2027-01-01"),
        ("@annually", "2026-01-01 2027-01-01"),
        ("@monthly", "2026-01-01 2026-02-01"),
        ("@weekly", "2026-01-04 2026-01-11"),
        ("@Daily", "2026-01-01 2026-01-02"),
        ("@midnight", "2026-01-01 2026-01-02"),
        ("@every 1d", "2026-01-01 2026-01-02"),
    ] {
        let expected: Vec<_> = expected.split(' ').collect();
        assert_eq!(days(text, expected.len()), expected, "{text}");
    }
}

#[test]
fn with_both_fields_for_days_one_is_enough_unless_one_begins_with_a_star() {
    for (text, expected) in [
        // Friday, or the thirteenth.
        ("0 0 13 * 5", "2026-01-02 2026-01-09 2026-01-13 2026-01-16"),
        ("0 0 13 * FRI#1", "2026-01-02 2026-01-13 2026-02-06 2026-02-13"),
        ("0 0 L * 5", "2026-01-02 2026-01-09 2026-01-16 2026-01-23 2026-01-30 2026-01-31"),
        // A full range restricts, since it is no star.
        ("0 0 1-31 * 5", "2026-01-01 2026-01-02 2026-01-03"),
        // A star with a step is a star: odd days that are Fridays.
        ("0 0 */2 * 5", "2026-01-09 2026-01-23 2026-02-13 2026-02-27"),
        ("0 0 13 * */5", "2026-02-13 2026-03-13 2026-09-13"),
        ("0 0 13 * ?", "2026-01-13 2026-02-13"),
    ] {
        let expected: Vec<_> = expected.split(' ').collect();
        assert_eq!(days(text, expected.len()), expected, "{text}");
    }
}

#[test]
fn times_of_day_are_those_that_are_listed() {
    let utc = zone("UTC");
    let (from, until) = (time("2025-12-31T23:59:59Z"), time("2026-01-01T23:59:59Z"));
    for (text, expected) in [
        ("30 2 * * *", "02:30:00"),
        ("15 30 2 * * *", "02:30:15"),
        ("0,30 1-2 * * *", "01:00:00 01:30:00 02:00:00 02:30:00"),
        ("*/20 8 * * *", "08:00:00 08:20:00 08:40:00"),
        ("10-50/20 8 * * *", "08:10:00 08:30:00 08:50:00"),
        ("7/25 8 * * *", "08:07:00 08:32:00 08:57:00"),
        ("*/25 59 23 * * *", "23:59:00 23:59:25 23:59:50"),
        ("@every 8h", "00:00:00 08:00:00 16:00:00"),
        ("\t 5  4 *\t* * ", "04:05:00"),
    ] {
        let found = schedule(text).between(from, until, 100, &utc, Dst::Vixie);
        let found: Vec<_> = found.iter().map(|found| utc.local(found.at).unwrap()).collect();
        let expected: Vec<_> = expected.split(' ').map(|time| format!("2026-01-01T{time}+00:00")).collect();
        assert_eq!(found, expected, "{text}");
    }
    assert_eq!(schedule("* * * * *").between(from, until, 10_000, &utc, Dst::Vixie).len(), 1_440);
    assert_eq!(schedule("* * * * * *").between(from, until, 100_000, &utc, Dst::Vixie).len(), 86_400);
    assert_eq!(schedule("@hourly").between(from, until, 100, &utc, Dst::Vixie).len(), 24);
}

#[test]
fn an_error_says_where_it_is_and_what_is_allowed() {
    let minute = Some(Field::Minute);
    let cases: &[(&str, &str, Option<Field>, &str)] = &[
        ("75 2 * * *", "75", minute, "0 to 59"),
        ("5,75 2 * * *", "75", minute, "0 to 59"),
        ("5,,6 2 * * *", "", minute, "missing"),
        ("-1 2 * * *", "", minute, "0 to 59"),
        ("0 24 * * *", "24", Some(Field::Hour), "0 to 23"),
        ("0 22-2 * * *", "22-2", Some(Field::Hour), "22-23,0-2"),
        ("*/60 * * * *", "60", minute, "1 to 59"),
        ("*/0 * * * *", "0", minute, "@every"),
        ("? * * * *", "?", minute, "write *"),
        ("0 0 0 * *", "0", Some(Field::DayOfMonth), "1 to 31"),
        ("0 0 32 * *", "32", Some(Field::DayOfMonth), "1 to 31"),
        ("0 0 32W * *", "32", Some(Field::DayOfMonth), "1W to 31W"),
        ("0 0 1-5W * *", "1-5", Some(Field::DayOfMonth), "1W to 31W"),
        ("0 0 L-31 * *", "L-31", Some(Field::DayOfMonth), "L-1 to L-30"),
        ("0 0 LX * *", "LX", Some(Field::DayOfMonth), "LW"),
        ("0 0 1 13 *", "13", Some(Field::Month), "JAN to DEC"),
        ("0 0 1 MAI *", "MAI", Some(Field::Month), "JAN to DEC"),
        ("0 0 * * 8", "8", Some(Field::DayOfWeek), "SUN to SAT"),
        ("0 0 * * 5#6", "6", Some(Field::DayOfWeek), "1 to 5"),
        ("0 0 * * L", "L", Some(Field::DayOfWeek), "5L"),
        ("0 0 * * MON-5L", "MON-5", Some(Field::DayOfWeek), "5L"),
        ("60 0 0 * * *", "60", Some(Field::Second), "0 to 59"),
        ("H(5) * * * *", "5", minute, "range"),
        ("H(0-75) * * * *", "75", minute, "0 to 59"),
        ("HX * * * *", "HX", minute, "H(0-9)"),
        ("0 0 * *", "", Some(Field::DayOfWeek), "five fields"),
        ("0 0 1 1 * 2026 x", "x", None, "none for years"),
        ("", "", None, "missing"),
        ("@reboot", "@reboot", None, "@daily"),
        ("@daily x", "x", None, "nothing can follow"),
        ("@every", "", None, "90s"),
        ("@every 90", "90", None, "90s"),
        ("@every 0s", "0s", None, "1s to 366d"),
        ("@every 99999999999999999999s", "99999999999999999999s", None, "90s"),
        ("@every 400d", "400d", None, "1s to 366d"),
        ("@every 1h 30m", "30m", None, "one word"),
        ("TZ=UTC 0 0 * * *", "TZ=UTC", None, "time zone"),
        ("ü 0 * * *", "ü", minute, "0 to 59"),
        ("0 0 ü * *", "ü", Some(Field::DayOfMonth), "1 to 31"),
    ];
    for (text, at, field, says) in cases {
        let error = error(text);
        assert_eq!((&text[error.at.clone()], error.field), (*at, *field), "{text}: {error}");
        assert!(error.to_string().contains(says), "{text}: {error}");
    }
    assert_eq!(
        error("0 0 1-5W * *").to_string(),
        "day of month: \"1-5\" is not allowed; allowed are 1 to 31, L, L-1 to L-30, LW, and 1W to 31W"
    );
    assert_eq!(error("0 0 * *").at, 7..7, "where it goes on");
}

#[test]
fn an_expression_may_be_as_long_as_is_said() {
    let long = |bytes: usize| format!("0{} 0 * * *", ",0".repeat((bytes - 9) / 2));
    assert_eq!(long(255).len(), 255);
    assert!(Schedule::parse(&long(255), "").is_ok());
    assert!(error(&long(EXPRESSION_BYTES_MAX + 1)).to_string().contains("256"));
}

#[test]
fn a_hash_is_stable_spreads_jobs_and_stays_within_its_range() {
    let minutes = |text: &str, name: &str| {
        let (from, until) = (time("2025-12-31T23:59:59Z"), time("2026-01-01T00:59:59Z"));
        let found = Schedule::parse(text, name).unwrap().between(from, until, 60, &zone("UTC"), Dst::Vixie);
        found.iter().map(|found| (found.at.0 / 60_000) % 60).collect::<Vec<_>>()
    };
    // Written down: were it to change with a release, all jobs would move.
    assert_eq!(minutes("H * * * *", "default/job"), [HASHED_MINUTE]);
    let mut seen = [0; 60];
    for number in 0..1_000 {
        let name = format!("default/job-{number}");
        let [minute] = minutes("H * * * *", &name)[..] else { panic!("{name}") };
        seen[minute as usize] += 1;
        assert!(minutes("H(10-19) * * * *", &name).iter().all(|minute| (10..20).contains(minute)));
        let quarters = minutes("H/15 * * * *", &name);
        assert!(
            quarters[0] < 15 && quarters.windows(2).all(|two| two[1] - two[0] == 15) && quarters.len() == 4
        );
        let within = minutes("H(30-59)/10 * * * *", &name);
        assert!((30..40).contains(&within[0]) && within.len() == 3, "{within:?}");
    }
    assert!(seen.iter().all(|count| (4..=35).contains(count)), "{seen:?}");

    let both = |name: &str| {
        let utc = zone("UTC");
        let next = Schedule::parse("H H H * *", name).unwrap().next_after(
            time("2026-01-01T00:00:00Z"),
            &utc,
            Dst::Vixie,
        );
        utc.local(next.unwrap().at).unwrap()
    };
    assert!(both("a/x") != both("b/x"), "namespaces differ");
    for number in 0..200 {
        // Its day is one that every month has.
        let months = Schedule::parse("0 0 H * *", &format!("{number}")).unwrap();
        let found = months.between(
            time("2025-12-31T23:59:59Z"),
            time("2026-12-31T23:59:59Z"),
            99,
            &zone("UTC"),
            Dst::Vixie,
        );
        assert_eq!(found.len(), 12);
    }
    assert!(
        schedule("H 0 * * *").is_hashed()
            && schedule("0 0 * * H").is_hashed()
            && !schedule("0 0 * * *").is_hashed()
    );
}

/// Pearson's statistic of how unevenly things are spread: about as large as there are places, if chance did it.
fn unevenness(counts: &[u32]) -> f64 {
    let mean = f64::from(counts.iter().sum::<u32>()) / counts.len() as f64;
    counts.iter().map(|count| (f64::from(*count) - mean) * (f64::from(*count) - mean) / mean).sum()
}

/// Ten thousand jobs that would be due in one second: with `H` a second of an hour has three of them, as if chance had put them there (J2, J12).
#[test]
fn hashes_of_ten_thousand_names_are_spread_evenly_over_seconds_minutes_and_both() {
    let (mut seconds, mut minutes, mut phases) = ([0; 60], [0; 60], [0; 20]);
    let mut both = [0; 3_600];
    let (from, utc) = (time("2025-12-31T23:59:59Z"), zone("UTC"));
    let next = |text: &str, name: &str| {
        let next = Schedule::parse(text, name).unwrap().next_after(from, &utc, Dst::Vixie).unwrap();
        ((next.at.0 - from.0) / 1_000 - 1) as usize
    };
    for number in 0..10_000 {
        let name = format!("default/report:customer:{number:06}");
        let second = next("H H * * * *", &name);
        (seconds[second % 60], minutes[second / 60], both[second]) =
            (seconds[second % 60] + 1, minutes[second / 60] + 1, both[second] + 1);
        phases[next("H/20 * * * * *", &name)] += 1;
    }
    // Chance is beyond these once in ten thousand tries; with so many places it is as seldom as far below.
    assert!(unevenness(&seconds) < 107.0, "{seconds:?}");
    assert!(unevenness(&minutes) < 107.0, "{minutes:?}");
    assert!(unevenness(&phases) < 51.0, "{phases:?}");
    let of_both = unevenness(&both);
    assert!((3_290.0..3_930.0).contains(&of_both), "{of_both}");
    assert!(both.iter().all(|count| *count <= 14), "a second has too many");
}

/// What `default/job` has for `H` in the field of minutes.
const HASHED_MINUTE: u64 = 59;

#[test]
fn a_schedule_without_any_day_says_so() {
    let utc = zone("UTC");
    for (text, never) in [
        ("0 0 30 2 *", true),
        ("0 0 31 4,6,9,11 *", true),
        ("0 0 L-29 2 *", true),
        ("0 0 30W 2 *", true),
        // The 1st is no third Tuesday, and there is no 31st.
        ("0 0 */30 2 2#3", true),
        ("0 0 29 2 *", false),
        ("0 0 L-28 2 *", false),
        // Mondays in February.
        ("0 0 30 2 1", false),
        ("@every 1s", false),
    ] {
        assert_eq!(schedule(text).never_fires(), never, "{text}");
        let next = schedule(text).next_after(time("2026-01-01T00:00:00Z"), &utc, Dst::Vixie);
        assert_eq!(next.is_none(), never, "{text}");
    }
}
