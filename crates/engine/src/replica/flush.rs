//! How writes become durable: all that is in line goes to the store in as few commits as it fits in, and everybody is told when they are on
//! the disk.
//!
//! There is no task and no thread for it, since each would have to be woken: whoever puts the last one of a batch in line sends it, and the store's own
//! thread tells of it and sends the next.
//!
//! A commit's context covers what is in that commit or an earlier one, and no more: a dot whose row was lost in a crash must not
//! count as seen, or nobody would ever send it again.

use super::ahead::Unit;
use super::records::{self, Own, SHARDS};
use super::write::UNIT_BYTES_MAX;
use super::{Origin, Shared, Told};
use baton_core::crdt::{Actor, Change, Context, Row, RowKey};
use baton_core::{Bytes, COMMIT_BYTES_MAX, Key, Ttl, Write};
use baton_store::StoreError;
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// What a request that is remembered adds to a commit, name and value.
const MEMO_BYTES_MAX: usize = 128;

/// Batches on their way to the disk at once: one is synced, and the next one waits at the store.
const UNDER_WAY_MAX: usize = 2;
/// Bytes of a batch: the store's queue has to have room for all that are under way.
const BATCH_BYTES_MAX: usize = 16 << 20;
/// How long a batch may gather when there is company.
const GATHER: Duration = Duration::from_micros(30);

pub(super) struct Flusher {
    /// In the order in which they were sent, and in which they are told of.
    under_way: VecDeque<Batch>,
    /// Somebody tells of the first one.
    is_telling: bool,
    /// None while somebody uses it to send: so whoever only says what has become durable doesn't wait for that.
    encoding: Option<Encoding>,
    /// Units in the last batches: as many callers may soon be back.
    company: [usize; UNDER_WAY_MAX],
}

/// Units that are on their way together.
struct Batch {
    units: Vec<Unit>,
    /// How many there were, also while they are told of.
    count: usize,
    /// What is seen once they are durable, and wasn't before.
    covers: Context,
    is_durable: bool,
}

/// Makes commits of units.
struct Encoding {
    /// What the commits so far cover.
    written: Context,
    actor: Actor,
    /// For making records' values in.
    memory: Vec<u8>,
}

/// Sends what is in line, if it is time and nobody does, and tells of what is durable.
pub(super) fn send(shared: &Arc<Shared>) {
    let mut flusher = shared.flusher();
    while let Some((units, mut encoding)) = flusher.begin(shared) {
        drop(flusher);
        let (commits, covers) = encoding.commits(&units);
        flusher = shared.flusher();
        flusher.encoding = Some(encoding);
        if shared.line().failed {
            // It covers what was lost. Whoever waits for it hears that its outcome is unknown.
            continue;
        }
        flusher.note(units, covers, commits.is_empty());
        flusher.append(shared, commits);
    }
    drop(flusher);
    tell(shared);
}

/// Tells of what is durable, each batch after those before it, unless somebody does.
fn tell(shared: &Shared) {
    let mut flusher = shared.flusher();
    while !flusher.is_telling
        && let Some(first) = flusher.under_way.front_mut()
        && first.is_durable
    {
        let (units, covers) = (std::mem::take(&mut first.units), std::mem::take(&mut first.covers));
        flusher.is_telling = true;
        drop(flusher);
        publish(shared, units, &covers);
        flusher = shared.flusher();
        flusher.is_telling = false;
        flusher.under_way.pop_front();
    }
}

