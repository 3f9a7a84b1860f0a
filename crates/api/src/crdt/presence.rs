//! The bodies of `/v1/presence` (D7).

use crate::error::ErrorBody;
use crate::limits;
use serde::{Deserialize, Serialize};

/// `POST /v1/presence/{name}`
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PresenceRefresh {
    /// Who is there.
    #[cfg_attr(feature = "openapi", schema(min_length = 1, max_length = 256))]
    pub member: String,
    /// For how long, after an observer hears of this, unless it is said again.
    #[cfg_attr(feature = "openapi", schema(minimum = 100, maximum = 86_400_000))]
    pub ttl_millis: u64,
}

impl PresenceRefresh {
    /// Whether every field is within its limits.
    pub fn check(&self) -> Result<(), ErrorBody> {
        limits::check_text("member", &self.member, limits::OWNER_BYTES)?;
        limits::check_number("ttlMillis", self.ttl_millis, limits::TTL_MILLIS)
    }
}

/// `POST /v1/presence/{name}/leave`
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PresenceLeave {
    /// Who isn't there any more.
    #[cfg_attr(feature = "openapi", schema(min_length = 1, max_length = 256))]
    pub member: String,
}

impl PresenceLeave {
    /// Whether every field is within its limits.
    pub fn check(&self) -> Result<(), ErrorBody> {
        limits::check_text("member", &self.member, limits::OWNER_BYTES)
    }
}

/// It is known here that a member is there, or isn't.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct PresenceWritten {
    /// Where.
    pub group: String,
    /// Who.
    pub member: String,
    /// For `after`: what has to be seen to have seen this.
    pub context: String,
}

/// Who is there, as far as this replica has heard.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct PresenceList {
    /// Where.
    pub group: String,
    /// In the order of names.
    pub members: Vec<PresenceMember>,
    /// What was seen, for `after`.
    pub context: String,
    /// For the next page; absent on the last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
}

/// Somebody who is there.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct PresenceMember {
    /// Who.
    pub member: String,
    /// For how long still, if nothing more is heard.
    pub alive_for_millis: u64,
}
