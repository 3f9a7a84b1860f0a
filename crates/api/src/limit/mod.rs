//! The bodies of `/v1/limits`.

use crate::error::{ErrorBody, ErrorCode};
use crate::limits;
use serde::{Deserialize, Serialize};

mod definition;
mod lease;
mod log;

pub use definition::{
    Algorithm, CalendarUnit, Durability, FailurePolicy, Fraction, HotKey, Identity, LimitDefinition,
    LimitOverride, Mechanism, Purpose, Reclaim,
};
pub use lease::{
    LeaseList, LeaseRequest, LeaseResponse, LeaseSlack, LeaseStatus, ReturnLeaseRequest, ReturnLeaseResponse,
};
pub use log::{LimitLog, LimitLogLine};

/// A definition as it stands, with what was chosen for it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct LimitStatus {
    /// Its name.
    pub name: String,
    /// What it says; nothing is left open.
    pub definition: LimitDefinition,
    /// Grows with every change.
    pub version: u64,
    /// When it was put, in milliseconds since the Unix epoch by the store's clock.
    pub changed_at: u64,
    /// On a PUT, what that did: `MADE`, `CHANGED` or `UNCHANGED`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<String>,
}

/// `GET /v1/limits`
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct LimitList {
    /// Definitions, in an order that is stable from page to page.
    pub limits: Vec<LimitStatus>,
    /// Where the next page begins; `null` on the last.
    pub next_cursor: Option<String>,
}

/// `DELETE /v1/limits/{name}`
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct RemoveLimitResponse {
    /// Always `REMOVED`.
    pub status: String,
    /// Its name.
    pub name: String,
}

/// `POST /v1/limits/{name}/check`
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct LimitCheckRequest {
    /// Who uses something.
    #[cfg_attr(feature = "openapi", schema(min_length = 1, max_length = 512))]
    pub key: String,
    /// How much; 0 looks without spending.
    #[serde(default = "one")]
    #[cfg_attr(feature = "openapi", schema(minimum = 0, maximum = 1_000_000_000))]
    pub cost: u64,
    /// Whether it is somebody who is known: that decides how much slack an approximate limit has, and who decides where the definition has an
    /// `anonymousMechanism`; `authenticated` if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub identity: Option<Identity>,
    /// Makes a call that is sent again within 60 s count once. Without it a retry may count twice.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(min_length = 1, max_length = 128))]
    pub request_id: Option<String>,
    /// Whether to answer with a receipt that it can be given back with. It is decided by the store then.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub receipt: bool,
}

fn one() -> u64 {
    1
}

impl LimitCheckRequest {
    /// Whether every field is within its limits.
    pub fn check(&self) -> Result<(), ErrorBody> {
        limits::check_text("key", &self.key, limits::KEY_BYTES)?;
        limits::check_number("cost", self.cost, limits::COST)?;
        check_request_id(self.request_id.as_deref())
    }
}

fn check_request_id(id: Option<&str>) -> Result<(), ErrorBody> {
    id.map_or(Ok(()), |id| limits::check_text("requestId", id, limits::REQUEST_ID_BYTES))
}

/// The check passed.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct LimitCheckResponse {
    /// Whether to go on. `false` only for a look (`cost` 0) at something that is used up.
    pub allowed: bool,
    /// How much the key may use at once.
    pub limit: u64,
    /// What is left.
    pub remaining: u64,
    /// In how many milliseconds all of it is available again.
    pub reset_millis: u64,
    /// Who decided: `central`, `local`, `renewed`, `owner`, `global_check` or `fallback`.
    pub source: String,
    /// What it can be given back with, if that was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub receipt: Option<String>,
    /// The place it has, if what is limited is how many are in flight.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease_id: Option<String>,
    /// How long that place is kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease_ttl_millis: Option<u64>,
    /// What a limit that only counts would have said: no.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub would_refuse: bool,
}

/// The body of a 429: LIMIT_EXCEEDED.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct LimitExceeded {
    /// Always `LIMIT_EXCEEDED`.
    pub error: ErrorCode,
    /// For people.
    pub message: String,
    /// Always `false`.
    pub allowed: bool,
    /// The limit that refused.
    pub name: String,
    /// The key that has used it up.
    pub key: String,
    /// How much the key may use at once.
    pub limit: u64,
    /// What is left.
    pub remaining: u64,
    /// In how many milliseconds all of it is available again.
    pub reset_millis: u64,
    /// Who decided.
    pub source: String,
    /// `budget_exhausted`, `local_budget_exhausted`, `global_budget_exhausted`, `store_unavailable` or `hot_key_capped`.
    pub reason: String,
    /// When it is worth trying again; absent if it never is: the cost is more than the limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after_millis: Option<u64>,
}

/// `POST /v1/limits:check`
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CheckAllRequest {
    /// All must pass; a refusal by one charges none.
    #[cfg_attr(feature = "openapi", schema(min_items = 1, max_items = 16))]
    pub checks: Vec<OneOfSeveral>,
    /// Makes a call that is sent again within 60 s count once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(min_length = 1, max_length = 128))]
    pub request_id: Option<String>,
    /// Whether to answer with receipts that they can be given back with.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub receipt: bool,
}

/// One check of several.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct OneOfSeveral {
    /// The limit's name.
    #[cfg_attr(feature = "openapi", schema(min_length = 1, max_length = 512))]
    pub limit: String,
    /// Who uses something.
    #[cfg_attr(feature = "openapi", schema(min_length = 1, max_length = 512))]
    pub key: String,
    /// How much.
    #[serde(default = "one")]
    #[cfg_attr(feature = "openapi", schema(minimum = 0, maximum = 1_000_000_000))]
    pub cost: u64,
    /// Whether it is somebody who is known, as in a single check; `authenticated` if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub identity: Option<Identity>,
}

