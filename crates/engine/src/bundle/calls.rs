//! What callers of the bundle service say and hear.

use crate::failure::Failure;
use crate::lock::{LockError, Wait};
use baton_core::Bytes;
use baton_core::lock::{LockName, Principal};
use std::sync::Arc;
use std::time::Duration;

/// An acquire of several locks, already within the limits on input.
#[derive(Clone, Debug)]
pub struct BundleCall {
    /// Which: of one namespace, at least one, none twice.
    pub locks: Vec<LockName>,
    /// Who asks.
    pub owner: Arc<str>,
    /// As whom.
    pub principal: Principal,
    /// For how long.
    pub ttl: Duration,
    /// Whether to queue, and how long in all.
    pub wait: Wait,
    /// Made by the engine if absent.
    pub request_id: Option<String>,
    /// Of each lock; compact JSON.
    pub metadata: Option<Bytes>,
    /// For how long each stays closed if its lease runs out.
    pub delay: Duration,
}

/// Why none of the locks was given.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BundleError {
    /// Which lock it is about, if it is about one.
    pub lock: Option<LockName>,
    /// Why.
    pub error: LockError,
}

impl From<LockError> for BundleError {
    fn from(error: LockError) -> Self {
        Self { lock: None, error }
    }
}

impl From<Failure> for BundleError {
    fn from(failure: Failure) -> Self {
        LockError::Failed(failure).into()
    }
}
