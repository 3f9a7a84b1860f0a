//! Schedules in plain English.

use super::{schedule, time, zone};
use crate::cron::{Dst, Schedule};
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::{format, vec};

#[test]
fn each_feature_reads_as_what_it_means() {
    for (text, reading) in [
        ("* * * * *", "every minute"),
        ("*/15 * * * *", "every 15 minutes"),
        ("5/15 * * * *", "at minutes 5, 20, 35 and 50 of every hour"),
        ("*/7 * * * *", "at minutes 0, 7, 14, 21, 28, 35, 42, 49 and 56 of every hour"),
        ("*/15 9-17 * * *", "every 15 minutes from 09:00 to 17:59"),
        ("* 2 * * *", "every minute from 02:00 to 02:59"),
        ("* 8-9,14 * * *", "every minute from 08:00 to 09:59 and from 14:00 to 14:59"),
        ("* */6 * * *", "every minute in hours 0, 6, 12 and 18"),
        ("1-10 */6 * * *", "at minutes 1 to 10 of every hour in hours 0, 6, 12 and 18"),
        ("5,10 9-17 * * *", "at minutes 5 and 10 of every hour from 09:00 to 17:59"),
        ("30 2 * * *", "at 02:30 every day"),
        ("0,30 2,14 * * *", "at 02:00, 02:30, 14:00 and 14:30 every day"),
        ("15 30 2 * * *", "at 02:30:15 every day"),
        ("0 * * * *", "at minute 0 of every hour"),
        ("@hourly", "at minute 0 of every hour"),
        ("30 15 * * * *", "at minute 15 and second 30 of every hour"),
        ("5 9-17 * * *", "every hour from 09:05 to 17:05"),
        ("0 */2 * * *", "every 2 hours from 00:00 to 22:00"),
        ("0 0-5,7 * * *", "at minute 0 of hours 0 to 5 and 7 every day"),
        ("* * * * * *", "every second"),
        ("*/10 * * * * *", "every 10 seconds"),
        ("*/10 * 3 * * *", "every 10 seconds from 03:00 to 03:59"),
        ("*/10 5 * * * *", "every 10 seconds of minute 5 of every hour"),
        ("5,7 * * * * *", "at seconds 5 and 7 of every minute of every hour"),
        ("* 30 2 * * *", "every second of minute 30 of every hour from 02:00 to 02:59"),
        ("@daily", "at 00:00 every day"),
        ("@weekly", "at 00:00 on every Sunday"),
        ("@monthly", "at 00:00 on the 1st of the month"),
        ("@yearly", "at 00:00 on the 1st of the month, in January"),
        ("0 9 * * 1-5", "at 09:00 on every Monday to Friday"),
        ("0 9 * * 6,0", "at 09:00 on every Saturday and Sunday"),
        ("0 9 * * 1,3,5", "at 09:00 on every Monday, Wednesday and Friday"),
        ("0 9 1,15 * *", "at 09:00 on the 1st and the 15th of the month"),
        ("0 9 1-7 * *", "at 09:00 on the 1st to the 7th of the month"),
        ("0 9 */2 * *", "at 09:00 on every 2nd day from the 1st to the 31st of the month"),
        ("0 9 22,L * *", "at 09:00 on the 22nd and the last day of the month"),
        ("0 9 L-1 * *", "at 09:00 on the day before the last of the month"),
        ("0 9 L-3 * *", "at 09:00 on the day 3 days before the last of the month"),
        ("0 9 15W * *", "at 09:00 on the day from Monday to Friday that is nearest to the 15th of the month"),
        ("0 9 LW * *", "at 09:00 on the last day from Monday to Friday of the month"),
        ("0 9 ? * 5L", "at 09:00 on the last Friday of the month"),
        ("0 9 ? * 5#3", "at 09:00 on the 3rd Friday of the month"),
        ("0 9 ? * 1,5#3", "at 09:00 on every Monday and on the 3rd Friday of the month"),
        ("30 2 13 * 5", "at 02:30 on the 13th of the month, and also on every Friday"),
        (
            "0 0 */10 * 5",
            "at 00:00 on every Friday, but only if that is the 1st, the 11th, the 21st or the 31st of the month",
        ),
        ("0 0 13 * */5", "at 00:00 on every Friday and Sunday, but only if that is the 13th of the month"),
        ("0 0 1-31 * 5", "at 00:00 every day"),
        ("* * 1 * *", "every minute on the 1st of the month"),
        ("0 0 * 6-8 *", "at 00:00 every day, in June to August"),
        ("* * * 2 *", "every minute, in February"),
        ("0 0 29 2,12 *", "at 00:00 on the 29th of the month, in February and December"),
        ("@every 90s", "every 1 minute and 30 seconds, counted from the start of 1970 in UTC"),
        ("@every 1h", "every hour, counted from the start of 1970 in UTC"),
        ("@every 2d", "every 2 days, counted from the start of 1970 in UTC"),
        ("@every 1d1h1s", "every 1 day, 1 hour and 1 second, counted from the start of 1970 in UTC"),
    ] {
        assert_eq!(schedule(text).reading(), reading, "{text}");
    }
    let (one, other) = (Schedule::parse("H H * * *", "a"), Schedule::parse("H H * * *", "b"));
    assert!(one.unwrap().reading() != other.unwrap().reading(), "a hash reads as what it chose");
}

#[test]
fn schedules_that_read_alike_are_due_alike() {
    let fields = [
        vec!["0", "5", "*", "*/15", "5/15", "1-3", "0,30", "1-59"],
        vec!["*", "0", "2", "9-17", "*/2", "*/6", "1,2,5-9", "1-9", "0-23"],
        vec!["*", "1", "1-31", "*/2", "*/10", "1,11,21,31", "L", "L-1", "15W", "LW"],
        vec!["*", "2", "1,3"],
        vec!["*", "5", "1-5", "*/5", "5#1", "5L", "0-7", "0,6"],
    ];
    let mut due: BTreeMap<String, _> = BTreeMap::new();
    let (utc, from, until) = (zone("UTC"), time("2026-01-01T00:00:00Z"), time("2028-01-01T00:00:00Z"));
    let (mut count, mut alike) = (0, 0);
    // A part of all combinations; 7 divides no field's number of choices.
    for number in 0..8 * 9 * 10 * 3 * 8 {
        let mut rest = number;
        let mut text = String::new();
        for field in &fields {
            text = format!("{text} {}", field[rest % field.len()]);
            rest /= field.len();
        }
        if number % 7 != 0 {
            continue;
        }
        count += 1;
        let schedule = schedule(&text);
        // The first, and the last: what differs, differs in one of them.
        let first = schedule.between(from, until, 12, &utc, Dst::Vixie);
        let last = schedule.latest_at_or_before(until, from, &utc, Dst::Vixie);
        if let Some((other, before)) = due.get(&schedule.reading()) {
            assert_eq!(before, &(first, last), "{text} and {other}: {}", schedule.reading());
            alike += 1;
        } else {
            due.insert(schedule.reading(), (text, (first, last)));
        }
    }
    assert!(count > 2_000 && alike > 50, "{count}, {alike}");
}
