//! One check, and several together.

use super::outcome::{Checked, CheckedAll, Refused, checked};
use super::{Limit, REPEAT_MAX, check_namespace};
use crate::address::Address;
use crate::baton::{Baton, Inner, TRY_MAX};
use crate::clock::Moment;
use crate::connection::Reply;
use crate::error::Error;
use crate::held::encode;
use crate::{path, random};
use baton_api::ErrorCode;
use baton_api::limit::{
    CheckAllRequest, CheckAllResponse, Identity, LimitCheckRequest, LimitCheckResponse, LimitExceeded,
    OneOfSeveral,
};
use bytes::Bytes;
use serde::de::DeserializeOwned;
use std::pin::Pin;
use std::sync::Arc;

/// A check to make: await it. Made by [`Limit::check`].
///
/// It is sent once. If no answer comes, the error [is unknown](Error::is_unknown), and it may have been counted: asking again
/// could count it twice. [`retry`](Self::retry) makes that safe, at a price.
#[derive(Clone, Debug)]
#[must_use = "nothing is checked before it is awaited"]
pub struct Check {
    limit: Limit,
    key: Arc<str>,
    cost: u64,
    identity: Option<Identity>,
    receipt: bool,
    request_id: Option<String>,
}

impl Check {
    pub(super) fn new(limit: Limit, key: Arc<str>) -> Self {
        Self { limit, key, cost: 1, identity: None, receipt: false, request_id: None }
    }

    /// How much it uses; 0 looks without using any.
    pub fn cost(mut self, cost: u64) -> Self {
        self.cost = cost;
        self
    }

    /// Whether it is somebody who is known: whoever isn't gets less slack of an approximate limit, and is decided by the definition's
    /// `anonymousMechanism`, if it has one.
    pub fn identity(mut self, identity: Identity) -> Self {
        self.identity = Some(identity);
        self
    }

    /// With a receipt that it can be given back with. The store decides it then, also if the limit is leased.
    pub fn receipt(mut self) -> Self {
        self.receipt = true;
        self
    }

    /// Sends it again until it is answered, under a requestId of its own, so that it counts once.
    ///
    /// The store remembers every such check for a minute, and decides it itself, also if the limit is leased. That is a
    /// write more for each: worth it where a unit is worth something, and not for keeping strangers out.
    pub fn retry(self) -> Self {
        let id = random::request_id();
        self.request_id(id)
    }

    /// The same under a requestId of yours: the same one within a minute is the same check, also from another process.
    pub fn request_id(mut self, id: impl Into<String>) -> Self {
        self.request_id = Some(id.into());
        self
    }

    async fn send(self) -> Result<Checked, Error> {
        self.limit.check_names()?;
        let Self { limit, key, cost, identity, receipt, request_id } = self;
        let is_repeatable = request_id.is_some();
        let request = LimitCheckRequest { key: key.to_string(), cost, identity, request_id, receipt };
        request.check().map_err(Error::refused)?;
        let (began, body) = (Moment::now(), encode(&request)?);
        let (reply, address) = send(&limit.baton.0, limit.path("check"), body, is_repeatable).await?;
        Ok(match answer::<LimitCheckResponse>(&reply, &address)? {
            Ok(response) => checked(limit, key, response, began),
            Err(refused) => Checked::Refused(refused),
        })
    }
}

impl IntoFuture for Check {
    type Output = Result<Checked, Error>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.send())
    }
}

/// One of several checks: a limit's name, a key, and how much of it, 1 if nothing is said.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OneCheck {
    name: Arc<str>,
    key: Arc<str>,
    cost: u64,
    identity: Option<Identity>,
}

impl OneCheck {
    /// Whether it is somebody who is known: as [`Check::identity`].
    pub fn identity(mut self, identity: Identity) -> Self {
        self.identity = Some(identity);
        self
    }
}

impl<N: Into<Arc<str>>, K: Into<Arc<str>>> From<(N, K)> for OneCheck {
    fn from((name, key): (N, K)) -> Self {
        Self { name: name.into(), key: key.into(), cost: 1, identity: None }
    }
}

