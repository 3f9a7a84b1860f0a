//! What came of a check.

use super::Limit;
use super::place::Place;
use super::receipt::Receipt;
use crate::clock::Moment;
use baton_api::limit::{LimitCheckResponse, LimitExceeded};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// Whether a key may go on.
#[derive(Debug)]
#[must_use = "it may be a no"]
pub enum Checked {
    /// Go on: it was counted.
    Allowed(Allowed),
    /// Don't: nothing was counted.
    Refused(Refused),
}

impl Checked {
    /// Whether to go on.
    pub fn is_allowed(&self) -> bool {
        matches!(self, Self::Allowed(_))
    }

    /// What is left, if it may go on.
    pub fn allowed(self) -> Option<Allowed> {
        match self {
            Self::Allowed(allowed) => Some(allowed),
            Self::Refused(_) => None,
        }
    }

    /// Why not, if it may not.
    pub fn refused(self) -> Option<Refused> {
        match self {
            Self::Allowed(_) => None,
            Self::Refused(refused) => Some(refused),
        }
    }
}

/// Whether all of several checks pass.
#[derive(Debug)]
#[must_use = "it may be a no"]
pub enum CheckedAll {
    /// Go on: all were counted. One for each check, in their order.
    Allowed(Vec<Allowed>),
    /// Don't: this one refused, and none was counted.
    Refused(Refused),
}

impl CheckedAll {
    /// Whether to go on.
    pub fn is_allowed(&self) -> bool {
        matches!(self, Self::Allowed(_))
    }

    /// What is left of each, if all may go on.
    pub fn allowed(self) -> Option<Vec<Allowed>> {
        match self {
            Self::Allowed(all) => Some(all),
            Self::Refused(_) => None,
        }
    }

    /// Which refused and why, if one did.
    pub fn refused(self) -> Option<Refused> {
        match self {
            Self::Allowed(_) => None,
            Self::Refused(refused) => Some(refused),
        }
    }
}

/// A check that passed.
#[derive(Debug)]
#[non_exhaustive]
pub struct Allowed {
    /// How much the key may use at once.
    pub limit: u64,
    /// What is left.
    pub remaining: u64,
    /// After how long all of it is available again.
    pub reset: Duration,
    /// Who decided: `central`, `local`, `renewed` or `fallback`.
    pub source: String,
    /// What it can be given back with, if that was asked for.
    pub receipt: Option<Receipt>,
    /// The place it has, if the limit is on what is in flight. Dropping it gives it back, so keep it while the work lasts.
    pub place: Option<Place>,
    /// What a limit that only counts (`dryRun`) would have said: no.
    pub would_refuse: bool,
}

impl Allowed {
    /// Decided in this process.
    pub(crate) fn plain(limit: u64, remaining: u64, reset_ms: u64, source: &str) -> Self {
        let reset = Duration::from_millis(reset_ms);
        Self {
            limit,
            remaining,
            reset,
            source: source.into(),
            receipt: None,
            place: None,
            would_refuse: false,
        }
    }
}

/// A check that didn't pass.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Refused {
    /// The limit that refused.
    pub name: String,
    /// The key that has used it up.
    pub key: String,
    /// `budget_exhausted`, `local_budget_exhausted`, `global_budget_exhausted`, `store_unavailable` or
    /// `hot_key_capped`.
    pub reason: String,
    /// After how long it is worth trying again; nothing if it never is: the cost is more than the limit.
    pub retry_after: Option<Duration>,
    /// How much the key may use at once.
    pub limit: u64,
    /// What is left.
    pub remaining: u64,
    /// After how long all of it is available again.
    pub reset: Duration,
    /// Who decided.
    pub source: String,
    /// For people.
    pub message: String,
}

impl Refused {
    /// Decided in this process: the store has just said so.
    pub(crate) fn local(
        name: &str,
        key: &str,
        limit: u64,
        reset_ms: u64,
        retry_after_ms: Option<u64>,
    ) -> Self {
        Self {
            message: format!("the limit {name:?} is used up for this key"),
            name: name.to_owned(),
            key: key.to_owned(),
            reason: "local_budget_exhausted".to_owned(),
            retry_after: retry_after_ms.map(Duration::from_millis),
            limit,
            remaining: 0,
            reset: Duration::from_millis(reset_ms),
            source: "local".to_owned(),
        }
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl From<LimitExceeded> for Refused {
    fn from(body: LimitExceeded) -> Self {
        Self {
            name: body.name,
            key: body.key,
            reason: body.reason,
            retry_after: body.retry_after_millis.map(Duration::from_millis),
            limit: body.limit,
            remaining: body.remaining,
            reset: Duration::from_millis(body.reset_millis),
            source: body.source,
            message: body.message,
        }
    }
}

/// What an answer means to whoever asked at `began`.
pub(super) fn checked(limit: Limit, key: Arc<str>, response: LimitCheckResponse, began: Moment) -> Checked {
    let reset = Duration::from_millis(response.reset_millis);
    if !response.allowed {
        // A look at something that is used up: it says when all of it is back, and not when the first unit is.
        return Checked::Refused(Refused {
            message: format!("the limit {:?} is used up for this key", limit.name()),
            name: limit.name().to_owned(),
            key: key.to_string(),
            reason: "budget_exhausted".to_owned(),
            retry_after: Some(reset),
            limit: response.limit,
            remaining: response.remaining,
            reset,
            source: response.source,
        });
    }
    let place = response.lease_id.map(|id| {
        let ttl = Duration::from_millis(response.lease_ttl_millis.unwrap_or_default());
        Place::new(limit.clone(), key.clone(), id, began.after(ttl))
    });
    Checked::Allowed(Allowed {
        limit: response.limit,
        remaining: response.remaining,
        reset,
        source: response.source,
        receipt: response.receipt.map(|text| Receipt::new(limit, key, text)),
        place,
        would_refuse: response.would_refuse,
    })
}
