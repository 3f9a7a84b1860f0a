//! What other replicas tell: deltas as they happen, and pages of rows to compare when something was missed.
//!
//! To repair from another replica is [`baton_core::crdt::sync`]'s: whatever it shows is given to [`Replica::compare`] with the other's context. When
//! all of it was taken in completely, and only then, that context is for [`Replica::adopt`].

use super::ahead::{Ahead, HELD_MAX, Staged};
use super::durable::Durable;
use super::write::{EDITS_MAX, UNIT_BYTES_MAX};
use super::{Failure, Origin, Replica};
use baton_core::crdt::clock::early_by;
use baton_core::crdt::context::ACTORS_MAX;
use baton_core::crdt::sync::{self, Adoption, Answer, Repair, Reply, Request, Shown};
use baton_core::crdt::{Change, Context, Delta, Entry, Knows as _, Row, RowKey};
use tokio::sync::oneshot;

/// What became of what was told. What was neither taken in nor known is not in the context, so it will be told again.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Merged {
    /// Changes that were news, and are durable.
    pub taken: usize,
    /// Changes that wait until their time is near: the clock of their writer, or this replica's, is wrong.
    pub held: usize,
    /// Changes that there is no room to hold, or that would break a bound.
    pub skipped: usize,
}

/// How another replica's changes are known.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    /// It told of them.
    Told,
    /// Its rows were compared with those here, all of them sooner or later.
    Compared,
}

impl Merged {
    /// Whether everything that was told is durable here.
    pub fn is_complete(&self) -> bool {
        self.held == 0 && self.skipped == 0
    }
}

impl Replica {
    /// One hash over everything: replicas for which it is the same have the same rows and have seen the same.
    pub fn whole(&self) -> u64 {
        sync::whole(&*self.shared.durable())
    }

    /// Begins to find out what this replica has missed of what another has.
    pub fn begin_repair(&self) -> (Repair, sync::Ask) {
        Repair::begin(&*self.shared.durable())
    }

    /// Goes on with that. What is shown has to be compared before the next question is asked.
    pub fn take_answer(
        &self,
        repair: &mut Repair,
        answer: Answer,
    ) -> Result<(Vec<Shown>, sync::Next), sync::repair::Unexpected> {
        repair.take(answer, &*self.shared.durable())
    }

    /// Answers another replica, when what it told is durable here.
    pub async fn answer(&self, request: Request) -> Result<Reply, Failure> {
        let from = self.actor();
        let answer = match request.ask {
            _ if request.to.is_some_and(|to| to != from) => Answer::OtherRun,
            sync::Ask::Push(delta) => {
                let Merged { taken, held, skipped } = self.merge(delta).await?;
                Answer::Took { taken: taken as u64, held: held as u64, skipped: skipped as u64 }
            }
            ask => sync::answer(&ask, &*self.shared.durable())
                .expect("only what is pushed isn't answered by looking"),
        };
        Ok(Reply { from, answer })
    }

    /// Takes a delta in: in any order, any number of times. Answers when it is durable.
    pub async fn merge(&self, delta: Delta) -> Result<Merged, Failure> {
        let (merged, durable) = self.take_in(Way::Told, |_, _| delta.changes)?;
        self.settled(durable).await?;
        Ok(merged)
    }

    /// Compares what another replica has shown, whose whole context is given, with the same rows here, and takes in what differs.
    pub async fn compare(&self, shown: &Shown, their_context: &Context) -> Result<Merged, Failure> {
        let (merged, durable) =
            self.take_in(Way::Compared, |ahead, durable| differences(ahead, durable, shown, their_context))?;
        self.settled(durable).await?;
        Ok(merged)
    }

    /// Everything that the other replica had seen was compared, and taken in. Nothing is adopted if that isn't sound any more: then it says
    /// no. Refused as `Full` if more actors are in it than are remembered, or dots that this run never made.
    pub async fn adopt(&self, adoption: Adoption) -> Result<bool, Failure> {
        let durable = {
            let mut ahead = self.shared.ahead();
            ahead.ready()?;
            if !adoption.is_sound(&ahead.seen) {
                return Ok(false);
            }
            let their_context = adoption.context;
            let mine = ahead.seen.context();
            let actors = their_context.actors().filter(|actor| mine.highest(*actor) == 0).count();
            let invented = their_context.highest(ahead.actor) > ahead.number;
            if invented || mine.actor_count() + actors > ACTORS_MAX {
                return Err(Failure::Full);
            }
            if mine.covers(&their_context) {
                ahead.barrier()
            } else {
                ahead.enqueue(Staged::default(), Some(their_context), None, Origin::Merged)
            }
        };
        self.settled(durable).await.map(|()| true)
    }