fn publish(shared: &Shared, mut units: Vec<Unit>, covers: &Context) {
    {
        let mut durable = shared.durable.write().expect("no panic while held");
        units.iter().flat_map(|unit| &unit.rows).for_each(|row| durable.put(&row.key, row.after.clone()));
        units.iter().filter(|unit| !unit.implied.is_empty()).for_each(|unit| durable.imply(&unit.implied));
        durable.cover(covers);
    }
    shared.grown.send_modify(|times| *times += 1);
    if shared.changes.receiver_count() > 0 {
        for unit in units.iter_mut().filter(|unit| !unit.delta.changes.is_empty()) {
            let told = Told { delta: std::mem::take(&mut unit.delta), origin: unit.origin };
            // The last listener may have gone meanwhile.
            drop(shared.changes.send(Arc::new(told)));
        }
    }
    // One wake-up for all of them. What they were made of goes where it was made: elsewhere that takes several times as long. A caller may have
    // gone; it is done all the same.
    shared.callers.spawn(async move { units.into_iter().for_each(|unit| unit.done.send(()).unwrap_or(())) });
}

/// Waits a moment for those who were answered together, as they are soon back together, if nothing else is under way. Half of them are enough: the
/// others then come while these are synced. It spins, since the wait is shorter than any sleep.
fn gather(shared: &Arc<Shared>) {
    let sent = {
        let flusher = shared.flusher();
        let enough = flusher.company.iter().sum::<usize>() / 2;
        if !flusher.under_way.is_empty() || enough < 2 {
            return;
        }
        shared.line().send_at = enough;
        shared.batches.load(Ordering::Relaxed)
    };
    let until = Instant::now() + GATHER;
    // Whoever comes as the last of them sends it.
    while shared.batches.load(Ordering::Relaxed) == sent && Instant::now() < until {
        (0..64).for_each(|_| std::hint::spin_loop());
    }
    send(shared);
}

/// Told by the store what became of a batch; dropped untold if the store is no more.
struct Landing(Option<Arc<Shared>>);

impl Landing {
    fn land(mut self, done: Result<(), StoreError>) {
        let Some(shared) = self.0.take() else { return };
        match done {
            Ok(()) => {
                shared.flusher().has_landed();
                send(&shared);
                gather(&shared);
            }
            Err(error) => shared.flusher().break_down(&shared, &error),
        }
    }
}

impl Drop for Landing {
    fn drop(&mut self) {
        if let Some(shared) = self.0.take() {
            // Not here: whoever drops it may be at the flusher.
            shared.callers.clone().spawn_blocking(move || {
                let error = StoreError::Unknown { detail: "the store's writer has gone".into() };
                shared.flusher().break_down(&shared, &error);
            });
        }
    }
}

impl Flusher {
    /// `written` is what is on the disk.
    pub fn new(written: Context, actor: Actor) -> Self {
        let encoding = Some(Encoding { written, actor, memory: Vec::new() });
        Self { under_way: VecDeque::new(), is_telling: false, encoding, company: [0; UNDER_WAY_MAX] }
    }

    /// Takes what is in line, if it is time to send it: at once if nothing is under way. Behind a batch it waits until there is as much, so that callers
    /// don't split into many that have a sync each.
    fn begin(&mut self, shared: &Shared) -> Option<(Vec<Unit>, Encoding)> {
        self.encoding.as_ref()?;
        let mut ahead_of_it = self.under_way.iter().rev().filter(|batch| !batch.is_durable);
        let enough = match (ahead_of_it.next(), ahead_of_it.count()) {
            (None, _) => 1,
            (Some(last), others) if others + 1 < UNDER_WAY_MAX => last.count,
            _ => usize::MAX,
        };
        let units = {
            let mut line = shared.line();
            if line.pending.len() < enough {
                line.send_at = enough;
                return None;
            }
            // Until this one is under way nobody else sends.
            line.send_at = usize::MAX;
            let mut bytes = 0;
            let mut has_room = |unit: &Unit| {
                bytes += size(unit);
                bytes <= BATCH_BYTES_MAX
            };
            let count = line.pending.iter().take_while(|unit| has_room(unit)).count().max(1);
            let mut rest = line.pending.split_off(count);
            // As many may soon be back.
            rest.reserve(count);
            std::mem::replace(&mut line.pending, rest)
        };
        shared.batches.fetch_add(1, Ordering::Relaxed);
        self.company = [self.company[1], units.len()];
        Some((units, self.encoding.take()?))
    }

