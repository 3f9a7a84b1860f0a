//! A job's definition: what its author says. Put by edits only.
//!
//! Layout, version 1: uid (16), schedule (empty for none), time zone, daylight saving, target (a byte that says which, then its
//! fields), guarantee, overlap, missed with window and most, retry (most attempts, first pause, longest pause, deadline or 0),
//! timeout, jitter, enabled, how many jobs follow and their names, runs kept and for how long, expected
//! success (0 for none), changed at. All times are in ms. Version 2, which only jobs with calendars have, goes on with how many
//! those are, each with its name, revision, policy and days; then how many times are done, and those.

use super::calendar::{CALENDARS_MAX, CalendarUse};
use super::id::Uid;
use super::state::bounded;
use super::target::Target;
use crate::codec::{Decoder, Encoder, Unreadable};
use crate::limit::names::names;
use crate::record::{Bytes, WallTime};
use alloc::string::String;
use alloc::vec::Vec;
use core::time::Duration;

/// Jobs that may follow one.
pub const THEN_MAX: usize = 8;
/// Times that are remembered to have run elsewhere; beyond it the later ones are forgotten, and run.
pub const DONE_MAX: usize = 64;

/// What a job is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Definition {
    /// Made once, kept by edits.
    pub uid: Uid,
    /// When; without one it runs when asked to, or after another.
    pub schedule: Option<String>,
    /// Where its times are, as in the time zone database.
    pub time_zone: String,
    /// What happens to times that a change of clocks skips or repeats.
    pub daylight_saving: DaylightSaving,
    /// What runs.
    pub target: Target,
    /// What is promised of a run.
    pub guarantee: Guarantee,
    /// What happens when its time comes while it still runs.
    pub overlap: Overlap,
    /// What happens to times that passed while nobody looked.
    pub missed: Missed,
    /// How far back they are made up for, if all are.
    pub missed_window_ms: u64,
    /// How many of them, if all are.
    pub missed_max: u32,
    /// Attempts of a run, the first included.
    pub attempts_max: u32,
    /// The pause after the first attempt; each later one is twice as long.
    pub retry_first_ms: u64,
    /// The longest pause.
    pub retry_most_ms: u64,
    /// No attempt begins later than this after the run was due.
    pub deadline_ms: Option<u64>,
    /// How long an attempt may take.
    pub timeout_ms: u64,
    /// A run is due up to this much after its nominal time.
    pub jitter_ms: u64,
    /// Whether its schedule counts.
    pub enabled: bool,
    /// Jobs of its namespace that run when it has succeeded.
    pub then: Vec<String>,
    /// Ended runs that are kept.
    pub kept_max: u32,
    /// For how long.
    pub kept_ms: u64,
    /// It is overdue when it hasn't succeeded for this long.
    pub success_within_ms: Option<u64>,
    /// When it was put; for display.
    pub changed_at: WallTime,
    /// What leaves out or moves its times.
    pub calendars: Vec<CalendarUse>,
    /// Times to come that ran elsewhere, before one of its calendars was changed.
    pub done: Vec<WallTime>,
}

names! {
    /// What happens to times that a change of clocks skips or repeats.
    DaylightSaving {
        /// A fixed time that is skipped runs right after the gap, one that is repeated runs once; wildcards follow the clock.
        Vixie = 1 "vixie",
        /// What the clock never shows doesn't run, what it shows twice runs twice.
        Literal = 2 "literal",
    }
}

names! {
    /// What is promised of a run.
    Guarantee {
        /// Recorded before it is sent, and never repeated.
        AtMostOnce = 1 "at_most_once",
        /// Repeated until it is acknowledged.
        AtLeastOnce = 2 "at_least_once",
        /// The same, for a target that tells repetitions by the run's id and refuses lower fencing tokens.
        EffectivelyOnce = 3 "effectively_once",
    }
}

names! {
    /// What happens when its time comes while it still runs.
    Overlap {
        /// That time is left out.
        Skip = 1 "skip",
        /// One waits; others are left out.
        QueueOne = 2 "queue_one",
        /// All wait, up to a bound.
        QueueAll = 3 "queue_all",
        /// They run side by side, up to a bound.
        Allow = 4 "allow",
        /// What runs is cancelled.
        CancelPrevious = 5 "cancel_previous",
    }
}

