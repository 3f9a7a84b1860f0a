//! Limits: whether a key may go on.
//!
//! A refusal is an outcome, not an error. An error means that nobody knows, or that the question was wrong; what a caller makes of
//! that is its own decision.
//!
//! # Layout
//! - this file: a limit, and what can be asked of it
//! - `check`: one check, and several together
//! - `outcome`: what came of them
//! - `receipt`, `place`: what a check can be given back with, or must be given back
//! - `reserve`: booking a time instead of being refused

mod check;
mod outcome;
mod place;
mod receipt;
mod reserve;

pub use check::{Check, CheckAll, OneCheck};
pub use outcome::{Allowed, Checked, CheckedAll, Refused};
pub use place::Place;
pub use receipt::Receipt;
pub use reserve::{Reservation, Reserve, Reserved};

use crate::baton::{Baton, TRY_MAX};
use crate::clock::Moment;
use crate::error::Error;
use crate::held::encode;
use crate::path;
use baton_api::limit::{
    LeaseList, LeaseRequest, LeaseResponse, LimitBound, LimitLog, LimitUsage, RefundRequest, RefundResponse,
    ReturnLeaseRequest, ReturnLeaseResponse,
};
use baton_api::limits;
use serde::de::DeserializeOwned;
use std::sync::Arc;
use std::time::Duration;

/// For how long calls with a requestId are repeated at most: the server remembers them for 60 s.
const REPEAT_MAX: Duration = Duration::from_secs(50);

/// A limit to ask. Made by [`Baton::limit`]; cheap to clone, and worth keeping.
///
/// ```no_run
/// # async fn example(baton: baton_client::Baton) -> Result<(), baton_client::Error> {
/// use baton_client::limit::Checked;
///
/// match baton.limit("api").check("acme").await? {
///     Checked::Allowed(allowed) => println!("go on, {} left", allowed.remaining),
///     Checked::Refused(refused) => println!("come back in {:?}", refused.retry_after),
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Limit {
    baton: Baton,
    namespace: Option<Arc<str>>,
    name: Arc<str>,
}

/// Which part of a log.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct LogQuery {
    /// Only lines about this key.
    pub key: Option<String>,
    /// How many at most: 1 to 1,000; 100 if not said.
    pub limit: Option<u64>,
    /// Goes on after a line with this cursor, or with the `next_cursor` of a page.
    pub cursor: Option<String>,
}

impl Limit {
    pub(crate) fn new(baton: Baton, name: Arc<str>) -> Self {
        Self { namespace: baton.0.namespace.clone(), baton, name }
    }

