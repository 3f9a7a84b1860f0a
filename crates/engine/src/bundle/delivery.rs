//! An answer on its way to its caller. If nobody takes it, everything is given back.

use super::attempt::Attempt;
use crate::lock::Granted;
use baton_core::bundle;

/// Grants that count, and the attempt that made them.
pub(super) struct Delivery {
    granted: Vec<Granted>,
    /// What has to be undone if nobody takes it.
    attempt: Option<Attempt>,
}

impl Delivery {
    pub fn new(granted: Vec<Granted>, attempt: Attempt) -> Self {
        Self { granted, attempt: Some(attempt) }
    }

    /// Grants that an earlier call has made: only that one may undo them.
    pub fn repeated(granted: Vec<Granted>) -> Self {
        Self { granted, attempt: None }
    }

    /// The caller has them.
    pub fn take(mut self) -> Vec<Granted> {
        self.attempt = None;
        std::mem::take(&mut self.granted)
    }
}

impl Drop for Delivery {
    fn drop(&mut self) {
        // Without a runtime the process is at its end, and the leases run out.
        if let (Some(attempt), Ok(runtime)) = (self.attempt.take(), tokio::runtime::Handle::try_current()) {
            runtime.spawn(forsake(attempt));
        }
    }
}

/// Everything is held, and nobody was told: gives it back, unless another call was given it.
async fn forsake(mut attempt: Attempt) {
    let (by, kept) = (attempt.by, attempt.kept);
    if let Ok(true) = attempt.decide(|name, view| bundle::forsake(name, by, kept, view)).await {
        // If that fails, a repetition of the call does it, or the leases run out.
        attempt.clear().await.ok();
    }
}
