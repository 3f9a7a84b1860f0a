//! What replicas say to each other, as bytes. All of it has bounds, and what is beyond them is refused like what is damaged.
//!
//! Layout of a request, version 1: who asks (16), its request's number, whether a certain run is asked (0, or 1 and 16 bytes), then what
//! is asked. Push (1): a delta. Summary (2): a hash (8). Groups (3): how many, and each in a byte. Rows (4): the hash of the context that was
//! shown (8), how many ranges; for each the bucket, after which name and up to which (empty: none), how many hashes, and those (8 each).
//!
//! Layout of an answer, version 1: who answers (16), then what. Took (1): how many changes were news, held, skipped. Same (2). Summary (3): the
//! context, and the groups' hashes (8 each). Hashes (4): how many, and those (8 each). Pages (5): the context if it is another than was shown (empty if not), how many; for each up to which name (empty:
//! to the end), how many rows, for each its name and its entries, how many of the asked hashes aren't there, and which they are.
//! Another run (6).

use super::{BUCKETS, GROUPS};
use crate::codec::{Decoder, Encoder, Unreadable};
use crate::crdt::context::Context;
use crate::crdt::delta::Delta;
use crate::crdt::dot::Actor;
use crate::crdt::kind::RowKey;
use crate::crdt::row::Row;
use crate::record::Bytes;
use alloc::vec::Vec;

const VERSION: u8 = 1;
/// Hashes in one request, over all ranges.
pub const KNOWN_MAX: usize = 8 * 1024;
/// Rows in one page: their names alone are more than an answer may have.
const ROWS_MAX: u64 = super::MESSAGE_BYTES_MAX as u64 / 8;

/// A question, or something told.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Request {
    /// The run that asks.
    pub from: Actor,
    /// Which of its requests: no two are the same, so an answer's proof is good for one.
    pub number: u64,
    /// The run that is asked, if it has to be that one.
    pub to: Option<Actor>,
    /// What is asked.
    pub ask: Ask,
}

/// What one replica wants of another.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Ask {
    /// That it takes this in.
    Push(Delta),
    /// What it has, unless it all comes to this hash.
    Summary(u64),
    /// The hashes of the buckets of these groups.
    Groups(Vec<u8>),
    /// Rows that are different there.
    Rows {
        /// A hash of the context that was shown last.
        context: u64,
        /// Where.
        ranges: Vec<Range>,
    },
}

/// A part of a bucket, as the asking side has it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Range {
    /// Which bucket.
    pub bucket: usize,
    /// From after this name, or from the first.
    pub after: Option<RowKey>,
    /// Up to and with this name, or to the last.
    pub to: Option<RowKey>,
    /// The hashes of the rows it has there.
    pub known: Vec<u64>,
}

/// An answer, and who gives it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Reply {
    /// The run that answers.
    pub from: Actor,
    /// What it says.
    pub answer: Answer,
}

/// What is answered.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Answer {
    /// What became of what was pushed.
    Took {
        /// Changes that were news.
        taken: u64,
        /// Changes that wait for their time.
        held: u64,
        /// Changes that there is no room for now.
        skipped: u64,
    },
    /// Both have the same.
    Same,
    /// What there is, in short.
    Summary {
        /// All that was seen.
        context: Context,
        /// A hash for each group of buckets.
        groups: Vec<u64>,
    },
    /// The asked groups' buckets, one after the other.
    Hashes(Vec<u64>),
    /// As many of the asked ranges as fit, at least one.
    Pages {
        /// All that was seen when these rows were looked at, unless that is the context that was shown last: a row that has
        /// changed since then may lack what only this covers.
        context: Option<Context>,
        /// What is there.
        pages: Vec<Page>,
    },
    /// It isn't the run that was asked.
    OtherRun,
}

/// What the asked side has in a range.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Page {
    /// The rows there whose hashes the asking side didn't name, in order.
    pub rows: Vec<(RowKey, Row)>,
    /// Which of the named hashes, by their place, no row there has.
    pub lacks: Vec<u64>,
    /// How far it goes: up to and with this name, or to the range's end.
    pub to: Option<RowKey>,
}

impl Request {
    /// As bytes.
    pub fn encode(&self) -> Bytes {
        let to = Encoder::new(VERSION).fixed(&self.from.0).number(self.number);
        let to = match self.to {
            Some(run) => to.byte(1).fixed(&run.0),
            None => to.byte(0),
        };
        match &self.ask {
            Ask::Push(delta) => to.byte(1).bytes(&delta.encode()),
            Ask::Summary(whole) => to.byte(2).fixed(&whole.to_le_bytes()),
            Ask::Groups(groups) => to.byte(3).bytes(groups),
            Ask::Rows { context, ranges } => {
                let to = to.byte(4).fixed(&context.to_le_bytes()).number(ranges.len() as u64);
                ranges.iter().fold(to, |to, range| {
                    let to = name(name(to.number(range.bucket as u64), &range.after), &range.to);
                    hashes(to, &range.known)
                })
            }
        }
        .finish()
    }

