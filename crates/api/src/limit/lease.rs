//! Leases of a part of a limit, and places in flight.

use super::Identity;
use crate::error::ErrorBody;
use crate::limits;
use serde::{Deserialize, Serialize};

/// `GET /v1/limits/{name}/leases`
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct LeaseList {
    /// What is outstanding.
    pub leases: Vec<LeaseStatus>,
    /// Whether there is more than is shown.
    pub more: bool,
}

/// Something outstanding.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct LeaseStatus {
    /// Of which key.
    pub key: String,
    /// Its id.
    pub lease_id: String,
    /// Who holds it.
    pub holder: String,
    /// `lease`, `hold` or `place`.
    pub kind: String,
    /// How much is left of it, as of its holder's last word.
    pub amount: u64,
    /// How much of it was spent, as of its holder's last word.
    pub spent: u64,
    /// When it ends if its holder says nothing.
    pub expires_in_millis: u64,
}

/// `POST /v1/limits/{name}/lease`
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct LeaseRequest {
    /// Of which key.
    #[cfg_attr(feature = "openapi", schema(min_length = 1, max_length = 512))]
    pub key: String,
    /// Whether those are known who spend it, as in a check; the same for all of one lease's life. `authenticated` if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub identity: Option<Identity>,
    /// Who holds it: shown in lists.
    #[cfg_attr(
        feature = "openapi",
        schema(min_length = 1, max_length = 64, pattern = "^[A-Za-z0-9_.:-]*[A-Za-z0-9]$")
    )]
    pub node_id: String,
    /// The lease, as its holder calls it: one for each key, never used for another. If absent a new one is begun, and the answer says what
    /// to call it. A message without it that is sent again begins another one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(
        feature = "openapi",
        schema(min_length = 1, max_length = 64, pattern = "^[A-Za-z0-9_.:-]*[A-Za-z0-9]$")
    )]
    pub lease_id: Option<String>,
    /// Grows with every message about this lease, so that one which comes twice or late changes nothing. A place in flight has 1 from
    /// its check. 1 if absent, of a lease that is begun.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(minimum = 1, maximum = 9_007_199_254_740_990_u64))]
    pub sequence: Option<u64>,
    /// How much more is wanted; 0 to give back or to keep.
    #[serde(default)]
    #[cfg_attr(feature = "openapi", schema(minimum = 0, maximum = 1_000_000_000))]
    pub want: u64,
    /// All that was ever spent of it.
    #[serde(default)]
    #[cfg_attr(feature = "openapi", schema(minimum = 0, maximum = 4_503_599_627_370_496_u64))]
    pub spent: u64,
    /// What the holder keeps, the rest it had goes back; all it has if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(minimum = 0, maximum = 4_503_599_627_370_496_u64))]
    pub kept: Option<u64>,
    /// By which version of the definition the holder counts. If it is another one now, nothing is given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(minimum = 0, maximum = 9_007_199_254_740_991_u64))]
    pub version: Option<u64>,
    /// How long the holder takes what it has to live, from now. It lives at least so long, also if the definition has changed: the
    /// answer may get lost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(minimum = 0, maximum = 3_600_000))]
    pub ttl_millis: Option<u64>,
}

impl LeaseRequest {
    /// Whether every field is within its limits.
    pub fn check(&self) -> Result<(), ErrorBody> {
        let exact = 0..=1_u64 << 52;
        limits::check_text("key", &self.key, limits::KEY_BYTES)?;
        limits::check_lease_id("nodeId", &self.node_id)?;
        self.lease_id.as_ref().map_or(Ok(()), |lease_id| limits::check_lease_id("leaseId", lease_id))?;
        match self.sequence {
            Some(sequence) => limits::check_number("sequence", sequence, 1..=(1 << 53) - 2)?,
            // Whoever says which lease it is may have said something of it before.
            None if self.lease_id.is_some() => {
                let message =
                    "sequence must be said of a leaseId: higher than with any message before, from 1";
                return Err(ErrorBody::invalid("sequence", message));
            }
            None => {}
        }
        limits::check_number("want", self.want, limits::COST)?;
        limits::check_number("spent", self.spent, exact.clone())?;
        limits::check_number("kept", self.kept.unwrap_or_default(), exact)?;
        limits::check_number("version", self.version.unwrap_or_default(), 0..=(1 << 53) - 1)?;
        limits::check_number(
            "ttlMillis",
            self.ttl_millis.unwrap_or_default(),
            0..=*limits::LEASE_TTL_MILLIS.end(),
        )
    }
}

/// What the lease has now.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct LeaseResponse {
    /// What to call it from now on: what the holder calls it, with a few letters more if the key shares its meter with others.
    pub lease_id: String,
    /// All that may be spent of it; 0 if there is nothing to be had.
    pub granted: u64,
    /// How long it lives from when the message arrived; 0 if this limit isn't leased: then ask for every check.
    pub ttl_millis: u64,
    /// How much a lease should have; follow what you spend if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<u64>,
    /// How it behaves, if the limit is approximate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slack: Option<LeaseSlack>,
    /// How much the key may use at once.
    pub limit: u64,
    /// What is left at the store.
    pub remaining: u64,
    /// In how many milliseconds all of it is available again.
    pub reset_millis: u64,
    /// After how many milliseconds it is worth asking again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after_millis: Option<u64>,
    /// How much of the limit may pass at worst in any interval as long as the window, as in `GET …/bound`; absent if there is no number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bound: Option<u64>,
    /// Of the definition.
    pub version: u64,
}

/// How slack of an approximate limit behaves.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct LeaseSlack {
    /// How long it may live at most: ask for four times the time after which you will say again what was spent.
    pub max_ttl_millis: u64,
    /// How often to say what was spent; by how much that is if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sync_millis: Option<u64>,
    /// When `left` is less than this, give back what you have and ask for every check.
    pub low: u64,
    /// What isn't counted yet.
    pub left: u64,
    /// The most that a lease has, of those who aren't known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_size: Option<u64>,
}

/// `POST /v1/limits/{name}/lease/return`
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ReturnLeaseRequest {
    /// Of which key.
    #[cfg_attr(feature = "openapi", schema(min_length = 1, max_length = 512))]
    pub key: String,
    /// The place in flight.
    #[cfg_attr(
        feature = "openapi",
        schema(min_length = 1, max_length = 64, pattern = "^[A-Za-z0-9_.:-]*[A-Za-z0-9]$")
    )]
    pub lease_id: String,
}

impl ReturnLeaseRequest {
    /// Whether every field is within its limits.
    pub fn check(&self) -> Result<(), ErrorBody> {
        limits::check_text("key", &self.key, limits::KEY_BYTES)?;
        limits::check_lease_id("leaseId", &self.lease_id)
    }
}

/// It is given back.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct ReturnLeaseResponse {
    /// Always `RETURNED`.
    pub status: String,
}
