//! A run: what became of one time, or is becoming.
//!
//! Layout, version 1: namespace, job, what it is about (0 queued, 1 ready, 2 waiting, 3 running, 4 ended), due, attempt, made at,
//! started at (0 for never), fencing token (0 for none), then by what it is about: until when it waits; or ended at, outcome, reason
//! (0 for none). Then who ran it, what it said (status or error), the end of its output, the first of the times that it stands for (0
//! for its own), and how many they are.

use crate::codec::{Decoder, Encoder, Unreadable};
use crate::limit::names::names;
use crate::record::{Bytes, WallTime};
use alloc::string::String;

/// Bytes of output that are kept: the last ones.
pub const OUTPUT_BYTES_MAX: usize = 4 * 1024;
/// Bytes of what a run says of its end.
pub const MESSAGE_BYTES_MAX: usize = 512;

/// A run record's value.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Run {
    /// The job's.
    pub namespace: String,
    /// The job's name.
    pub job: String,
    /// How far it is.
    pub progress: Progress,
    /// When it was to begin.
    pub due: WallTime,
    /// Attempts begun.
    pub attempt: u32,
    /// When it was recorded.
    pub made_at: WallTime,
    /// When the last attempt began.
    pub started_at: Option<WallTime>,
    /// The fencing token of the last attempt that said how it ended; 0 if none did. Its saying so again changes nothing.
    pub token: u64,
    /// Who ran the last attempt.
    pub runner: String,
    /// What the last attempt said of its end: a status, an error.
    pub message: String,
    /// The end of its output.
    pub output: Bytes,
    /// If it stands for several times that were left out together: the first of them, and how many.
    pub stands_for: Option<(WallTime, u64)>,
}

/// How far a run is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Progress {
    /// Others of its job come first.
    Queued,
    /// A worker may take it.
    Ready,
    /// Its next attempt begins then.
    Waiting(
        /// Not before.
        WallTime,
    ),
    /// An attempt has begun.
    Running,
    /// It is over.
    Ended(End),
}

/// How a run ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct End {
    /// When.
    pub at: WallTime,
    /// With what.
    pub outcome: Outcome,
    /// Why, if the outcome doesn't say it.
    pub reason: Option<Reason>,
}

names! {
    /// What came of a run.
    Outcome {
        /// It was acknowledged.
        Succeeded = 1 "succeeded",
        /// It was given up.
        Failed = 2 "failed",
        /// It was called off.
        Cancelled = 3 "cancelled",
        /// It never began.
        Skipped = 4 "skipped",
        /// It was sent, or nearly, and nobody can say more.
        Unknown = 5 "unknown",
    }
}

names! {
    /// Why a run didn't begin, or ended like this.
    Reason {
        /// The one before still ran.
        Overlap = 1 "overlap",
        /// Nobody looked at its time.
        Missed = 2 "missed",
        /// The job was paused.
        Paused = 3 "paused",
        /// A calendar left it out.
        Calendar = 4 "calendar",
        /// It may be sent once, and whoever was to send it has gone.
        AtMostOnceUnknown = 5 "at_most_once_unknown",
        /// An attempt took too long.
        Timeout = 6 "timeout",
        /// Whoever ran it wasn't heard of any more.
        LeaseExpired = 7 "lease_expired",
        /// Its deadline had passed.
        Deadline = 8 "deadline",
        /// Its time came again, and the job wants what runs to be cancelled then.
        Superseded = 9 "superseded",
        /// Somebody asked for it.
        Requested = 10 "requested",
        /// The target said no.
        Refused = 11 "refused",
    }
}

const VERSION: u8 = 1;

impl Run {
    /// How it ended, if it has.
    pub fn end(&self) -> Option<End> {
        match self.progress {
            Progress::Ended(end) => Some(end),
            _ => None,
        }
    }

