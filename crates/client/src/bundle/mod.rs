//! Several locks at once, all or none (L16).
//!
//! # Layout
//! - this file: asking for them
//! - `guard`: holding them; `lease`: how long that may be trusted

mod guard;
mod lease;

pub use guard::BundleGuard;
pub use lease::BundleLease;

use crate::baton::{Baton, TRY_MAX};
use crate::clock::Moment;
use crate::connection::Ask;
use crate::error::Error;
use crate::held::encode;
use crate::lock::{HeldBy, ROUNDS_MAX, TTL_DEFAULT, TryAcquire, is_spent};
use crate::waiting::until_granted;
use crate::{path, random};
use baton_api::bundle::{AcquireAllRequest, AcquireAllResponse};
use baton_api::limits;
use baton_api::lock::Metadata;
use hyper::Method;
use std::sync::Arc;
use std::time::Duration;

/// Several locks to acquire at once. Made by [`Baton::bundle`].
///
/// Either all of them are ours or none is, and nothing is held while we wait: whoever asks for the same locks in another
/// order is no danger. Each lock is held alone; to share one, or to take a permit, acquire it by itself.
#[derive(Clone, Debug)]
#[must_use = "nothing is acquired before acquire, try_acquire or run"]
pub struct BundleBuilder {
    baton: Baton,
    namespace: Option<Arc<str>>,
    keys: Vec<String>,
    owner: Option<String>,
    ttl: Duration,
    wait_max: Option<Duration>,
    metadata: Option<Metadata>,
    request_id: Option<String>,
    lock_delay: Duration,
}

impl BundleBuilder {
    pub(crate) fn new(baton: Baton, keys: Vec<String>) -> Self {
        Self {
            namespace: baton.0.namespace.clone(),
            baton,
            keys,
            owner: None,
            ttl: TTL_DEFAULT,
            wait_max: None,
            metadata: None,
            request_id: None,
            lock_delay: Duration::ZERO,
        }
    }

    /// Another namespace than the client's.
    pub fn namespace(mut self, namespace: impl Into<Arc<str>>) -> Self {
        self.namespace = Some(namespace.into());
        self
    }

    /// Another owner than the client's.
    pub fn owner(mut self, owner: impl Into<String>) -> Self {
        self.owner = Some(owner.into());
        self
    }

    /// How long each lock stays taken if this process dies: 100 ms to 24 h, by default 30 s. A live holder renews.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = ttl;
        self
    }

    /// How long [`acquire`](Self::acquire) waits at most, for all of them; without it, until granted.
    pub fn wait_max(mut self, wait: Duration) -> Self {
        self.wait_max = Some(wait);
        self
    }

    /// A small JSON object that others see in the status of each lock. At most 4 KiB.
    pub fn metadata(mut self, metadata: Metadata) -> Self {
        self.metadata = Some(metadata);
        self
    }

    /// A requestId of your own: the same one gives the same grants, also from another process.
    pub fn request_id(mut self, id: impl Into<String>) -> Self {
        self.request_id = Some(id.into());
        self
    }

    /// How long each lock stays closed to everybody if its lease should run out: at most an hour, by default not at all.
    pub fn lock_delay(mut self, delay: Duration) -> Self {
        self.lock_delay = delay;
        self
    }

    /// Acquires all of them, waiting while somebody holds one. Dropping the future gives back what there is.
    pub async fn acquire(self) -> Result<BundleGuard, Error> {
        let give_up = self.wait_max.map(|wait| Moment::now().after(wait));
        let mut round = 1;
        loop {
            match self.wait(self.request()?, give_up).await {
                // Some grant came too late to be used, and the requestId is spent: start anew.
                Err(error) if is_spent(&error) && self.request_id.is_none() && round < ROUNDS_MAX => {
                    round += 1
                }
                other => return other,
            }
        }
    }

    /// Acquires all of them if they are free, and says which isn't and who has it if not.
    pub async fn try_acquire(self) -> Result<TryAcquire<BundleGuard>, Error> {
        let body = encode(&self.request()?)?;
        let deadline = Moment::now().after(self.baton.0.call_timeout);
        let (reply, address) = self.baton.0.post(self.path(), body, deadline, TRY_MAX).await?;
        if reply.status.is_success() {
            let granted = reply.read(&address).map_err(|failure| Error::from_failure(failure, true))?;
            return self.granted(granted, reply.sent).await.map(TryAcquire::Acquired);
        }
        let error = Error::from_failure(reply.refusal(&address), false);
        match error.body() {
            Some(body) if error.is_held() => Ok(TryAcquire::Held(HeldBy::from(body))),
            _ => Err(error),
        }
    }

    /// Runs work under all of them, and releases them. If one is lost, the work is dropped where it stands, and the error
    /// [says which](Error::lease_lost); it does too if the loss only shows on release.
    pub async fn run<Work, Running>(self, work: Work) -> Result<Running::Output, Error>
    where
        Work: FnOnce(BundleLease) -> Running,
        Running: Future,
    {
        let guard = self.acquire().await?;
        let output = guard.lease().run(work(guard.lease())).await?;
        match guard.release().await {
            Err(error) if error.is_lease_lost() => Err(error),
            // If a release didn't get through, the lease runs out; the work is done all the same.
            Ok(()) | Err(_) => Ok(output),
        }
    }

    async fn wait(&self, request: AcquireAllRequest, give_up: Option<Moment>) -> Result<BundleGuard, Error> {
        let ask = |request_id: Option<String>, limit_ms| {
            let body = encode(&AcquireAllRequest {
                wait: true,
                wait_timeout_millis: limit_ms,
                request_id: request_id.or_else(|| request.request_id.clone()),
                ..request.clone()
            })?;
            Ok(Ask { method: Method::POST, path: self.path(), body })
        };
        let read = |body: &[u8]| serde_json::from_slice(body);
        let (granted, sent) = until_granted(&self.baton.0, give_up, ask, read).await?;
        self.granted(granted, sent).await
    }

    async fn granted(&self, granted: AcquireAllResponse, sent: Moment) -> Result<BundleGuard, Error> {
        BundleGuard::new(&self.baton, self.namespace.clone(), self.ttl, granted.grants, sent).await
    }

    fn path(&self) -> String {
        path::with_query("/v1/locks:acquireAll".into(), &[("namespace", self.namespace.as_deref())])
    }

    /// Checks everything, and makes the requestId.
    fn request(&self) -> Result<AcquireAllRequest, Error> {
        if let Some(namespace) = &self.namespace {
            limits::check_text("namespace", namespace, limits::NAMESPACE_BYTES).map_err(Error::refused)?;
        }
        let request = AcquireAllRequest {
            lock_keys: self.keys.clone(),
            owner_id: self.owner.clone().unwrap_or_else(|| self.baton.0.owner.clone()),
            ttl_millis: u64::try_from(self.ttl.as_millis()).unwrap_or(u64::MAX),
            wait: false,
            wait_timeout_millis: None,
            request_id: Some(self.request_id.clone().unwrap_or_else(random::request_id)),
            metadata: self.metadata.clone(),
            lock_delay_millis: u64::try_from(self.lock_delay.as_millis()).unwrap_or(u64::MAX),
        };
        request.check().map_err(Error::refused)?;
        Ok(request)
    }
}
