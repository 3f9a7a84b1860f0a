//! The side that asks: from a summary to the rows that differ, and to the other's whole context once all of them were compared.

use super::message::{Answer, Ask, KNOWN_MAX, Page, Range};
use super::{GROUP_BUCKETS, GROUPS, Rows, buckets_of, context_hash, group, whole};
use crate::crdt::context::Context;
use crate::crdt::kind::RowKey;
use crate::crdt::seen::Seen;
use alloc::collections::{BTreeSet, VecDeque};
use alloc::sync::Arc;
use alloc::vec::Vec;

/// Hashes that are sent for one part of a bucket; a bucket with more rows is compared in parts.
const PART_ROWS: usize = 1024;
/// Parts asked for at once.
const PARTS_MAX: usize = 64;

/// An exchange under way with one run of another replica.
#[derive(Debug, Default)]
pub struct Repair {
    /// The context that was shown first.
    first: Option<Arc<Context>>,
    /// And the last.
    latest: Option<Arc<Context>>,
    /// What this side had seen when hashes were first compared, and what it was shown since.
    known: Context,
    groups: Vec<u8>,
    /// Parts of buckets still to be asked for: from where on.
    left: VecDeque<(usize, Option<RowKey>)>,
    /// What was asked for, as it was then.
    asked: Vec<Asked>,
}

#[derive(Debug)]
struct Asked {
    range: Range,
    keys: Vec<RowKey>,
}

/// Rows of the other side in a range, all of them: those that aren't here are as they were on this side when it asked, or not there.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Shown {
    /// Which bucket.
    pub bucket: usize,
    /// From after this name, or from the first.
    pub after: Option<RowKey>,
    /// Up to and with this name, or to the last.
    pub to: Option<RowKey>,
    /// What is different there, in order.
    pub rows: Vec<(RowKey, super::Row)>,
    /// What is the same there.
    pub same: BTreeSet<RowKey>,
}

/// What comes next.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Next {
    /// To ask this.
    Ask(Ask),
    /// Nothing: both have the same.
    Same,
    /// To adopt this, if all that was shown could be taken in.
    Adopt(Adoption),
}

/// What the other side had seen, all of which was compared.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Adoption {
    /// What it had seen when it was first asked.
    pub context: Arc<Context>,
    /// What this side had seen when hashes were first compared, and what it was shown since.
    pub known: Context,
}

impl Adoption {
    /// Whether what the other has ended is ended here too. Not if a dot that the other had seen came from elsewhere after its row was
    /// compared: the other may have ended it, and whoever adopts the context says to know of that. The next exchange compares it.
    pub fn is_sound(&self, mine: &Seen) -> bool {
        let knows_more = |mine: &Context| mine.shares_more_than(&self.context, &self.known);
        !knows_more(mine.context()) && !knows_more(mine.implied())
    }
}

/// The answer doesn't fit the question.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Unexpected;

impl Repair {
    /// The first question.
    pub fn begin(rows: &impl Rows) -> (Self, Ask) {
        (Self::default(), Ask::Summary(whole(rows)))
    }

    /// The other's context, as it was when the rows that were shown last were looked at.
    pub fn context(&self) -> Option<&Arc<Context>> {
        self.latest.as_ref()
    }

