//! Jobs: what has to run, when, and how often really (50-cron).
//!
//! # The records of a job
//! | record | under | lives | says |
//! |---|---|---|---|
//! | [`definition`] | the name | until removed | what its author says |
//! | [`state`] | the name | as long as that | how far its schedule was decided, what is under way, when to look again |
//! | index | when, and the name | until looked at | that the job has to be looked at then |
//! | [`run`] | the run's id | as long as the job wants runs kept | what became of one time, or is becoming |
//! | [`lease`] | the run's id | as long as somebody is heard of | that an attempt runs; the revision that made it **is** its fencing token |
//! | ready | queue, when, the run's id | until taken | that a worker may take a run |
//! | [`calendar`] | its name, in its own group | until removed | days that jobs leave out or move |
//! | memo | a request | 10 minutes | which run was made for it |
//!
//! All but calendars are in the job's group. A time that is due is one commit: the run's record, made if it is absent; its lease; the job's
//! state, at the revision that was decided on; its place in the index. Every other change of the job puts the state too. So
//! whoever decides on something old conflicts, however sure it is of owning the job, and nothing is begun twice.
//!
//! # The rules
//! - [`mod@apply`]: putting and removing
//! - [`mod@tick`]: a look at a job whose time has come; `due`: which times those are; `work`: what a run goes through
//! - [`calendar`]: putting calendars, and what that does to jobs; `carry`: no time is lost or doubled by it
//! - [`attempt`]: what whoever runs an attempt can say, and how workers take one
//! - [`command`]: run now, pause, resume, backfill, cancel; what jobs ask of each other
//! - [`id`], [`place`]: what things are called and where they are
//! - [`target`]: what runs; [`mod@signature`]: how its requests are signed; [`timetable`]: when

pub mod apply;
pub mod attempt;
pub mod calendar;
mod carry;
pub mod command;
pub mod definition;
pub mod due;
pub mod id;
pub mod lease;
pub mod place;
pub mod run;
pub mod signature;
pub mod state;
pub mod target;
pub mod tick;
pub mod timetable;
pub mod work;

#[cfg(test)]
mod tests;

pub use apply::{Put, apply, remove};
pub use attempt::{Heard, claim, finish, finish_elsewhere, give_back, heartbeat, report, taken};
pub use calendar::{Calendar, CalendarUse};
pub use command::{
    Asked, BACKFILL_MAX, Backfilled, Cancelled, backfill, cancel, chain, counted, pause, resume, run_now,
    told,
};
pub use definition::{DaylightSaving, Definition, Guarantee, Missed, Overlap};
pub use id::{RunId, RunPlace, Trigger, Uid};
pub use lease::Lease;
pub use run::{End, Outcome, Progress, Reason, Run};
pub use signature::signature;
pub use state::{Active, Counts, Delivery, Next, Phase, Span, State};
pub use target::{Http, Secret, Target};
pub use tick::{Look, Looked, Timetables, tick};
pub use timetable::Timetable;
pub use work::{AttemptEnd, Beginner, Begun, GRACE};

use crate::record::WallTime;

/// A run that a worker may take: which, of which queue, and since when.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ready<'a> {
    /// The queue's namespace.
    pub namespace: &'a str,
    /// Whose workers.
    pub queue: &'a str,
    /// When it was to begin.
    pub due: WallTime,
    /// Which.
    pub run: RunId,
}
