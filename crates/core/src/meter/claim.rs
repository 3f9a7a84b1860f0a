//! What is asked of one meter: by which rule it counts, and what to take.
//!
//! As text, fields are separated by one space:
//! `version algorithm limit window capacity edge edge edge reclaim | take amount at | row owner kind ttl sequence spent kept`
//! without the bars. An edge of 0 in the second place says that windows follow each other from the first one, an offset.

use super::{NUMBER_MAX, PRODUCT_MAX};
use crate::record::{Bytes, Key};
use alloc::string::String;
use core::fmt::Write;

/// What is counted.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Algorithm {
    /// A level that leaks at the rate; capacity is the burst.
    TokenBucket,
    /// What came in this window, and of the last one as much as still overlaps.
    SlidingWindow,
    /// What came in this window.
    FixedWindow,
    /// What came within the last window, exactly.
    SlidingLog,
    /// What is in use now.
    InFlight,
}

impl Algorithm {
    /// All of them.
    pub const ALL: [Self; 5] =
        [Self::TokenBucket, Self::SlidingWindow, Self::FixedWindow, Self::SlidingLog, Self::InFlight];

    /// As it is written.
    pub fn letter(self) -> char {
        match self {
            Self::TokenBucket => 'b',
            Self::SlidingWindow => 's',
            Self::FixedWindow => 'f',
            Self::SlidingLog => 'l',
            Self::InFlight => 'i',
        }
    }

    /// The highest limit, and the highest amount at once, that are computed with exactly: some multiply by the window's length.
    pub fn amount_max(self, window_ms: u64) -> u64 {
        match self {
            Self::TokenBucket | Self::SlidingWindow => PRODUCT_MAX / window_ms.max(1),
            Self::FixedWindow | Self::SlidingLog | Self::InFlight => PRODUCT_MAX,
        }
    }

    /// As it was written.
    pub fn of_letter(letter: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|algorithm| letter.len() == 1 && letter.starts_with(algorithm.letter()))
    }
}

/// Where windows begin.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Edges {
    /// Every window's length, from this offset on; less than the window.
    Every {
        /// Milliseconds.
        offset_ms: u64,
    },
    /// At these moments: of the present window, the next one and the one after. For days and months.
    At([u64; 3]),
}

/// What becomes of a lease whose holder has gone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reclaim {
    /// It counts as spent when it expires: it may have been.
    Burn,
    /// It is available again when it expires, although it may have been spent.
    Drop,
}

/// By what a meter counts.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Rule {
    /// Of the definition. A meter never goes back to an older one.
    pub version: u64,
    /// What is counted.
    pub algorithm: Algorithm,
    /// How much in a window; at least 1.
    pub limit: u64,
    /// Milliseconds; at least 1.
    pub window_ms: u64,
    /// How much at once: the burst of a bucket, else the limit.
    pub capacity: u64,
    /// Where windows begin.
    pub edges: Edges,
    /// What becomes of leases that expire.
    pub reclaim: Reclaim,
}

/// What to take. What goes to a row is promised; else it is counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Take {
    /// Nothing: a report, or a look.
    Nothing,
    /// All, or the whole charge is refused.
    AllOrNone(u64),
    /// All or nothing, and whatever else is charged goes on.
    Try(u64),
    /// A fair share of what is left, at most this.
    Share(u64),
    /// All, also if there is no room: it is spent already.
    Forced(u64),
    /// All, from a time on at which there is room for it, at most so far away; else the whole charge is refused.
    Book {
        /// How much.
        amount: u64,
        /// Milliseconds, at most a window.
        wait_max_ms: u64,
    },
    /// Gives back what was counted at that time, as far as it still counts.
    Credit {
        /// How much.
        amount: u64,
        /// When it was taken, by the store's clock.
        at_ms: u64,
    },
}

impl Take {
    fn parts(self) -> (char, u64, u64) {
        match self {
            Self::Nothing => ('n', 0, 0),
            Self::AllOrNone(amount) => ('a', amount, 0),
            Self::Try(amount) => ('t', amount, 0),
            Self::Share(amount) => ('s', amount, 0),
            Self::Forced(amount) => ('f', amount, 0),
            Self::Book { amount, wait_max_ms } => ('b', amount, wait_max_ms),
            Self::Credit { amount, at_ms } => ('c', amount, at_ms),
        }
    }

    /// How much is asked for.
    pub fn amount(self) -> u64 {
        self.parts().1
    }
}

/// Why something is outstanding.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RowKind {
    /// To be spent without asking.
    Lease,
    /// Kept while other meters are asked.
    Hold,
    /// In use.
    Place,
}

impl RowKind {
    /// As it is written.
    pub fn letter(self) -> char {
        match self {
            Self::Lease => 'L',
            Self::Hold => 'H',
            Self::Place => 'P',
        }
    }

