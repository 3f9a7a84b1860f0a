//! One job, and whoever looks at it.

use crate::commit::{Commit, Outcome as Committed};
use crate::job::place::{
    definition_key, index_entry, index_prefix, lease_key, run_of, runs_prefix, state_key,
};
use crate::job::{
    self, Asked, AttemptEnd, Beginner, Begun, Definition, Heard, Look, Looked, Outcome, Progress, Put, Ready,
    Reason, Run, RunId, State, Target, Timetable, Uid,
};
use crate::lock::tests::store::Store;
use crate::name::Name;
use crate::record::{Revision, WallTime};
use crate::trial::{decide, decide_with};
use crate::view::{Pause, View};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::time::Duration;

pub const MEMORY: Duration = Duration::from_secs(600);
/// A whole minute, long after 1970.
pub const START: u64 = 1_800_000_000_000;
pub const SECOND: u64 = 1_000;
pub const MINUTE: u64 = 60 * SECOND;

pub struct World {
    pub store: Store,
    pub name: Name,
    /// The wall clock less that of the leases, which never steps.
    pub ahead: u64,
    nonce: u64,
}

pub fn timetables(name: &Name, definition: &Definition) -> Option<Arc<Timetable>> {
    Timetable::of(name, definition).map(Arc::new)
}

/// Every minute, run by a node.
pub fn every_minute() -> Definition {
    let target = Target::Command { program: "true".into(), arguments: Vec::new() };
    Definition { attempts_max: 1, ..Definition::plain(Some("* * * * *".into()), target) }
}

/// The same, run by workers of a queue.
pub fn for_workers() -> Definition {
    let target = Target::Worker { queue: "q".into(), payload: "p".into() };
    Definition { target, ..every_minute() }
}

impl World {
    /// A job that was put at [`START`], and is due a minute later.
    pub fn with(definition: Definition) -> Self {
        let mut world = Self::empty();
        assert_eq!(world.apply(&definition), Put::Made);
        world
    }

    pub fn empty() -> Self {
        let mut store = Store::default();
        store.now = START;
        Self { store, name: Name::new("n", "j"), ahead: 0, nonce: 0 }
    }

    pub fn now(&self) -> WallTime {
        WallTime(self.store.now + self.ahead)
    }

    pub fn decide<R>(&mut self, rule: impl FnMut(&mut View) -> Result<R, Pause>) -> (R, Revision) {
        decide(&mut self.store, self.name.group(), rule)
    }

    pub fn apply(&mut self, definition: &Definition) -> Put {
        let (name, now) = (self.name.clone(), self.now());
        let uid = Uid::new(name.group(), [7; 16]);
        let definition = Definition { uid, ..definition.clone() };
        let before = self.skipped();
        let (put, _, looked) = self.decide(|view| job::apply(&name, &definition, now, &timetables, view)).0;
        let told: u64 = looked.skipped.iter().map(|(_, count)| count).sum();
        assert_eq!(self.skipped(), before + told, "what an edit leaves out is told to be counted");
        put
    }

    pub fn edit(&mut self, change: impl FnOnce(&mut Definition)) -> Put {
        let mut definition = self.definition();
        change(&mut definition);
        self.apply(&definition)
    }

    fn skipped(&self) -> u64 {
        let state = self.store.look(&state_key(&self.name));
        state.map_or(0, |state| State::decode(&state.value).unwrap().counts.skipped)
    }

    pub fn definition(&self) -> Definition {
        let record = self.store.look(&definition_key(&self.name)).expect("there is a job");
        Definition::decode(&record.value).unwrap()
    }

    pub fn state(&self) -> State {
        let record = self.store.look(&state_key(&self.name)).expect("there is a job");
        let state = State::decode(&record.value).unwrap();
        let entries = self.store.all(&index_prefix());
        let entries: Vec<_> = entries.iter().map(|entry| index_entry(&entry.key.name).unwrap().0).collect();
        assert_eq!(
            entries,
            state.index_at.into_iter().collect::<Vec<_>>(),
            "one entry, where the state says"
        );
        state
    }

    /// All runs, in the order of their times.
    pub fn runs(&self) -> Vec<(RunId, Run)> {
        let uid = Uid::new(self.name.group(), [7; 16]);
        let records = self.store.all(&runs_prefix(uid));
        let run =
            |record: &crate::Record| (run_of(&record.key.name).unwrap(), Run::decode(&record.value).unwrap());
        records.iter().map(run).collect()
    }

