//! The fence registry: a fence at the server, for a resource that can't compare tokens itself (F3).

use super::StaleToken;
use crate::baton::{Baton, TRY_MAX};
use crate::clock::Moment;
use crate::error::Error;
use crate::held::encode;
use crate::{FencingToken, ListQuery, path, random};
use baton_api::fence::{CheckRequest, CheckResponse, FenceList, FenceStatus, ForgetRequest, ForgetResponse};
use baton_api::{ErrorCode, limits};
use serde::de::DeserializeOwned;
use std::sync::Arc;

/// A fence at the server. Made by [`Baton::fence`].
///
/// The check is not one step with the write that follows: another holder can check a higher token in between, and write
/// first. It narrows the window and doesn't close it, so prefer a resource that compares tokens itself.
///
/// ```no_run
/// # async fn example(baton: baton_client::Baton, lock: baton_client::LockGuard) -> Result<(), baton_client::Error> {
/// baton.fence("bucket/report.csv").check(lock.fencing_token()).await?;
/// // … and now write, soon.
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct RegisteredFence {
    baton: Baton,
    namespace: Option<Arc<str>>,
    resource: String,
}

impl RegisteredFence {
    pub(crate) fn new(baton: Baton, resource: String) -> Self {
        Self { namespace: baton.0.namespace.clone(), baton, resource }
    }

    /// Another namespace than the client's.
    pub fn namespace(mut self, namespace: impl Into<Arc<str>>) -> Self {
        self.namespace = Some(namespace.into());
        self
    }

    /// Accepts a token that isn't lower than any before, and remembers it. If it is, the error [says
    /// so](Error::stale_token), and nothing should try again.
    pub async fn check(&self, token: FencingToken) -> Result<(), Error> {
        self.ask(token, false).await
    }

    /// Accepts a token that is higher than any before: for what may be done once for each grant.
    pub async fn check_higher(&self, token: FencingToken) -> Result<(), Error> {
        self.ask(token, true).await
    }

    async fn ask(&self, token: FencingToken, strict: bool) -> Result<(), Error> {
        self.check_names()?;
        let request = CheckRequest { token: token.get(), strict, request_id: Some(random::request_id()) };
        request.check().map_err(Error::refused)?;
        let deadline = Moment::now().after(self.baton.0.call_timeout);
        let (reply, address) =
            self.baton.0.post(self.path("check"), encode(&request)?, deadline, TRY_MAX).await?;
        let read = reply.read::<CheckResponse>(&address);
        let error = match read.map_err(|failure| Error::from_failure(failure, false)) {
            Ok(_) => return Ok(()),
            Err(error) => error,
        };
        match error.body() {
            Some(body) if body.error == ErrorCode::StaleToken => {
                Err(StaleToken::new(token, body.highest).into())
            }
            _ => Err(error),
        }
    }

    /// The highest token so far, and about how many were checked; nothing before the first.
    pub async fn status(&self) -> Result<Option<FenceStatus>, Error> {
        self.check_names()?;
        match read(&self.baton, self.path("")).await {
            Ok(status) => Ok(Some(status)),
            Err(error) if error.code() == Some(ErrorCode::FenceNotFound) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Forgets the fence: it then accepts any token, also a stale one. The reason goes to the server's log.
    pub async fn forget(&self, reason: &str) -> Result<ForgetResponse, Error> {
        self.check_names()?;
        let body = ForgetRequest { reason: reason.to_owned() };
        body.check().map_err(Error::refused)?;
        // Sent once: a repeated one could hit the fence that has come since.
        let (reply, address) = self.baton.0.post_once(self.path("forget"), encode(&body)?.to_vec()).await?;
        reply.read(&address).map_err(|failure| Error::from_failure(failure, false))
    }

    fn path(&self, action: &str) -> String {
        path::at("fences", &self.resource, action, self.namespace.as_deref())
    }

    fn check_names(&self) -> Result<(), Error> {
        limits::check_name("resource", &self.resource).map_err(Error::refused)?;
        match &self.namespace {
            Some(namespace) => {
                limits::check_text("namespace", namespace, limits::NAMESPACE_BYTES).map_err(Error::refused)
            }
            None => Ok(()),
        }
    }
}

/// One page of the fences of a namespace.
pub(crate) async fn list(
    baton: &Baton,
    namespace: Option<&str>,
    query: &ListQuery,
) -> Result<FenceList, Error> {
    if let Some(limit) = query.limit {
        limits::check_number("limit", limit, limits::LIST_LIMIT).map_err(Error::refused)?;
    }
    let limit = query.limit.map(|limit| limit.to_string());
    let parameters = [
        ("namespace", namespace),
        ("prefix", query.prefix.as_deref()),
        ("limit", limit.as_deref()),
        ("cursor", query.cursor.as_deref()),
    ];
    read(baton, path::with_query("/v1/fences".into(), &parameters)).await
}

async fn read<T: DeserializeOwned>(baton: &Baton, path: String) -> Result<T, Error> {
    let (reply, address) = baton.0.get(path).await?;
    reply.read(&address).map_err(|failure| Error::from_failure(failure, false))
}