    /// The record's value.
    pub fn encode(&self) -> Bytes {
        let to = Encoder::new(VERSION)
            .bytes(self.namespace.as_bytes())
            .bytes(self.job.as_bytes())
            .byte(match self.progress {
                Progress::Queued => 0,
                Progress::Ready => 1,
                Progress::Waiting(_) => 2,
                Progress::Running => 3,
                Progress::Ended(_) => 4,
            })
            .number(self.due.0)
            .number(self.attempt.into())
            .number(self.made_at.0)
            .number(self.started_at.unwrap_or_default().0)
            .number(self.token);
        let to = match self.progress {
            Progress::Waiting(until) => to.number(until.0),
            Progress::Ended(end) => {
                to.number(end.at.0).byte(end.outcome.number()).byte(end.reason.map_or(0, Reason::number))
            }
            Progress::Queued | Progress::Ready | Progress::Running => to,
        };
        let (first, count) = self.stands_for.unwrap_or_default();
        to.bytes(self.runner.as_bytes())
            .bytes(self.message.as_bytes())
            .bytes(&self.output)
            .number(first.0)
            .number(count)
            .finish()
    }

    /// Reads a record's value.
    pub fn decode(value: &[u8]) -> Result<Self, Unreadable> {
        let mut from = Decoder::new(value, VERSION)?;
        let (namespace, job, kind) = (from.string()?, from.string()?, from.byte()?);
        let due = from.time()?;
        let attempt = u32::try_from(from.number()?).map_err(|_| Unreadable)?;
        let (made_at, started_at, token) = (from.time()?, from.time()?, from.number()?);
        let progress = match kind {
            0 => Progress::Queued,
            1 => Progress::Ready,
            2 => Progress::Waiting(from.time()?),
            3 => Progress::Running,
            4 => {
                let at = from.time()?;
                let outcome = Outcome::of_number(from.byte()?)?;
                let reason = match from.byte()? {
                    0 => None,
                    number => Some(Reason::of_number(number)?),
                };
                Progress::Ended(End { at, outcome, reason })
            }
            _ => return Err(Unreadable),
        };
        let (runner, message, output) = (from.string()?, from.string()?, from.bytes()?.into());
        let (first, count) = (from.time()?, from.number()?);
        from.finish()?;
        Ok(Self {
            namespace,
            job,
            progress,
            due,
            attempt,
            made_at,
            started_at: (started_at.0 != 0).then_some(started_at),
            token,
            runner,
            message,
            output,
            stands_for: (count != 0).then_some((first, count)),
        })
    }
}

/// The last bytes of an output that may be kept, from a character's begin on.
pub fn tail(output: &[u8]) -> Bytes {
    let mut from = output.len().saturating_sub(OUTPUT_BYTES_MAX);
    while from > 0 && output.get(from).is_some_and(|byte| byte & 0xc0 == 0x80) {
        from += 1;
    }
    output[from..].into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_run_is_read_as_it_was_written(words: [String; 4], kind in 0..5_u8, numbers: [u64; 6], attempt: u32,
                                           outcome in 0..5_usize, reason in 0..12_usize, output: Vec<u8>) {
            let [namespace, job, runner, message] = words;
            let [due, made_at, started_at, at, token, count] = numbers;
            let end = End {
                at: WallTime(at),
                outcome: Outcome::ALL[outcome],
                reason: Reason::ALL.get(reason).copied(),
            };
            let run = Run {
                namespace,
                job,
                progress: match kind {
                    0 => Progress::Queued,
                    1 => Progress::Ready,
                    2 => Progress::Waiting(WallTime(at)),
                    3 => Progress::Running,
                    _ => Progress::Ended(end),
                },
                due: WallTime(due),
                attempt,
                made_at: WallTime(made_at),
                started_at: (started_at != 0).then_some(WallTime(started_at)),
                token,
                runner,
                message,
                output: output.into(),
                stands_for: (count != 0).then_some((WallTime(due), count)),
            };
            prop_assert_eq!(Run::decode(&run.encode()), Ok(run));
        }

        #[test]
        fn damaged_bytes_are_unreadable_and_never_a_panic(value: Vec<u8>) {
            drop(Run::decode(&value));
        }
    }

    #[test]
    fn the_end_of_an_output_is_kept_from_a_character_on() {
        assert_eq!(&*tail(b"short"), b"short");
        let long = vec!["é"; OUTPUT_BYTES_MAX].concat();
        for cut in 0..2 {
            let kept = tail(&long.as_bytes()[..long.len() - cut * 2]);
            assert!(kept.len() <= OUTPUT_BYTES_MAX && core::str::from_utf8(&kept).is_ok());
        }
        let odd = [b"x", long.as_bytes(), b"y"].concat();
        assert!(core::str::from_utf8(&tail(&odd)).is_ok());
    }
}