    /// Units are under way. Those for which nothing has to be written are as durable as what is before them.
    fn note(&mut self, mut units: Vec<Unit>, covers: Context, is_durable: bool) {
        match self.under_way.back_mut() {
            Some(last) if is_durable && !last.is_durable => last.units.append(&mut units),
            _ => {
                let count = units.len();
                self.under_way.push_back(Batch { units, count, covers, is_durable });
            }
        }
    }

    fn append(&mut self, shared: &Arc<Shared>, commits: Vec<Vec<Write>>) {
        let mut left = commits.len();
        for writes in commits {
            left -= 1;
            // If one isn't done those after it aren't either: the last one tells of all.
            let landing = (left == 0).then(|| Landing(Some(shared.clone())));
            let landed = move |done| {
                if let Some(landing) = landing {
                    landing.land(done);
                }
            };
            if let Err(error) = shared.store.append(writes, landed) {
                return self.break_down(shared, &error);
            }
        }
    }

    /// The first batch that wasn't durable is.
    fn has_landed(&mut self) {
        if let Some(batch) = self.under_way.iter_mut().find(|batch| !batch.is_durable) {
            batch.is_durable = true;
        }
    }

    /// Whoever waits hears that the outcome is unknown.
    fn break_down(&mut self, shared: &Shared, error: &StoreError) {
        tracing::error!(%error, "the replica's disk can't take a commit: nothing more is written");
        // Before anybody hears of it and tries again.
        shared.line().break_down();
        self.under_way.retain(|batch| batch.is_durable);
    }
}

impl Encoding {
    /// The writes of all units, in as few commits as they fit in, and what they cover.
    fn commits(&mut self, units: &[Unit]) -> (Vec<Vec<Write>>, Context) {
        let (mut commits, mut covers) = (Vec::new(), Context::default());
        let mut draft = Draft::default();
        for unit in units {
            if !draft.has_room(unit) {
                covers.join(&draft.covers);
                commits.extend(std::mem::take(&mut draft).finish(self));
            }
            draft.add(unit, &self.written);
        }
        covers.join(&draft.covers);
        commits.extend(draft.finish(self));
        (commits, covers)
    }
}

/// Units that become one commit. A row that several of them change is written once.
#[derive(Default)]
struct Draft<'a> {
    rows: HashMap<&'a RowKey, &'a Row, foldhash::fast::RandomState>,
    rest: Vec<&'a Unit>,
    memos: usize,
    /// What is seen with it, and wasn't before.
    covers: Context,
    bytes: usize,
}

impl<'a> Draft<'a> {
    fn has_room(&self, unit: &Unit) -> bool {
        self.bytes + size(unit) <= UNIT_BYTES_MAX || self.rest.is_empty()
    }

    fn add(&mut self, unit: &'a Unit, written: &Context) {
        self.rows.extend(unit.rows.iter().map(|row| (&row.key, &*row.after)));
        self.memos += usize::from(unit.memo.is_some());
        let dots = unit.delta.changes.iter().flat_map(Change::dots);
        dots.filter(|dot| !written.contains(*dot) && !unit.implied.contains(*dot))
            .for_each(|dot| self.covers.insert(dot));
        if let Some(adopted) = &unit.adopted {
            self.covers.join(adopted);
        }
        self.bytes += size(unit);
        self.rest.push(unit);
    }

