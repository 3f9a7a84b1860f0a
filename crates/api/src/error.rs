//! Every error code, alphabetically, each with its HTTP status, its CLI exit code and a page in `docs/errors`.

use serde::{Deserialize, Serialize};

macro_rules! error_codes {
    ($($(#[doc = $doc:literal])+ $variant:ident = $code:literal, $status:literal, $exit:literal;)+) => {
        /// A stable code that says what went wrong.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
        #[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
        #[non_exhaustive]
        pub enum ErrorCode {
            $($(#[doc = $doc])+ #[serde(rename = $code)] $variant,)+
        }

        impl ErrorCode {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$variant),+];

            /// As it stands on the wire.
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $code),+ }
            }

            /// The HTTP status it travels with.
            pub fn http_status(self) -> u16 {
                match self { $(Self::$variant => $status),+ }
            }

            /// What the command line exits with.
            pub fn exit_code(self) -> u8 {
                match self { $(Self::$variant => $exit),+ }
            }
        }
    };
}

error_codes! {
    /// The claim was completed before, with another result; that one stays.
    AlreadyCompleted = "ALREADY_COMPLETED", 409, 75;
    /// The request's grant was already released; it is not taken again.
    AlreadyReleased = "ALREADY_RELEASED", 409, 75;
    /// A job goes by this calendar, so it isn't removed.
    CalendarInUse = "CALENDAR_IN_USE", 409, 65;
    /// There is no calendar of this name.
    CalendarNotFound = "CALENDAR_NOT_FOUND", 404, 69;
    /// The claim ran out or was given up: another caller may be at it.
    ClaimLost = "CLAIM_LOST", 409, 76;
    /// The replica's wall clock is behind what it has seen, so it can't order a write of a register.
    ClockSkew = "CLOCK_SKEW", 503, 75;
    /// No token was ever checked for this resource.
    FenceNotFound = "FENCE_NOT_FOUND", 404, 69;
    /// The caller may not do this: a web page of another site, until there are roles.
    Forbidden = "FORBIDDEN", 403, 77;
    /// A bug or a broken invariant. Details are in the server's log only.
    Internal = "INTERNAL", 500, 70;
    /// Something in the request is not allowed; `field` says what.
    InvalidArgument = "INVALID_ARGUMENT", 400, 64;
    /// There is no job of this name.
    JobNotFound = "JOB_NOT_FOUND", 404, 69;
    /// The leader's lease ran out, or was taken away: someone else may lead.
    LeadershipLost = "LEADERSHIP_LOST", 409, 75;
    /// As much was used as may be; `retryAfterMillis` says when to come back.
    LimitExceeded = "LIMIT_EXCEEDED", 429, 75;
    /// The limit's algorithm can't do what was asked for.
    LimitMismatch = "LIMIT_MISMATCH", 409, 65;
    /// There is no limit of this name.
    LimitNotFound = "LIMIT_NOT_FOUND", 404, 69;
    /// Someone else holds the lock.
    LockAlreadyHeld = "LOCK_ALREADY_HELD", 409, 75;
    /// Nobody holds the lock, but a holder's lease ran out, and the lock-delay it asked for is not over.
    LockDelayed = "LOCK_DELAYED", 409, 75;
    /// The lease ran out or was forced away: what was done since is suspect.
    LockExpired = "LOCK_EXPIRED", 409, 75;
    /// Nobody holds the lock, and the token is not an authentic one for it.
    LockNotFound = "LOCK_NOT_FOUND", 404, 69;
    /// The path exists, but not with this method.
    MethodNotAllowed = "METHOD_NOT_ALLOWED", 405, 64;
    /// The key is in use as another kind of lock, or as a semaphore with another number of permits.
    ModeMismatch = "MODE_MISMATCH", 409, 65;
    /// The token is not an authentic one for this key.
    NotClaimOwner = "NOT_CLAIM_OWNER", 403, 77;
    /// There is no such path.
    NotFound = "NOT_FOUND", 404, 64;
    /// Someone else leads.
    NotLeader = "NOT_LEADER", 409, 75;
    /// Someone holds the lock, and the token is not an authentic one for it and this owner.
    NotLockOwner = "NOT_LOCK_OWNER", 403, 77;
    /// Nobody leads.
    NoLeader = "NO_LEADER", 404, 69;
    /// A counter has as many slots, or as high a total, as it may, or a register as many concurrent values.
    ObjectFull = "OBJECT_FULL", 409, 65;
    /// Nobody has claimed the key, or what came of it is forgotten.
    OnceNotFound = "ONCE_NOT_FOUND", 404, 69;
    /// The server has as much to do as it takes on; try again after `retryAfterMillis`.
    Overloaded = "OVERLOADED", 503, 75;
    /// The lock's queue is at its configured maximum.
    QueueFull = "QUEUE_FULL", 503, 75;
    /// The receipt is not an authentic one for this limit and key.
    ReceiptInvalid = "RECEIPT_INVALID", 403, 77;
    /// The replica has not seen by now what the read was to have seen.
    ReplicaBehind = "REPLICA_BEHIND", 503, 75;
    /// The replica's disk can't be used. If `outcome` is `unknown`, the write may have taken effect.
    ReplicaUnavailable = "REPLICA_UNAVAILABLE", 503, 75;
    /// The same requestId came with other parameters.
    RequestIdReused = "REQUEST_ID_REUSED", 422, 65;
    /// The run had ended before.
    RunEnded = "RUN_ENDED", 409, 75;
    /// The attempt isn't running any more: its lease ran out, or it was called off.
    RunLost = "RUN_LOST", 409, 76;
    /// There is no run of this id, or it isn't kept any more.
    RunNotFound = "RUN_NOT_FOUND", 404, 69;
    /// A higher fencing token was seen: another holder has come since.
    StaleToken = "STALE_TOKEN", 409, 76;
    /// The server's cap on one call ran out; the place in the queue is kept 15 s for the same requestId.
    StillWaiting = "STILL_WAITING", 409, 75;
    /// The store has no room for more; releases and renewals still work.
    StoreFull = "STORE_FULL", 503, 75;
    /// The store can't be reached or didn't answer in time. If `outcome` is `unknown`, the call may have taken effect.
    StoreUnavailable = "STORE_UNAVAILABLE", 503, 75;
    /// The named successor doesn't stand by; nothing was changed.
    SuccessorNotWaiting = "SUCCESSOR_NOT_WAITING", 409, 75;
    /// The wait limit ran out; the caller has left the queue.
    WaitTimeout = "WAIT_TIMEOUT", 409, 75;
}

