//! Calendars (J13): putting and removing them, and telling the jobs that use them.
//!
//! A job has a copy of its calendars' days. Two orders keep it true. A job is put, and *then* its calendars are looked at again; a
//! calendar is put, and *then* its jobs are looked for. So of a job and a calendar that are put at once, whichever is second sees
//! the first.

use super::calls::{CalendarPage, CalendarState, JobError};
use super::service::unreadable;
use crate::engine::{Engine, Node};
use crate::failure::Failure;
use baton_core::cron::DaySet;
use baton_core::job::calendar::{self, Calendar, Entry};
use baton_core::job::place::{CALENDAR, DEFINITION, calendar_key};
use baton_core::job::{Definition, Put};
use baton_core::{Name, Record, Revision};
use std::sync::Arc;
use tokio::task::JoinSet;

/// Jobs looked at together.
const PAGE: usize = 256;
/// Jobs told at once.
const TOLD_AT_ONCE: usize = 16;

impl Engine {
    /// Puts a calendar, and tells the jobs that use it; how many those are. Also one that says the same tells them: a call
    /// that got no answer may not have come so far.
    pub async fn put_calendar(
        &self,
        name: &Name,
        entries: &[Entry],
    ) -> Result<(Put, CalendarState, usize), JobError> {
        let node = &self.node;
        let rule = |view: &mut _| calendar::put(name, entries, node.now(), view);
        let decided = node.decide(name.group(), node.deadline(), rule).await?;
        let (put, calendar, stamp) = decided.reply;
        let version = stamp.resolve(decided.revision);
        let days = calendar.days().map_err(|_| Failure::Internal)?;
        // Whoever asked may go away; the jobs are told all the same.
        let told = tokio::spawn(tell(node.clone(), name.clone(), version, days));
        let told = told.await.map_err(|_| Failure::Internal)??;
        Ok((put, CalendarState { name: name.key().into(), calendar, version }, told))
    }

    /// A calendar, as the store has it.
    pub async fn calendar(&self, name: &Name) -> Result<CalendarState, JobError> {
        self.node.calendar(name).await
    }

    /// Calendars of a namespace whose names begin with `prefix`, in an order that is stable from page to page.
    pub async fn list_calendars(
        &self,
        namespace: &str,
        prefix: &str,
        limit: usize,
        cursor: Option<&str>,
    ) -> Result<CalendarPage, JobError> {
        let listed = self.node.list(CALENDAR, namespace, prefix, limit, cursor).await?;
        let calendars = listed.records.iter().map(|(name, record)| shown(name, record));
        Ok(CalendarPage { calendars: calendars.collect::<Result<_, _>>()?, next_cursor: listed.next_cursor })
    }

    /// Removes a calendar that no job uses. A job that is put at the same moment keeps the days that it has seen.
    pub async fn remove_calendar(&self, name: &Name) -> Result<(), JobError> {
        let node = &self.node;
        let mut cursor = None;
        loop {
            let (users, next) = node.users(name, cursor.as_deref()).await?;
            if let Some(job) = users.first() {
                let (calendar, job) = (name.key().into(), job.key().into());
                return Err(JobError::CalendarInUse { calendar, job });
            }
            cursor = next;
            if cursor.is_none() {
                break;
            }
        }
        let rule = |view: &mut _| calendar::remove(name, view);
        let is_removed = node.decide(name.group(), node.deadline(), rule).await?.reply;
        if is_removed { Ok(()) } else { Err(not_found(name)) }
    }
}

impl Node {
    async fn calendar(&self, name: &Name) -> Result<CalendarState, JobError> {
        let reading = self.read(vec![calendar_key(name)], self.deadline()).await?;
        let [Some(record)] = &reading.records[..] else { return Err(not_found(name)) };
        Ok(shown(name, record)?)
    }

    /// Gives a definition the days of its calendars as they are now. Whether that changed anything.
    pub(super) async fn copy_calendars(
        &self,
        namespace: &str,
        definition: &mut Definition,
    ) -> Result<bool, JobError> {
        let mut is_changed = false;
        for used in &mut definition.calendars {
            let found = self.calendar(&Name::new(namespace, &used.name)).await?;
            is_changed |= used.revision != found.version;
            used.days = found.calendar.days().map_err(|_| Failure::Internal)?;
            used.revision = found.version;
        }
        Ok(is_changed)
    }

    /// Jobs that use a calendar, of a page of all jobs; and where the next page begins.
    async fn users(
        &self,
        name: &Name,
        cursor: Option<&str>,
    ) -> Result<(Vec<Name>, Option<String>), JobError> {
        let listed = self.list(DEFINITION, name.namespace(), "", PAGE, cursor).await?;
        let mut users = Vec::new();
        for (job, record) in listed.records {
            let definition = Definition::decode(&record.value).map_err(unreadable)?;
            if definition.calendars.iter().any(|used| used.name == name.key()) {
                users.push(job);
            }
        }
        Ok((users, listed.next_cursor))
    }
}

/// Tells all jobs that use a calendar what it says; how many they are.
async fn tell(node: Arc<Node>, name: Name, revision: Revision, days: DaySet) -> Result<usize, JobError> {
    let (days, mut cursor, mut told) = (Arc::new(days), None, 0);
    loop {
        let (users, next) = node.users(&name, cursor.as_deref()).await?;
        for some in users.chunks(TOLD_AT_ONCE) {
            let mut tasks = JoinSet::new();
            for job in some {
                let (node, name, job, days) = (node.clone(), name.clone(), job.clone(), days.clone());
                tasks.spawn(async move {
                    let timetables = |name: &Name, job: &Definition| node.jobs.timetables.of(name, job);
                    let rule = |view: &mut _| {
                        calendar::refresh(&job, name.key(), revision, &days, node.now(), &timetables, view)
                    };
                    let looked = node.decide(job.group(), node.deadline(), rule).await?.reply;
                    let is_told = looked.is_some();
                    node.metrics.jobs.looked(&looked.unwrap_or_default(), node.now());
                    Ok::<_, Failure>(is_told)
                });
            }
            while let Some(done) = tasks.join_next().await {
                told += usize::from(done.map_err(|_| Failure::Internal)??);
            }
        }
        cursor = next;
        if cursor.is_none() {
            return Ok(told);
        }
    }
}

fn shown(name: &Name, record: &Record) -> Result<CalendarState, Failure> {
    let calendar = Calendar::decode(&record.value).map_err(unreadable)?;
    Ok(CalendarState { name: name.key().into(), calendar, version: record.revision })
}

fn not_found(name: &Name) -> JobError {
    JobError::CalendarNotFound { calendar: name.key().into() }
}
