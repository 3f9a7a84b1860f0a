//! The bodies of `/v1/limits`.

use crate::error::{ErrorBody, ErrorCode};
use crate::limits;
use serde::{Deserialize, Serialize};

macro_rules! words {
    ($(#[doc = $doc:literal])+ $type:ident { $($(#[doc = $what:literal])+ $variant:ident,)+ }) => {
        $(#[doc = $doc])+
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
        #[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
        #[serde(rename_all = "snake_case")]
        pub enum $type {
            $($(#[doc = $what])+ $variant,)+
        }
    };
}

words! {
    /// What is counted.
    Algorithm {
        /// A level that leaks at the rate; `burst` at once.
        TokenBucket,
        /// What came in this window, and of the last one as much as still overlaps.
        SlidingWindow,
        /// What came in this window.
        FixedWindow,
        /// What came within the last window, exactly; `limit` at most 1,000.
        SlidingLog,
        /// What is in use now: every check takes a place, with a lease; `limit` at most 1,000.
        InFlight,
    }
}

words! {
    /// Who decides.
    Mechanism {
        /// The store, every check.
        Central,
        /// Whoever holds a lease, out of what was debited before.
        Leased,
    }
}

words! {
    /// What happens when the store can't be asked.
    FailurePolicy {
        /// Nothing is admitted.
        Closed,
        /// Each node counts for itself, up to its share of the limit.
        ClosedLocal,
        /// Each node admits up to `localCap` in a window.
        Open,
        /// Each node has its share of what remained when the store was last heard of.
        Local,
        /// Each node has its share of what remained in the last snapshot.
        Snapshot,
    }
}

words! {
    /// What a limit is for: chooses what isn't said.
    Purpose {
        /// One-time codes, passwords.
        Security,
        /// Keeping strangers from doing harm.
        Abuse,
        /// Fairness among those who are known.
        Authenticated,
        /// What is paid for.
        Billing,
    }
}

words! {
    /// Windows of the calendar.
    CalendarUnit {
        /// From midnight to midnight.
        Day,
        /// From the first to the first.
        Month,
    }
}

words! {
    /// What becomes of a lease whose holder has gone.
    Reclaim {
        /// It counts as spent when it ends.
        Safe,
        /// It is available again when it ends, although it may have been spent.
        Optimistic,
    }
}

/// `PUT /v1/limits/{name}`
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct LimitDefinition {
    /// How much a key may use in a window.
    #[cfg_attr(feature = "openapi", schema(minimum = 1, maximum = 1_000_000_000_000_u64))]
    pub limit: u64,
    /// The window's length; not with `calendar`, which has its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(minimum = 1, maximum = 31_622_400_000_u64))]
    pub window_millis: Option<u64>,
    /// What is counted; `token_bucket` if neither this nor a `purpose` says otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub algorithm: Option<Algorithm>,
    /// How much a token bucket holds; the limit if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(minimum = 1, maximum = 1_000_000_000_000_u64))]
    pub burst: Option<u64>,
    /// Who decides; `central` if neither this nor a `purpose` says otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mechanism: Option<Mechanism>,
    /// What happens when the store can't be asked; `closed` if neither this nor a `purpose` says otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_failure: Option<FailurePolicy>,
    /// What it is for: chooses what isn't said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub purpose: Option<Purpose>,
    /// Windows of the calendar, for a fixed window.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub calendar: Option<CalendarUnit>,
    /// Whose calendar, as in the time zone database; `UTC` if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(min_length = 1, max_length = 64))]
    pub time_zone: Option<String>,
    /// Whether every key's windows begin at a moment of their own, so that not all begin at once; `true` if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub staggered: Option<bool>,
    /// How much a lease has; adapts to what is used if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(minimum = 1, maximum = 1_000_000))]
    pub lease_size: Option<u64>,
    /// How long a lease, or a place in flight, lives if nobody renews it; 10 s if absent, never longer than the window.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(minimum = 100, maximum = 3_600_000))]
    pub lease_ttl_millis: Option<u64>,
    /// What becomes of a lease whose holder has gone; `safe` if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reclaim: Option<Reclaim>,
    /// What a node admits by itself for a key and a window in an outage, with `open`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(minimum = 1, maximum = 1_000_000_000_000_u64))]
    pub local_cap: Option<u64>,
    /// How many nodes share it, for when that can't be seen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(minimum = 1, maximum = 10_000))]
    pub expected_nodes: Option<u64>,
    /// How many keys have a count of their own at a node; those beyond share one. 1,000,000 if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(minimum = 1, maximum = 10_000_000))]
    pub max_keys: Option<u64>,
    /// Counts and reports, and refuses nobody.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub dry_run: bool,
    /// Keys with a limit of their own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "openapi", schema(max_items = 1000))]
    pub overrides: Vec<LimitOverride>,
}

/// A key with a limit of its own.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct LimitOverride {
    /// The key.
    #[cfg_attr(feature = "openapi", schema(min_length = 1, max_length = 512))]
    pub key: String,
    /// How much it may use in a window.
    #[cfg_attr(feature = "openapi", schema(minimum = 1, maximum = 1_000_000_000_000_u64))]
    pub limit: u64,
}

impl LimitDefinition {
    /// One that says how much in which time, and leaves the rest to what is usual.
    pub fn new(limit: u64, window_millis: u64) -> Self {
        Self {
            limit,
            window_millis: Some(window_millis),
            algorithm: None,
            burst: None,
            mechanism: None,
            on_failure: None,
            purpose: None,
            calendar: None,
            time_zone: None,
            staggered: None,
            lease_size: None,
            lease_ttl_millis: None,
            reclaim: None,
            local_cap: None,
            expected_nodes: None,
            max_keys: None,
            dry_run: false,
            overrides: Vec::new(),
        }
    }

    /// Whether every field is within its limits. Whether they fit each other depends on the purpose: the server says that.
    pub fn check(&self) -> Result<(), ErrorBody> {
        limits::check_number("limit", self.limit, limits::LIMIT)?;
        for (field, number, range) in [
            ("windowMillis", self.window_millis, limits::WINDOW_MILLIS),
            ("burst", self.burst, limits::LIMIT),
            ("leaseSize", self.lease_size, 1..=1_000_000),
            ("leaseTtlMillis", self.lease_ttl_millis, limits::LEASE_TTL_MILLIS),
            ("localCap", self.local_cap, limits::LIMIT),
            ("expectedNodes", self.expected_nodes, 1..=10_000),
            ("maxKeys", self.max_keys, 1..=10_000_000),
        ] {
            number.map_or(Ok(()), |number| limits::check_number(field, number, range))?;
        }
        if let Some(zone) = &self.time_zone {
            limits::check_text("timeZone", zone, limits::TIME_ZONE_BYTES)?;
        }
        if self.overrides.len() > limits::OVERRIDES_MAX {
            let message = format!("overrides must be at most {}", limits::OVERRIDES_MAX);
            return Err(ErrorBody::invalid("overrides", message));
        }
        for (index, own) in self.overrides.iter().enumerate() {
            let field = |name: &str| format!("overrides[{index}].{name}");
            limits::check_text(&field("key"), &own.key, limits::KEY_BYTES)?;
            limits::check_number(&field("limit"), own.limit, limits::LIMIT)?;
            if self.overrides[..index].iter().any(|other| other.key == own.key) {
                return Err(ErrorBody::invalid(field("key"), "a key can have one limit of its own"));
            }
        }
        Ok(())
    }
}

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
    /// Who decided: `central`, `local`, `renewed` or `fallback`.
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
    /// `budget_exhausted`, `local_budget_exhausted`, `global_budget_exhausted` or `store_unavailable`.
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

/// `POST /v1/limits/{name}/lease/return`
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ReturnLeaseRequest {
    /// Of which key.
    #[cfg_attr(feature = "openapi", schema(min_length = 1, max_length = 512))]
    pub key: String,
    /// The lease, or the place in flight.
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