    /// How far each run is, in words, with what it stands for.
    pub fn told(&self) -> Vec<&'static str> {
        self.runs().iter().map(|(_, run)| in_a_word(run)).collect()
    }

    pub fn lease(&self, id: RunId) -> Option<Revision> {
        self.store.look(&lease_key(id)).map(|record| record.created)
    }

    /// The look of one who looks at the job now, and the commit it would make.
    pub fn look_with(
        &mut self,
        room: bool,
        send: impl FnMut(&mut Store, &Commit) -> Committed,
    ) -> Option<(Looked, Revision)> {
        let entry = self.store.all(&index_prefix()).first().cloned()?;
        let (entry, name) = index_entry(&entry.key.name).unwrap();
        if entry > self.now() {
            return None;
        }
        self.nonce += 1;
        let by = Beginner { runner: "node", nonce: self.nonce, has_room: room };
        let look = Look { now: self.now(), entry, by, may_catch_up: true };
        let rule = |view: &mut View| job::tick(&name, &look, &timetables, view);
        Some(decide_with(&mut self.store, name.group(), rule, send))
    }

    /// Looks until nothing is to be done; gives what has to be run now.
    pub fn look(&mut self) -> Vec<(Begun, Revision)> {
        let mut begun = Vec::new();
        for _ in 0..300 {
            let Some((looked, revision)) = self.look_with(true, |store, commit| store.commit(commit)) else {
                return begun;
            };
            if !looked.deliveries.is_empty() {
                let (name, now) = (self.name.clone(), self.now());
                self.decide(|view| job::told(&name, &looked.deliveries, now, view));
            }
            begun.extend(looked.begun.map(|begun| (begun, revision)));
        }
        panic!("there is always more to be done: {:?}", self.state());
    }

    /// Lets time pass, and looks whenever something is due.
    pub fn pass(&mut self, ms: u64) -> Vec<(Begun, Revision)> {
        let until = self.now().0 + ms;
        let mut begun = self.look();
        loop {
            let next = self.store.all(&index_prefix()).first().and_then(|entry| index_entry(&entry.key.name));
            match next.map(|(at, _)| at.0).filter(|at| *at <= until) {
                Some(at) => self.store.now = at.max(self.now().0) - self.ahead,
                None => break,
            }
            begun.extend(self.look());
        }
        self.store.now = until - self.ahead;
        begun
    }

    pub fn finish(&mut self, id: RunId, token: Revision, end: &AttemptEnd) -> Heard {
        let now = self.now();
        self.decide(|view| job::finish(id, token, end, now, view)).0
    }

    pub fn succeed(&mut self, begun: &(Begun, Revision)) -> Heard {
        self.finish(begun.0.run, begun.1, &AttemptEnd::succeeded())
    }

    pub fn fail(&mut self, begun: &(Begun, Revision)) -> Heard {
        self.finish(begun.0.run, begun.1, &AttemptEnd::failed("no"))
    }

    pub fn run_now(&mut self, request: &str) -> Asked {
        let (name, now) = (self.name.clone(), self.now());
        self.decide(|view| job::run_now(&name, request, MEMORY, now, view)).0.0
    }

    pub fn ready(&self) -> Vec<(WallTime, RunId)> {
        let records = self.store.all(&job::place::ready_prefix("n", "q"));
        let entry = |record: &crate::Record| {
            let (_, _, due, run) = job::place::ready_entry(&record.key.name).unwrap();
            (due, run)
        };
        records.iter().map(entry).collect()
    }

    /// A worker takes the first run that is ready.
    pub fn claim(&mut self, ttl: Duration) -> Option<(Begun, Revision)> {
        let (due, run) = *self.ready().first()?;
        self.claim_of(due, run, ttl)
    }

    pub fn claim_of(&mut self, due: WallTime, run: RunId, ttl: Duration) -> Option<(Begun, Revision)> {
        self.nonce += 1;
        let ready = Ready { namespace: "n", queue: "q", due, run };
        let by = Beginner { runner: "worker", nonce: self.nonce, has_room: true };
        let now = self.now();
        let (claimed, revision) = self.decide(|view| job::claim(&ready, &by, ttl, now, view));
        claimed.map(|(begun, _)| (begun, revision))
    }
}

pub fn in_a_word(run: &Run) -> &'static str {
    match run.progress {
        Progress::Queued => "queued",
        Progress::Ready => "ready",
        Progress::Waiting(_) => "waiting",
        Progress::Running => "running",
        Progress::Ended(end) => match (end.outcome, end.reason) {
            (Outcome::Skipped | Outcome::Unknown, Some(reason)) => reason.as_str(),
            (Outcome::Failed, Some(reason)) if reason != Reason::Refused => reason.as_str(),
            (outcome, _) => outcome.as_str(),
        },
    }
}
