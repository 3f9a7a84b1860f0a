//! Putting, removing and looking at jobs and their runs, and what people ask of them.

use super::calls::{JobError, JobPage, JobState, RunPage, RunState};
use crate::engine::{Engine, Node};
use crate::failure::Failure;
use baton_core::codec::Unreadable;
use baton_core::job::place::{
    DEFINITION, definition_key, lease_key, run_key, run_of, runs_prefix, state_key,
};
use baton_core::job::{self, Asked, Backfilled, Cancelled, Definition, Missed, Put, Run, RunId, State, Uid};
use baton_core::{Commit, Key, Name, Record, WallTime, Write};
use baton_store::Range;
use std::sync::Arc;
use std::time::Duration;

/// Records read or deleted at once.
const PAGE: usize = 60;
/// Runs of one job that are looked at for a page of them: more than are kept.
const RUNS_MAX: usize = 4_000;

impl Engine {
    /// Puts a job. Whether anything changed; one that says the same is left as it is.
    pub async fn put_job(&self, name: &Name, definition: Definition) -> Result<(Put, JobState), JobError> {
        let node = &self.node;
        let definition = Definition { uid: Uid::new(name.group(), node.random.bytes()), ..definition };
        let mut definition = definition;
        node.copy_calendars(name.namespace(), &mut definition).await?;
        let timetables = |name: &Name, definition: &Definition| node.jobs.timetables.of(name, definition);
        let mut put = None;
        loop {
            let rule = |view: &mut _| job::apply(name, &definition, node.now(), &timetables, view);
            let decided = node.decide(name.group(), node.deadline(), rule).await?;
            let (done, _, looked) = decided.reply;
            node.metrics.jobs.looked(&looked, node.now());
            put.get_or_insert(done);
            // A calendar that was changed meanwhile may not have found this job. One that was removed stays as it was seen.
            match node.copy_calendars(name.namespace(), &mut definition).await {
                Ok(true) => {}
                Ok(false) | Err(JobError::CalendarNotFound { .. }) => break,
                Err(error) => return Err(error),
            }
        }
        Ok((put.unwrap_or(Put::Same), self.job(name).await?))
    }

    /// Removes a job, and what became of its runs.
    pub async fn remove_job(&self, name: &Name) -> Result<(), JobError> {
        let node = &self.node;
        let rule = |view: &mut _| job::remove(name, node.now(), view);
        let decided = node.decide(name.group(), node.deadline(), rule).await?;
        let uid = decided.reply.ok_or_else(|| not_found(name))?;
        // What is left of it if this isn't done runs out by itself.
        let node = node.clone();
        tokio::spawn(async move { node.forget_runs(uid).await });
        Ok(())
    }

    /// A job, as the store has it.
    pub async fn job(&self, name: &Name) -> Result<JobState, JobError> {
        let keys = vec![definition_key(name), state_key(name)];
        let reading = self.node.read(keys, self.node.deadline()).await?;
        let [Some(definition), Some(state)] = &reading.records[..] else { return Err(not_found(name)) };
        Ok(shown(name, definition, state)?)
    }

    /// Jobs of a namespace whose names begin with `prefix`, in an order that is stable from page to page.
    pub async fn list_jobs(
        &self,
        namespace: &str,
        prefix: &str,
        limit: usize,
        cursor: Option<&str>,
    ) -> Result<JobPage, JobError> {
        let node = &self.node;
        let listed = node.list(DEFINITION, namespace, prefix, limit, cursor).await?;
        let mut jobs = Vec::with_capacity(listed.records.len());
        // Those of a group come together, and are read together.
        for some in listed.records.chunk_by(|(one, _), (other, _)| one.group() == other.group()) {
            for some in some.chunks(PAGE) {
                let keys = some.iter().map(|(name, _)| state_key(name)).collect();
                let states = node.read(keys, node.deadline()).await?.records;
                for ((name, definition), state) in some.iter().zip(states) {
                    // One that was removed in between isn't there.
                    let state = state.as_ref().map(|state| shown(name, definition, state)).transpose()?;
                    jobs.extend(state);
                }
            }
        }
        Ok(JobPage { jobs, next_cursor: listed.next_cursor })
    }

    /// Runs a job now, once for each request.
    pub async fn run_job(&self, name: &Name, request_id: Option<String>) -> Result<RunId, JobError> {
        let node = &self.node;
        let request_id = request_id.unwrap_or_else(|| node.request_id());
        let rule = |view: &mut _| job::run_now(name, &request_id, node.memory(), node.now(), view);
        let decided = node.decide(name.group(), node.deadline(), rule).await?;
        let (asked, looked) = decided.reply;
        node.metrics.jobs.looked(&looked, node.now());
        match asked {
            Asked::Run(run) => Ok(run),
            Asked::Full => Err(JobError::Full),
            Asked::NoJob => Err(not_found(name)),
        }
    }

    /// A job's schedule doesn't count until it is resumed.
    pub async fn pause_job(&self, name: &Name) -> Result<JobState, JobError> {
        let node = &self.node;
        let rule = |view: &mut _| job::pause(name, node.now(), view);
        self.found(name, node.decide(name.group(), node.deadline(), rule).await?.reply).await
    }

    /// A job's schedule counts again; `missed` says what happens to the times that passed, or else the job does.
    pub async fn resume_job(&self, name: &Name, missed: Option<Missed>) -> Result<JobState, JobError> {
        let node = &self.node;
        let timetables = |name: &Name, definition: &Definition| node.jobs.timetables.of(name, definition);
        let rule = |view: &mut _| job::resume(name, missed, node.now(), &timetables, view);
        let looked = node.decide(name.group(), node.deadline(), rule).await?.reply;
        node.metrics.jobs.looked(&looked.ok_or_else(|| not_found(name))?, node.now());
        self.job(name).await
    }

