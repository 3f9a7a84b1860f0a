//! `POST /v1/batch`: several lock calls in one request. The answer is one JSON object a line
//! (`application/x-ndjson`), written as each call completes, in any order.
//!
//! The SDK puts calls that are under way at the same time into one request; each still stands by itself.

use crate::error::ErrorBody;
use crate::lock::{
    AcquireRequest, AcquireResponse, ReleaseRequest, ReleaseResponse, RenewRequest, RenewResponse,
};
use serde::{Deserialize, Serialize};

/// The body of a batch.
#[derive(Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct BatchRequest {
    /// 1 to 256 calls.
    #[cfg_attr(feature = "openapi", schema(min_items = 1, max_items = 256))]
    pub calls: Vec<BatchCall>,
}

/// One call of a batch.
#[derive(Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct BatchCall {
    /// Comes back with the answer. Chosen by the caller.
    pub id: u32,
    /// The namespace; `default` if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// The lock.
    pub lock_key: String,
    /// What to do with it.
    pub call: Call,
}

/// What to do with a lock.
#[derive(Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub enum Call {
    /// As `POST /v1/locks/{lockKey}/acquire`.
    Acquire(AcquireRequest),
    /// As `POST /v1/locks/{lockKey}/renew`.
    Renew(RenewRequest),
    /// As `POST /v1/locks/{lockKey}/release`.
    Release(ReleaseRequest),
}

/// One line of the answer.
#[derive(Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct BatchAnswer {
    /// The call's id.
    pub id: u32,
    /// What it would have been answered by itself.
    pub answer: Answer,
}

/// What a call of a batch was answered.
#[derive(Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub enum Answer {
    /// The acquire was granted.
    Acquire(AcquireResponse),
    /// The lease was renewed.
    Renew(RenewResponse),
    /// The lock was released.
    Release(ReleaseResponse),
    /// It was refused or failed.
    Error(ErrorBody),
}
