//! What is said to the server about one lease, and that it is never left without an answer.
//!
//! From when a message is made until its answer is heard nobody else speaks for that lease. So whoever sends it tells the purse what
//! came of it in any case: also if its task is dropped, begun or not, because a runtime is shut down.

use super::Inner;
use super::key::Sought;
use crate::error::Error;
use baton_api::limit::{LeaseRequest, LeaseResponse};
use baton_core::limit::purse::Message;
use std::sync::Arc;
use std::time::Duration;

/// A message that somebody has to send.
pub(super) struct Asking {
    inner: Arc<Inner>,
    key: String,
    sought: Sought,
    message: Message,
    is_over: bool,
}

impl Asking {
    pub fn new(inner: &Arc<Inner>, key: String, sought: Sought, message: Message) -> Self {
        Self { inner: inner.clone(), key, sought, message, is_over: false }
    }

    /// Says to the server what became of a lease, and hears what it has now: what was given by a definition that has changed since goes
    /// back at once. Whether there was an answer.
    pub async fn ask(mut self, patience: Duration) -> bool {
        let is_heard = self.say(patience).await;
        let inner = &self.inner;
        if let Some(message) = inner.purses.outdated(&self.sought, inner.clock.now_ms()) {
            Self::new(inner, self.key.clone(), self.sought, message).say(patience).await;
        }
        is_heard
    }

    async fn say(&mut self, patience: Duration) -> bool {
        let (inner, message) = (&self.inner, &self.message);
        let Some((lease_id, version)) = inner.purses.lease_of(&self.sought) else { return false };
        let request = LeaseRequest {
            key: self.key.clone(),
            identity: inner.identity,
            node_id: inner.purses.owner().to_owned(),
            lease_id: Some(lease_id),
            sequence: Some(message.sequence),
            want: message.want,
            spent: message.spent,
            kept: Some(message.kept),
            version,
            ttl_millis: version.map(|_| message.ttl_ms),
        };
        let answer: Result<LeaseResponse, Error> = inner.limit.lease(&request, patience).await;
        let Ok(lent) = answer else {
            self.give_up();
            return false;
        };
        self.is_over = true;
        self.inner.purses.heard(&self.sought, &self.message, &lent, self.inner.clock.now_ms())
    }

    /// Nobody answers it any more.
    fn give_up(&mut self) {
        if !self.is_over {
            self.is_over = true;
            self.inner.purses.unheard(&self.sought, &self.message, self.inner.clock.now_ms());
        }
    }
}

impl Drop for Asking {
    fn drop(&mut self) {
        self.give_up();
    }
}
