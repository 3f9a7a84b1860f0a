//! The bodies of `/v1/nodes`, `/v1/ring` and `/v1/hotkeys`.

use serde::{Deserialize, Serialize};

/// `GET /v1/nodes`
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct NodeList {
    /// Those that live, as far as this node knows; a node that has vanished is listed for another 10 s.
    pub nodes: Vec<NodeStatus>,
}

/// A node.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct NodeStatus {
    /// Made anew at every start.
    pub node_id: String,
    /// Where the others reach it; absent if it hasn't said so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// Of the program.
    pub version: String,
    /// When it was started, in milliseconds since the Unix epoch by the store's clock.
    pub started_at: u64,
    /// Whether it is about to stop, and owns nothing any more.
    pub leaving: bool,
    /// Whether it is the one that answers.
    pub this: bool,
    /// How many of the partitions it owns.
    pub owns: u64,
    /// Whether it is kept for hot keys that are pinned, and owns nothing else.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub dedicated: bool,
}

/// `GET /v1/ring`
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct RingStatus {
    /// The same for the same nodes.
    pub revision: String,
    /// How many partitions there are. A key's is the lowest byte of the XXH3 hash (64 bits) of its namespace, its limit's
    /// name and itself, with a zero byte after each.
    pub partitions: u64,
    /// The nodes that own any.
    pub nodes: Vec<RingNode>,
    /// For each partition, in order, the place of its owner in `nodes`.
    pub owners: Vec<u64>,
}

/// A node that owns partitions.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct RingNode {
    /// Made anew at every start.
    pub node_id: String,
    /// Where it is reached.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
}

/// `GET /v1/hotkeys`
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct HotKeyList {
    /// Hottest first.
    pub hot_keys: Vec<HotKeyStatus>,
}

/// A key that is checked far more than others at this node.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct HotKeyStatus {
    /// Of the limit.
    pub namespace: String,
    /// The limit.
    pub limit: String,
    /// The key.
    pub key: String,
    /// Its checks in a second, over the last seconds; rather too few than too many.
    pub checks_per_second: u64,
    /// How much of all checks at this node that is, in thousandths.
    pub per_mille: u64,
    /// What is done about it: `delegate`, `split`, `pin` or `cap`; absent if nothing is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mitigation: Option<String>,
}
