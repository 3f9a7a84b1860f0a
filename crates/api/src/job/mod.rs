//! The bodies of `/v1/jobs` and `/v1/runs` (50-cron).
//!
//! - [`definition`]: what a job is
//! - [`run`]: what became of one time

pub mod definition;
pub mod run;

pub use definition::{
    CommandTarget, DaylightSaving, Guarantee, HttpTarget, JobDefinition, JobTarget, Missed, Overlap, Retry,
    WorkerTarget,
};
pub use run::{Run, RunList, RunState};

use crate::error::ErrorBody;
use crate::limits;
use serde::{Deserialize, Serialize};

/// A job as it stands.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct JobStatus {
    /// Its name.
    pub name: String,
    /// What it is, with what was chosen where nothing was said.
    pub definition: JobDefinition,
    /// A number that edits keep; the runs' ids begin with it.
    pub uid: String,
    /// Grows with every edit.
    pub version: u64,
    /// When it was last edited: milliseconds since the Unix epoch.
    pub changed_at: u64,
    /// What a call did to it: `MADE`, `CHANGED`, `UNCHANGED`, `PAUSED`, `RESUMED`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<String>,
    /// Since when it is paused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paused_at: Option<u64>,
    /// The next time of its schedule; absent if there is none, or it doesn't count.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_at: Option<u64>,
    /// The last time of its schedule that was decided: nothing up to it fires again.
    pub decided_until: u64,
    /// When a run last succeeded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_success_at: Option<u64>,
    /// Whether it hasn't succeeded within the time that it says.
    pub overdue: bool,
    /// Runs under way.
    pub active: u64,
    /// Runs that wait for those.
    pub queued: u64,
    /// Times that are still to be made up for, at most.
    pub catching_up: u64,
    /// How many, since it was made.
    pub counts: JobCounts,
}

/// How many, since a job was made.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct JobCounts {
    /// Runs begun.
    pub started: u64,
    /// Runs acknowledged.
    pub succeeded: u64,
    /// Runs given up.
    pub failed: u64,
    /// Times that didn't run.
    pub skipped: u64,
    /// Runs of which nobody can say what came of them.
    pub unknown: u64,
    /// Jobs that weren't told of a success, because too many were to be.
    pub untold: u64,
}

/// `GET /v1/jobs`
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct JobList {
    /// In an order that is stable from page to page.
    pub jobs: Vec<JobStatus>,
    /// Where the next page begins; absent on the last one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
}

/// What removing a job says.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct RemoveJobResponse {
    /// `REMOVED`.
    pub status: String,
    /// Its name.
    pub name: String,
}

/// `POST /v1/jobs/{name}/run`
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RunJobRequest {
    /// Makes a repeated call give the same run. The server makes one if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(min_length = 1, max_length = 128))]
    pub request_id: Option<String>,
}

impl RunJobRequest {
    /// Whether every field is within its limits.
    pub fn check(&self) -> Result<(), ErrorBody> {
        match &self.request_id {
            Some(id) => limits::check_text("requestId", id, limits::REQUEST_ID_BYTES),
            None => Ok(()),
        }
    }
}

/// What asking for a run says.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct RunJobResponse {
    /// The job's name.
    pub name: String,
    /// The run's id: `GET /v1/runs/{runId}` says what becomes of it.
    pub run_id: String,
}

/// `POST /v1/jobs/{name}/pause`
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PauseJobRequest {}

/// `POST /v1/jobs/{name}/resume`
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ResumeJobRequest {
    /// What happens to the times that passed meanwhile; as the job says if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub missed: Option<Missed>,
}

/// `POST /v1/jobs/{name}/backfill`
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct BackfillRequest {
    /// The first moment of the range: milliseconds since the Unix epoch.
    #[cfg_attr(feature = "openapi", schema(maximum = 32_503_680_000_000_u64))]
    pub from: u64,
    /// The first moment after it.
    #[cfg_attr(feature = "openapi", schema(maximum = 32_503_680_000_000_u64))]
    pub to: u64,
}

impl BackfillRequest {
    /// Whether every field is within its limits.
    pub fn check(&self) -> Result<(), ErrorBody> {
        limits::check_number("from", self.from, limits::JOB_TIME)?;
        limits::check_number("to", self.to, limits::JOB_TIME)?;
        if self.from > self.to {
            return Err(ErrorBody::invalid("to", "to must not be before from"));
        }
        Ok(())
    }
}

/// What a backfill says.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct BackfillResponse {
    /// The job's name.
    pub name: String,
    /// Times of its schedule in the range: they run one after the other.
    pub times: u64,
}

/// `POST /v1/runs/{runId}/cancel`
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CancelRunRequest {}
