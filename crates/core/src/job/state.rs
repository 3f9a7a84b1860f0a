//! Where a job is: how far its schedule was decided, what of it is under way, and when it has to be looked at again.
//!
//! Put by every commit that decides anything about the job, so **its revision vouches for all of it**: whoever decided on an
//! older one, however long it slept, conflicts. That is the scheduler's epoch (J4).
//!
//! Layout, version 1: mark, next nominal and due (0 for none), index entry (0 for none), paused at (0 for not), a byte of flags
//! (overdue 1), kept runs, last success (0 for none), success counted from, counters (started, succeeded, failed, skipped, unknown);
//! then, each with its number: active runs (place, attempt, flags, phase and its times), queued ones, spans (trigger, after,
//! until, left), deliveries (place, job). Version 2, only while calendars leave out times to come, goes on with when to look at those. Version
//! 3, only while a run is under way that was sent once before its job was edited to repeat, goes on with that time (0 for none), and a bit
//! for each active run: whether it is such a one.

use super::id::{RunPlace, Trigger};
use crate::codec::{Decoder, Encoder, Unreadable};
use crate::record::{Bytes, WallTime};
use alloc::string::String;
use alloc::vec::Vec;

/// Runs of one job under way at once; at that, its time is left out as an overlap.
pub const ACTIVE_MAX: usize = 16;
/// Runs of one job that wait for others of it; beyond, they are left out as an overlap.
pub const QUEUED_MAX: usize = 100;
/// Ranges of times of one job that are made up for; a backfill beyond is refused. Each failover adds one, and while a run whose node died
/// has its lease none goes away.
pub const SPANS_MAX: usize = 64;
/// Jobs that have to be told of a success; beyond, the oldest isn't told, and that is counted.
pub const OUTBOX_MAX: usize = 64;

/// A state record's value.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct State {
    /// No time up to this one is decided again.
    pub mark: WallTime,
    /// The schedule's next time, and when that is due.
    pub next: Option<Next>,
    /// Where the job is in the index.
    pub index_at: Option<WallTime>,
    /// Since when its schedule is paused.
    pub paused_at: Option<WallTime>,
    /// Under way, oldest first.
    pub active: Vec<Active>,
    /// Waiting for those, in order.
    pub queue: Vec<RunPlace>,
    /// To be made up for, in order.
    pub spans: Vec<Span>,
    /// Jobs that are to be told of a success.
    pub outbox: Vec<Delivery>,
    /// Ended runs there may be.
    pub kept: u32,
    /// When it last succeeded.
    pub last_success_at: Option<WallTime>,
    /// A success is expected within a time from here.
    pub success_from: WallTime,
    /// It hasn't succeeded within the expected time.
    pub is_overdue: bool,
    /// How many.
    pub counts: Counts,
    /// When it is recorded that calendars left times out.
    pub left_out_at: Option<WallTime>,
}

/// The schedule's next time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Next {
    /// What it is for.
    pub nominal: WallTime,
    /// When it is due: a jitter later.
    pub due: WallTime,
}

/// A run under way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Active {
    /// Which.
    pub place: RunPlace,
    /// Attempts begun.
    pub attempt: u32,
    /// When it was to begin.
    pub due: WallTime,
    /// How far it is.
    pub phase: Phase,
    /// Its attempt was to be the only one, whatever the job says now.
    pub is_once: bool,
}

/// How far a run under way is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Phase {
    /// An attempt begins then.
    Waiting(
        /// Not before.
        WallTime,
    ),
    /// A worker may take it.
    Ready,
    /// An attempt runs.
    Running {
        /// Its lease may have ended then.
        look_at: WallTime,
        /// It has taken too long then.
        over_at: WallTime,
    },
}

/// Times of the schedule that are run one after the other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Span {
    /// What their runs are said to be set off by.
    pub trigger: Trigger,
    /// After this one.
    pub after: WallTime,
    /// Up to and with this one.
    pub until: WallTime,
    /// How many at most.
    pub left: u32,
}

/// A job that is to be told of a success.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Delivery {
    /// The run that succeeded.
    pub place: RunPlace,
    /// Which job, of the same namespace.
    pub to: String,
}

