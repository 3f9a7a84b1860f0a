//! What became of one time of a job, or is becoming.

use serde::{Deserialize, Serialize};

/// How far a run is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum RunState {
    /// Others of its job come first.
    Queued,
    /// A worker may take it.
    Ready,
    /// Its next attempt begins at `nextAttemptAt`.
    Waiting,
    /// An attempt has begun.
    Running,
    /// It is over; `outcome` says how.
    Ended,
}

/// A run.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct Run {
    /// Its id: the job's number, the time that it is for, and what set it off. All attempts share it.
    pub run_id: String,
    /// The job's name.
    pub job: String,
    /// The job's namespace.
    pub namespace: String,
    /// What set it off: `schedule`, `manual`, `backfill` or `chain`.
    pub trigger: String,
    /// The time that it is for: milliseconds since the Unix epoch, like all times here.
    pub scheduled_at: u64,
    /// When it was to begin: a jitter later.
    pub due_at: u64,
    /// How far it is.
    pub state: RunState,
    /// Attempts begun.
    pub attempt: u32,
    /// When the last attempt began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<u64>,
    /// When the next one begins.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_attempt_at: Option<u64>,
    /// When it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<u64>,
    /// What came of it: `succeeded`, `failed`, `cancelled`, `skipped` (it never began) or `unknown`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<String>,
    /// Why: `overlap`, `missed`, `paused`, `at_most_once_unknown`, `timeout`, `lease_expired`, `deadline`,
    /// `superseded`, `requested` or `refused`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The fencing token of the attempt that runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fencing_token: Option<u64>,
    /// When that attempt is taken for dead if it isn't heard of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease_expires_at: Option<u64>,
    /// Who runs it, or ran it last.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub runner: String,
    /// What the last attempt said of its end: a status, an error.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// The end of its output.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub output: String,
    /// If it stands for several times that didn't run: the first of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_scheduled_at: Option<u64>,
    /// How many they are; 1000 stands for at least as many.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub times: Option<u64>,
}

/// `GET /v1/jobs/{name}/runs`
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct RunList {
    /// The newest first.
    pub runs: Vec<Run>,
    /// Where the next page begins; absent on the last one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
}