    /// As it was written.
    pub fn of_letter(letter: &str) -> Option<Self> {
        match letter {
            "L" => Some(Self::Lease),
            "H" => Some(Self::Hold),
            "P" => Some(Self::Place),
            _ => None,
        }
    }
}

/// What is said of a row: what became of it since the last time, and how long it should live from now.
///
/// Numbers are the holder's: the highest sequence wins, so a message that comes twice or late changes nothing.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RowClaim {
    /// Made by the holder. Letters, digits and `-_.:`, like the holder's name.
    pub id: String,
    /// Who holds it.
    pub owner: String,
    /// Why.
    pub kind: RowKind,
    /// Milliseconds from now.
    pub ttl_ms: u64,
    /// Grows with every message about this row; from 1.
    pub sequence: u64,
    /// All that was spent of it, ever.
    pub spent: u64,
    /// What the holder keeps. The rest it had is given back.
    pub kept: u64,
}

/// What is asked of one meter.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Claim {
    /// Which.
    pub key: Key,
    /// By what it counts.
    pub rule: Rule,
    /// What to take.
    pub take: Take,
    /// What is said of a row, which then gets what is taken. Nothing that is forced, booked or credited has one.
    pub row: Option<RowClaim>,
}

/// Makes a charge happen once: what it did is remembered under a key of its own. Refusals are not.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Memo {
    /// In the group of the first claim.
    pub key: Key,
    /// What the charge was about: 32 hexadecimal digits. Another one under the same key is somebody's mistake.
    pub digest: String,
    /// Milliseconds.
    pub ttl_ms: u64,
}

impl Claim {
    /// As text.
    pub fn encode(&self) -> String {
        let Rule { version, algorithm, limit, window_ms, capacity, edges, reclaim } = &self.rule;
        let edges = match edges {
            Edges::Every { offset_ms } => [*offset_ms, 0, 0],
            Edges::At(edges) => *edges,
        };
        let reclaim = u8::from(*reclaim == Reclaim::Drop);
        let (take, amount, extra) = self.take.parts();
        let mut text = String::with_capacity(160);
        let [first, second, third] = edges;
        let written = write!(
            text,
            "{version} {} {limit} {window_ms} {capacity} {first} {second} {third} {reclaim} {take} {amount} {extra}",
            algorithm.letter(),
        );
        let written = written.and_then(|()| match &self.row {
            None => text.write_str(" - - - 0 0 0 0"),
            Some(row) => {
                let RowClaim { id, owner, kind, ttl_ms, sequence, spent, kept } = row;
                write!(text, " {id} {owner} {} {ttl_ms} {sequence} {spent} {kept}", kind.letter())
            }
        });
        written.expect("a string takes all that is written");
        text
    }

    /// Whether it only looks: then nothing needs to be written.
    pub fn is_look(&self) -> bool {
        self.take.amount() == 0 && self.row.is_none()
    }

    /// Whether it keeps the bounds that make all computing exact, and its texts are plain.
    pub fn is_valid(&self) -> bool {
        let rule = &self.rule;
        let most = rule.algorithm.amount_max(rule.window_ms);
        let edges = match rule.edges {
            Edges::Every { offset_ms } => offset_ms < rule.window_ms,
            Edges::At(edges) => edges[0] < edges[1] && edges[1] < edges[2] && edges[2] <= NUMBER_MAX,
        };
        let plain = |text: &str| {
            (1..=64).contains(&text.len())
                && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.:".contains(&byte))
                && text != "-"
        };
        let (_, amount, extra) = self.take.parts();
        // Only a bucket knows when there will be room, and only what finds room goes to a row.
        let (is_booked, is_owed) = match self.take {
            Take::Book { .. } => (true, true),
            Take::Forced(_) | Take::Credit { .. } => (false, true),
            _ => (false, false),
        };
        // What is only compared with the room there is need not be multiplied.
        let is_compared = matches!(self.take, Take::AllOrNone(_) | Take::Try(_) | Take::Share(_));
        let row = self.row.as_ref().is_none_or(|row| {
            !is_owed
                && plain(&row.id)
                && plain(&row.owner)
                && (1..=NUMBER_MAX).contains(&row.sequence)
                && [row.ttl_ms, row.spent, row.kept].iter().all(|number| *number <= PRODUCT_MAX)
        });
        rule.limit >= 1
            && (1..=PRODUCT_MAX).contains(&rule.window_ms)
            && rule.capacity >= 1
            && rule.version <= NUMBER_MAX
            && rule.limit <= most
            && rule.capacity <= most
            && edges
            && amount <= if is_compared { NUMBER_MAX } else { most }
            && extra <= NUMBER_MAX
            && (!is_booked || rule.algorithm == Algorithm::TokenBucket)
            && row
    }
}

impl Memo {
    /// What the store keeps: the digest, and the answer after it.
    pub fn value(&self, answer: &[u8]) -> Bytes {
        [self.digest.as_bytes(), b" ", answer].concat().into()
    }
}
