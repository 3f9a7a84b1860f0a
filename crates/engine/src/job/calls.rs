//! What callers of the job service hear.

use crate::cursor::ListError;
use crate::failure::Failure;
use baton_core::job::{Calendar, Definition, Run, RunId, State};
use baton_core::{Revision, WallTime};
use std::sync::Arc;

/// A job as it stands.
#[derive(Clone, Debug)]
pub struct JobState {
    /// Its name.
    pub name: String,
    /// What its author says.
    pub definition: Arc<Definition>,
    /// Of the last edit.
    pub version: Revision,
    /// How far it is.
    pub state: State,
}

/// A page of jobs.
#[derive(Clone, Debug)]
pub struct JobPage {
    /// In an order that is stable from page to page.
    pub jobs: Vec<JobState>,
    /// Where the next page begins.
    pub next_cursor: Option<String>,
}

/// A run as it stands.
#[derive(Clone, Debug)]
pub struct RunState {
    /// Which.
    pub id: RunId,
    /// What became of it, or is becoming.
    pub run: Run,
    /// The token of the attempt that runs, and when its lease ends if it isn't heard of.
    pub lease: Option<(Revision, WallTime)>,
}

/// A page of runs.
#[derive(Clone, Debug)]
pub struct RunPage {
    /// The newest first.
    pub runs: Vec<RunState>,
    /// Where the next page begins.
    pub next_cursor: Option<String>,
}

/// A calendar as it stands.
#[derive(Clone, Debug)]
pub struct CalendarState {
    /// Its name.
    pub name: String,
    /// What it says.
    pub calendar: Calendar,
    /// Of the last change.
    pub version: Revision,
}

/// A page of calendars.
#[derive(Clone, Debug)]
pub struct CalendarPage {
    /// In an order that is stable from page to page.
    pub calendars: Vec<CalendarState>,
    /// Where the next page begins.
    pub next_cursor: Option<String>,
}

/// Why a call didn't do what it was asked to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum JobError {
    /// There is no such job.
    NotFound {
        /// Which.
        job: String,
    },
    /// There is no such calendar.
    CalendarNotFound {
        /// Which.
        calendar: String,
    },
    /// A job uses the calendar.
    CalendarInUse {
        /// Which calendar.
        calendar: String,
        /// One of the jobs.
        job: String,
    },
    /// There is no such run, or its record isn't kept any more.
    RunNotFound,
    /// The attempt isn't running any more: its lease ran out, or it was called off.
    RunLost,
    /// The run had ended.
    RunEnded {
        /// With what.
        outcome: &'static str,
    },
    /// As many runs or ranges wait as may.
    Full,
    /// The job has no schedule that can be backfilled.
    NoSchedule,
    /// There are more times in the range than may be asked for at once.
    TooManyTimes,
    /// Not a cursor of an earlier page.
    BadCursor,
    /// It couldn't be done.
    Failed(Failure),
}

impl From<Failure> for JobError {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

impl From<ListError> for JobError {
    fn from(error: ListError) -> Self {
        match error {
            ListError::BadCursor => Self::BadCursor,
            ListError::Failed(failure) => Self::Failed(failure),
        }
    }
}
