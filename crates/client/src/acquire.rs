//! One acquire from its first try to its grant, under one requestId.

use crate::batch::{Call, Fate, Operation};
use crate::baton::{Baton, TRY_MAX};
use crate::clock::Moment;
use crate::error::Error;
use crate::guard::LockGuard;
use crate::held::{Held, Request};
use crate::waiting::until_granted;
use baton_api::batch::Answer;
use baton_api::lock::AcquireResponse;
use std::sync::Arc;
use std::time::Duration;

pub(crate) struct Attempt {
    baton: Baton,
    namespace: Option<Arc<str>>,
    key: Arc<str>,
    request: Request,
    fate: Arc<Fate>,
}

impl Drop for Attempt {
    /// A grant that should still come in goes back, unless it was taken.
    fn drop(&mut self) {
        self.fate.abandon();
    }
}

impl Attempt {
    pub(crate) fn new(baton: Baton, namespace: Option<Arc<str>>, key: Arc<str>, request: Request) -> Self {
        Self { baton, namespace, key, request, fate: Arc::default() }
    }

    fn call(&self, request: &Request) -> Result<Call, Error> {
        Ok(Call {
            operation: match request.held() {
                Held::Lock => Operation::Acquire,
                Held::Election => Operation::Campaign,
            },
            namespace: self.namespace.clone(),
            key: self.key.clone(),
            body: request.encode()?,
            fate: self.fate.clone(),
        })
    }

    /// Acquires without waiting.
    pub(crate) async fn now(&self) -> Result<LockGuard, Error> {
        let call = self.call(&self.request)?;
        let deadline = Moment::now().after(self.baton.0.call_timeout);
        let answered = self.baton.0.call(&call, deadline, TRY_MAX).await?;
        match answered.answer {
            Answer::Acquire(grant) => self.granted(grant, answered.sent).await,
            _ => Err(Error::unexpected("an acquire was answered with something else")),
        }
    }

    /// Waits in the queue, on a connection of its own: closing it is how to leave.
    pub(crate) async fn wait(&self, give_up: Option<Moment>) -> Result<LockGuard, Error> {
        let mut request = self.request.clone();
        let operation = self.call(&request)?.operation;
        let ask = |request_id: Option<String>, limit_ms| {
            request_id.into_iter().for_each(|id| request.rename(id));
            Ok(self.call(&request.waiting(limit_ms))?.ask())
        };
        let read = |body: &[u8]| operation.read(body);
        match until_granted(&self.baton.0, give_up, ask, read).await? {
            (Answer::Acquire(grant), sent) => self.granted(grant, sent).await,
            _ => Err(Error::unexpected("an acquire was answered with something else")),
        }
    }

    async fn granted(&self, grant: AcquireResponse, sent: Moment) -> Result<LockGuard, Error> {
        self.fate.take();
        let ttl = Duration::from_millis(self.request.ttl_millis());
        let (baton, namespace, key) = (self.baton.clone(), self.namespace.clone(), self.key.clone());
        LockGuard::new(baton, self.request.held(), namespace, key, ttl, grant, sent).await
    }
}