impl std::fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The body of every answer that isn't a success.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct ErrorBody {
    /// The stable code.
    pub error: ErrorCode,
    /// For people: what happened and what to do next.
    pub message: String,
    /// The part of the request that is at fault.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
    /// Where in that part, if it is a text with a language of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub position: Option<Position>,
    /// Which of several locks it is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lock_key: Option<String>,
    /// Who holds the lock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub current_owner: Option<String>,
    /// Who leads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub leader: Option<String>,
    /// The leader's epoch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub epoch: Option<u64>,
    /// When it is worth trying again; for a held lock, when its lease would end if not renewed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after_millis: Option<u64>,
    /// How many are waiting for the lock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue_length: Option<u64>,
    /// The requestId to call again with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_id: Option<String>,
    /// The highest fencing token that was seen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub highest: Option<u64>,
    /// `unknown` when the call may have taken effect: send it again with the same requestId.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<String>,
}

/// A part of a text: the bytes from `start` up to `end`, on the borders of characters. Empty where something is missing.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Position {
    /// The first byte at fault.
    pub start: u16,
    /// The first byte after it.
    pub end: u16,
}

impl ErrorBody {
    /// A body with nothing but its code and message.
    pub fn new(error: ErrorCode, message: impl Into<String>) -> Self {
        Self {
            error,
            message: message.into(),
            field: None,
            position: None,
            lock_key: None,
            current_owner: None,
            leader: None,
            epoch: None,
            retry_after_millis: None,
            queue_length: None,
            request_id: None,
            highest: None,
            outcome: None,
        }
    }

    /// A body for input that is not allowed.
    pub fn invalid(field: impl Into<String>, message: impl Into<String>) -> Self {
        Self { field: Some(field.into()), ..Self::new(ErrorCode::InvalidArgument, message) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_in_alphabetical_order_and_named_alike_on_the_wire() {
        let names: Vec<_> = ErrorCode::ALL.iter().map(|code| code.as_str()).collect();
        let mut sorted = names.clone();
        sorted.sort_unstable();
        assert_eq!(names, sorted);
        for code in ErrorCode::ALL {
            assert_eq!(serde_json::to_value(code).unwrap(), code.as_str());
        }
    }
}