    /// Reads what was written.
    pub fn decode(value: &[u8]) -> Result<Self, Unreadable> {
        let mut from = Decoder::new(value, VERSION)?;
        let (asking, number) = (Actor(from.fixed()?), from.number()?);
        let to = match from.byte()? {
            0 => None,
            1 => Some(Actor(from.fixed()?)),
            _ => return Err(Unreadable),
        };
        let ask = match from.byte()? {
            1 => Ask::Push(Delta::decode(from.bytes()?)?),
            2 => Ask::Summary(u64::from_le_bytes(from.fixed()?)),
            3 => {
                let groups = from.bytes()?.to_vec();
                if groups.len() > GROUPS || groups.iter().any(|group| usize::from(*group) >= GROUPS) {
                    return Err(Unreadable);
                }
                Ask::Groups(groups)
            }
            4 => {
                let (context, mut room) = (hash(&mut from)?, KNOWN_MAX);
                let count = counted(&mut from, BUCKETS as u64)?;
                let ranges = (0..count).map(|_| range(&mut from, &mut room)).collect::<Result<_, _>>()?;
                Ask::Rows { context, ranges }
            }
            _ => return Err(Unreadable),
        };
        from.finish()?;
        Ok(Self { from: asking, number, to, ask })
    }
}

impl Reply {
    /// As bytes.
    pub fn encode(&self) -> Bytes {
        let to = Encoder::new(VERSION).fixed(&self.from.0);
        match &self.answer {
            Answer::Took { taken, held, skipped } => to.byte(1).number(*taken).number(*held).number(*skipped),
            Answer::Same => to.byte(2),
            Answer::Summary { context, groups } => groups
                .iter()
                .fold(to.byte(3).bytes(&context.encode()), |to, hash| to.fixed(&hash.to_le_bytes())),
            Answer::Hashes(of) => hashes(to.byte(4), of),
            Answer::Pages { context, pages } => {
                let to =
                    to.byte(5).bytes(context.as_ref().map(Context::encode).as_deref().unwrap_or_default());
                pages.iter().fold(to.number(pages.len() as u64), |to, page| {
                    let to = name(to, &page.to).number(page.rows.len() as u64);
                    let to = page
                        .rows
                        .iter()
                        .fold(to, |to, (key, row)| to.bytes(key.bytes()).bytes(&row.encode()));
                    let to = to.number(page.lacks.len() as u64);
                    page.lacks.iter().fold(to, |to, place| to.number(*place))
                })
            }
            Answer::OtherRun => to.byte(6),
        }
        .finish()
    }

    /// Reads what was written.
    pub fn decode(value: &[u8]) -> Result<Self, Unreadable> {
        let mut from = Decoder::new(value, VERSION)?;
        let by = Actor(from.fixed()?);
        let answer = match from.byte()? {
            1 => Answer::Took { taken: from.number()?, held: from.number()?, skipped: from.number()? },
            2 => Answer::Same,
            3 => {
                let context = Context::decode(from.bytes()?)?;
                let groups = (0..GROUPS).map(|_| hash(&mut from)).collect::<Result<_, _>>()?;
                Answer::Summary { context, groups }
            }
            4 => Answer::Hashes(listed(&mut from, BUCKETS as u64, hash)?),
            5 => {
                let context = match from.bytes()? {
                    [] => None,
                    context => Some(Context::decode(context)?),
                };
                Answer::Pages { context, pages: listed(&mut from, BUCKETS as u64, page)? }
            }
            6 => Answer::OtherRun,
            _ => return Err(Unreadable),
        };
        from.finish()?;
        Ok(Self { from: by, answer })
    }
}

fn name(to: Encoder, key: &Option<RowKey>) -> Encoder {
    to.bytes(key.as_ref().map_or(&[], |key| key.bytes()))
}

fn hashes(to: Encoder, hashes: &[u64]) -> Encoder {
    hashes.iter().fold(to.number(hashes.len() as u64), |to, hash| to.fixed(&hash.to_le_bytes()))
}

fn hash(from: &mut Decoder<'_>) -> Result<u64, Unreadable> {
    Ok(u64::from_le_bytes(from.fixed()?))
}

fn counted(from: &mut Decoder<'_>, max: u64) -> Result<u64, Unreadable> {
    from.number().and_then(|count| if count > max { Err(Unreadable) } else { Ok(count) })
}

fn listed<T>(
    from: &mut Decoder<'_>,
    max: u64,
    item: impl Fn(&mut Decoder<'_>) -> Result<T, Unreadable>,
) -> Result<Vec<T>, Unreadable> {
    (0..counted(from, max)?).map(|_| item(from)).collect()
}

fn named(from: &mut Decoder<'_>) -> Result<Option<RowKey>, Unreadable> {
    match from.bytes()? {
        [] => Ok(None),
        name => RowKey::decode(name).map(Some),
    }
}

fn range(from: &mut Decoder<'_>, room: &mut usize) -> Result<Range, Unreadable> {
    let bucket = from.number()? as usize;
    let (after, to) = (named(from)?, named(from)?);
    let known = listed(from, *room as u64, hash)?;
    *room -= known.len();
    if bucket < BUCKETS { Ok(Range { bucket, after, to, known }) } else { Err(Unreadable) }
}

fn page(from: &mut Decoder<'_>) -> Result<Page, Unreadable> {
    let to = named(from)?;
    let rows = listed(from, ROWS_MAX, |from| {
        let key = RowKey::decode(from.bytes()?)?;
        let row = Row::decode(from.bytes()?, key.kind())?;
        Ok((key, row))
    })?;
    if !rows.is_sorted_by(|(one, _), (other, _)| one < other) {
        return Err(Unreadable);
    }
    Ok(Page { rows, lacks: listed(from, KNOWN_MAX as u64, |from| from.number())?, to })
}
