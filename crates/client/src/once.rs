//! Doing something once: the first caller does the work, all others get its result (L18).
//!
//! This is what making a retry safe needs, instead of a lock: a lock is free again when the retry comes.

mod claim;

pub use claim::Claim;

use crate::baton::{Baton, TRY_MAX};
use crate::clock::Moment;
use crate::error::Error;
use crate::{path, random};
use baton_api::once::{ClaimRequest, ClaimResponse, OnceState, OnceStatus};
use baton_api::{ErrorBody, ErrorCode, limits};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

const TTL_DEFAULT: Duration = Duration::from_secs(30);
/// How long one call waits: below the server's cap.
const WAIT_CALL: Duration = Duration::from_secs(30);
/// Between two calls that wait, if the server didn't.
const WAIT_PAUSE: Duration = Duration::from_millis(200);

/// Something to do once. Made by [`Baton::once`].
#[derive(Clone, Debug)]
#[must_use = "nothing is claimed before run or claim"]
pub struct Once {
    baton: Baton,
    namespace: Option<Arc<str>>,
    key: Arc<str>,
    owner: Option<String>,
    ttl: Duration,
    result_ttl: Option<Duration>,
    wait_max: Option<Duration>,
    request_id: Option<String>,
}

/// What came of a claim.
#[derive(Debug)]
pub enum Claimed {
    /// It is ours to do.
    First(Claim),
    /// Somebody else is at it.
    Running(Running),
    /// It was done.
    Done(Done),
}

/// Somebody else is at it.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Running {
    /// Who.
    pub owner: String,
    /// When their claim passes on if it isn't renewed.
    pub retry_after: Duration,
}

/// It was done, and this came of it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Done {
    /// The result as JSON, byte for byte as it was given.
    pub result: String,
    /// When, in milliseconds since the Unix epoch by the store's clock.
    pub completed_at: u64,
}

impl Done {
    /// The result as what it should be.
    pub fn read<T: DeserializeOwned>(&self) -> Result<T, Error> {
        serde_json::from_str(&self.result).map_err(|error| {
            Error::unexpected(format!("the stored result isn't what was expected of it: {error}"))
        })
    }
}

/// Why [`Once::run`] has no result.
#[derive(Debug)]
pub enum NotDone<E> {
    /// The work failed here. The claim was given up, so that the next caller may try at once.
    Failed(E),
    /// It couldn't be claimed, waited for or completed. If [the lease was lost](Error::is_lease_lost), another caller may
    /// be at it.
    Baton(Error),
}

impl<E> From<Error> for NotDone<E> {
    fn from(error: Error) -> Self {
        Self::Baton(error)
    }
}

impl<E: fmt::Display> fmt::Display for NotDone<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Failed(error) => error.fmt(f),
            Self::Baton(error) => error.fmt(f),
        }
    }
}

impl<E: std::error::Error + 'static> std::error::Error for NotDone<E> {}