impl<N: Into<Arc<str>>, K: Into<Arc<str>>> From<(N, K, u64)> for OneCheck {
    fn from((name, key, cost): (N, K, u64)) -> Self {
        Self { name: name.into(), key: key.into(), cost, identity: None }
    }
}

/// Several checks to make together: await it. Made by [`Baton::check_all`].
///
/// All are counted, or none. As with [one](Check), it is sent once unless it says otherwise.
#[derive(Clone, Debug)]
#[must_use = "nothing is checked before it is awaited"]
pub struct CheckAll {
    baton: Baton,
    namespace: Option<Arc<str>>,
    checks: Vec<OneCheck>,
    receipt: bool,
    request_id: Option<String>,
}

impl CheckAll {
    pub(crate) fn new(baton: Baton, checks: Vec<OneCheck>) -> Self {
        Self { namespace: baton.0.namespace.clone(), baton, checks, receipt: false, request_id: None }
    }

    /// Another namespace than the client's.
    pub fn namespace(mut self, namespace: impl Into<Arc<str>>) -> Self {
        self.namespace = Some(namespace.into());
        self
    }

    /// With a receipt for each.
    pub fn receipt(mut self) -> Self {
        self.receipt = true;
        self
    }

    /// Sends it again until it is answered: as [`Check::retry`].
    pub fn retry(self) -> Self {
        let id = random::request_id();
        self.request_id(id)
    }

    /// The same under a requestId of yours: as [`Check::request_id`].
    pub fn request_id(mut self, id: impl Into<String>) -> Self {
        self.request_id = Some(id.into());
        self
    }

    async fn send(self) -> Result<CheckedAll, Error> {
        check_namespace(self.namespace.as_deref())?;
        let Self { baton, namespace, checks, receipt, request_id } = self;
        let is_repeatable = request_id.is_some();
        let one = |check: &OneCheck| OneOfSeveral {
            limit: check.name.to_string(),
            key: check.key.to_string(),
            cost: check.cost,
            identity: check.identity,
        };
        let request = CheckAllRequest { checks: checks.iter().map(one).collect(), request_id, receipt };
        request.check().map_err(Error::refused)?;
        let (began, body) = (Moment::now(), encode(&request)?);
        let path = path::with_query("/v1/limits:check".into(), &[("namespace", namespace.as_deref())]);
        let (reply, address) = send(&baton.0, path, body, is_repeatable).await?;
        let response = match answer::<CheckAllResponse>(&reply, &address)? {
            Ok(response) => response,
            Err(refused) => return Ok(CheckedAll::Refused(refused)),
        };
        if response.checks.len() != checks.len() {
            return Err(Error::unexpected("a different number of checks was answered than asked"));
        }
        let mut all = Vec::with_capacity(checks.len());
        let mut short = None;
        for (check, response) in checks.into_iter().zip(response.checks) {
            let limit = Limit { baton: baton.clone(), namespace: namespace.clone(), name: check.name };
            match checked(limit, check.key, response, began) {
                Checked::Allowed(allowed) => all.push(allowed),
                Checked::Refused(refused) => drop(short.get_or_insert(refused)),
            }
        }
        Ok(short.map_or(CheckedAll::Allowed(all), CheckedAll::Refused))
    }
}

impl IntoFuture for CheckAll {
    type Output = Result<CheckedAll, Error>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.send())
    }
}

/// Sends a call: again only if it never left, or if it can be told apart by its requestId.
pub(super) async fn send(
    inner: &Inner,
    path: String,
    body: Bytes,
    is_repeatable: bool,
) -> Result<(Reply, Address), Error> {
    if !is_repeatable {
        return inner.post_once(path, body.to_vec()).await;
    }
    let deadline = Moment::now().after(inner.call_timeout.min(REPEAT_MAX));
    inner.post(path, body, deadline, TRY_MAX).await
}

/// Yes, no, or an error.
fn answer<T: DeserializeOwned>(reply: &Reply, address: &Address) -> Result<Result<T, Refused>, Error> {
    if !reply.status.is_success()
        && let Ok(body) = serde_json::from_slice::<LimitExceeded>(&reply.body)
        && body.error == ErrorCode::LimitExceeded
    {
        return Ok(Err(body.into()));
    }
    reply.read(address).map(Ok).map_err(|failure| Error::from_failure(failure, false))
}
