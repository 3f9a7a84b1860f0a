//! What can be asked of limits, and what is answered.

use crate::failure::Failure;
use baton_core::limit::{Defined, Identity, Line};
use baton_core::meter::Row;
use baton_core::{Name, Revision, WallTime};
use std::fmt;
use std::sync::Arc;

/// One check, within the limits on input.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CheckCall {
    /// The limit.
    pub limit: Name,
    /// Whose.
    pub key: String,
    /// How much; 0 looks without spending.
    pub cost: u64,
    /// Whether it is somebody who is known.
    pub identity: Identity,
}

/// A check that was answered: yes or no.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Answered {
    /// Whether all of it was admitted.
    pub allowed: bool,
    /// Which of the calls `checks` are about: all of them, unless one refused before others were asked.
    pub indices: Vec<usize>,
    /// What was found.
    pub checks: Vec<Checked>,
    /// Which of `checks` refused, if one did.
    pub refused: Option<(usize, Denial)>,
}

/// What one check found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Checked {
    /// The limit's definition.
    pub defined: Arc<Defined>,
    /// How much the key may use at once.
    pub capacity: u64,
    /// What is left.
    pub remaining: u64,
    /// In how many milliseconds all of it is available again.
    pub reset_ms: u64,
    /// Who decided.
    pub source: Source,
    /// What a limit that only counts would have said.
    pub would_refuse: bool,
    /// What it can be given back with.
    pub receipt: Option<String>,
    /// The place it has, if what is limited is how many are in flight.
    pub place: Option<Place>,
}

/// A place among those in flight.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Place {
    /// To give it back, or to keep it.
    pub lease_id: String,
    /// How long it is kept.
    pub ttl_ms: u64,
}

/// Why a check was refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Denial {
    /// In a word.
    pub reason: &'static str,
    /// When it is worth trying again; nothing if it never is.
    pub retry_after_ms: Option<u64>,
}

/// Who decided.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Source {
    /// The store.
    Central,
    /// This node, out of what was debited before.
    Local,
    /// The same, after asking for more.
    Renewed,
    /// The node that owns the key, likewise.
    Owner,
    /// The store, because little is left of an approximate limit.
    GlobalCheck,
    /// This node, by a failure policy.
    Fallback,
}

impl Source {
    /// In a word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Central => "central",
            Self::Local => "local",
            Self::Renewed => "renewed",
            Self::Owner => "owner",
            Self::GlobalCheck => "global_check",
            Self::Fallback => "fallback",
        }
    }
}

/// A reservation that is asked for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ReserveCall {
    /// Whose.
    pub key: String,
    /// How much.
    pub cost: u64,
    /// How long somebody would wait.
    pub wait_max_ms: u64,
    /// Makes a repeated call give the same answer.
    pub request_id: Option<String>,
}

/// A reservation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Booked {
    /// Go on after this time.
    At {
        /// Milliseconds from now.
        wait_ms: u64,
        /// To give it back with.
        reservation_id: String,
    },
    /// There is no time near enough.
    No(Denial),
}

/// A definition, as it stands.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LimitState {
    /// Its name.
    pub name: String,
    /// What it says.
    pub defined: Arc<Defined>,
}

/// A page of a list.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LimitPage {
    /// Definitions.
    pub limits: Vec<LimitState>,
    /// Where the next page begins.
    pub next_cursor: Option<String>,
}

/// What a key has used.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UsageState {
    /// How much it may use at once.
    pub capacity: u64,
    /// What is counted.
    pub used: u64,
    /// What is promised.
    pub outstanding: u64,
    /// What is left.
    pub remaining: u64,
    /// In how many milliseconds all of it is available again.
    pub reset_ms: u64,
}

/// Something outstanding.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LeaseState {
    /// Of which key.
    pub key: String,
    /// The row.
    pub row: Row,
    /// The store's clock.
    pub now: WallTime,
}

/// How much more than it might a meter had.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Overshoot {
    /// How much; 0 if none was seen.
    pub amount: u64,
    /// When that was seen, by the store's clock.
    pub at: Option<WallTime>,
}

/// A page of a log.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct LogPage {
    /// Oldest first.
    pub lines: Vec<(LogPosition, Line)>,
    /// Where the next page begins.
    pub next_cursor: Option<String>,
}

/// Where a line is in a log; as text a cursor that goes on after it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct LogPosition {
    /// Its segment's number.
    pub segment: u64,
    /// Its place there, from 1.
    pub index: u64,
}

impl LogPosition {
    /// Reads a cursor that was given out.
    pub fn parse(text: &str) -> Option<Self> {
        let (segment, index) = text.split_once('.')?;
        Some(Self { segment: segment.parse().ok()?, index: index.parse().ok()? })
    }
}

impl fmt::Display for LogPosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.segment, self.index)
    }
}

/// How lent slack behaves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LentSlack {
    /// How long it may live at most.
    pub ttl_max_ms: u64,
    /// How often the store is told of it; follows what is used if none.
    pub sync_ms: Option<u64>,
    /// When less than this isn't counted yet, the store decides.
    pub low: u64,
    /// What isn't counted yet.
    pub left: u64,
    /// The most that a lease has, of those who aren't known.
    pub size_max: Option<u64>,
}

/// A part of a limit, lent.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Lent {
    /// How much of the limit may pass at worst in any interval as long as the window, if there is a number for that.
    pub worst: Option<u64>,
    /// What it is called from now on.
    pub lease_id: String,
    /// What the lease has now; 0 if there is none.
    pub amount: u64,
    /// How long it lives; 0 if the limit isn't leased.
    pub ttl_ms: u64,
    /// How it behaves, if it is slack.
    pub slack: Option<LentSlack>,
    /// How much the key may use at once.
    pub capacity: u64,
    /// What is left at the store.
    pub remaining: u64,
    /// In how many milliseconds all of it is available again.
    pub reset_ms: u64,
    /// After how many milliseconds there is something to be had.
    pub retry_ms: Option<u64>,
    /// How much a lease should have, if its author said so.
    pub size: Option<u64>,
    /// Of the definition.
    pub version: Revision,
}

/// Why a call didn't do what it was asked to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum LimitError {
    /// There is no such limit.
    NotFound {
        /// Its name.
        limit: String,
    },
    /// A list's cursor that no list gave out.
    BadCursor,
    /// The receipt isn't one of this limit and key.
    BadReceipt,
    /// The same requestId came with other parameters.
    RequestIdReused,
    /// The limit's algorithm can't do this.
    WrongAlgorithm,
    /// The limit isn't about what is in flight: no place can be given back.
    NoPlaces,
    /// More than the limit can ever admit at once.
    CostTooHigh {
        /// What it can.
        capacity: u64,
    },
    /// Two checks of the same key of a limit.
    Twice,
    /// It couldn't be done.
    Failed(Failure),
}

impl From<Failure> for LimitError {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}