    /// Takes an answer: what it shows has to be compared before the next question is asked.
    pub fn take(&mut self, answer: Answer, rows: &impl Rows) -> Result<(Vec<Shown>, Next), Unexpected> {
        match (answer, &self.first) {
            (Answer::Same, None) => Ok((Vec::new(), Next::Same)),
            (Answer::Summary { context, groups }, None) if groups.len() == GROUPS => {
                self.first = Some(Arc::new(context));
                self.latest = self.first.clone();
                self.known = rows.context().clone();
                self.known.join(rows.implied());
                let differs = |of: &usize| groups[*of] != group(rows, *of);
                self.groups = (0..GROUPS).filter(differs).map(|of| of as u8).collect();
                if self.groups.is_empty() {
                    return Ok((Vec::new(), self.next(rows)));
                }
                Ok((Vec::new(), Next::Ask(Ask::Groups(self.groups.clone()))))
            }
            (Answer::Hashes(hashes), Some(_)) if hashes.len() == self.groups.len() * GROUP_BUCKETS => {
                let groups = core::mem::take(&mut self.groups);
                let buckets = groups.iter().flat_map(|group| buckets_of((*group).into()));
                let differing = buckets.zip(hashes).filter(|(bucket, hash)| rows.bucket(*bucket) != *hash);
                self.left.extend(differing.map(|(bucket, _)| (bucket, None)));
                Ok((Vec::new(), self.next(rows)))
            }
            (Answer::Pages { context, pages }, Some(_))
                if !pages.is_empty() && pages.len() <= self.asked.len() =>
            {
                if let Some(context) = context {
                    self.latest = Some(Arc::new(context));
                }
                let mut asked = core::mem::take(&mut self.asked).into_iter();
                let mut shown = Vec::new();
                for (page, asked) in pages.into_iter().zip(&mut asked) {
                    shown.push(self.shown(page, asked)?);
                }
                for unanswered in asked.rev() {
                    self.left.push_front((unanswered.range.bucket, unanswered.range.after));
                }
                Ok((shown, self.next(rows)))
            }
            _ => Err(Unexpected),
        }
    }

    fn shown(&mut self, page: Page, asked: Asked) -> Result<Shown, Unexpected> {
        let Asked { range: Range { bucket, after, to: asked_to, .. }, keys } = asked;
        let is_in = |key: &RowKey| {
            after.as_ref().is_none_or(|after| key > after)
                && page.to.as_ref().is_none_or(|to| key <= to)
                && super::bucket_of(key) == bucket
        };
        let goes_too_far = match (&page.to, &asked_to) {
            (None, Some(_)) => true,
            (Some(to), asked_to) => {
                asked_to.as_ref().is_some_and(|asked| to > asked)
                    || after.as_ref().is_some_and(|after| to <= after)
            }
            (None, None) => false,
        };
        if goes_too_far || !page.rows.iter().all(|(key, _)| is_in(key)) {
            return Err(Unexpected);
        }
        let mut dots: Vec<_> = page.rows.iter().flat_map(|(_, row)| row.dots()).collect();
        dots.sort_unstable();
        self.known.join(&dots.into_iter().collect());
        let lacks: BTreeSet<_> = page.lacks.into_iter().collect();
        let same = keys.into_iter().enumerate().filter(|(place, _)| !lacks.contains(&(*place as u64)));
        let same = same.map(|(_, key)| key).collect();
        if page.to.is_some() {
            self.left.push_front((bucket, page.to.clone()));
        }
        Ok(Shown { bucket, after, to: page.to, rows: page.rows, same })
    }

    fn next(&mut self, rows: &impl Rows) -> Next {
        let mut room = KNOWN_MAX;
        while self.asked.len() < PARTS_MAX && room >= PART_ROWS {
            let Some((bucket, after)) = self.left.pop_front() else { break };
            let (mut keys, mut known, mut to) = (Vec::new(), Vec::new(), None);
            for (key, _, hash) in rows.rows(bucket, after.as_ref()) {
                if keys.len() == PART_ROWS {
                    to = keys.last().cloned();
                    break;
                }
                keys.push(key.clone());
                known.push(hash);
            }
            room -= known.len();
            self.asked.push(Asked { range: Range { bucket, after, to, known }, keys });
        }
        match &self.first {
            Some(context) if self.asked.is_empty() => {
                Next::Adopt(Adoption { context: context.clone(), known: core::mem::take(&mut self.known) })
            }
            _ => {
                let context = self.latest.as_ref().map_or(0, |context| context_hash(context));
                let ranges = self.asked.iter().map(|asked| asked.range.clone()).collect();
                Next::Ask(Ask::Rows { context, ranges })
            }
        }
    }
}
