//! What was decided, and what became of leases: a log for each limit, bounded, in the order in which it was written.
//!
//! The newest lines are in the *head*; when that is full it becomes a *segment* under its number, and a new head begins. At the most
//! segments the oldest goes with the commit that makes a new one. Every append checks and puts the head, so lines have one order,
//! whichever node writes, and a reader that goes on where it stopped misses none.
//!
//! A line is told from all others by its node and number: so a commit of unknown outcome is cleared up by looking for its first.
//!
//! Layout of a segment, version 1: its number, how many lines, then each: event, at, node, number, amount, remaining, spent, time to
//! live, then key, by, reference and source.

use super::names::names;
use crate::codec::{Decoder, Encoder, Unreadable};
use crate::commit::Ttl;
use crate::name::{Kind, Name};
use crate::record::{Bytes, Key, Record, WallTime};
use crate::view::{Pause, View};
use alloc::string::String;
use alloc::vec::Vec;
use core::time::Duration;

/// A head with so many lines is full.
pub const LINES_MAX: usize = 64;
/// A head with so many bytes is full.
const BYTES_MAX: usize = 8 * 1024;
/// The head outlives its segments by this: as long as there is one, so is its number.
const LONGER: Duration = Duration::from_secs(24 * 60 * 60);
const VERSION: u8 = 1;

/// Which log.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Log {
    /// Every decision, written before it is answered.
    Audit,
    /// What became of leases, written behind the answers.
    Leases,
}

impl Log {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::Audit, Self::Leases];

    fn kind(self) -> Kind {
        match self {
            Self::Audit => *b"Qa",
            Self::Leases => *b"Ql",
        }
    }

    /// Segments kept beside the head: older ones make room.
    pub fn segments_max(self) -> u64 {
        match self {
            Self::Audit => 8_192,
            Self::Leases => 32,
        }
    }

    /// Where the newest lines are.
    pub fn head(self, name: &Name) -> Key {
        name.record(self.kind(), &[])
    }

    /// Where the lines of a full segment are.
    pub fn segment(self, name: &Name, number: u64) -> Key {
        name.record(self.kind(), &number.to_be_bytes())
    }

    /// What the names of segments begin with.
    pub fn segments(self, name: &Name) -> Bytes {
        [&self.head(name).name[..], &[0]].concat().into()
    }
}

names! {
    /// What happened.
    Event {
        /// A check passed, and was counted.
        Allowed = 1 "allowed",
        /// A check was refused, or no time could be booked: nothing was counted.
        Refused = 2 "refused",
        /// A time was booked.
        Reserved = 3 "reserved",
        /// Something was given back, or a reservation cancelled.
        Refunded = 4 "refunded",
        /// A place in flight was kept longer.
        Kept = 5 "kept",
        /// A place in flight was given back.
        Left = 6 "left",
        /// A lease was given.
        Granted = 7 "granted",
        /// A holder said what became of its lease, and goes on with it.
        Renewed = 8 "renewed",
        /// A holder gave back all it had.
        Returned = 9 "returned",
        /// A lease ended with something left in it.
        Lapsed = 10 "lapsed",
    }
}

/// A line.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Line {
    /// What happened.
    pub event: Event,
    /// By the store's clock.
    pub at: WallTime,
    /// The node that decided, or was told.
    pub node: u64,
    /// No other line of this node has it.
    pub number: u64,
    /// Whose.
    pub key: String,
    /// As whom it was asked, or who holds the lease.
    pub by: String,
    /// The call's requestId, or the lease's id; empty if there is none.
    pub reference: String,
    /// Who decided.
    pub source: String,
    /// What was asked for, or given back; of a lease what it has now.
    pub amount: u64,
    /// What was left then.
    pub remaining: u64,
    /// All that was ever spent of a lease.
    pub spent: u64,
    /// How long a lease or a place lives from then on.
    pub ttl_ms: u64,
}

/// Some lines that follow each other.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Segment {
    /// From 1, one after the other.
    pub number: u64,
    /// Oldest first.
    pub lines: Vec<Line>,
}

impl Segment {
    /// The record's value.
    pub fn encode(&self) -> Bytes {
        let mut to = Encoder::new(VERSION).number(self.number).number(self.lines.len() as u64);
        for line in &self.lines {
            to = to
                .byte(line.event.number())
                .number(line.at.0)
                .number(line.node)
                .number(line.number)
                .number(line.amount)
                .number(line.remaining)
                .number(line.spent)
                .number(line.ttl_ms);
            for text in [&line.key, &line.by, &line.reference, &line.source] {
                to = to.bytes(text.as_bytes());
            }
        }
        to.finish()
    }

    /// Reads a record's value.
    pub fn decode(value: &[u8]) -> Result<Self, Unreadable> {
        let mut from = Decoder::new(value, VERSION)?;
        let (number, count) = (from.number()?, from.number()?);
        let mut lines = Vec::new();
        for _ in 0..count {
            lines.push(Line {
                event: Event::of_number(from.byte()?)?,
                at: from.time()?,
                node: from.number()?,
                number: from.number()?,
                amount: from.number()?,
                remaining: from.number()?,
                spent: from.number()?,
                ttl_ms: from.number()?,
                key: from.string()?,
                by: from.string()?,
                reference: from.string()?,
                source: from.string()?,
            });
        }
        from.finish()?;
        Ok(Self { number, lines })
    }

    fn has(&self, line: &Line) -> bool {
        self.lines.iter().any(|other| (other.node, other.number) == (line.node, line.number))
    }
}

/// Lines to be written, and what is known of where they may be already.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Appending {
    /// Oldest first, at most [`LINES_MAX`].
    pub lines: Vec<Line>,
    /// The number of the head that they were put into, if that was tried.
    pub tried: Option<u64>,
}

/// Appends lines, once: also if an earlier try may have done it. What the head says then. `guess` is what the head may be.
pub fn append(
    log: Log,
    name: &Name,
    appending: &mut Appending,
    guess: Option<&Record>,
    kept: Duration,
    view: &mut View,
) -> Result<Bytes, Pause> {
    let key = log.head(name);
    view.assume(&key, guess.cloned());
    let seen = view.get(&key)?;
    let mut head = match &seen {
        Some(seen) => Segment::decode(&seen.value)?,
        None => Segment { number: 1, lines: Vec::new() },
    };
    if let (Some(number), Some(first)) = (appending.tried, appending.lines.first()) {
        let is_there = match number == head.number {
            true => head.has(first),
            false => match view.peek(&log.segment(name, number))? {
                Some(segment) => Segment::decode(&segment.value)?.has(first),
                None => false,
            },
        };
        if is_there {
            return Ok(seen.map_or_else(|| head.encode(), |seen| seen.value));
        }
    }
    if let Some(seen) = seen.filter(|seen| head.lines.len() >= LINES_MAX || seen.value.len() >= BYTES_MAX) {
        view.put(&log.segment(name, head.number), seen.value, Ttl::AtLeast(kept));
        if let Some(oldest) = head.number.checked_sub(log.segments_max()) {
            view.delete(&log.segment(name, oldest));
        }
        head = Segment { number: head.number + 1, lines: Vec::new() };
    }
    head.lines.extend(appending.lines.iter().cloned());
    appending.tried = Some(head.number);
    let value = head.encode();
    view.put(&key, value.clone(), Ttl::AtLeast(kept + LONGER));
    Ok(value)
}
