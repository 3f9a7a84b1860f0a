//! One opaque error with questions, and what one attempt can come to.

use crate::fence::StaleToken;
use crate::lease::LeaseLost;
use baton_api::{ErrorBody, ErrorCode};
use std::fmt;

/// Why a call didn't do what was asked. Ask it: `is_held()`, `is_unknown()`, …, or take its `code()`.
pub struct Error(Box<Kind>);

enum Kind {
    /// The server said no. `unknown`: an earlier try of the same call may have taken effect all the same.
    Refused { body: Box<ErrorBody>, unknown: bool },
    /// No try reached a server: nothing was applied.
    Unreachable(String),
    /// The call was sent and not answered: it may have been applied.
    Unknown(String),
    /// Something that isn't Baton's answer came back.
    Unexpected(String),
    /// The addresses given can't be used.
    Address(String),
    /// The lease was lost.
    Lost(LeaseLost),
    /// A fence refused the token.
    Stale(StaleToken),
}

impl Error {
    pub(crate) fn address(message: impl Into<String>) -> Self {
        Self(Box::new(Kind::Address(message.into())))
    }

    pub(crate) fn refused(body: ErrorBody) -> Self {
        Self(Box::new(Kind::Refused { body: Box::new(body), unknown: false }))
    }

    pub(crate) fn unexpected(message: impl Into<String>) -> Self {
        Self(Box::new(Kind::Unexpected(message.into())))
    }

    /// The last failure of a call; `unknown` if any try of it may have been applied.
    pub(crate) fn from_failure(failure: Failure, unknown: bool) -> Self {
        Self(Box::new(match failure {
            Failure::Refused(body) => Kind::Refused { body, unknown },
            Failure::Unexpected(message) => Kind::Unexpected(message),
            Failure::NotSent(message) if !unknown => Kind::Unreachable(message),
            Failure::NotSent(message) | Failure::Unknown(message) => Kind::Unknown(message),
        }))
    }

    /// The server's code, if the server said no.
    pub fn code(&self) -> Option<ErrorCode> {
        self.body().map(|body| body.error)
    }

    /// All the server said, if it said no: who holds the lock, when to try again.
    pub fn body(&self) -> Option<&ErrorBody> {
        match &*self.0 {
            Kind::Refused { body, .. } => Some(body),
            _ => None,
        }
    }

    /// Someone else holds the lock, or it stays closed for a while after someone whose lease ran out.
    pub fn is_held(&self) -> bool {
        matches!(self.code(), Some(ErrorCode::LockAlreadyHeld | ErrorCode::LockDelayed))
    }

    /// Someone else leads.
    pub fn is_not_leader(&self) -> bool {
        self.code() == Some(ErrorCode::NotLeader)
    }

    /// The wait limit ran out before the lock was free.
    pub fn is_wait_timeout(&self) -> bool {
        self.code() == Some(ErrorCode::WaitTimeout)
    }

    /// The lock was not acquired because of others: it is held, the wait ran out, or its queue is full.
    pub fn is_not_acquired(&self) -> bool {
        self.is_held()
            || self.is_not_leader()
            || self.is_wait_timeout()
            || self.code() == Some(ErrorCode::QueueFull)
    }

    /// The call may have taken effect: no answer came, or the store couldn't tell. Never read it as "no".
    pub fn is_unknown(&self) -> bool {
        match &*self.0 {
            Kind::Unknown(_) | Kind::Unexpected(_) => true,
            Kind::Refused { body, unknown } => *unknown || body.outcome.as_deref() == Some("unknown"),
            _ => false,
        }
    }

    /// No server could be reached; nothing was applied.
    pub fn is_unreachable(&self) -> bool {
        matches!(&*self.0, Kind::Unreachable(_))
    }

    /// The server, or its store, couldn't serve the call now; later it may.
    pub fn is_unavailable(&self) -> bool {
        let refused = self.code().is_some_and(|code| code.http_status() == 503);
        refused || matches!(&*self.0, Kind::Unreachable(_) | Kind::Unknown(_))
    }

