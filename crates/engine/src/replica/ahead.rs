//! What was decided and is on its way to the disk: what the next write is decided on, and what nobody else sees yet.

use super::memo::{Memo, Memos};
use super::{Failure, Limits, Origin};
use baton_core::crdt::{Actor, Change, Clock, Context, Delta, Dot, Entry, Knows, Row, RowKey, Seen};
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use tokio::sync::{Notify, oneshot};

/// Writes that may be on their way to the disk at once; further ones are refused.
pub(super) const PENDING_MAX: usize = 16 * 1024;
/// Changes that wait for their time to come near; further ones are not taken in, and come again with the next repair.
pub(super) const HELD_MAX: usize = 1024;

/// What becomes durable as a whole.
pub(super) struct Unit {
    pub delta: Delta,
    /// The rows of the delta.
    pub rows: Vec<Altered>,
    /// Dots of the delta that nobody is told of: rows speak for them.
    pub implied: Context,
    /// Another replica's context, when all that it covers was compared.
    pub adopted: Option<Arc<Context>>,
    pub memo: Option<Memo>,
    pub origin: Origin,
    pub clock: Clock,
    pub done: oneshot::Sender<()>,
}

/// A row that is changed.
pub(super) struct Altered {
    pub key: RowKey,
    pub before: Arc<Row>,
    pub after: Arc<Row>,
}

pub(super) struct Ahead {
    /// Rows as the next write has to see them. All of them, also those that the disk has like this: so whoever decides never waits for readers, or
    /// for whoever tells them what is durable.
    rows: HashMap<RowKey, Arc<Row>, foldhash::fast::RandomState>,
    /// Of every row that isn't there.
    none: Arc<Row>,
    pub seen: Seen,
    pub actor: Actor,
    /// Of the last dot.
    pub number: u64,
    pub clock: Clock,
    pub memos: Memos,
    pub held: VecDeque<Change>,
    pub pending: Vec<Unit>,
    /// With how many pending units it is time to send them: one, unless earlier ones are on their way.
    pub send_at: usize,
    /// It is time: whoever lets go of this sends them.
    pub is_due: bool,
    /// Something is held.
    holds: Arc<Notify>,
    sizes: Sizes,
    limits: Limits,
    pub failed: bool,
    pub closed: bool,
}

/// How much there is.
#[derive(Default)]
struct Sizes {
    rows: usize,
    bytes: usize,
    /// Elements of each set, rows of each map.
    collections: HashMap<Box<[u8]>, usize>,
}

impl Ahead {
    pub fn new(
        actor: Actor,
        seen: Seen,
        clock: Clock,
        memos: Memos,
        limits: Limits,
        holds: Arc<Notify>,
    ) -> Self {
        Self {
            rows: HashMap::default(),
            none: Arc::default(),
            seen,
            actor,
            number: 0,
            clock,
            memos,
            held: VecDeque::new(),
            pending: Vec::new(),
            send_at: 1,
            is_due: false,
            holds,
            sizes: Sizes::default(),
            limits,
            failed: false,
            closed: false,
        }
    }

    /// Whether anything can be written now.
    pub fn ready(&self) -> Result<(), Failure> {
        if self.failed {
            return Err(Failure::Broken);
        }
        if self.closed || self.pending.len() >= PENDING_MAX {
            return Err(Failure::Busy);
        }
        Ok(())
    }

    /// The row as the next write has to see it.
    pub fn row(&self, key: &RowKey) -> Arc<Row> {
        self.rows.get(key).unwrap_or(&self.none).clone()
    }

    /// Whether a local write may make this of a row.
    pub fn has_room(&self, key: &RowKey, before: &Row, after: &Row) -> Result<(), Failure> {
        let grows = after.size() > before.size();
        if grows && self.sizes.bytes + after.size() > self.limits.bytes_max {
            return Err(Failure::Full);
        }
        if !before.is_empty() || after.is_empty() {
            return Ok(());
        }
        let together = key.collection().and_then(|of| self.sizes.collections.get(of)).copied().unwrap_or(0);
        if self.sizes.rows >= self.limits.rows_max || together >= self.limits.collection_max {
            return Err(Failure::Full);
        }
        Ok(())
    }

