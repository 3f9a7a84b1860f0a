//! Which dots were seen: for each actor a few spans of numbers, nearly always one that begins at 1.
//!
//! Layout, version 1: how many actors; for each the actor (16), how many spans, and for each span how far it begins after the
//! end of the one before, and how many numbers it has beyond its first.

use super::dot::{Actor, DOT_NUMBER_MAX, Dot};
use crate::codec::{Decoder, Encoder, Unreadable};
use crate::record::Bytes;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

/// The most actors in a context that comes from outside.
pub const ACTORS_MAX: usize = 16 * 1024;
/// The most spans of one actor that a replica makes of what others tell: each but the first stands for something that was missed, and comes with the next repair.
pub const SPANS_MAX: usize = 1024;
/// The most that are read of what another tells: a replica's own changes may make as many more, and a page's rows add some.
const SPANS_READ_MAX: u64 = 4 * SPANS_MAX as u64;
/// Fewer are put in one by one: each may move all that come after it.
const FEW_SPANS: usize = 8;

const VERSION: u8 = 1;

/// A set of dots, compact because actors number theirs without gaps.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Context(BTreeMap<Actor, Spans>);

/// First and last numbers of spans, in order, no two of which touch.
type Spans = Vec<(u64, u64)>;

impl Context {
    /// The dots of one actor, from one number to another; none if the last is before the first.
    pub fn span(actor: Actor, first: u64, last: u64) -> Self {
        if last < first {
            return Self::default();
        }
        Self(BTreeMap::from([(actor, alloc::vec![(first, last)])]))
    }

    /// Whether the dot was seen.
    pub fn contains(&self, dot: Dot) -> bool {
        self.0.get(&dot.actor).is_some_and(|spans| holds(spans, dot.number))
    }

    /// The dot was seen.
    pub fn insert(&mut self, dot: Dot) {
        insert(self.0.entry(dot.actor).or_default(), dot.number, dot.number);
    }

    /// All dots of the other were seen too.
    pub fn join(&mut self, other: &Self) {
        for (actor, theirs) in &other.0 {
            let spans = self.0.entry(*actor).or_default();
            if theirs.len() < FEW_SPANS {
                theirs.iter().for_each(|(first, last)| insert(spans, *first, *last));
            } else {
                *spans = merged(spans, theirs);
            }
        }
    }

    /// Whether every dot of the other was seen.
    pub fn covers(&self, other: &Self) -> bool {
        other.0.iter().all(|(actor, theirs)| {
            let ours = self.0.get(actor);
            theirs.iter().all(|(first, last)| ours.is_some_and(|ours| holds_span(ours, *first, *last)))
        })
    }

    /// Whether a dot of both is in none of what is known.
    pub fn shares_more_than(&self, other: &Self, known: &Self) -> bool {
        self.0.iter().any(|(actor, ours)| {
            let Some(theirs) = other.0.get(actor) else { return false };
            let shared = ours.iter().flat_map(|(first, last)| {
                let from = theirs.partition_point(|(_, end)| end < first);
                let both = theirs[from..].iter().take_while(move |(begin, _)| begin <= last);
                both.map(move |(begin, end)| (*first.max(begin), *last.min(end)))
            });
            let known = known.0.get(actor).map_or(&[][..], Vec::as_slice);
            shared.into_iter().any(|(first, last)| !holds_span(known, first, last))
        })
    }

    /// How many dots of the other were not seen yet.
    pub fn lacks(&self, other: &Self) -> u64 {
        let mut together = self.clone();
        together.join(other);
        together.len() - self.len()
    }

    /// How many dots it has.
    pub fn len(&self) -> u64 {
        self.0.values().flatten().map(|(first, last)| last - first + 1).sum()
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The actors it knows of.
    pub fn actors(&self) -> impl Iterator<Item = Actor> + '_ {
        self.0.keys().copied()
    }

    /// The highest number seen of an actor; 0 if none was.
    pub fn highest(&self, actor: Actor) -> u64 {
        self.0.get(&actor).and_then(|spans| spans.last()).map_or(0, |(_, last)| *last)
    }

    /// Whether one more dot would leave more than so many spans of its actor, or more actors than are remembered.
    pub fn would_fray(&self, dot: Dot, spans_max: usize) -> bool {
        let Some(spans) = self.0.get(&dot.actor) else { return spans_max == 0 || self.0.len() >= ACTORS_MAX };
        spans.len() >= spans_max && !self.contains(dot) && self.highest(dot.actor) + 1 != dot.number
    }

    /// Whether all dots of the other together would: that each of them has room says nothing of all.
    pub fn would_fray_with(&self, other: &Self, spans_max: usize) -> bool {
        let strangers = other.0.keys().filter(|actor| !self.0.contains_key(*actor)).count();
        let frays = |(actor, theirs): (&Actor, &Spans)| {
            let ours = self.0.get(actor).map_or(&[][..], Vec::as_slice);
            let most = spans_max.max(ours.len());
            ours.len() + theirs.len() > most && merged(ours, theirs).len() > most
        };
        self.0.len() + strangers > ACTORS_MAX.max(self.0.len()) || other.0.iter().any(frays)
    }

