//! The body of `/v1/status`.

use serde::{Deserialize, Serialize};

/// `GET /v1/status`
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct Status {
    /// The server's version.
    pub version: String,
    /// This node, made anew at every start.
    pub node_id: String,
    /// How long it has been up.
    pub uptime_millis: u64,
    /// Whether the store can commit.
    pub ready: bool,
    /// How many nodes share the store, as far as this one knows.
    #[serde(default)]
    pub nodes: u64,
    /// The store and what it promises.
    pub store: StoreStatus,
}

/// The store and what it promises.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct StoreStatus {
    /// Its name, as in its URL.
    pub name: String,
    /// Whether other nodes may share it.
    pub shared: bool,
    /// Records held.
    pub records: u64,
    /// Bytes of memory they take, estimated.
    pub used_bytes: u64,
    /// Above this, what is only remembered is remembered for a shorter time.
    pub budget_bytes: u64,
    /// The breaker in front of it; absent for a store that is no server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub breaker: Option<BreakerStatus>,
    /// What holds when things go wrong.
    pub guarantees: GuaranteesStatus,
}

/// Whether calls go through to a store that is a server.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct BreakerStatus {
    /// How it stands.
    pub state: BreakerState,
    /// For how long calls go through, or are refused: a probe that fails starts no new count.
    pub for_millis: u64,
}

/// How a breaker stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "kebab-case")]
pub enum BreakerState {
    /// Calls go through.
    Closed,
    /// Calls are refused; the store is being asked whether it is back.
    HalfOpen,
    /// Calls are refused at once.
    Open,
}

impl BreakerState {
    /// As in the answer.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::HalfOpen => "half-open",
            Self::Open => "open",
        }
    }
}

/// What holds when things go wrong.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct GuaranteesStatus {
    /// When a node or the store crashes.
    pub on_crash: String,
    /// When the store fails over to a replica.
    pub on_failover: String,
    /// When a part of the network is cut off from the rest; empty from an older server.
    #[serde(default)]
    pub on_partition: String,
    /// When a clock steps.
    pub on_clock_step: String,
    /// The shortest lease the store can keep.
    pub ttl_min_millis: u64,
    /// Expiry happens at most this much late.
    pub ttl_granularity_millis: u64,
    /// Settings of the store that these promises need otherwise.
    #[serde(default)]
    pub warnings: Vec<String>,
}
