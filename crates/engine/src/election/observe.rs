//! Who leads, as it changes (E6): first how things are, then every change, in the order of epochs.
//!
//! The roster says everything: who leads, since when, with which value. So an observer follows that one record. Hints
//! may repeat, come late and get lost; an observer tells nothing twice, never an older epoch after a newer one, and
//! when hints got lost it looks, and tells from the history who led meanwhile.

use crate::engine::Engine;
use crate::lock::inspect::unreadable;
use crate::lock::{Failure, HistoryKind, LockError};
use baton_core::lock::roster::Roster;
use baton_core::lock::{FencingToken, LockName};
use baton_core::{Bytes, Revision, WallTime};
use baton_store::watch::{Change, Watch};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

/// How often a look is made again because the election changed in between.
const READS_MAX: usize = 8;
/// After a failure of the store, it is looked at again this much later.
const LOOK_AGAIN: Duration = Duration::from_millis(500);

/// Who leads.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Leader {
    /// The candidate.
    pub id: Arc<str>,
    /// Its epoch.
    pub epoch: FencingToken,
    /// Compact JSON.
    pub value: Option<Bytes>,
    /// Since when.
    pub since: WallTime,
}

/// What an observer hears.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Observed {
    /// This one leads: told at the beginning, when it is elected, and when its value changes.
    Leads(Leader),
    /// This one led meanwhile, as the history says.
    Led(Leader),
    /// Nobody leads.
    Vacant {
        /// Of whoever led last, if that is known.
        epoch: Option<FencingToken>,
    },
}

/// A stream of them.
pub struct Observation {
    engine: Engine,
    election: LockName,
    changes: Watch,
    /// The roster as it was last seen: hints of it, or of an older one, are old news.
    seen: Revision,
    /// Everything up to this epoch was told.
    epoch: Option<FencingToken>,
    told: Option<Observed>,
    ready: VecDeque<Observed>,
    must_look: bool,
}

impl Engine {
    /// Follows an election: from now on, or from after an epoch that was heard of before, as far as the history
    /// remembers.
    pub fn observe(&self, election: &LockName, after: Option<FencingToken>) -> Observation {
        Observation {
            engine: self.clone(),
            election: election.clone(),
            // Before the first look, so that nothing falls in between.
            changes: self.node.store.watch(election.roster().name),
            seen: Revision::default(),
            epoch: after,
            told: None,
            ready: VecDeque::new(),
            must_look: true,
        }
    }
}

impl Observation {
    /// What is to be told next; `None` when the store has gone.
    pub async fn next(&mut self) -> Option<Observed> {
        loop {
            while let Some(news) = self.ready.pop_front() {
                if self.is_news(&news) {
                    self.epoch = self.epoch.max(epoch(&news));
                    self.told = Some(news.clone());
                    return Some(news);
                }
            }
            if self.must_look {
                if self.look().await.is_err() {
                    tokio::time::sleep(self.engine.node.random.jittered(LOOK_AGAIN)).await;
                }
                continue;
            }
            match self.changes.next().await? {
                Change::Lost => self.must_look = true,
                Change::Put { key, value, revision } if key == self.election.roster() => {
                    match Roster::decode(&value) {
                        Ok(roster) => self.hear(revision, leader(&roster, revision)),
                        Err(_) => self.must_look = true,
                    }
                }
                Change::Deleted { key, revision } if key == self.election.roster() => {
                    self.hear(revision, None)
                }
                Change::Put { .. } | Change::Deleted { .. } | Change::Expired { .. } => {}
            }
        }
    }

    fn hear(&mut self, revision: Revision, leader: Option<Leader>) {
        if revision > self.seen {
            self.seen = revision;
            self.ready.push_back(leader.map_or(Observed::Vacant { epoch: self.epoch }, Observed::Leads));
        }
    }

    /// Whether it says anything that wasn't told. An epoch that is over never comes back.
    fn is_news(&self, news: &Observed) -> bool {
        match (news, &self.told) {
            (Observed::Led(leader), _) => Some(leader.epoch) > self.epoch,
            (_, None) => true,
            (Observed::Leads(leader), Some(Observed::Leads(told))) => {
                leader.epoch > told.epoch || leader.epoch == told.epoch && leader.value != told.value
            }
            (Observed::Leads(leader), Some(_)) => Some(leader.epoch) > self.epoch,
            (Observed::Vacant { .. }, Some(told)) => !matches!(told, Observed::Vacant { .. }),
        }
    }

    /// Sees how things are, and who led since what was told last.
    async fn look(&mut self) -> Result<(), LockError> {
        let (seen, leader) = self.present().await?;
        let now = leader.as_ref().map(|leader| leader.epoch);
        let mut led = Vec::new();
        if let Some(after) = self.epoch {
            let history = self.engine.lock_history(&self.election).await?;
            let began = history.into_iter().filter(|event| event.kind == HistoryKind::Granted);
            let missed =
                began.filter(|event| event.fencing > after && now.is_none_or(|now| event.fencing < now));
            // The history's newest comes first.
            led.extend(missed.map(|event| Leader {
                id: event.owner,
                epoch: event.fencing,
                value: None,
                since: event.at,
            }));
        }
        self.must_look = false;
        let last = led.first().map(|leader| leader.epoch).max(self.epoch);
        self.ready.extend(led.into_iter().rev().map(Observed::Led));
        self.seen = self.seen.max(seen);
        self.ready.push_back(leader.map_or(Observed::Vacant { epoch: last }, Observed::Leads));
        Ok(())
    }

    /// Who leads now, and by which revision of the roster.
    async fn present(&self) -> Result<(Revision, Option<Leader>), LockError> {
        for _ in 0..READS_MAX {
            let Some(record) = self.engine.read_one(self.election.roster()).await? else {
                return Ok((Revision::default(), None));
            };
            let roster = Roster::decode(&record.value).map_err(unreadable)?;
            let Some(holder) = roster.exclusive() else { return Ok((record.revision, None)) };
            // Together, so that grant and roster are of one moment.
            let keys = vec![self.election.roster(), self.election.grant(holder.id)];
            let mut reading = self.engine.read(keys).await?;
            let (grant, again) = (reading.records.pop().flatten(), reading.records.pop().flatten());
            if again.is_some_and(|again| again.revision == record.revision) {
                return Ok((record.revision, grant.and_then(|_| leader(&roster, record.revision))));
            }
        }
        Err(LockError::Failed(Failure::Overloaded))
    }
}

fn leader(roster: &Roster, revision: Revision) -> Option<Leader> {
    let holder = roster.exclusive()?;
    Some(Leader {
        id: holder.owner.clone(),
        epoch: holder.fencing.unwrap_or(revision).into(),
        value: roster.metadata.clone(),
        since: holder.granted_at,
    })
}

fn epoch(news: &Observed) -> Option<FencingToken> {
    match news {
        Observed::Leads(leader) | Observed::Led(leader) => Some(leader.epoch),
        Observed::Vacant { epoch } => *epoch,
    }
}