/// How many, since the job was made.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    /// Runs begun.
    pub started: u64,
    /// Runs acknowledged.
    pub succeeded: u64,
    /// Runs given up.
    pub failed: u64,
    /// Times left out.
    pub skipped: u64,
    /// Runs of which nobody can say what came of them.
    pub unknown: u64,
    /// Jobs that weren't told of a success, because too many were to be.
    pub untold: u64,
}

const VERSION: u8 = 1;
const WITH_LEFT_OUT: u8 = 2;
const WITH_ONCE: u8 = 3;
const OVERDUE: u8 = 1;

impl State {
    /// A run under way.
    pub fn active(&mut self, place: RunPlace) -> Option<&mut Active> {
        self.active.iter_mut().find(|active| active.place == place)
    }

    /// The record's value.
    pub fn encode(&self) -> Bytes {
        let time = |time: Option<WallTime>| time.unwrap_or_default().0;
        let once = self.active.iter().rev().fold(0, |bits, active| bits << 1 | u64::from(active.is_once));
        let version = match self.left_out_at {
            _ if once != 0 => WITH_ONCE,
            Some(_) => WITH_LEFT_OUT,
            None => VERSION,
        };
        let mut to = Encoder::new(version)
            .number(self.mark.0)
            .number(time(self.next.map(|next| next.nominal)))
            .number(time(self.next.map(|next| next.due)))
            .number(time(self.index_at))
            .number(time(self.paused_at))
            .byte(if self.is_overdue { OVERDUE } else { 0 })
            .number(self.kept.into())
            .number(time(self.last_success_at))
            .number(self.success_from.0)
            .number(self.counts.started)
            .number(self.counts.succeeded)
            .number(self.counts.failed)
            .number(self.counts.skipped)
            .number(self.counts.unknown)
            .number(self.counts.untold)
            .number(self.active.len() as u64);
        for active in &self.active {
            to = active.place.write(to).number(active.attempt.into()).number(active.due.0);
            to = match active.phase {
                Phase::Waiting(until) => to.byte(1).number(until.0),
                Phase::Ready => to.byte(2),
                Phase::Running { look_at, over_at } => to.byte(3).number(look_at.0).number(over_at.0),
            };
        }
        to = to.number(self.queue.len() as u64);
        for place in &self.queue {
            to = place.write(to);
        }
        to = to.number(self.spans.len() as u64);
        for span in &self.spans {
            let is_backfill = span.trigger == Trigger::Backfill;
            to = to.byte(is_backfill.into()).number(span.after.0).number(span.until.0);
            to = to.number(span.left.into());
        }
        to = to.number(self.outbox.len() as u64);
        for delivery in &self.outbox {
            to = delivery.place.write(to).bytes(delivery.to.as_bytes());
        }
        if version >= WITH_LEFT_OUT {
            to = to.number(time(self.left_out_at));
        }
        if version >= WITH_ONCE {
            to = to.number(once);
        }
        to.finish()
    }

