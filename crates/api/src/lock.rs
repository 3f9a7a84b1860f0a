//! The bodies of `/v1/locks`.

use crate::error::ErrorBody;
use crate::limits;
use crate::mode::LockMode;
use serde::{Deserialize, Serialize};

/// A lock's metadata: a small JSON object (L15).
pub type Metadata = serde_json::Map<String, serde_json::Value>;

/// `POST /v1/locks/{lockKey}/acquire`
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AcquireRequest {
    /// Who asks: shown to others, checked on release.
    #[cfg_attr(feature = "openapi", schema(min_length = 1, max_length = 256))]
    pub owner_id: String,
    /// How long the lease lasts if not renewed.
    #[cfg_attr(feature = "openapi", schema(minimum = 100, maximum = 86_400_000))]
    pub ttl_millis: u64,
    /// Whether to wait in the queue if someone else holds the lock.
    #[serde(default)]
    pub wait: bool,
    /// How long to wait at most; without it, until granted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(maximum = 600_000))]
    pub wait_timeout_millis: Option<u64>,
    /// Makes a repeated call give the same answer. The server makes one if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(min_length = 1, max_length = 128))]
    pub request_id: Option<String>,
    /// Whether the same owner may acquire it again; needs a requestId.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub reentrant: bool,
    /// Shown in the lock's status. At most 4 KiB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<Object>))]
    pub metadata: Option<Metadata>,
    /// How to hold it; `exclusive` if absent.
    #[serde(default, skip_serializing_if = "LockMode::is_exclusive")]
    pub mode: LockMode,
    /// How many may hold a semaphore at once: the same in every acquire of the key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(minimum = 1, maximum = 256))]
    pub permits: Option<u64>,
    /// How long the lock stays closed to everybody if the lease runs out; not after a release.
    #[serde(default, skip_serializing_if = "is_zero")]
    #[cfg_attr(feature = "openapi", schema(minimum = 0, maximum = 3_600_000))]
    pub lock_delay_millis: u64,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes it so")]
fn is_zero(millis: &u64) -> bool {
    *millis == 0
}

impl AcquireRequest {
    /// Whether every field is within its limits.
    pub fn check(&self) -> Result<(), ErrorBody> {
        limits::check_text("ownerId", &self.owner_id, limits::OWNER_BYTES)?;
        limits::check_number("ttlMillis", self.ttl_millis, limits::TTL_MILLIS)?;
        if let Some(wait) = self.wait_timeout_millis {
            limits::check_number("waitTimeoutMillis", wait, limits::WAIT_TIMEOUT_MILLIS)?;
        }
        self.mode.check(self.permits, self.reentrant)?;
        limits::check_number("lockDelayMillis", self.lock_delay_millis, limits::LOCK_DELAY_MILLIS)?;
        match &self.request_id {
            Some(id) => limits::check_text("requestId", id, limits::REQUEST_ID_BYTES)?,
            None if self.reentrant => {
                return Err(ErrorBody::invalid(
                    "requestId",
                    "a reentrant acquire needs a requestId, so that a retry isn't counted twice",
                ));
            }
            None => {}
        }
        if let Some(metadata) = &self.metadata {
            let bytes = serde_json::to_string(metadata).map_or(usize::MAX, |text| text.len());
            if bytes > limits::METADATA_BYTES_MAX {
                let max = limits::METADATA_BYTES_MAX;
                let message = format!("metadata must have at most {max} bytes as compact JSON, not {bytes}");
                return Err(ErrorBody::invalid("metadata", message));
            }
        }
        Ok(())
    }
}

/// A granted lock.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct AcquireResponse {
    /// The lock.
    pub lock_key: String,
    /// Proves ownership. A secret: whoever has it can release the lock.
    pub lock_token: String,
    /// Who holds it.
    pub owner_id: String,
    /// Grows with every grant of this key: give it to the resource, and let the resource refuse lower ones.
    pub fencing_token: u64,
    /// When the lease ends if not renewed, in milliseconds since the Unix epoch by the store's clock; for display.
    pub expires_at: u64,
    /// How long the lease lasts.
    pub ttl_millis: u64,
    /// How many releases it takes.
    pub reentrancy_count: u32,
    /// How it is held; absent if `exclusive`.
    #[serde(default, skip_serializing_if = "LockMode::is_exclusive")]
    pub mode: LockMode,
    /// Which permit of a semaphore it is, from 0 on: the resource is fenced by `key#slot`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slot: Option<u16>,
}

impl std::fmt::Debug for AcquireResponse {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AcquireResponse")
            .field("lock_key", &self.lock_key)
            .field("owner_id", &self.owner_id)
            .field("fencing_token", &self.fencing_token)
            .field("expires_at", &self.expires_at)
            .field("reentrancy_count", &self.reentrancy_count)
            .finish_non_exhaustive()
    }
}

