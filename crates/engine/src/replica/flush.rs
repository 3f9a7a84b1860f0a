//! The one task that makes writes durable: takes all that is in line, puts it into as few commits as it fits in, and tells
//! everybody when they are on the disk.
//!
//! A commit's context covers what is in that commit or an earlier one, and no more: a dot whose row was lost in a crash must not
//! count as seen, or nobody would ever send it again.

use super::ahead::Unit;
use super::records::{self, Own};
use super::write::UNIT_BYTES_MAX;
use super::{Shared, Told};
use baton_core::crdt::{Actor, Change, Context, Row, RowKey};
use baton_core::{Ttl, Write};
use baton_store::StoreError;
use std::collections::{HashMap, VecDeque};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

/// How often it looks whether what is held has come near.
const HELD_EVERY: Duration = Duration::from_secs(1);
/// What a request that is remembered adds to a commit, name and value.
const MEMO_BYTES_MAX: usize = 128;

/// Batches on their way to the disk at once: one is synced, and the next one waits at the store.
const UNDER_WAY_MAX: usize = 2;

pub(super) struct Flusher {
    shared: Arc<Shared>,
    /// What the commits so far cover.
    written: Context,
    actor: Actor,
    under_way: VecDeque<Batch>,
    /// Units in the last batches: as many callers may soon be back.
    company: [usize; UNDER_WAY_MAX],
}

/// What the store says of a batch, once it is on the disk.
type Appending = Pin<Box<dyn Future<Output = Result<(), StoreError>> + Send>>;

/// Units that are on their way together.
struct Batch {
    units: Vec<Unit>,
    /// None if there is nothing to write.
    durable: Option<Appending>,
}

impl Batch {
    async fn durable(&mut self) -> Result<(), StoreError> {
        match &mut self.durable {
            Some(durable) => durable.await,
            None => Ok(()),
        }
    }
}

impl Flusher {
    /// `written` is what is on the disk.
    pub fn new(shared: Arc<Shared>, written: Context, actor: Actor) -> Self {
        Self { shared, written, actor, under_way: VecDeque::new(), company: [0; UNDER_WAY_MAX] }
    }

    pub async fn run(mut self) {
        if let Err(error) = self.serve().await {
            tracing::error!(%error, "the replica's disk can't take a commit: nothing more is written");
            self.shared.ahead().break_down();
        }
    }

    /// Goes on until the replica is closed.
    async fn serve(&mut self) -> Result<(), StoreError> {
        loop {
            if self.under_way.is_empty() {
                self.gather().await;
            }
            self.send_next()?;
            let wake = self.shared.wake.clone();
            let Some(first) = self.under_way.front_mut() else {
                if self.is_over().await {
                    return Ok(());
                }
                continue;
            };
            let done = tokio::select! {
                biased;
                done = first.durable() => done,
                () = wake.notified() => continue,
            };
            done?;
            let done = self.under_way.pop_front();
            // First, so that the disk is busy while these are told.
            self.send_next()?;
            done.into_iter().for_each(|batch| self.publish(batch.units));
        }
    }

    /// Nothing is under way: waits for more, unless there won't be any.
    async fn is_over(&mut self) -> bool {
        let (closed, holds) = {
            let ahead = self.shared.ahead();
            if !ahead.pending.is_empty() {
                return false;
            }
            (ahead.closed, !ahead.held.is_empty())
        };
        if holds && !closed {
            // Late or not, what is held is looked at.
            drop(tokio::time::timeout(HELD_EVERY, self.shared.wake.notified()).await);
            let mut ahead = self.shared.ahead();
            ahead.release(&self.shared.durable(), self.shared.now_ms());
        } else if !closed {
            self.shared.wake.notified().await;
        }
        closed
    }

    /// Lets those who can run go first, as long as more of them come: who was answered together is soon back together. Half of them are enough,
    /// the others then come while these are synced.
    async fn gather(&mut self) {
        let pending = || self.shared.ahead().pending.len();
        let enough = self.company.iter().sum::<usize>() / 2;
        let mut found = pending();
        while found > 0 && found < enough {
            tokio::task::yield_now().await;
            let now = pending();
            if now == found {
                return;
            }
            found = now;
        }
    }

    /// Sends what is in line, if it is time: at once if nothing is under way. Behind a batch it waits until there is as much, so that callers don't
    /// split into many that have a sync each.
    fn send_next(&mut self) -> Result<(), StoreError> {
        let units = {
            let mut ahead = self.shared.ahead();
            let enough = match (self.under_way.len(), self.under_way.back()) {
                (UNDER_WAY_MAX.., _) => usize::MAX,
                (_, Some(last)) => last.units.len(),
                (_, None) => 1,
            };
            if ahead.pending.len() < enough {
                ahead.wake_at = enough;
                return Ok(());
            }
            let next = Vec::with_capacity(ahead.pending.len());
            // Who comes now finds this one under way: see above.
            ahead.wake_at = if self.under_way.is_empty() { ahead.pending.len() } else { usize::MAX };
            std::mem::replace(&mut ahead.pending, next)
        };
        self.company = [self.company[1], units.len()];
        let mut durable = None;
        for writes in self.commits(&units) {
            // If one isn't done those after it aren't either: the last one tells of all.
            durable = Some(Box::pin(self.shared.store.append(writes)?) as _);
        }
        self.under_way.push_back(Batch { units, durable });
        Ok(())
    }

