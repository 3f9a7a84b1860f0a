//! The bodies of `/v1/fences` (F3).

use crate::error::ErrorBody;
use crate::limits;
use serde::{Deserialize, Serialize};

/// `POST /v1/fences/{resource}/check`
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CheckRequest {
    /// The fencing token that somebody wants to use the resource with: 1 to 2^53 - 1.
    #[cfg_attr(feature = "openapi", schema(minimum = 1, maximum = 9_007_199_254_740_991_u64))]
    pub token: u64,
    /// Whether it must be higher than any before, not just not lower.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub strict: bool,
    /// Makes a repeated strict check give the same answer; others need none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(min_length = 1, max_length = 128))]
    pub request_id: Option<String>,
}

impl CheckRequest {
    /// Whether every field is within its limits.
    pub fn check(&self) -> Result<(), ErrorBody> {
        limits::check_number("token", self.token, limits::TOKEN)?;
        match &self.request_id {
            Some(id) => limits::check_text("requestId", id, limits::REQUEST_ID_BYTES),
            None => Ok(()),
        }
    }
}

/// The token was accepted: no higher one was seen.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct CheckResponse {
    /// The resource.
    pub resource: String,
    /// Always `true` here.
    pub accepted: bool,
    /// The highest token seen: this one.
    pub highest: u64,
}

/// `GET /v1/fences/{resource}`, and one of a list.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct FenceStatus {
    /// The resource.
    pub resource: String,
    /// The highest token seen.
    pub highest: u64,
    /// When it was first seen, in milliseconds since the Unix epoch by the store's clock.
    pub raised_at: u64,
    /// About how many checks were accepted: what a node counted since the highest token last grew is known to that node
    /// only, and is lost with it.
    pub accepted: u64,
    /// About how many checks were refused, in the same way.
    pub refused: u64,
}

/// `GET /v1/fences`
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct FenceList {
    /// Fences, in an order that is stable from page to page.
    pub fences: Vec<FenceStatus>,
    /// Where the next page begins; `null` on the last.
    pub next_cursor: Option<String>,
}

/// `POST /v1/fences/{resource}/forget`
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ForgetRequest {
    /// Why: goes to the server's log.
    #[cfg_attr(feature = "openapi", schema(min_length = 1, max_length = 1024))]
    pub reason: String,
}

impl ForgetRequest {
    /// Whether the reason says something and is within its limit.
    pub fn check(&self) -> Result<(), ErrorBody> {
        limits::check_text("reason", &self.reason, limits::REASON_BYTES)?;
        limits::check_text("reason", self.reason.trim(), limits::REASON_BYTES)
    }
}

/// The fence was forgotten.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct ForgetResponse {
    /// Always `FORGOTTEN`.
    pub status: String,
    /// The resource.
    pub resource: String,
    /// The highest token that had been seen.
    pub highest: u64,
    /// Says that any token will be accepted now.
    pub warning: String,
}
