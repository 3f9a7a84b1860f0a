//! Attempts that have ended, said in as few commits as they fit in.
//!
//! Runs that were due together end together too. What a group's attempts have to say while a commit is under way goes together with the
//! next one (J12). What can't be said in company, for whatever reason, is said alone, by [`super::attempts`]: so nothing here has to be
//! tried again.

use super::runner::Attempt;
use crate::engine::Node;
use baton_core::job::place::{definition_key, run_key, state_key};
use baton_core::job::{self, AttemptEnd, Heard, Progress, RunId};
use baton_core::{Group, Key, Name, Outcome, Record, Revision, View, WallTime};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use tokio::sync::oneshot;

/// Ends that are read for at once, and said in as many commits as it takes.
const SOME: usize = 16;

/// What waits to be said, by group: no more than a node has attempts under way.
pub(crate) struct Endings([Mutex<Lane>; 256]);

#[derive(Default)]
struct Lane {
    waiting: VecDeque<Ending>,
    /// Somebody says what waits.
    is_open: bool,
}

struct Ending {
    job: Name,
    run: RunId,
    token: Revision,
    end: AttemptEnd,
    /// Dropped if it has to be said alone.
    said: oneshot::Sender<()>,
}

impl Default for Endings {
    fn default() -> Self {
        Self([const { Mutex::new(Lane { waiting: VecDeque::new(), is_open: false }) }; 256])
    }
}

impl Endings {
    fn lane(&self, group: Group) -> std::sync::MutexGuard<'_, Lane> {
        self.0[usize::from(group.0)].lock().expect("no panic while held")
    }

    /// Whether nobody says what waits there yet.
    fn add(&self, group: Group, ending: Ending) -> bool {
        let mut lane = self.lane(group);
        lane.waiting.push_back(ending);
        !std::mem::replace(&mut lane.is_open, true)
    }

    /// Some that wait; none if there are none, and then somebody else has to open the lane again.
    fn take(&self, group: Group) -> Vec<Ending> {
        let mut lane = self.lane(group);
        let count = lane.waiting.len().min(SOME);
        lane.is_open = count > 0;
        lane.waiting.drain(..count).collect()
    }
}

impl Node {
    /// Says how an attempt ended, together with others of its group; whether it was said.
    pub(super) async fn say_in_company(self: &Arc<Self>, attempt: &Attempt, end: &AttemptEnd) -> bool {
        let (say, said) = oneshot::channel();
        let (job, run, token) = (attempt.job.clone(), attempt.run, Revision(attempt.fencing.0));
        let group = run.uid.group();
        if self.jobs.endings.add(group, Ending { job, run, token, end: end.clone(), said: say }) {
            self.jobs.dispatch.spawn_at_home(say_all(self.clone(), group));
        }
        said.await.is_ok()
    }
}

/// Says what waits in a group, until nothing does. Requests that are to be sent go first: of many that are due together the first would else take
/// the time of the last.
async fn say_all(node: Arc<Node>, group: Group) {
    node.jobs.dispatch.most_are_sent().await;
    loop {
        let some = node.jobs.endings.take(group);
        if some.is_empty() {
            return;
        }
        say_some(&node, group, some).await;
    }
}

async fn say_some(node: &Node, group: Group, some: Vec<Ending>) {
    let keys: Vec<_> = some.iter().flat_map(Ending::keys).collect();
    let Ok(reading) = node.read(keys, node.deadline()).await else { return };
    let mut records = reading.records.into_iter();
    let mut waiting: VecDeque<_> = some
        .into_iter()
        .map(|ending| {
            (ending, [records.next().flatten(), records.next().flatten(), records.next().flatten()])
        })
        .collect();
    while !waiting.is_empty() {
        let (mut view, mut said) = (View::new(group), Vec::new());
        while let Some((ending, records)) = waiting.front() {
            match ending.draft(records, node.now(), &mut view) {
                Some(progress) if view.fits() => {
                    said.extend(waiting.pop_front().map(|(ending, _)| (ending.said, progress)));
                }
                Some(_) if !said.is_empty() => {
                    // It is for the next commit.
                    view.roll_back();
                    break;
                }
                Some(_) | None => {
                    view.roll_back();
                    waiting.pop_front();
                }
            }
        }
        commit(node, &view, said).await;
    }
}

/// Commits, and tells those whose end is said by it.
async fn commit(node: &Node, view: &View, said: Vec<(oneshot::Sender<()>, Progress)>) {
    if view.is_dirty() {
        let until = node.deadline();
        match node.send(|| view.commit(), until, until, false).await.outcome {
            Ok(Outcome::Committed { now, .. }) => node.note_time(now),
            Ok(Outcome::Conflict { now, .. }) => {
                node.note_time(now);
                node.metrics.conflicts.inc();
                return;
            }
            Err(_) => return,
        }
    }
    for (say, progress) in said {
        node.metrics.jobs.ended(progress);
        // Whoever has gone meanwhile doesn't mind.
        say.send(()).ok();
    }
}

impl Ending {
    fn keys(&self) -> [Key; 3] {
        [run_key(self.run), state_key(&self.job), definition_key(&self.job)]
    }

    /// How far its run is after it; nothing if that can't be said here, also because the attempt is lost.
    fn draft(&self, records: &[Option<Record>; 3], now: WallTime, view: &mut View) -> Option<Progress> {
        for (key, record) in self.keys().iter().zip(records) {
            view.learn(key, record.clone());
        }
        view.save();
        match job::finish(self.run, self.token, &self.end, now, view) {
            Ok(Heard::Yes { progress }) => Some(progress),
            Ok(Heard::Lost | Heard::Unknown) | Err(_) => None,
        }
    }
}