    /// One commit; or more, where what was seen is too much beside the rows. Then writes from here and what came from others part: a request is
    /// remembered in the commit that has its rows, or it could count twice after a crash, or not at all.
    fn finish(self, encoding: &mut Encoding) -> Vec<Vec<Write>> {
        let Some(last) = self.rest.last() else { return Vec::new() };
        let rows = self.row_writes(&mut encoding.memory);
        let mut shards = self.shard_writes(encoding);
        // Units that only wait for those before them write nothing.
        if rows.is_empty() && shards.is_empty() {
            return Vec::new();
        }
        let own = self.own_write(encoding, last);
        let bytes = bytes(&rows) + bytes(&shards) + own.bytes();
        if bytes > COMMIT_BYTES_MAX {
            let parts = self.rest.chunk_by(|one, next| one.origin == next.origin);
            if parts.clone().count() > 1 {
                return parts
                    .flat_map(|units| Draft::of(units, &encoding.written).finish(encoding))
                    .collect();
            }
        }
        encoding.written.join(&self.covers);
        if bytes <= COMMIT_BYTES_MAX {
            return vec![rows.into_iter().chain(shards).chain([own]).collect()];
        }
        let together = |mut writes: Vec<Write>| {
            writes.push(own.clone());
            writes
        };
        match last.origin {
            // Of others' runs it has only what it ended. That is in rows until these are written, and what is in a row is there, seen or not.
            Origin::Local => packed(shards).into_iter().chain([together(rows)]).collect(),
            // What only rows speak for is sound, what only a context speaks for would be lost.
            Origin::Merged => {
                shards = together(shards);
                std::iter::once(rows).filter(|rows| !rows.is_empty()).chain(packed(shards)).collect()
            }
        }
    }

    fn of(units: &[&'a Unit], written: &Context) -> Self {
        let mut draft = Self::default();
        units.iter().for_each(|unit| draft.add(unit, written));
        draft
    }

    /// The rows, and what is remembered of requests.
    fn row_writes(&self, memory: &mut Vec<u8>) -> Vec<Write> {
        let mut writes = Vec::with_capacity(self.rows.len() + self.memos + usize::from(SHARDS) + 1);
        for (key, row) in &self.rows {
            let key = records::row(key);
            writes.push(if row.is_empty() { Write::Delete { key } } else { put(key, row.encode_in(memory)) });
        }
        let memos = self.rest.iter().filter_map(|unit| unit.memo.as_ref());
        writes.extend(memos.map(|memo| put(records::memo(memo), memo.encode())));
        writes
    }

    /// What was seen of others' runs: the parts that change.
    fn shard_writes(&self, encoding: &Encoding) -> Vec<Write> {
        let others = self.covers.actors().filter(|actor| *actor != encoding.actor).map(records::shard_of);
        let shard = |number| {
            let is_in = |actor| records::shard_of(actor) == number && actor != encoding.actor;
            put(records::shard(number), self.seen_of(encoding, is_in).encode())
        };
        others.collect::<BTreeSet<_>>().into_iter().map(shard).collect()
    }

    fn own_write(&self, encoding: &Encoding, last: &Unit) -> Write {
        let context = self.seen_of(encoding, |actor| actor == encoding.actor);
        let own = Own { actor: encoding.actor, highest: last.clock.highest(), context };
        put(records::own(), own.encode())
    }

    fn seen_of(&self, encoding: &Encoding, wanted: impl Fn(Actor) -> bool) -> Context {
        let mut seen = encoding.written.only(&wanted);
        seen.join(&self.covers.only(&wanted));
        seen
    }
}

fn put(key: Key, value: Bytes) -> Write {
    Write::Put { key, value, ttl: Ttl::Forever }
}

fn bytes(writes: &[Write]) -> usize {
    writes.iter().map(Write::bytes).sum()
}

/// In as few commits as they fit in, in their order.
fn packed(writes: Vec<Write>) -> Vec<Vec<Write>> {
    let mut commits: Vec<Vec<Write>> = Vec::new();
    let mut room = 0;
    for write in writes {
        if write.bytes() > room || commits.is_empty() {
            commits.push(Vec::new());
            room = COMMIT_BYTES_MAX;
        }
        room = room.saturating_sub(write.bytes());
        commits.last_mut().expect("there is one").push(write);
    }
    commits
}

fn size(unit: &Unit) -> usize {
    let rows = unit.rows.iter().map(|row| row.key.bytes().len() + row.after.size());
    rows.sum::<usize>() + if unit.memo.is_some() { MEMO_BYTES_MAX } else { 0 }
}