    /// Another namespace than the client's.
    pub fn namespace(mut self, namespace: impl Into<Arc<str>>) -> Self {
        self.namespace = Some(namespace.into());
        self
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether a key may go on, and counts it: before the work is done. Costs 1 unless it says more.
    pub fn check(&self, key: impl Into<Arc<str>>) -> Check {
        Check::new(self.clone(), key.into())
    }

    /// Books a time to go on instead of being refused, if there is one within `wait_max`. For token buckets.
    pub fn reserve(&self, key: impl Into<Arc<str>>, wait_max: Duration) -> Reserve {
        Reserve::new(self.clone(), key.into(), wait_max)
    }

    /// What a key has used, without using any.
    pub async fn usage(&self, key: &str) -> Result<LimitUsage, Error> {
        limits::check_text("key", key, limits::KEY_BYTES).map_err(Error::refused)?;
        self.get("usage", Some(key)).await
    }

    /// How much more than the limit may pass, at worst, and why; of a key if it has a limit of its own.
    pub async fn bound(&self, key: Option<&str>) -> Result<LimitBound, Error> {
        if let Some(key) = key {
            limits::check_text("key", key, limits::KEY_BYTES).map_err(Error::refused)?;
        }
        self.get("bound", key).await
    }

    /// What is outstanding: leases of nodes, places in flight. Up to 1,000 of them.
    pub async fn leases(&self) -> Result<LeaseList, Error> {
        self.get("leases", None).await
    }

    /// What was decided about it, if it is audited, a page at a time, oldest first. Every line was in the store before its decision
    /// was answered.
    pub async fn audit(&self, query: &LogQuery) -> Result<LimitLog, Error> {
        self.log("audit", query).await
    }

    /// What became of leases of it, of nodes and of processes, a page at a time, oldest first. Written behind the answers, so a crash may lose
    /// the last of it.
    pub async fn lease_log(&self, query: &LogQuery) -> Result<LimitLog, Error> {
        self.log("leases/log", query).await
    }

    async fn log(&self, action: &str, query: &LogQuery) -> Result<LimitLog, Error> {
        self.check_names()?;
        if let Some(key) = &query.key {
            limits::check_text("key", key, limits::KEY_BYTES).map_err(Error::refused)?;
        }
        if let Some(limit) = query.limit {
            limits::check_number("limit", limit, limits::LIST_LIMIT).map_err(Error::refused)?;
        }
        let limit = query.limit.map(|limit| limit.to_string());
        let parameters = [
            ("namespace", self.namespace.as_deref()),
            ("key", query.key.as_deref()),
            ("limit", limit.as_deref()),
            ("cursor", query.cursor.as_deref()),
        ];
        let path = path::with_query(path::at("limits", &self.name, action, None), &parameters);
        let (reply, address) = self.baton.0.get(path).await?;
        reply.read(&address).map_err(|failure| Error::from_failure(failure, false))
    }

    /// Gives back what a check was counted for, because the work wasn't done; or cancels a reservation. For a receipt that came
    /// from elsewhere; one of this process can do it [by itself](Receipt::refund). How much was given back.
    pub async fn refund(&self, key: &str, receipt: &str) -> Result<u64, Error> {
        let request = RefundRequest { key: key.to_owned(), receipt: receipt.to_owned() };
        request.check().map_err(Error::refused)?;
        let deadline = self.deadline();
        let refunded: RefundResponse = self.post("refund", &request, deadline).await?;
        Ok(refunded.refunded)
    }

    /// Gives back a place in flight that came from elsewhere; one of this process [does it by itself](Place). It isn't held
    /// any more after this, whether or not it was.
    pub async fn give_back(&self, key: &str, lease_id: &str) -> Result<(), Error> {
        self.give_back_until(key, lease_id, self.deadline()).await
    }

    async fn give_back_until(&self, key: &str, lease_id: &str, deadline: Moment) -> Result<(), Error> {
        let request = ReturnLeaseRequest { key: key.to_owned(), lease_id: lease_id.to_owned() };
        request.check().map_err(Error::refused)?;
        self.post::<ReturnLeaseResponse>("lease/return", &request, deadline).await.map(drop)
    }

    /// How long a call may take.
    pub(crate) fn call_timeout(&self) -> Duration {
        self.baton.0.call_timeout
    }

    /// Says what became of a lease, again until it is answered or `patience` is over. What comes twice does no more than once.
    pub(crate) async fn lease(
        &self,
        request: &LeaseRequest,
        patience: Duration,
    ) -> Result<LeaseResponse, Error> {
        request.check().map_err(Error::refused)?;
        self.post("lease", request, Moment::now().after(patience.min(self.call_timeout()))).await
    }

    /// When a call that starts now is given up.
    fn deadline(&self) -> Moment {
        Moment::now().after(self.baton.0.call_timeout)
    }

    async fn get<T: DeserializeOwned>(&self, action: &str, key: Option<&str>) -> Result<T, Error> {
        self.check_names()?;
        let path = path::at("limits", &self.name, action, None);
        let path = path::with_query(path, &[("namespace", self.namespace.as_deref()), ("key", key)]);
        let (reply, address) = self.baton.0.get(path).await?;
        reply.read(&address).map_err(|failure| Error::from_failure(failure, false))
    }

    /// A call that does no more when it is sent twice.
    async fn post<T: DeserializeOwned>(
        &self,
        action: &str,
        request: &impl serde::Serialize,
        deadline: Moment,
    ) -> Result<T, Error> {
        self.check_names()?;
        let (path, body) = (self.path(action), encode(request)?);
        let (reply, address) = self.baton.0.post(path, body, deadline, TRY_MAX).await?;
        reply.read(&address).map_err(|failure| Error::from_failure(failure, false))
    }

    fn path(&self, action: &str) -> String {
        path::at("limits", &self.name, action, self.namespace.as_deref())
    }

    fn check_names(&self) -> Result<(), Error> {
        limits::check_name("name", &self.name).map_err(Error::refused)?;
        check_namespace(self.namespace.as_deref())
    }
}

pub(crate) fn check_namespace(namespace: Option<&str>) -> Result<(), Error> {
    namespace.map_or(Ok(()), |namespace| {
        limits::check_text("namespace", namespace, limits::NAMESPACE_BYTES).map_err(Error::refused)
    })
}
