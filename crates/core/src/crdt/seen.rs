//! Which dots a replica has seen: those that it may tell of, and those that only its rows speak for.
//!
//! What comes from a comparison with another replica comes in the order of rows, and not in that in which it was written. So until all was
//! compared a context may have a gap for nearly every row, and it is written down, sent and handed out all the time. A
//! dot that would be a gap too many is therefore *implied*: it is in its row, and not in the context. That is sound, since a context that covers less claims
//! less. It is in no commit, but the row is, so a restart finds it there. When the other's whole context is adopted the gaps close.
//!
//! What is implied and was ended by the same comparison is known until the next start or until there is no more room for it, and then as
//! if it had never been heard of: nobody was told that it was.

use super::context::{ACTORS_MAX, Context, SPANS_MAX};
use super::delta::Change;
use super::dot::{Actor, Dot};
use super::row::Row;
use alloc::sync::Arc;
use alloc::vec::Vec;

/// Spans that are implied at most before what rows say is gathered anew; if that leaves more, twice as many as it left.
pub(in crate::crdt) const IMPLIED_SPANS_MAX: usize = 64 * 1024;

/// Whoever knows whether a dot was seen.
pub trait Knows {
    /// Whether it was.
    fn contains(&self, dot: Dot) -> bool;
}

impl Knows for Context {
    fn contains(&self, dot: Dot) -> bool {
        Self::contains(self, dot)
    }
}

/// What was seen.
#[derive(Clone, Debug)]
pub struct Seen {
    /// Readers keep it as it was.
    context: Arc<Context>,
    implied: Context,
    /// Of one actor, in the context.
    spans_max: usize,
    /// With how many implied spans what rows say is gathered anew. It grows with what they say, or it would be gathered with every change.
    gather_at: usize,
}

impl Default for Seen {
    fn default() -> Self {
        Self::new(Context::default(), SPANS_MAX)
    }
}

impl Knows for Seen {
    fn contains(&self, dot: Dot) -> bool {
        self.context.contains(dot) || self.implied.contains(dot)
    }
}

impl Seen {
    /// As many spans of one actor are told of as it takes from others, and as many more that are its own doing.
    pub fn new(context: Context, spans_max: usize) -> Self {
        Self {
            context: Arc::new(context),
            implied: Context::default(),
            spans_max,
            gather_at: IMPLIED_SPANS_MAX,
        }
    }

    /// What may be told.
    pub fn context(&self) -> &Arc<Context> {
        &self.context
    }

    /// What only rows speak for.
    pub fn implied(&self) -> &Context {
        &self.implied
    }

    /// Whether telling of a dot would make a gap too many.
    pub fn would_fray(&self, dot: Dot) -> bool {
        self.context.would_fray(dot, self.spans_max)
    }

    /// Whether telling of all these would make gaps too many.
    pub fn would_fray_with(&self, dots: &Context) -> bool {
        self.context.would_fray_with(dots, self.spans_max)
    }

    /// Whether all of these were seen, by what may be told or by rows: a read says both.
    pub fn covers(&self, dots: &Context) -> bool {
        self.context.covers_with(&self.implied, dots)
    }

    /// Whether a dot is of an actor for whom there is no room.
    pub fn is_of_one_too_many(&self, actor: Actor) -> bool {
        let is_known = |context: &Context| context.highest(actor) > 0;
        !is_known(&self.context)
            && !is_known(&self.implied)
            && self.context.actor_count() + self.implied.actor_count() >= ACTORS_MAX
    }

    /// Whether all that a local change ends may be told of. Not if very much of it is implied: when the comparison is over it may.
    pub fn can_tell<'a>(&self, changes: impl Iterator<Item = &'a Change>) -> bool {
        let untold = changes.flat_map(|change| &change.removed).filter(|dot| self.implied.contains(**dot));
        let untold: Context = untold.copied().collect();
        untold.actors().all(|actor| {
            let mut together = self.context.only(|of| of == actor);
            together.join(&untold.only(|of| of == actor));
            together.span_count(actor) <= 2 * self.spans_max
        })
    }

    /// The dot may be told of.
    pub fn insert(&mut self, dot: Dot) {
        Arc::make_mut(&mut self.context).insert(dot);
    }

    /// These are in rows, which is all that says so. `rows` are all there are, with these dots in them: they may have to be looked at.
    pub fn imply<'a, R: Iterator<Item = &'a Row>>(&mut self, dots: &Context, rows: impl FnOnce() -> R) {
        self.implied.join(dots);
        if self.implied_spans() > self.gather_at {
            self.found(rows());
        }
    }

    fn implied_spans(&self) -> usize {
        self.implied.actors().map(|actor| self.implied.span_count(actor)).sum()
    }

    /// All rows that another replica's context covers were compared.
    pub fn adopt(&mut self, theirs: &Context) {
        Arc::make_mut(&mut self.context).join(theirs);
        if self.context.covers(&self.implied) {
            self.implied = Context::default();
        }
    }

    /// Dots of rows that aren't in the context.
    pub fn implied_by<'a>(rows: impl Iterator<Item = &'a Row>, context: &Context) -> Context {
        let mut dots: Vec<_> = rows.flat_map(Row::dots).filter(|dot| !context.contains(*dot)).collect();
        dots.sort_unstable();
        dots.into_iter().collect()
    }

    /// What is implied, from all rows there are.
    pub fn found<'a>(&mut self, rows: impl Iterator<Item = &'a Row>) {
        self.implied = Self::implied_by(rows, &self.context);
        self.gather_at = IMPLIED_SPANS_MAX.max(2 * self.implied_spans());
    }
}
