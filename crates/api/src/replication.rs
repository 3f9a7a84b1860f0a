//! The body of `/v1/replication`.

use serde::{Deserialize, Serialize};

/// `GET /v1/replication`
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct ReplicationStatus {
    /// This node's replica; absent while nothing has used it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replica: Option<ReplicaStatus>,
    /// The other replicas, in the order of their addresses.
    pub peers: Vec<ReplicationPeer>,
    /// Every run of a replica that was ever heard of.
    #[serde(default)]
    pub runs: Vec<ReplicaRun>,
}

/// A run of a replica: every start is a new one.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct ReplicaRun {
    /// Its name.
    pub actor: String,
    /// How many changes of it were heard of.
    pub changes: u64,
    /// Whether it was retired.
    pub retired: bool,
}

/// `POST /v1/replication/retire`
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RetireRequest {
    /// The run that is over for good, as `GET /v1/replication` names it.
    #[cfg_attr(feature = "openapi", schema(pattern = "^[0-9a-f]{32}$"))]
    pub actor: String,
}

/// What became of it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct RetireResponse {
    /// The run.
    pub actor: String,
    /// Whether this replica had ever heard of it; if not, nothing was done.
    pub known: bool,
    /// Rows that it had made and that are this replica's now.
    pub rows: u64,
}

/// A node's own replica.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct ReplicaStatus {
    /// This run of it: made anew at every start.
    pub actor: String,
    /// A hash of all it has and has seen: the same where replicas are equal.
    pub state: String,
    /// Counters, registers, and elements of sets.
    pub rows: u64,
    /// Changes from others that wait because their time is far ahead: more than none means that some clock is wrong.
    pub held: u64,
    /// Runs of replicas that were ever heard of.
    pub actors: u64,
}

/// Another replica.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct ReplicationPeer {
    /// Where it is.
    pub address: String,
    /// Its run; absent if it never answered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub actor: Option<String>,
    /// Whether that is this replica itself, as a name for all of them may say.
    pub this: bool,
    /// Whether it answered last time.
    pub reachable: bool,
    /// Changes that this replica has and the other, as far as is known, hasn't.
    pub behind: u64,
    /// For how long the other has not had all that this one has; 0 if it has.
    pub lag_millis: u64,
    /// Changes that wait to be told.
    pub waiting: u64,
    /// Changes that were not told as they happened, because it was away or slow. It asks for them by itself.
    pub dropped: u64,
    /// How often this replica has asked it for all that was missed, and got it.
    pub rounds: u64,
    /// How often it asked and didn't.
    pub failures: u64,
    /// How long ago the last such round was; absent if there was none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_round_millis: Option<u64>,
}
