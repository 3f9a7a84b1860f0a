//! The bodies of `/v1/workers`, and what whoever runs an attempt says of it under `/v1/runs` (J7).

use crate::error::ErrorBody;
use crate::limits;
use serde::{Deserialize, Serialize};

/// `POST /v1/workers/{queue}/claim`
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ClaimRunRequest {
    /// Who asks: shown with the run.
    #[cfg_attr(feature = "openapi", schema(min_length = 1, max_length = 256))]
    pub owner_id: String,
    /// How long the worker may not be heard of before its run is another's.
    #[cfg_attr(feature = "openapi", schema(minimum = 100, maximum = 3_600_000))]
    pub lease_millis: u64,
    /// How long to wait for a run; not at all if absent. When the time is over, or the server's cap on one call, the answer is
    /// that there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(maximum = 600_000))]
    pub wait_timeout_millis: Option<u64>,
}

impl ClaimRunRequest {
    /// Whether every field is within its limits.
    pub fn check(&self) -> Result<(), ErrorBody> {
        limits::check_text("ownerId", &self.owner_id, limits::OWNER_BYTES)?;
        limits::check_number("leaseMillis", self.lease_millis, limits::LEASE_TTL_MILLIS)?;
        match self.wait_timeout_millis {
            Some(wait) => limits::check_number("waitTimeoutMillis", wait, limits::WAIT_TIMEOUT_MILLIS),
            None => Ok(()),
        }
    }
}

/// What came of a claim.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct ClaimRunResponse {
    /// The run that is the caller's now; absent if none came in time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<ClaimedRun>,
}

/// A run that a worker has.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct ClaimedRun {
    /// Its id: the same for all attempts, so that repetitions can be told.
    pub run_id: String,
    /// The job's name.
    pub job: String,
    /// The job's namespace.
    pub namespace: String,
    /// The time that it is for: milliseconds since the Unix epoch, like all times here.
    pub scheduled_at: u64,
    /// When it was to begin: a jitter later.
    pub due_at: u64,
    /// From 1.
    pub attempt: u32,
    /// The attempt's: higher than that of every earlier one. Give it to the resource, and let the resource refuse lower ones.
    pub fencing_token: u64,
    /// What the job says to its workers.
    pub payload: String,
    /// How long the worker may not be heard of.
    pub lease_millis: u64,
    /// When the run is another's if the worker isn't heard of; for display.
    pub expires_at: u64,
    /// How long the attempt may take.
    pub timeout_millis: u64,
}

/// `POST /v1/runs/{runId}/heartbeat`
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct HeartbeatRunRequest {
    /// The attempt's.
    #[cfg_attr(feature = "openapi", schema(maximum = 9_007_199_254_740_991_u64))]
    pub fencing_token: u64,
    /// How long it may not be heard of from now on; its lease never gets shorter by it.
    #[cfg_attr(feature = "openapi", schema(minimum = 100, maximum = 3_600_000))]
    pub lease_millis: u64,
    /// What it has written so far; the last 4 KiB are shown with the run while it runs. What was said before stays if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(max_length = 4096))]
    pub output: Option<String>,
}

impl HeartbeatRunRequest {
    /// Whether every field is within its limits.
    pub fn check(&self) -> Result<(), ErrorBody> {
        check_token(self.fencing_token)?;
        limits::check_number("leaseMillis", self.lease_millis, limits::LEASE_TTL_MILLIS)?;
        check_length("output", self.output.as_deref(), limits::RUN_OUTPUT_BYTES_MAX)
    }
}

/// The attempt was heard of.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct HeartbeatRunResponse {
    /// The run.
    pub run_id: String,
    /// When it is another's if the worker isn't heard of again; for display.
    pub expires_at: u64,
}

/// `POST /v1/runs/{runId}/complete` and `POST /v1/runs/{runId}/fail`
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct EndRunRequest {
    /// The attempt's.
    #[cfg_attr(feature = "openapi", schema(maximum = 9_007_199_254_740_991_u64))]
    pub fencing_token: u64,
    /// What it says of its end, in a line: a status, an error.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(max_length = 128))]
    pub message: Option<String>,
    /// What it wrote; the last 4 KiB are kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(max_length = 4096))]
    pub output: Option<String>,
}

impl EndRunRequest {
    /// Whether every field is within its limits.
    pub fn check(&self) -> Result<(), ErrorBody> {
        check_token(self.fencing_token)?;
        check_length("message", self.message.as_deref(), limits::RUN_MESSAGE_BYTES_MAX)?;
        check_length("output", self.output.as_deref(), limits::RUN_OUTPUT_BYTES_MAX)
    }
}

fn check_length(field: &str, text: Option<&str>, most: usize) -> Result<(), ErrorBody> {
    match text {
        Some(text) if text.len() > most => {
            Err(ErrorBody::invalid(field, format!("{field} must have at most {most} bytes")))
        }
        _ => Ok(()),
    }
}

/// What was said of an attempt's end counts.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct EndRunResponse {
    /// The run.
    pub run_id: String,
    /// What came of the run: `succeeded` or `failed`; absent if another attempt follows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<String>,
    /// When the next attempt begins.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_attempt_at: Option<u64>,
}

fn check_token(token: u64) -> Result<(), ErrorBody> {
    limits::check_number("fencingToken", token, 0..=9_007_199_254_740_991)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_at_fault_is_named() {
        let claim = ClaimRunRequest { owner_id: "w".into(), lease_millis: 30_000, wait_timeout_millis: None };
        assert!(claim.check().is_ok());
        let end = EndRunRequest { fencing_token: 1, message: None, output: Some("x".repeat(16 * 1024)) };
        assert!(end.check().is_ok());
        for (field, error) in [
            ("ownerId", ClaimRunRequest { owner_id: String::new(), ..claim.clone() }.check()),
            ("leaseMillis", ClaimRunRequest { lease_millis: 99, ..claim.clone() }.check()),
            ("waitTimeoutMillis", ClaimRunRequest { wait_timeout_millis: Some(600_001), ..claim }.check()),
            ("leaseMillis", HeartbeatRunRequest { fencing_token: 1, lease_millis: 0, output: None }.check()),
            (
                "output",
                HeartbeatRunRequest { fencing_token: 1, lease_millis: 100, output: Some("x".repeat(16_385)) }
                    .check(),
            ),
            (
                "fencingToken",
                HeartbeatRunRequest { fencing_token: u64::MAX, lease_millis: 100, output: None }.check(),
            ),
            ("fencingToken", EndRunRequest { fencing_token: u64::MAX, ..end.clone() }.check()),
            ("output", EndRunRequest { output: Some("x".repeat(16 * 1024 + 1)), ..end.clone() }.check()),
            ("message", EndRunRequest { message: Some("x".repeat(513)), ..end }.check()),
        ] {
            assert_eq!(error.unwrap_err().field.as_deref(), Some(field));
        }
    }
}