/// `POST /v1/locks/{lockKey}/release`
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ReleaseRequest {
    /// From the grant.
    #[cfg_attr(feature = "openapi", schema(min_length = 1, max_length = 256))]
    pub lock_token: String,
    /// The same as in the acquire.
    #[cfg_attr(feature = "openapi", schema(min_length = 1, max_length = 256))]
    pub owner_id: String,
    /// Required for a reentrant lock, so that a retried release counts once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(min_length = 1, max_length = 128))]
    pub request_id: Option<String>,
}

impl ReleaseRequest {
    /// Whether every field is within its limits.
    pub fn check(&self) -> Result<(), ErrorBody> {
        limits::check_text("lockToken", &self.lock_token, limits::LOCK_TOKEN_BYTES)?;
        limits::check_text("ownerId", &self.owner_id, limits::OWNER_BYTES)?;
        match &self.request_id {
            Some(id) => limits::check_text("requestId", id, limits::REQUEST_ID_BYTES),
            None => Ok(()),
        }
    }
}

/// The lock was released, now or by an earlier try.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct ReleaseResponse {
    /// Always `RELEASED`.
    pub status: String,
    /// The lock.
    pub lock_key: String,
}

/// `POST /v1/locks/{lockKey}/renew`
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RenewRequest {
    /// From the grant.
    #[cfg_attr(feature = "openapi", schema(min_length = 1, max_length = 256))]
    pub lock_token: String,
    /// The same as in the acquire.
    #[cfg_attr(feature = "openapi", schema(min_length = 1, max_length = 256))]
    pub owner_id: String,
    /// The lease then ends this long from now, or when it would have anyway: renewing never shortens.
    #[cfg_attr(feature = "openapi", schema(minimum = 100, maximum = 86_400_000))]
    pub ttl_millis: u64,
}

impl RenewRequest {
    /// Whether every field is within its limits.
    pub fn check(&self) -> Result<(), ErrorBody> {
        limits::check_text("lockToken", &self.lock_token, limits::LOCK_TOKEN_BYTES)?;
        limits::check_text("ownerId", &self.owner_id, limits::OWNER_BYTES)?;
        limits::check_number("ttlMillis", self.ttl_millis, limits::TTL_MILLIS)
    }
}

/// The lease was renewed.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct RenewResponse {
    /// The lock.
    pub lock_key: String,
    /// When the lease now ends.
    pub expires_at: u64,
    /// The same as in the grant.
    pub fencing_token: u64,
}

/// `POST /v1/locks/{lockKey}/force-release`
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ForceReleaseRequest {
    /// Why: kept in the lock's history.
    #[cfg_attr(feature = "openapi", schema(min_length = 1, max_length = 1024))]
    pub reason: String,
    /// Only the holder with this token; without it, everybody who holds the lock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fencing_token: Option<u64>,
    /// How long the lock stays closed to everybody afterwards.
    #[serde(default, skip_serializing_if = "is_zero")]
    #[cfg_attr(feature = "openapi", schema(minimum = 0, maximum = 3_600_000))]
    pub lock_delay_millis: u64,
}

impl ForceReleaseRequest {
    /// Whether the reason says something and everything is within its limits.
    pub fn check(&self) -> Result<(), ErrorBody> {
        limits::check_text("reason", self.reason.trim(), limits::REASON_BYTES)?;
        limits::check_number("lockDelayMillis", self.lock_delay_millis, limits::LOCK_DELAY_MILLIS)
    }
}

/// The lock was taken from its holder.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct ForceReleaseResponse {
    /// Always `FORCE_RELEASED`.
    pub status: String,
    /// The lock.
    pub lock_key: String,
    /// Who held it, and may still be acting as if.
    pub previous_owner: String,
    /// The token that resources should now refuse.
    pub fencing_token: u64,
    /// Everybody it was taken from, the above first.
    pub taken_from: Vec<ForcedHolder>,
    /// Says that mutual exclusion was broken by design.
    pub warning: String,
}

/// Somebody whom a lock was taken from.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct ForcedHolder {
    /// Who.
    pub owner_id: String,
    /// The token that resources should now refuse.
    pub fencing_token: u64,
}

/// `GET /v1/locks/{lockKey}` of a held lock. Of several holders, the fields of one are those of whoever has held it for
/// longest.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct LockStatus {
    /// The lock.
    pub lock_key: String,
    /// Always `true` here.
    pub locked: bool,
    /// Who holds it.
    pub owner_id: String,
    /// When the lease ends if not renewed.
    pub expires_at: u64,
    /// The grant's token.
    pub fencing_token: u64,
    /// When it was granted.
    pub acquired_at: u64,
    /// When the lease was last granted or renewed: `expiresAt` less `ttlMillis`.
    pub updated_at: u64,
    /// The lease's length, as granted.
    pub ttl_millis: u64,
    /// How many releases it takes.
    pub reentrancy_count: u32,
    /// How many wait.
    pub queue_length: u64,
    /// How often the lease was renewed.
    pub renewals: u64,
    /// What the holder said about itself.
    #[cfg_attr(feature = "openapi", schema(value_type = Object))]
    pub metadata: Metadata,
    /// What kind of lock the key is in use as.
    pub mode: LockMode,
    /// How many may hold it at once, if it is a semaphore.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub permits: Option<u16>,
    /// Everybody who holds it, in the order of their grants: at most 256.
    pub holders: Vec<LockHolder>,
}