    /// What was asked is not allowed, whoever asks: a bad key, TTL, address.
    pub fn is_invalid(&self) -> bool {
        let invalid = matches!(self.code(), Some(ErrorCode::InvalidArgument | ErrorCode::RequestIdReused));
        invalid || matches!(&*self.0, Kind::Address(_))
    }

    /// The lease was lost: what was done under it may have run beside someone else's work.
    pub fn is_lease_lost(&self) -> bool {
        self.lease_lost().is_some()
            || matches!(
                self.code(),
                Some(
                    ErrorCode::LockExpired
                        | ErrorCode::LeadershipLost
                        | ErrorCode::NotLockOwner
                        | ErrorCode::LockNotFound
                        | ErrorCode::NoLeader
                        | ErrorCode::ClaimLost
                )
            )
    }

    /// Which lease was lost and how it was noticed, if this is about a lease held here.
    pub fn lease_lost(&self) -> Option<&LeaseLost> {
        match &*self.0 {
            Kind::Lost(lost) => Some(lost),
            _ => None,
        }
    }

    /// The fence's refusal, if this is one: someone else has the lock by now.
    pub fn stale_token(&self) -> Option<&StaleToken> {
        match &*self.0 {
            Kind::Stale(stale) => Some(stale),
            _ => None,
        }
    }
}

impl From<StaleToken> for Error {
    fn from(stale: StaleToken) -> Self {
        Self(Box::new(Kind::Stale(stale)))
    }
}

impl From<LeaseLost> for Error {
    fn from(lost: LeaseLost) -> Self {
        Self(Box::new(Kind::Lost(lost)))
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &*self.0 {
            Kind::Refused { body, .. } => {
                write!(f, "{}: {}", body.error, body.message)?;
                if self.is_unknown() {
                    f.write_str(" (outcome unknown: an earlier try may have taken effect)")?;
                }
                Ok(())
            }
            Kind::Unreachable(message) => {
                write!(f, "no server could be reached: {message}; check the address and that the server runs")
            }
            Kind::Unknown(message) => write!(
                f,
                "outcome unknown: {message}; the call may have taken effect, so look at the lock or repeat the \
                 call with the same requestId"
            ),
            Kind::Unexpected(message) => {
                write!(
                    f,
                    "an answer that isn't Baton's: {message}; check that the address is a Baton server's"
                )
            }
            Kind::Address(message) => f.write_str(message),
            Kind::Lost(lost) => lost.fmt(f),
            Kind::Stale(stale) => stale.fmt(f),
        }
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Error({self})")
    }
}

impl std::error::Error for Error {}

/// How one try of a call failed.
#[derive(Clone, Debug)]
pub(crate) enum Failure {
    /// It never left: nothing was applied.
    NotSent(String),
    /// It left, and no answer came.
    Unknown(String),
    /// The server said no.
    Refused(Box<ErrorBody>),
    /// What came back isn't Baton's.
    Unexpected(String),
}

impl Failure {
    /// Whether the same call may fare better later.
    pub(crate) fn is_transient(&self) -> bool {
        match self {
            Self::NotSent(_) | Self::Unknown(_) => true,
            Self::Refused(body) => body.error.http_status() == 503,
            Self::Unexpected(_) => false,
        }
    }

    /// Whether this try may have been applied.
    pub(crate) fn may_have_applied(&self) -> bool {
        match self {
            Self::NotSent(_) => false,
            Self::Refused(body) => body.outcome.as_deref() == Some("unknown"),
            Self::Unknown(_) | Self::Unexpected(_) => true,
        }
    }

    /// Whether another server may fare better.
    pub(crate) fn blames_server(&self) -> bool {
        match self {
            Self::NotSent(_) | Self::Unknown(_) => true,
            Self::Refused(body) => {
                matches!(
                    body.error,
                    ErrorCode::StoreUnavailable
                        | ErrorCode::Overloaded
                        | ErrorCode::ClockSkew
                        | ErrorCode::ReplicaBehind
                        | ErrorCode::ReplicaUnavailable
                )
            }
            Self::Unexpected(_) => false,
        }
    }

    pub(crate) fn retry_after_ms(&self) -> u64 {
        match self {
            Self::Refused(body) => body.retry_after_millis.unwrap_or(0),
            _ => 0,
        }
    }
}