    /// Puts a unit in line. Its dots count as seen from here on, for whatever is decided next.
    pub fn enqueue(
        &mut self,
        staged: Staged,
        adopted: Option<Arc<Context>>,
        memo: Option<Memo>,
        origin: Origin,
    ) -> oneshot::Receiver<()> {
        let told =
            staged.delta.changes.iter().flat_map(Change::dots).filter(|dot| !staged.implied.contains(*dot));
        told.for_each(|dot| self.seen.insert(dot));
        for Altered { key, before, after } in &staged.rows {
            self.sizes.moved(key, before, after);
            if after.is_empty() {
                self.rows.remove(key);
            } else {
                self.rows.insert(key.clone(), after.clone());
            }
        }
        // Not before the rows are there: they are what speaks for these, and may be looked at.
        if !staged.implied.is_empty() {
            self.seen.imply(&staged.implied, || self.rows.values().map(|row| &**row));
        }
        if let Some(context) = &adopted {
            self.seen.adopt(context);
        }
        let (done, answered) = oneshot::channel();
        self.pending.push(Unit {
            delta: staged.delta,
            rows: staged.rows,
            implied: staged.implied,
            adopted,
            memo,
            origin,
            clock: self.clock,
            done,
        });
        self.is_due |= self.pending.len() >= self.send_at;
        answered
    }

    /// A change waits until its time is near.
    pub fn hold(&mut self, change: Change) {
        self.held.push_back(change);
        self.holds.notify_one();
    }

    /// A row that was found on the disk.
    pub fn found(&mut self, key: &RowKey, row: &Arc<Row>) {
        self.rows.insert(key.clone(), row.clone());
        self.sizes.moved(key, &Row::default(), row);
        for (_, entry) in row.entries() {
            if let Entry::Value { at, .. } = entry {
                self.clock.observe(*at);
            }
        }
    }

    /// The disk can't take any more. Whoever waits hears that the outcome is unknown.
    pub fn break_down(&mut self) {
        self.failed = true;
        self.pending.clear();
        // Nothing is under way any more that somebody who closes would have to wait for.
        self.send_at = 1;
    }
}

impl Sizes {
    fn moved(&mut self, key: &RowKey, before: &Row, after: &Row) {
        self.bytes = (self.bytes + after.size()).saturating_sub(before.size());
        match (before.is_empty(), after.is_empty()) {
            (true, false) => {
                self.rows += 1;
                self.bytes += key.bytes().len();
                if let Some(of) = key.collection() {
                    *self.collections.entry(of.into()).or_default() += 1;
                }
            }
            (false, true) => {
                self.rows -= 1;
                self.bytes = self.bytes.saturating_sub(key.bytes().len());
                if let Some(of) = key.collection()
                    && let Some(count) = self.collections.get_mut(of)
                {
                    *count -= 1;
                    if *count == 0 {
                        self.collections.remove(of);
                    }
                }
            }
            _ => {}
        }
    }
}

/// Changes that belong together and are not in line yet.
#[derive(Default)]
pub(super) struct Staged {
    pub delta: Delta,
    /// Each row once.
    pub rows: Vec<Altered>,
    /// Dots that nobody is told of.
    pub implied: Context,
    /// Dots that were made for it.
    pub dots: u64,
}

impl Staged {
    /// The row as it is after what was staged.
    pub fn row(&self, key: &RowKey) -> Option<&Arc<Row>> {
        self.rows.iter().find(|row| row.key == *key).map(|row| &row.after)
    }

    /// Adds a change, whose row was `before`, and gives the row as it is now. `seen` is what was seen without this.
    pub fn stage(&mut self, change: Change, before: Arc<Row>, seen: &impl Knows) -> &Row {
        let after = Arc::new(before.after(&change, seen));
        let known = self.rows.iter().position(|row| row.key == change.key);
        let at = known.unwrap_or(self.rows.len());
        match known {
            Some(at) => self.rows[at].after = after,
            None => self.rows.push(Altered { key: change.key.clone(), before, after }),
        }
        self.delta.changes.push(change);
        &self.rows[at].after
    }

    /// The next dot.
    pub fn dot(&self, ahead: &Ahead) -> Dot {
        Dot { actor: ahead.actor, number: ahead.number + self.dots + 1 }
    }
}