impl Once {
    pub(crate) fn new(baton: Baton, key: String) -> Self {
        Self {
            namespace: baton.0.namespace.clone(),
            baton,
            key: key.into(),
            owner: None,
            ttl: TTL_DEFAULT,
            result_ttl: None,
            wait_max: None,
            request_id: None,
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

    /// How long the claim stays taken if this process dies: 100 ms to 24 h, by default 30 s. A live one renews.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = ttl;
        self
    }

    /// How long the result is kept: 1 s to 30 days, by default a day. Then the key is as new.
    pub fn result_ttl(mut self, result_ttl: Duration) -> Self {
        self.result_ttl = Some(result_ttl);
        self
    }

    /// How long [`run`](Self::run) and [`claim_or_wait`](Self::claim_or_wait) wait at most for another caller; without
    /// it, until it is done or theirs.
    pub fn wait_max(mut self, wait: Duration) -> Self {
        self.wait_max = Some(wait);
        self
    }

    /// A requestId of your own: the same one gives the same claim, also from another process.
    pub fn request_id(mut self, id: impl Into<String>) -> Self {
        self.request_id = Some(id.into());
        self
    }

    /// Does the work if nobody has, and gives its result, whoever did it.
    ///
    /// If the work fails, its error comes back and the claim is given up. If the claim is lost meanwhile, the work is
    /// dropped where it stands: another caller may be at it.
    pub async fn run<T, E, Work, Doing>(self, work: Work) -> Result<T, NotDone<E>>
    where
        T: Serialize + DeserializeOwned,
        Work: FnOnce(crate::Lease) -> Doing,
        Doing: Future<Output = Result<T, E>>,
    {
        let claim = match self.claim_or_wait().await? {
            Claimed::Done(done) => return Ok(done.read()?),
            Claimed::First(claim) => claim,
            Claimed::Running(_) => return Err(wait_timeout().into()),
        };
        let lease = claim.lease();
        let outcome = lease.run(work(lease.clone())).await;
        match outcome {
            Err(lost) => Err(NotDone::Baton(lost.into())),
            Ok(Ok(result)) => {
                claim.complete(&result).await?;
                Ok(result)
            }
            Ok(Err(error)) => {
                // If that doesn't get through, the claim runs out.
                claim.fail().await.ok();
                Err(NotDone::Failed(error))
            }
        }
    }

    /// Claims the key, or says how far it is.
    pub async fn claim(&self) -> Result<Claimed, Error> {
        let request = self.request()?;
        self.claimed(&request, Duration::ZERO).await
    }

    /// Claims the key; while somebody else is at it, waits until it is done, or theirs no more, or the limit is over.
    pub async fn claim_or_wait(&self) -> Result<Claimed, Error> {
        let request = self.request()?;
        let give_up = self.wait_max.map(|wait| Moment::now().after(wait));
        loop {
            let began = Moment::now();
            let wait = give_up.map_or(WAIT_CALL, |give_up| WAIT_CALL.min(give_up.remaining()));
            let claimed = self.claimed(&request, wait).await?;
            if !matches!(claimed, Claimed::Running(_)) || give_up.is_some_and(Moment::has_passed) {
                return Ok(claimed);
            }
            if Moment::now().since(began) < WAIT_PAUSE {
                // A server that is about to stop doesn't wait.
                tokio::time::sleep(WAIT_PAUSE).await;
            }
        }
    }

    /// How far the key is, and what came of it; nothing if nobody has claimed it.
    pub async fn status(&self) -> Result<Option<OnceStatus>, Error> {
        self.check()?;
        let (reply, address) = self.baton.0.get(self.path("")).await?;
        match reply.read(&address).map_err(|failure| Error::from_failure(failure, false)) {
            Ok(status) => Ok(Some(status)),
            Err(error) if error.code() == Some(ErrorCode::OnceNotFound) => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn claimed(&self, request: &ClaimRequest, wait: Duration) -> Result<Claimed, Error> {
        let wait_timeout_millis = u64::try_from(wait.as_millis()).ok().filter(|millis| *millis > 0);
        let body = crate::held::encode(&ClaimRequest { wait_timeout_millis, ..request.clone() })?;
        let deadline = Moment::now().after(wait + self.baton.0.call_timeout);
        let (reply, address) = self.baton.0.post(self.path(""), body, deadline, wait + TRY_MAX).await?;
        let response: ClaimResponse =
            reply.read(&address).map_err(|failure| Error::from_failure(failure, false))?;
        Ok(match (response.claim_token.clone(), response.state) {
            (Some(token), _) => Claimed::First(Claim::new(self, response, token, reply.sent).await?),
            (None, OnceState::Done) => Claimed::Done(Done {
                // A result of null is read as none.
                result: response.result.map_or_else(|| "null".to_owned(), |result| result.get().to_owned()),
                completed_at: response.completed_at.unwrap_or(0),
            }),
            (None, OnceState::Running) => Claimed::Running(Running {
                owner: response.owner_id.unwrap_or_default(),
                retry_after: Duration::from_millis(response.retry_after_millis.unwrap_or(0)),
            }),
        })
    }

    fn path(&self, action: &str) -> String {
        path::at("once", &self.key, action, self.namespace.as_deref())
    }

    fn check(&self) -> Result<(), Error> {
        limits::check_name("onceKey", &self.key).map_err(Error::refused)?;
        match &self.namespace {
            Some(namespace) => {
                limits::check_text("namespace", namespace, limits::NAMESPACE_BYTES).map_err(Error::refused)
            }
            None => Ok(()),
        }
    }

    /// Checks everything, and makes the requestId.
    fn request(&self) -> Result<ClaimRequest, Error> {
        self.check()?;
        if let Some(kept) = self.result_ttl {
            let kept = u64::try_from(kept.as_millis()).unwrap_or(u64::MAX);
            limits::check_number("resultTtlMillis", kept, limits::RESULT_TTL_MILLIS)
                .map_err(Error::refused)?;
        }
        let request = ClaimRequest {
            owner_id: self.owner.clone().unwrap_or_else(|| self.baton.0.owner.clone()),
            ttl_millis: u64::try_from(self.ttl.as_millis()).unwrap_or(u64::MAX),
            request_id: Some(self.request_id.clone().unwrap_or_else(random::request_id)),
            wait_timeout_millis: None,
        };
        request.check().map_err(Error::refused)?;
        Ok(request)
    }
}

fn wait_timeout() -> Error {
    let message = "another caller is still at it; wait longer, or look later";
    Error::refused(ErrorBody::new(ErrorCode::WaitTimeout, message))
}