    /// Whether every dot of the other was seen here, or by one besides.
    pub fn covers_with(&self, besides: &Self, other: &Self) -> bool {
        self.covers(other) || {
            let is_asked = |actor| other.0.contains_key(&actor);
            let mut together = self.only(is_asked);
            together.join(&besides.only(is_asked));
            together.covers(other)
        }
    }

    /// How many spans there are of an actor.
    pub fn span_count(&self, actor: Actor) -> usize {
        self.0.get(&actor).map_or(0, Vec::len)
    }

    /// How many actors it knows of.
    pub fn actor_count(&self) -> usize {
        self.0.len()
    }

    /// The part about the actors that `wanted` picks.
    pub fn only(&self, wanted: impl Fn(Actor) -> bool) -> Self {
        let kept = self.0.iter().filter(|(actor, _)| wanted(**actor));
        Self(kept.map(|(actor, spans)| (*actor, spans.clone())).collect())
    }

    /// As bytes.
    pub fn encode(&self) -> Bytes {
        let mut to = Encoder::new(VERSION).number(self.0.len() as u64);
        for (actor, spans) in &self.0 {
            to = to.fixed(&actor.0).number(spans.len() as u64);
            let mut end = 0;
            for (first, last) in spans {
                to = to.number(first - end).number(last - first);
                end = *last;
            }
        }
        to.finish()
    }

    /// Reads what another wrote; what is too large is refused like what is damaged.
    pub fn decode(value: &[u8]) -> Result<Self, Unreadable> {
        Self::decode_with(value, SPANS_READ_MAX)
    }

    /// Reads what this replica wrote for itself, however many gaps it has: it must be able to begin again.
    pub fn decode_own(value: &[u8]) -> Result<Self, Unreadable> {
        Self::decode_with(value, u64::MAX)
    }

    fn decode_with(value: &[u8], spans_max: u64) -> Result<Self, Unreadable> {
        let mut from = Decoder::new(value, VERSION)?;
        let mut actors = BTreeMap::new();
        let count = from.number()?;
        if count > ACTORS_MAX as u64 {
            return Err(Unreadable);
        }
        for _ in 0..count {
            let actor = Actor(from.fixed()?);
            let spans = decode_spans(&mut from, spans_max)?;
            if actors.insert(actor, spans).is_some() {
                return Err(Unreadable);
            }
        }
        from.finish()?;
        Ok(Self(actors))
    }
}

impl FromIterator<Dot> for Context {
    fn from_iter<T: IntoIterator<Item = Dot>>(dots: T) -> Self {
        let mut context = Self::default();
        dots.into_iter().for_each(|dot| context.insert(dot));
        context
    }
}

fn decode_spans(from: &mut Decoder<'_>, spans_max: u64) -> Result<Spans, Unreadable> {
    let count = from.number()?;
    if count == 0 || count > spans_max {
        return Err(Unreadable);
    }
    let mut spans = Spans::new();
    let mut end = 0_u64;
    for _ in 0..count {
        // Spans that touch would be one: two contexts with the same dots are the same bytes.
        let least = if spans.is_empty() { 1 } else { 2 };
        let first = from.number()?;
        if first < least {
            return Err(Unreadable);
        }
        let first = end.checked_add(first).ok_or(Unreadable)?;
        end = first.checked_add(from.number()?).filter(|end| *end <= DOT_NUMBER_MAX).ok_or(Unreadable)?;
        spans.push((first, end));
    }
    Ok(spans)
}

fn holds(spans: &[(u64, u64)], number: u64) -> bool {
    holds_span(spans, number, number)
}

fn holds_span(spans: &[(u64, u64)], first: u64, last: u64) -> bool {
    let at = spans.partition_point(|(_, end)| *end < first);
    spans.get(at).is_some_and(|(begin, end)| *begin <= first && last <= *end)
}

fn insert(spans: &mut Spans, first: u64, last: u64) {
    // Nearly always it is the next number.
    if let Some((_, end)) = spans.last_mut()
        && *end + 1 == first
    {
        *end = last;
        return;
    }
    // Or it was seen: what a write replaces is.
    if holds_span(spans, first, last) {
        return;
    }
    // What touches the new span becomes part of it.
    let from = spans.partition_point(|(_, end)| end.saturating_add(1) < first);
    let to = spans.partition_point(|(begin, _)| *begin <= last.saturating_add(1));
    let first = spans.get(from).map_or(first, |(begin, _)| first.min(*begin));
    let last = if to > from { last.max(spans[to - 1].1) } else { last };
    spans.splice(from..to, [(first, last)]);
}

/// Both in one walk.
fn merged(ours: &[(u64, u64)], theirs: &[(u64, u64)]) -> Spans {
    let mut spans = Spans::with_capacity(ours.len() + theirs.len());
    let (mut ours, mut theirs) = (ours.iter().peekable(), theirs.iter().peekable());
    loop {
        let next = match (ours.peek(), theirs.peek()) {
            (Some(our), Some(their)) if their < our => theirs.next(),
            (None, _) => theirs.next(),
            (Some(_), _) => ours.next(),
        };
        let Some((first, last)) = next else { break };
        match spans.last_mut() {
            Some((_, end)) if *first <= end.saturating_add(1) => *end = (*end).max(*last),
            _ => spans.push((*first, *last)),
        }
    }
    spans
}