    fn publish(&self, mut units: Vec<Unit>) {
        let Some(last) = units.last().map(|unit| unit.sequence) else { return };
        {
            // Whoever decides meanwhile still finds these rows ahead, and the same.
            let mut durable = self.shared.durable.write().expect("no panic while held");
            let rows = units.iter_mut().flat_map(|unit| std::mem::take(&mut unit.rows));
            rows.for_each(|row| durable.put(row.key, row.after));
            let context = Arc::make_mut(&mut durable.context);
            units.iter().for_each(|unit| cover(context, unit));
        }
        self.shared.ahead().settle(last);
        self.shared.grown.send_modify(|times| *times += 1);
        let is_heard = self.shared.changes.receiver_count() > 0;
        for unit in units {
            if is_heard && !unit.delta.changes.is_empty() {
                // The last listener may have gone meanwhile.
                drop(self.shared.changes.send(Arc::new(Told { delta: unit.delta, origin: unit.origin })));
            }
            // The caller may have gone; it is done all the same.
            unit.done.send(()).ok();
        }
    }

    fn commits(&mut self, units: &[Unit]) -> Vec<Vec<Write>> {
        let mut commits = Vec::new();
        let mut draft = Draft::default();
        for unit in units {
            if !draft.has_room(unit) {
                commits.extend(std::mem::take(&mut draft).finish(self));
            }
            cover(&mut self.written, unit);
            draft.add(unit, self.actor);
        }
        commits.extend(draft.finish(self));
        commits
    }
}

fn cover(context: &mut Context, unit: &Unit) {
    unit.delta.changes.iter().flat_map(Change::dots).for_each(|dot| context.insert(dot));
    if let Some(adopted) = &unit.adopted {
        context.join(adopted);
    }
}

/// Units that become one commit. A row that several of them change is written once.
#[derive(Default)]
struct Draft<'a> {
    rows: HashMap<&'a RowKey, &'a Row, foldhash::fast::RandomState>,
    rest: Vec<&'a Unit>,
    memos: usize,
    shards: u16,
    bytes: usize,
}

impl<'a> Draft<'a> {
    fn has_room(&self, unit: &Unit) -> bool {
        self.bytes + size(unit) <= UNIT_BYTES_MAX || self.rest.is_empty()
    }

    fn add(&mut self, unit: &'a Unit, own: Actor) {
        self.rows.extend(unit.rows.iter().map(|row| (&row.key, &*row.after)));
        self.memos += usize::from(unit.memo.is_some());
        self.shards |= shards(unit, own);
        self.bytes += size(unit);
        self.rest.push(unit);
    }

    fn finish(self, flusher: &Flusher) -> Option<Vec<Write>> {
        let put = |key, value| Write::Put { key, value, ttl: Ttl::Forever };
        let mut writes = Vec::with_capacity(self.rows.len() + self.memos + 2);
        for (key, row) in self.rows {
            let key = records::row(key);
            writes.push(if row.is_empty() { Write::Delete { key } } else { put(key, row.encode()) });
        }
        for memo in self.rest.iter().filter_map(|unit| unit.memo.as_ref()) {
            writes.push(put(records::memo(memo), memo.encode()));
        }
        for number in (0..records::SHARDS).filter(|number| self.shards & (1 << number) != 0) {
            let is_in = |actor| records::shard_of(actor) == number && actor != flusher.actor;
            writes.push(put(records::shard(number), flusher.written.only(is_in).encode()));
        }
        // Units that only wait for those before them write nothing.
        let last = self.rest.last().filter(|_| !writes.is_empty())?;
        let context = flusher.written.only(|actor| actor == flusher.actor);
        let own = Own { actor: flusher.actor, highest: last.clock.highest(), context };
        writes.push(put(records::own(), own.encode()));
        Some(writes)
    }
}

fn size(unit: &Unit) -> usize {
    let rows = unit.rows.iter().map(|row| row.key.bytes().len() + row.after.size());
    rows.sum::<usize>() + if unit.memo.is_some() { MEMO_BYTES_MAX } else { 0 }
}

/// The records of the context that a unit changes, as bits. This run's own dots are in none of them.
fn shards(unit: &Unit, own: Actor) -> u16 {
    let told = unit.delta.changes.iter().flat_map(Change::dots).map(|dot| dot.actor);
    let adopted = unit.adopted.iter().flat_map(|context| context.actors());
    told.chain(adopted)
        .filter(|actor| *actor != own)
        .fold(0, |bits, actor| bits | 1 << records::shard_of(actor))
}