names! {
    /// What happens to times that passed while nobody looked.
    Missed {
        /// They are left out.
        Skip = 1 "skip",
        /// The most recent one runs.
        Latest = 2 "latest",
        /// They run one after the other, up to a bound.
        All = 3 "all",
    }
}

const VERSION: u8 = 1;
const WITH_CALENDARS: u8 = 2;

impl Definition {
    /// One with nothing special about it.
    pub fn plain(schedule: Option<String>, target: Target) -> Self {
        Self {
            uid: Uid::default(),
            schedule,
            time_zone: "UTC".into(),
            daylight_saving: DaylightSaving::Vixie,
            target,
            guarantee: Guarantee::AtLeastOnce,
            overlap: Overlap::Skip,
            missed: Missed::Latest,
            missed_window_ms: 24 * 60 * 60 * 1000,
            missed_max: 100,
            attempts_max: 3,
            retry_first_ms: 1_000,
            retry_most_ms: 60_000,
            deadline_ms: None,
            timeout_ms: 60_000,
            jitter_ms: 0,
            enabled: true,
            then: Vec::new(),
            kept_max: 100,
            kept_ms: 7 * 24 * 60 * 60 * 1000,
            success_within_ms: None,
            changed_at: WallTime::default(),
            calendars: Vec::new(),
            done: Vec::new(),
        }
    }

    /// Whether two say the same; whose they are and when they were put doesn't matter.
    pub fn says_the_same(&self, other: &Self) -> bool {
        let done = other.done.clone();
        Self { uid: other.uid, changed_at: other.changed_at, done, ..self.clone() } == *other
    }

    /// Whether two are due at the same times, as far as their calendars let them.
    pub fn is_due_like(&self, other: &Self) -> bool {
        let when =
            |one: &Self| (one.schedule.clone(), one.time_zone.clone(), one.daylight_saving, one.jitter_ms);
        when(self) == when(other)
    }

    /// How many attempts a run has: what may be sent once has one.
    pub fn attempts(&self) -> u32 {
        if self.guarantee == Guarantee::AtMostOnce { 1 } else { self.attempts_max.max(1) }
    }

    /// How long the records of runs are kept.
    pub fn kept(&self) -> Duration {
        Duration::from_millis(self.kept_ms)
    }

    /// The record's value.
    pub fn encode(&self) -> Bytes {
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        let has_calendars = !self.calendars.is_empty() || !self.done.is_empty();
        let to = Encoder::new(if has_calendars { WITH_CALENDARS } else { VERSION })
            .fixed(&self.uid.bytes())
            .bytes(text(&self.schedule).as_bytes())
            .bytes(self.time_zone.as_bytes())
            .byte(self.daylight_saving.number());
        let mut to = self
            .target
            .write(to)
            .byte(self.guarantee.number())
            .byte(self.overlap.number())
            .byte(self.missed.number())
            .number(self.missed_window_ms)
            .number(self.missed_max.into())
            .number(self.attempts_max.into())
            .number(self.retry_first_ms)
            .number(self.retry_most_ms)
            .number(self.deadline_ms.unwrap_or_default())
            .number(self.timeout_ms)
            .number(self.jitter_ms)
            .byte(self.enabled.into())
            .number(self.then.len() as u64);
        for name in &self.then {
            to = to.bytes(name.as_bytes());
        }
        to = to
            .number(self.kept_max.into())
            .number(self.kept_ms)
            .number(self.success_within_ms.unwrap_or_default())
            .number(self.changed_at.0);
        if has_calendars {
            to = to.number(self.calendars.len() as u64);
            to = self.calendars.iter().fold(to, |to, used| used.write(to)).number(self.done.len() as u64);
            to = self.done.iter().fold(to, |to, time| to.number(time.0));
        }
        to.finish()
    }

