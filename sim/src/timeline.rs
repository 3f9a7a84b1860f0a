//! The store's history, told again lock by lock: which grants lived when, who was queued, what was remembered.

use baton_core::lock::grant::Grant;
use baton_core::lock::memo::Memo;
use baton_core::lock::name::Kind;
use baton_core::lock::roster::Roster;
use baton_core::lock::waiting::Waiting;
use baton_core::lock::{GrantId, Hold, LockName};
use baton_core::{Revision, Write};
use baton_testkit::simulated::{Happening, What};
use std::collections::BTreeMap;
use std::time::Duration;

/// What happened to one lock.
#[derive(Default)]
pub struct Story {
    /// Its grants, in the order they were made.
    pub lives: Vec<Life>,
    /// Each commit that changed it.
    pub steps: Vec<Step>,
    memos: BTreeMap<GrantId, Vec<(Revision, Memo)>>,
}

/// A grant, from its making to its end.
#[derive(Clone, Debug)]
pub struct Life {
    /// Its id.
    pub id: GrantId,
    /// Its token.
    pub created: Revision,
    /// Who made it.
    pub node: u32,
    /// When it was made.
    pub from: Duration,
    /// When its lease ended or would have ended.
    pub expires: Duration,
    /// When it was deleted while it lived, and by which commit.
    pub deleted: Option<(Duration, Revision)>,
    /// How it is held.
    pub hold: Hold,
    /// How long its place stays closed if the lease runs out.
    pub delay: Duration,
    /// Put again while it lived, which nobody may do.
    pub is_rewritten: bool,
}

impl Life {
    /// When it ended.
    pub fn until(&self) -> Duration {
        self.deleted.map_or(self.expires, |(at, _)| at)
    }

    /// Until when its place was taken or closed.
    pub fn occupies_until(&self) -> Duration {
        self.deleted.map_or(self.expires + self.delay, |(at, _)| at)
    }
}

/// A lock after a commit; before it, it was as after the last.
#[derive(Clone, Debug)]
pub struct Step {
    /// When.
    pub at: Duration,
    /// Whose commit.
    pub node: u32,
    /// Its revision.
    pub revision: Revision,
    /// The lock's records, then.
    pub state: State,
}

/// A lock's records, apart from memos.
#[derive(Clone, Default, Debug)]
pub struct State {
    /// Who holds it and how many wait.
    pub roster: Option<(Revision, Roster)>,
    /// Who waits.
    pub waiting: BTreeMap<GrantId, Waiting>,
    /// In which order.
    pub order: BTreeMap<u64, GrantId>,
    /// Its grants that weren't deleted, expired or not: indices of lives.
    pub grants: BTreeMap<GrantId, usize>,
}

impl Story {
    /// What was remembered of a request after a commit, whether or not it had been forgotten since.
    pub fn memo(&self, id: GrantId, revision: Revision) -> Option<&Memo> {
        let memos = self.memos.get(&id)?;
        memos.iter().rev().find(|(at, _)| *at <= revision).map(|(_, memo)| memo)
    }

    /// The grant with this token.
    pub fn life(&self, fencing: u64) -> Option<&Life> {
        self.lives.iter().find(|life| life.created.0 == fencing)
    }

    /// Every step with the records before it.
    pub fn changes(&self) -> impl Iterator<Item = (&State, &Step)> {
        static NOTHING: State =
            State { roster: None, waiting: BTreeMap::new(), order: BTreeMap::new(), grants: BTreeMap::new() };
        let before = std::iter::once(&NOTHING).chain(self.steps.iter().map(|step| &step.state));
        before.zip(&self.steps)
    }
}

/// Tells the history again.
pub fn stories(history: &[Happening], locks: &[LockName]) -> Vec<Story> {
    let mut stories: Vec<_> = locks.iter().map(|_| (Story::default(), State::default())).collect();
    for happening in history {
        let What::Committed { revision, commit } = &happening.what else { continue };
        let mut changed = None;
        for write in &commit.writes {
            let Some(kind) = Kind::of_name(&write.key().name) else { continue };
            let Some((lock, suffix)) = LockName::of_record(kind, &write.key().name) else { continue };
            let Some(index) = locks.iter().position(|known| *known == lock) else { continue };
            let (story, state) = &mut stories[index];
            tell(story, state, happening, *revision, kind, suffix, write);
            changed = Some(index);
        }
        if let Some(index) = changed {
            let (story, state) = &mut stories[index];
            let (at, node) = (happening.at, happening.node);
            story.steps.push(Step { at, node, revision: *revision, state: state.clone() });
        }
    }
    stories.into_iter().map(|(story, _)| story).collect()
}

fn tell(
    story: &mut Story,
    state: &mut State,
    happening: &Happening,
    revision: Revision,
    kind: Kind,
    suffix: &[u8],
    write: &Write,
) {
    let value = match write {
        Write::Put { value, .. } => Some(value),
        Write::Touch { .. } | Write::Delete { .. } => None,
    };
    match (kind, GrantId::from_suffix(suffix)) {
        (Kind::Roster, _) => {
            let roster = value.and_then(|value| Roster::decode(value).ok());
            state.roster = roster.map(|roster| (revision, roster));
        }
        (Kind::Order, _) => {
            let place = suffix.try_into().map(u64::from_be_bytes).unwrap_or(u64::MAX);
            match value.and_then(|value| GrantId::from_suffix(value)) {
                Some(id) => state.order.insert(place, id),
                None => state.order.remove(&place),
            };
        }
        (Kind::Waiting, Some(id)) => {
            match value.and_then(|value| Waiting::decode(value).ok()) {
                Some(waiting) => state.waiting.insert(id, waiting),
                None => state.waiting.remove(&id),
            };
        }
        (Kind::Memo, Some(id)) => {
            if let Some(memo) = value.and_then(|value| Memo::decode(value).ok()) {
                story.memos.entry(id).or_default().push((revision, memo));
            }
        }
        (Kind::Grant, Some(id)) => tell_grant(story, state, happening, revision, id, write),
        _ => {}
    }
}

fn tell_grant(
    story: &mut Story,
    state: &mut State,
    happening: &Happening,
    revision: Revision,
    id: GrantId,
    write: &Write,
) {
    let at = happening.at;
    let known = state.grants.get(&id).copied();
    let living = known.filter(|index| story.lives[*index].expires > at);
    match (write, living) {
        (Write::Put { value, ttl, .. }, None) => {
            let grant = Grant::decode(value);
            let (hold, delay) =
                grant.map_or((Hold::Exclusive, Duration::ZERO), |grant| (grant.hold, grant.delay));
            state.grants.insert(id, story.lives.len());
            let expires = at + ttl.length().unwrap_or(Duration::MAX / 4);
            let node = happening.node;
            let (deleted, is_rewritten) = (None, false);
            let (created, from) = (revision, at);
            story.lives.push(Life { id, created, node, from, expires, deleted, hold, delay, is_rewritten });
        }
        (Write::Put { ttl, .. }, Some(index)) => {
            story.lives[index].is_rewritten = true;
            story.lives[index].expires = at + ttl.length().unwrap_or(Duration::MAX / 4);
        }
        (Write::Touch { ttl, .. }, Some(index)) => {
            let expires = &mut story.lives[index].expires;
            *expires = (*expires).max(at + *ttl);
        }
        (Write::Touch { .. }, None) => {}
        (Write::Delete { .. }, living) => {
            if let Some(index) = living {
                story.lives[index].deleted = Some((at, revision));
            }
            state.grants.remove(&id);
        }
    }
}
