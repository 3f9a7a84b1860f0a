//! The job service (50-cron): what has to run, when, and how often really.
//!
//! # Layout
//! - [`calls`]: what callers say and hear
//! - [`service`]: putting, removing and looking at jobs and their runs; run now, pause, resume, backfill, cancel
//! - [`attempts`]: what workers and targets say: claim, heartbeat, complete, fail
//! - [`calendars`]: days that jobs share, and telling the jobs
//! - `waiting`: workers that wait for a run
//! - [`runner`]: how this node runs what is its own to run; `endings`: how it says what came of that
//! - `scheduler`: when to look at which group; `group`: a look at all that is due in one
//! - `agenda`: what is known of when something is due; `timetables`: schedules that were read
//! - [`metrics`]: what is counted
//! - `prune`: bringing ended runs down to as many as are kept

mod agenda;
pub mod attempts;
pub mod calendars;
pub mod calls;
mod endings;
mod group;
pub mod metrics;
mod prune;
mod room;
pub mod runner;
pub(crate) mod scheduler;
pub mod service;
mod timetables;
mod waiting;

pub use attempts::{Claim, Claimed};
pub use calls::{CalendarPage, CalendarState, JobError, JobPage, JobState, RunPage, RunState};
pub use runner::{Attempt, Ran, Runner, Running};

use agenda::Agenda;
use baton_core::lock::NodeId;
use runner::Dispatch;
use std::sync::OnceLock;
use timetables::TimetableCache;

/// What a node knows of jobs.
#[derive(Default)]
pub(crate) struct Jobs {
    pub agenda: Agenda,
    pub dispatch: Dispatch,
    pub endings: endings::Endings,
    pub timetables: TimetableCache,
    pub prunes: prune::Prunes,
    pub lanes: waiting::Lanes,
    runner_name: OnceLock<String>,
}

impl Jobs {
    /// As runs show this node.
    fn runner_name(&self, node: NodeId) -> &str {
        self.runner_name.get_or_init(|| format!("{:016x}", node.0))
    }
}
