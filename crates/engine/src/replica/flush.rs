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
use baton_core::{COMMIT_OPERATIONS_MAX, Commit, Outcome, Ttl, Write};
use baton_store::{Store, StoreError, StoreFuture};
use std::collections::HashMap;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

/// How often it looks whether what is held has come near.
const HELD_EVERY: Duration = Duration::from_secs(1);

pub(super) struct Flusher {
    pub shared: Arc<Shared>,
    /// What the commits so far cover.
    pub written: Context,
    pub actor: Actor,
}

impl Flusher {
    pub async fn run(mut self) {
        loop {
            let (units, closed, holds) = {
                let mut ahead = self.shared.ahead();
                (std::mem::take(&mut ahead.pending), ahead.closed, !ahead.held.is_empty())
            };
            if !units.is_empty() {
                if !self.flush(units).await {
                    return;
                }
            } else if closed {
                return;
            } else if holds {
                // Late or not, what is held is looked at.
                drop(tokio::time::timeout(HELD_EVERY, self.shared.wake.notified()).await);
                let mut ahead = self.shared.ahead();
                ahead.release(&self.shared.durable(), self.shared.now_ms());
            } else {
                self.shared.wake.notified().await;
            }
        }
    }

    /// Whether it could be done.
    async fn flush(&mut self, units: Vec<Unit>) -> bool {
        let commits = self.commits(&units);
        let futures = commits.into_iter().map(|commit| self.shared.store.commit(commit)).collect();
        for outcome in in_order(futures).await {
            if !matches!(outcome, Ok(Outcome::Committed { .. })) {
                tracing::error!(?outcome, "the replica's disk can't take a commit: nothing more is written");
                self.shared.ahead().break_down();
                return false;
            }
        }
        self.publish(units);
        true
    }

    fn publish(&self, mut units: Vec<Unit>) {
        let Some(last) = units.last().map(|unit| unit.sequence) else { return };
        {
            let mut ahead = self.shared.ahead();
            let mut durable = self.shared.durable.write().expect("no panic while held");
            let rows = units.iter_mut().flat_map(|unit| std::mem::take(&mut unit.rows));
            rows.for_each(|(key, row)| durable.put(key, row));
            let context = Arc::make_mut(&mut durable.context);
            units.iter().for_each(|unit| cover(context, unit));
            ahead.settle(last);
        }
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

    fn commits(&mut self, units: &[Unit]) -> Vec<Commit> {
        let mut commits = Vec::new();
        let mut draft = Draft::default();
        for unit in units {
            if !draft.has_room(unit, self.actor) {
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
    rows: HashMap<&'a RowKey, &'a Row>,
    rest: Vec<&'a Unit>,
    memos: usize,
    shards: u16,
    bytes: usize,
}

impl<'a> Draft<'a> {
    fn has_room(&self, unit: &Unit, own: Actor) -> bool {
        let shards = (self.shards | shards(unit, own)).count_ones() as usize;
        // One more for this run's own record, and one for the unit's memo.
        let operations = self.rows.len() + unit.rows.len() + self.memos + shards + 2;
        let fits = operations <= COMMIT_OPERATIONS_MAX && self.bytes + size(unit) <= UNIT_BYTES_MAX;
        fits || self.rest.is_empty()
    }

    fn add(&mut self, unit: &'a Unit, own: Actor) {
        self.rows.extend(unit.rows.iter().map(|(key, row)| (key, row)));
        self.memos += usize::from(unit.memo.is_some());
        self.shards |= shards(unit, own);
        self.bytes += size(unit);
        self.rest.push(unit);
    }

    fn finish(self, flusher: &Flusher) -> Option<Commit> {
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
        Some(Commit { checks: Vec::new(), writes })
    }
}

fn size(unit: &Unit) -> usize {
    unit.rows.iter().map(|(key, row)| key.bytes().len() + row.size()).sum()
}

/// The records of the context that a unit changes, as bits. This run's own dots are in none of them.
fn shards(unit: &Unit, own: Actor) -> u16 {
    let told = unit.delta.changes.iter().flat_map(Change::dots).map(|dot| dot.actor);
    let adopted = unit.adopted.iter().flat_map(|context| context.actors());
    told.chain(adopted)
        .filter(|actor| *actor != own)
        .fold(0, |bits, actor| bits | 1 << records::shard_of(actor))
}

/// All of them, each asked for in its turn before any is waited for: so they share a sync, and none overtakes another.
async fn in_order(mut futures: Vec<StoreFuture<'_, Outcome>>) -> Vec<Result<Outcome, StoreError>> {
    let mut outcomes: Vec<_> = futures.iter().map(|_| None).collect();
    poll_fn(|context| {
        for (future, outcome) in futures.iter_mut().zip(&mut outcomes) {
            if outcome.is_none()
                && let Poll::Ready(ready) = future.as_mut().poll(context)
            {
                *outcome = Some(ready);
            }
        }
        if outcomes.iter().all(Option::is_some) { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    outcomes.into_iter().flatten().collect()
}