    async fn settled(&self, durable: oneshot::Receiver<()>) -> Result<(), Failure> {
        durable.await.map_err(|_| Failure::Unknown)
    }

    fn take_in(
        &self,
        way: Way,
        changes: impl FnOnce(&Ahead, &Durable) -> Vec<Change>,
    ) -> Result<(Merged, oneshot::Receiver<()>), Failure> {
        let now_ms = self.shared.now_ms();
        let mut ahead = self.shared.ahead();
        ahead.ready()?;
        let changes = changes(&ahead, &self.shared.durable());
        let merged = ahead.take_in(changes, way, now_ms);
        Ok((merged, ahead.barrier()))
    }
}

fn differences(ahead: &Ahead, durable: &Durable, shown: &Shown, their_context: &Context) -> Vec<Change> {
    let none = Row::default();
    let theirs = |key: &RowKey| {
        let at = shown.rows.binary_search_by(|(of, _)| of.cmp(key)).ok()?;
        Some(&shown.rows[at].1)
    };
    let mut keys = durable.keys_in(shown);
    keys.extend(shown.rows.iter().map(|(key, _)| key.clone()));
    keys.sort();
    keys.dedup();
    let changes = keys.iter().map(|key| {
        let row = ahead.row(key);
        row.difference(&ahead.seen, key, theirs(key).unwrap_or(&none), their_context)
    });
    changes.filter(|change| !change.is_empty()).collect()
}

impl Ahead {
    /// Takes changes in, in as many units as they need: a commit has room for few.
    pub(super) fn take_in(&mut self, changes: Vec<Change>, way: Way, now_ms: u64) -> Merged {
        let mut merged = Merged::default();
        let (mut staged, mut bytes) = (Staged::default(), 0);
        for change in changes {
            if is_early(&change, now_ms) {
                if self.held.contains(&change) {
                    merged.held += 1;
                } else if self.held.len() < HELD_MAX {
                    tracing::warn!(row = ?change.key, "a change is from the future: it waits");
                    self.hold(change);
                    merged.held += 1;
                } else {
                    merged.skipped += 1;
                }
                continue;
            }
            let row = match staged.row(&change.key) {
                Some(row) => row.clone(),
                None => self.row(&change.key),
            };
            let after = row.after(&change, &self.seen);
            if after == *row && change.dots().all(|dot| self.seen.contains(dot)) {
                continue;
            }
            let size = change.key.bytes().len() + after.size();
            if size > UNIT_BYTES_MAX || self.is_strange(&change, way) {
                tracing::warn!(row = ?change.key, "a change breaks a bound: it is not taken in");
                merged.skipped += 1;
                continue;
            }
            if staged.rows.len() >= EDITS_MAX || bytes + size > UNIT_BYTES_MAX {
                drop(self.enqueue(std::mem::take(&mut staged), None, None, Origin::Merged));
                bytes = 0;
            }
            bytes += size;
            merged.taken += 1;
            for (_, entry) in &change.added {
                if let Entry::Value { at, .. } = entry {
                    self.clock.observe(*at);
                }
            }
            let dots: Vec<_> = change.dots().collect();
            staged.stage(change, row, &self.seen);
            // At once: the next change may be of the same row, and older. Not so where rows are compared, each of them once.
            for dot in dots {
                if way == Way::Told || self.seen.context().contains(dot) || !self.seen.would_fray(dot) {
                    self.seen.insert(dot);
                } else {
                    staged.implied.insert(dot);
                }
            }
        }
        if !staged.rows.is_empty() {
            drop(self.enqueue(staged, None, None, Origin::Merged));
        }
        merged
    }

    /// Whether its dots can't be remembered, or one pretends to be one that this run will make. Of what is told there may be more than can be:
    /// the next comparison brings it.
    fn is_strange(&self, change: &Change, way: Way) -> bool {
        let has_no_room = match way {
            Way::Told => self.seen.would_fray_with(&change.dots().collect()),
            Way::Compared => change.dots().any(|dot| self.seen.is_of_one_too_many(dot.actor)),
        };
        has_no_room || change.dots().any(|dot| dot.actor == self.actor && dot.number > self.number)
    }

    /// Takes in what was held and is near now.
    pub(super) fn release(&mut self, now_ms: u64) {
        let held = std::mem::take(&mut self.held);
        let (early, near): (Vec<_>, Vec<_>) = held.into_iter().partition(|change| is_early(change, now_ms));
        self.held = early.into();
        self.take_in(near, Way::Told, now_ms);
    }
}

fn is_early(change: &Change, now_ms: u64) -> bool {
    change.added.iter().any(|(_, entry)| match entry {
        Entry::Value { at, .. } => early_by(*at, now_ms).is_some(),
        Entry::Member | Entry::Tally { .. } => false,
    })
}