    /// Reads a record's value.
    pub fn decode(value: &[u8]) -> Result<Self, Unreadable> {
        let (version, mut from) = Decoder::versioned(value, WITH_CALENDARS)?;
        let text = |text: String| (!text.is_empty()).then_some(text);
        let some = |number: u64| (number != 0).then_some(number);
        let small = |number: u64| u32::try_from(number).map_err(|_| Unreadable);
        let mut definition = Self {
            uid: Uid(u128::from_be_bytes(from.fixed()?)),
            schedule: text(from.string()?),
            time_zone: from.string()?,
            daylight_saving: DaylightSaving::of_number(from.byte()?)?,
            target: Target::read(&mut from)?,
            guarantee: Guarantee::of_number(from.byte()?)?,
            overlap: Overlap::of_number(from.byte()?)?,
            missed: Missed::of_number(from.byte()?)?,
            missed_window_ms: from.number()?,
            missed_max: small(from.number()?)?,
            attempts_max: small(from.number()?)?,
            retry_first_ms: from.number()?,
            retry_most_ms: from.number()?,
            deadline_ms: some(from.number()?),
            timeout_ms: from.number()?,
            jitter_ms: from.number()?,
            enabled: from.byte()? != 0,
            then: Vec::new(),
            kept_max: 0,
            kept_ms: 0,
            success_within_ms: None,
            changed_at: WallTime::default(),
            calendars: Vec::new(),
            done: Vec::new(),
        };
        let then = from.number()?;
        if then > THEN_MAX as u64 {
            return Err(Unreadable);
        }
        for _ in 0..then {
            definition.then.push(from.string()?);
        }
        definition.kept_max = small(from.number()?)?;
        definition.kept_ms = from.number()?;
        definition.success_within_ms = some(from.number()?);
        definition.changed_at = from.time()?;
        if version == WITH_CALENDARS {
            for _ in 0..bounded(&mut from, CALENDARS_MAX)? {
                definition.calendars.push(CalendarUse::read(&mut from)?);
            }
            for _ in 0..bounded(&mut from, DONE_MAX)? {
                definition.done.push(from.time()?);
            }
        }
        from.finish()?;
        Ok(definition)
    }
}

#[cfg(test)]
mod tests {
    use super::super::target::tests::any_target;
    use super::*;
    use crate::cron::{DaySet, Policy};
    use crate::record::Revision;
    use proptest::prelude::*;

    fn any_use() -> impl Strategy<Value = CalendarUse> {
        let texts = proptest::sample::subsequence(
            Vec::from(["SAT..SUN", "12-24..01-02", "2026-12-25", "2027-01-06..2027-02-01", "02-29"]),
            0..5,
        );
        ("\\PC{1,9}", 0..3_usize, any::<u64>(), texts).prop_map(|(name, policy, revision, texts)| {
            let mut days = DaySet::default();
            texts.iter().for_each(|text| days.add(text).unwrap());
            CalendarUse { name, policy: Policy::ALL[policy], revision: Revision(revision), days }
        })
    }

    proptest! {
        #[test]
        fn a_definition_is_read_as_it_was_written(
            uid: u128, words: [String; 2], target in any_target(), choices in [0..2_usize, 0..3, 0..5, 0..3],
            numbers: [u64; 9], small: [u32; 3], enabled: bool, then in proptest::collection::vec("\\PC{1,9}", 0..9),
            calendars in proptest::collection::vec(any_use(), 0..3), done: [u64; 2],
        ) {
            let [schedule, time_zone] = words;
            let some = |text: String| (!text.is_empty()).then_some(text);
            let number = |number: u64| (number != 0).then_some(number);
            let definition = Definition {
                uid: Uid(uid),
                time_zone,
                daylight_saving: DaylightSaving::ALL[choices[0]],
                guarantee: Guarantee::ALL[choices[1]],
                overlap: Overlap::ALL[choices[2]],
                missed: Missed::ALL[choices[3]],
                missed_window_ms: numbers[0],
                missed_max: small[0],
                attempts_max: small[1],
                retry_first_ms: numbers[1],
                retry_most_ms: numbers[2],
                deadline_ms: number(numbers[3]),
                timeout_ms: numbers[4],
                jitter_ms: numbers[5],
                enabled,
                then,
                kept_max: small[2],
                kept_ms: numbers[6],
                success_within_ms: number(numbers[7]),
                changed_at: WallTime(numbers[8]),
                calendars,
                done: done.into_iter().filter(|time| time % 2 == 0).map(WallTime).collect(),
                ..Definition::plain(some(schedule), target)
            };
            prop_assert_eq!(Definition::decode(&definition.encode()), Ok(definition));
        }

        #[test]
        fn damaged_bytes_are_unreadable_and_never_a_panic(value: Vec<u8>) {
            drop(Definition::decode(&value));
        }
    }
}
