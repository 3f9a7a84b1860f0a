//! What was decided about a limit, line by line.

use serde::{Deserialize, Serialize};

/// `GET /v1/limits/{name}/audit` and `GET /v1/limits/{name}/leases/log`
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct LimitLog {
    /// Oldest first, in the order in which they were written.
    pub lines: Vec<LimitLogLine>,
    /// Where the next page begins; `null` on the last. A page may have few lines, or none, and still not be the last.
    pub next_cursor: Option<String>,
}

/// What happened once.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct LimitLogLine {
    /// Of a decision: `allowed`, `refused`, `reserved`, `refunded`; of a place in flight: `kept`, `left`; of a lease: `granted`,
    /// `renewed`, `returned`, `lapsed`.
    pub event: String,
    /// When, in milliseconds since the Unix epoch by the store's clock.
    pub at: u64,
    /// The node that decided, or was told.
    pub node: String,
    /// Whose.
    pub key: String,
    /// What was asked for, or given back; of a lease or a place what it has from then on.
    pub amount: u64,
    /// What was left then.
    pub remaining: u64,
    /// Who decided: `central` or `fallback`; absent if nothing was to be decided.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// As whom it was asked, or who holds the lease; absent if nobody said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// The call's, if it had one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_id: Option<String>,
    /// The lease's, or the place's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease_id: Option<String>,
    /// All that was ever spent of a lease, as its holder said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spent: Option<u64>,
    /// How long the lease or the place lived from then on, unless it was heard of again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl_millis: Option<u64>,
    /// Goes on after this line.
    pub cursor: String,
}