impl CheckAllRequest {
    /// Whether every field is within its limits.
    pub fn check(&self) -> Result<(), ErrorBody> {
        let (count, range) = (self.checks.len(), limits::CHECKS);
        if !range.contains(&count) {
            let message = format!("checks must be {} to {}, not {count}", range.start(), range.end());
            return Err(ErrorBody::invalid("checks", message));
        }
        for (index, check) in self.checks.iter().enumerate() {
            let field = |name: &str| format!("checks[{index}].{name}");
            limits::check_name(&field("limit"), &check.limit)?;
            limits::check_text(&field("key"), &check.key, limits::KEY_BYTES)?;
            limits::check_number(&field("cost"), check.cost, limits::COST)?;
            let is_same = |other: &OneOfSeveral| other.limit == check.limit && other.key == check.key;
            if self.checks[..index].iter().any(is_same) {
                return Err(ErrorBody::invalid(
                    field("key"),
                    "this key of this limit is checked twice; add the costs up",
                ));
            }
        }
        check_request_id(self.request_id.as_deref())
    }
}

/// All checks passed.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct CheckAllResponse {
    /// Whether to go on.
    pub allowed: bool,
    /// One for each check, in their order.
    pub checks: Vec<LimitCheckResponse>,
}

/// `GET /v1/limits/{name}/usage`
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct LimitUsage {
    /// The limit's name.
    pub name: String,
    /// The key.
    pub key: String,
    /// How much the key may use at once.
    pub limit: u64,
    /// What is counted.
    pub used: u64,
    /// What is promised to holders of leases.
    pub outstanding: u64,
    /// What is left.
    pub remaining: u64,
    /// In how many milliseconds all of it is available again.
    pub reset_millis: u64,
}

/// `GET /v1/limits/{name}/bound`
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct LimitBound {
    /// The limit's name.
    pub name: String,
    /// How much may be used in a window.
    pub limit: u64,
    /// The window's length.
    pub window_millis: u64,
    /// How much may pass at most in any interval as long as the window, while the store can be reached and loses nothing;
    /// absent if there is no number for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worst: Option<u64>,
    /// Where it comes from, and what else may add to it.
    pub items: Vec<LimitBoundItem>,
    /// What the node that answers has seen.
    #[serde(default)]
    pub measured: LimitMeasured,
}

/// How much more than the limit was seen.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct LimitMeasured {
    /// The most that a key had beyond what it may use at once, of those this node has charged in the last hour or two: what was admitted in
    /// an outage, what was within a limit before it was lowered, what is booked. 0 if there was none.
    pub overshoot: u64,
    /// When, in milliseconds since the Unix epoch by the store's clock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<u64>,
}

/// One reason why more than the limit may pass.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct LimitBoundItem {
    /// `mechanism`, `algorithm`, `store` or `outage`.
    pub source: String,
    /// How much it may add; absent if there is no number for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub amount: Option<u64>,
    /// How much it may add each time that it happens, where nobody can say how often that is: `optimistic` leases, by holders that die.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub each: Option<u64>,
    /// Why.
    pub because: String,
}

/// `POST /v1/limits/{name}/refund`
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RefundRequest {
    /// Of the check or reservation.
    #[cfg_attr(feature = "openapi", schema(min_length = 1, max_length = 512))]
    pub key: String,
    /// The check's `receipt`, or the reservation's `reservationId`.
    #[cfg_attr(feature = "openapi", schema(min_length = 1, max_length = 256))]
    pub receipt: String,
}

impl RefundRequest {
    /// Whether every field is within its limits.
    pub fn check(&self) -> Result<(), ErrorBody> {
        limits::check_text("key", &self.key, limits::KEY_BYTES)?;
        limits::check_text("receipt", &self.receipt, limits::RECEIPT_BYTES)
    }
}

/// It was given back, as far as it still counted.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct RefundResponse {
    /// How much: 0 if its window is over. The same for a repeated call.
    pub refunded: u64,
}

/// `POST /v1/limits/{name}/reserve`
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ReserveRequest {
    /// Who uses something.
    #[cfg_attr(feature = "openapi", schema(min_length = 1, max_length = 512))]
    pub key: String,
    /// How much.
    #[serde(default = "one")]
    #[cfg_attr(feature = "openapi", schema(minimum = 1, maximum = 1_000_000_000))]
    pub cost: u64,
    /// How long you would wait, at most a window.
    #[cfg_attr(feature = "openapi", schema(minimum = 0, maximum = 31_622_400_000_u64))]
    pub max_wait_millis: u64,
    /// Makes a call that is sent again within 60 s book once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(min_length = 1, max_length = 128))]
    pub request_id: Option<String>,
}

impl ReserveRequest {
    /// Whether every field is within its limits.
    pub fn check(&self) -> Result<(), ErrorBody> {
        limits::check_text("key", &self.key, limits::KEY_BYTES)?;
        limits::check_number("cost", self.cost, 1..=*limits::COST.end())?;
        limits::check_number("maxWaitMillis", self.max_wait_millis, 0..=*limits::WINDOW_MILLIS.end())?;
        check_request_id(self.request_id.as_deref())
    }
}

/// A time was booked.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct ReserveResponse {
    /// Go on after this time.
    pub wait_millis: u64,
    /// To give it back with, as the `receipt` of a refund.
    pub reservation_id: String,
}