    /// Reads a record's value.
    pub fn decode(value: &[u8]) -> Result<Self, Unreadable> {
        let (version, mut from) = Decoder::versioned(value, WITH_ONCE)?;
        let some = |time: WallTime| (time.0 != 0).then_some(time);
        let small = |number: u64| u32::try_from(number).map_err(|_| Unreadable);
        let mut state = Self { mark: from.time()?, ..Self::default() };
        let (nominal, due) = (from.time()?, from.time()?);
        state.next = some(nominal).map(|nominal| Next { nominal, due });
        state.index_at = some(from.time()?);
        state.paused_at = some(from.time()?);
        state.is_overdue = from.byte()? & OVERDUE != 0;
        state.kept = small(from.number()?)?;
        state.last_success_at = some(from.time()?);
        state.success_from = from.time()?;
        state.counts = Counts {
            started: from.number()?,
            succeeded: from.number()?,
            failed: from.number()?,
            skipped: from.number()?,
            unknown: from.number()?,
            untold: from.number()?,
        };
        for _ in 0..bounded(&mut from, ACTIVE_MAX)? {
            let place = RunPlace::read(&mut from)?;
            let (attempt, due) = (small(from.number()?)?, from.time()?);
            let phase = match from.byte()? {
                1 => Phase::Waiting(from.time()?),
                2 => Phase::Ready,
                3 => Phase::Running { look_at: from.time()?, over_at: from.time()? },
                _ => return Err(Unreadable),
            };
            state.active.push(Active { place, attempt, due, phase, is_once: false });
        }
        for _ in 0..bounded(&mut from, QUEUED_MAX)? {
            state.queue.push(RunPlace::read(&mut from)?);
        }
        for _ in 0..bounded(&mut from, SPANS_MAX)? {
            let trigger = if from.byte()? == 0 { Trigger::Schedule } else { Trigger::Backfill };
            let (after, until, left) = (from.time()?, from.time()?, small(from.number()?)?);
            state.spans.push(Span { trigger, after, until, left });
        }
        for _ in 0..bounded(&mut from, OUTBOX_MAX)? {
            let place = RunPlace::read(&mut from)?;
            state.outbox.push(Delivery { place, to: from.string()? });
        }
        if version >= WITH_LEFT_OUT {
            state.left_out_at = some(from.time()?);
        }
        if version >= WITH_ONCE {
            let once = from.number()?;
            for (index, active) in state.active.iter_mut().enumerate() {
                active.is_once = once >> index & 1 != 0;
            }
        }
        from.finish()?;
        Ok(state)
    }
}

pub(super) fn bounded(from: &mut Decoder<'_>, max: usize) -> Result<usize, Unreadable> {
    usize::try_from(from.number()?).ok().filter(|number| *number <= max).ok_or(Unreadable)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    fn any_place() -> impl Strategy<Value = RunPlace> {
        (any::<u64>(), 0..4_usize, any::<u64>()).prop_map(|(nominal, trigger, number)| RunPlace {
            nominal: WallTime(nominal),
            trigger: Trigger::ALL[trigger],
            number,
        })
    }

    fn any_active() -> impl Strategy<Value = Active> {
        let numbers = (any::<u32>(), 0..3_u8, any::<[u64; 3]>());
        (any_place(), numbers, any::<bool>()).prop_map(|(place, (attempt, phase, times), is_once)| {
            let [due, look_at, over_at] = times.map(WallTime);
            let phase = match phase {
                0 => Phase::Waiting(look_at),
                1 => Phase::Ready,
                _ => Phase::Running { look_at, over_at },
            };
            Active { place, attempt, due, phase, is_once }
        })
    }

    fn any_span() -> impl Strategy<Value = Span> {
        (any::<bool>(), any::<[u64; 2]>(), any::<u32>()).prop_map(|(backfill, times, left)| {
            let [after, until] = times.map(WallTime);
            let trigger = if backfill { Trigger::Backfill } else { Trigger::Schedule };
            Span { trigger, after, until, left }
        })
    }

    proptest! {
        #[test]
        fn a_state_is_read_as_it_was_written(
            times: [u64; 8], counts: [u64; 6], kept: u32, is_overdue: bool, active in vec(any_active(), 0..17),
            queue in vec(any_place(), 0..20), spans in vec(any_span(), 0..9),
            outbox in vec((any_place(), "\\PC{0,9}"), 0..9),
        ) {
            let some = |time: u64| (time != 0).then_some(WallTime(time));
            let [started, succeeded, failed, skipped, unknown, untold] = counts;
            let state = State {
                mark: WallTime(times[0]),
                next: some(times[1]).map(|nominal| Next { nominal, due: WallTime(times[2]) }),
                index_at: some(times[3]),
                paused_at: some(times[4]),
                active,
                queue,
                spans,
                outbox: outbox.into_iter().map(|(place, to)| Delivery { place, to }).collect(),
                kept,
                last_success_at: some(times[5]),
                success_from: WallTime(times[6]),
                is_overdue,
                counts: Counts { started, succeeded, failed, skipped, unknown, untold },
                left_out_at: some(times[7]),
            };
            prop_assert_eq!(State::decode(&state.encode()), Ok(state));
        }

        #[test]
        fn damaged_bytes_are_unreadable_and_never_a_panic(value: Vec<u8>) {
            drop(State::decode(&value));
        }
    }
}
