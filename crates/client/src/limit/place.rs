//! A place among those in flight.

use super::Limit;
use crate::clock::Moment;
use crate::error::Error;
use std::sync::Arc;
use std::time::Duration;

/// A place among those in flight, kept while this lives. Dropping it gives it back in the background;
/// [`give_back`](Self::give_back) says how that went.
///
/// It isn't renewed: it ends when its time is over, `leaseTtlMillis` of the limit, and somebody else may have it then. So that
/// should be longer than the work takes.
#[derive(Debug)]
pub struct Place {
    limit: Limit,
    key: Arc<str>,
    lease_id: String,
    ends: Moment,
    /// Somebody else's to give back, or given back already.
    done: bool,
}

impl Place {
    pub(super) fn new(limit: Limit, key: Arc<str>, lease_id: String, ends: Moment) -> Self {
        Self { limit, key, lease_id, ends, done: false }
    }

    /// Its id.
    pub fn lease_id(&self) -> &str {
        &self.lease_id
    }

    /// For how much longer it is ours, counted from before it was asked for.
    pub fn remaining(&self) -> Duration {
        self.ends.remaining()
    }

    /// Gives it back, and says how that went. If that fails, it ends by itself when its time is over.
    pub async fn give_back(mut self) -> Result<(), Error> {
        let given_back = self.limit.give_back(&self.key, &self.lease_id).await;
        self.done = true;
        given_back
    }

    /// Keeps it beyond this value's end, for whoever [gives it back](Limit::give_back) elsewhere. Its id.
    pub fn keep(mut self) -> String {
        self.done = true;
        std::mem::take(&mut self.lease_id)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // Once its time is over there is nothing to give back.
        if self.done || self.ends.has_passed() {
            return;
        }
        let (limit, key, id) = (self.limit.clone(), self.key.clone(), std::mem::take(&mut self.lease_id));
        let deadline = self.ends.min(self.limit.deadline());
        self.limit.baton.0.runtime.spawn(async move {
            // Nobody is left to be told; if it fails, the place ends by itself.
            drop(limit.give_back_until(&key, &id, deadline).await);
        });
    }
}