/// One who holds a lock.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct LockHolder {
    /// Who.
    pub owner_id: String,
    /// The grant's token.
    pub fencing_token: u64,
    /// Which permit of a semaphore it has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slot: Option<u16>,
    /// When it was granted.
    pub acquired_at: u64,
    /// When the lease ends if not renewed.
    pub expires_at: u64,
    /// How often the lease was renewed.
    pub renewals: u64,
    /// What it said about itself.
    #[cfg_attr(feature = "openapi", schema(value_type = Object))]
    pub metadata: Metadata,
}

/// `GET /v1/locks/{lockKey}` of a free lock, with status 404.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct NotLocked {
    /// Always `false` here.
    pub locked: bool,
}

/// `GET /v1/locks`
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct LockList {
    /// Held locks, in an order that is stable from page to page.
    pub locks: Vec<LockSummary>,
    /// Where the next page begins; `null` on the last.
    pub next_cursor: Option<String>,
}

/// One held lock of a list.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct LockSummary {
    /// The lock.
    pub lock_key: String,
    /// Who holds it.
    pub owner_id: String,
    /// When the lease ends if not renewed.
    pub expires_at: u64,
    /// The grant's token.
    pub fencing_token: u64,
    /// How many wait.
    pub queue_length: u64,
    /// What kind of lock the key is in use as.
    pub mode: LockMode,
    /// How many may hold it at once, if it is a semaphore.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub permits: Option<u16>,
    /// How many hold it; the fields of one are those of whoever has held it for longest.
    pub holders: u64,
}

/// `GET /v1/locks/{lockKey}/queue`
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct LockQueue {
    /// The lock.
    pub lock_key: String,
    /// Who waits, next first.
    pub waiting: Vec<Waiting>,
}

/// Someone in a lock's queue.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct Waiting {
    /// Who.
    pub owner_id: String,
    /// How it wants to hold the lock.
    pub mode: LockMode,
    /// Since when, in milliseconds since the Unix epoch.
    pub since: u64,
    /// For how long.
    pub waiting_millis: u64,
    /// Whether its call is still there; if not, its place is kept for a while.
    pub connected: bool,
}

/// `GET /v1/locks/{lockKey}/history`
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct LockHistory {
    /// The lock.
    pub lock_key: String,
    /// What happened, newest first.
    pub events: Vec<LockEvent>,
}

/// What can happen to a lock.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum LockEventKind {
    /// Someone got it.
    Granted,
    /// Its holder gave it back.
    Released,
    /// Its lease ran out.
    Expired,
    /// An administrator took it away.
    Forced,
}

impl LockEventKind {
    /// As it stands on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Granted => "granted",
            Self::Released => "released",
            Self::Expired => "expired",
            Self::Forced => "forced",
        }
    }
}

/// Something that happened to a lock: in its history, and on `/watch` as the data of a server-sent event.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct LockEvent {
    /// What.
    pub event: LockEventKind,
    /// The lock.
    pub lock_key: String,
    /// Whose lock it was or became.
    pub owner_id: String,
    /// The grant's token.
    pub fencing_token: u64,
    /// When, in milliseconds since the Unix epoch.
    pub at: u64,
    /// How often the lease had been renewed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub renewals: Option<u64>,
    /// Why it was forced.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Who forced it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_that_do_not_exist_are_refused_as_unknown() {
        for field in ["lockDelay", "lock_delay_millis", "shared", "nonsense"] {
            let body = format!(r#"{{"ownerId":"a","ttlMillis":1000,"{field}":0}}"#);
            assert!(serde_json::from_str::<AcquireRequest>(&body).is_err(), "{field}");
        }
    }

    #[test]
    fn a_grant_is_printed_without_its_token() {
        let grant = AcquireResponse {
            lock_key: "k".into(),
            lock_token: "secret".into(),
            owner_id: "o".into(),
            fencing_token: 1,
            expires_at: 2,
            ttl_millis: 3,
            reentrancy_count: 1,
            mode: LockMode::Exclusive,
            slot: None,
        };
        let json = serde_json::to_value(&grant).unwrap();
        assert!(
            json.get("mode").is_none() && json.get("slot").is_none(),
            "a plain grant says no more than it did"
        );
        assert!(!format!("{grant:?}").contains("secret"));
    }
}