    async fn found(&self, name: &Name, is_there: bool) -> Result<JobState, JobError> {
        if is_there { self.job(name).await } else { Err(not_found(name)) }
    }

    /// Runs the times of a half-open range, one after the other. How many they are.
    pub async fn backfill_job(&self, name: &Name, from: WallTime, to: WallTime) -> Result<usize, JobError> {
        let node = &self.node;
        let timetables = |name: &Name, definition: &Definition| node.jobs.timetables.of(name, definition);
        let rule = |view: &mut _| job::backfill(name, from, to, node.now(), &timetables, view);
        match node.decide(name.group(), node.deadline(), rule).await?.reply {
            Backfilled::Planned(count) => Ok(count),
            Backfilled::TooMany => Err(JobError::TooManyTimes),
            Backfilled::Full => Err(JobError::Full),
            Backfilled::NoSchedule => Err(JobError::NoSchedule),
            Backfilled::NoJob => Err(not_found(name)),
        }
    }

    /// A run.
    pub async fn run(&self, id: RunId) -> Result<RunState, JobError> {
        let reading = self.node.read(vec![run_key(id), lease_key(id)], self.node.deadline()).await?;
        let [run, lease] = &reading.records[..] else { return Err(Failure::Internal.into()) };
        let run = run.as_ref().ok_or(JobError::RunNotFound)?;
        let run = Run::decode(&run.value).map_err(unreadable)?;
        let ends_at = |lease: &Record| reading.now.after(lease.expires_in.unwrap_or_default());
        let lease = lease.as_ref().map(|lease| (lease.created, ends_at(lease)));
        Ok(RunState { id, run, lease })
    }

    /// Runs of a job, the newest first.
    pub async fn list_runs(
        &self,
        name: &Name,
        limit: usize,
        cursor: Option<&str>,
    ) -> Result<RunPage, JobError> {
        let uid = self.job(name).await?.definition.uid;
        let before = cursor.map(|cursor| RunId::parse(cursor).filter(|id| id.uid == uid));
        let before = before.map(|before| before.ok_or(JobError::BadCursor)).transpose()?;
        let mut runs = self.node.all_runs(uid).await?;
        runs.retain(|(id, _)| before.is_none_or(|before| id.place.bytes() < before.place.bytes()));
        let from = runs.len().saturating_sub(limit);
        let next_cursor = (from > 0).then(|| runs[from].0.text());
        let runs = runs.drain(from..).rev().map(|(id, record)| {
            let run = Run::decode(&record.value).map_err(unreadable)?;
            Ok(RunState { id, run, lease: None })
        });
        Ok(RunPage { runs: runs.collect::<Result<_, Failure>>()?, next_cursor })
    }

    /// Calls a run off.
    pub async fn cancel_run(&self, id: RunId) -> Result<RunState, JobError> {
        let node = &self.node;
        let rule = |view: &mut _| job::cancel(id, node.now(), view);
        match node.decide(id.uid.group(), node.deadline(), rule).await?.reply {
            Cancelled::Yes => {
                node.jobs.dispatch.call_off(id);
                self.run(id).await
            }
            Cancelled::Ended(end) => Err(JobError::RunEnded { outcome: end.outcome.as_str() }),
            Cancelled::NoRun => Err(JobError::RunNotFound),
        }
    }
}

impl Node {
    /// The records of a job's runs, in the order of their times; the newest, should there be more than may be.
    pub(super) async fn all_runs(&self, uid: Uid) -> Result<Vec<(RunId, Record)>, Failure> {
        let (mut runs, mut after) = (Vec::new(), None);
        loop {
            let range = Range { group: uid.group(), prefix: runs_prefix(uid), after };
            let page = self.asked(self.store.scan(range, 256), self.deadline()).await?;
            after = page.records.last().map(|record| record.key.name.clone());
            let named = page.records.into_iter();
            runs.extend(named.filter_map(|record| Some((run_of(&record.key.name)?, record))));
            runs.drain(..runs.len().saturating_sub(RUNS_MAX));
            if !page.more {
                return Ok(runs);
            }
        }
    }

    /// Deletes the records of a job's runs.
    async fn forget_runs(&self, uid: Uid) {
        let Ok(runs) = self.all_runs(uid).await else { return };
        let keys: Vec<_> = runs.into_iter().map(|(_, record)| record.key).collect();
        self.delete_all(&keys).await;
    }

    /// Deletes records of one group, a page at a time; whether all were.
    pub(super) async fn delete_all(&self, keys: &[Key]) -> bool {
        for keys in keys.chunks(PAGE) {
            let writes = keys.iter().map(|key| Write::Delete { key: key.clone() }).collect();
            let commit = Commit { checks: Vec::new(), writes };
            let until = tokio::time::Instant::now() + Duration::from_secs(5);
            if self.send(|| commit.clone(), until, until, false).await.outcome.is_err() {
                return false;
            }
        }
        true
    }
}

fn shown(name: &Name, definition: &Record, state: &Record) -> Result<JobState, Failure> {
    let version = definition.revision;
    let definition = Arc::new(Definition::decode(&definition.value).map_err(unreadable)?);
    let state = State::decode(&state.value).map_err(unreadable)?;
    Ok(JobState { name: name.key().into(), definition, version, state })
}

fn not_found(name: &Name) -> JobError {
    JobError::NotFound { job: name.key().into() }
}

pub(super) fn unreadable(_: Unreadable) -> Failure {
    tracing::error!("a record can't be read by this version");
    Failure::Internal
}
