//! Elections: campaigning, and work that runs only while this candidate leads.
//!
//! # Layout
//! - this file: what a candidate says, and the scope of its leadership
//! - [`leader`]: who leads here: its epoch, its value, its end
//! - [`observe`]: who leads, wherever it is

mod leader;
mod observe;

pub use leader::{Epoch, Leader, LeaderGuard, Stamped};
pub use observe::{Elections, Observer};

use crate::acquire::Attempt;
use crate::baton::Baton;
use crate::clock::Moment;
use crate::error::Error;
use crate::held::Request;
use crate::lease::LeaseLost;
use crate::lock::{ROUNDS_MAX, is_spent};
use crate::random;
use baton_api::election::{CampaignRequest, TTL_MILLIS_DEFAULT};
use baton_api::limits;
use baton_api::lock::Metadata;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

type OnDeposed = Arc<dyn Fn(&LeaseLost) + Send + Sync>;

/// An election to campaign in. Made by [`Baton::election`].
#[derive(Clone)]
#[must_use = "nobody campaigns before campaign, try_campaign or lead"]
pub struct ElectionBuilder {
    baton: Baton,
    namespace: Option<Arc<str>>,
    name: String,
    candidate: Option<String>,
    ttl: Duration,
    wait_max: Option<Duration>,
    value: Option<Metadata>,
    priority: i16,
    on_deposed: Option<OnDeposed>,
}

impl ElectionBuilder {
    pub(crate) fn new(baton: Baton, name: String) -> Self {
        Self {
            namespace: baton.0.namespace.clone(),
            baton,
            name,
            candidate: None,
            ttl: Duration::from_millis(TTL_MILLIS_DEFAULT),
            wait_max: None,
            value: None,
            priority: 0,
            on_deposed: None,
        }
    }

    /// Another namespace than the client's.
    pub fn namespace(mut self, namespace: impl Into<Arc<str>>) -> Self {
        self.namespace = Some(namespace.into());
        self
    }

    /// Who this candidate is to others; without it, the client's owner.
    pub fn candidate(mut self, candidate: impl Into<String>) -> Self {
        self.candidate = Some(candidate.into());
        self
    }

    /// How long nobody leads if this process dies as the leader: 100 ms to 24 h, by default 10 s. A live leader renews.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = ttl;
        self
    }

    /// How long to stand by at most; without it, until elected.
    pub fn wait_max(mut self, wait: Duration) -> Self {
        self.wait_max = Some(wait);
        self
    }

    /// What everybody may know of this leader, as a small JSON object: its address, its build. At most 4 KiB.
    pub fn value(mut self, value: Metadata) -> Self {
        self.value = Some(value);
        self
    }

    /// Among those who stand by, higher priorities lead first: -1000 to 1000. It deposes nobody.
    pub fn priority(mut self, priority: i16) -> Self {
        self.priority = priority;
        self
    }

    /// Called when the leadership of [`lead`](Self::lead) is lost, after its work was dropped.
    pub fn on_deposed(mut self, callback: impl Fn(&LeaseLost) + Send + Sync + 'static) -> Self {
        self.on_deposed = Some(Arc::new(callback));
        self
    }

    /// Campaigns, and stands by until elected. Dropping the future withdraws.
    pub async fn campaign(self) -> Result<LeaderGuard, Error> {
        let give_up = self.wait_max.map(|wait| Moment::now().after(wait));
        let mut round = 1;
        loop {
            match self.attempt()?.wait(give_up).await {
                // Its turn came too late to be used, and its requestId is spent: start anew.
                Err(error) if is_spent(&error) && round < ROUNDS_MAX => round += 1,
                result => return result.map(LeaderGuard::new),
            }
        }
    }

    /// Leads if nobody else does. The error [says so](Error::is_not_leader) if somebody does, and its
    /// [body](Error::body) who.
    pub async fn try_campaign(self) -> Result<LeaderGuard, Error> {
        self.attempt()?.now().await.map(LeaderGuard::new)
    }

    /// Campaigns, runs work while leading, and resigns when it is done.
    ///
    /// The work is dropped where it stands when the leadership can no longer be trusted: by this machine's own clock,
    /// before the store elects anyone else, whether or not the server can be reached. The error then
    /// [says so](Error::lease_lost). To lead again, call it again.
    pub async fn lead<Work, Running>(self, work: Work) -> Result<Running::Output, Error>
    where
        Work: FnOnce(Leader) -> Running,
        Running: Future,
    {
        let on_deposed = self.on_deposed.clone();
        let guard = self.campaign().await?;
        let lease = guard.lease();
        let deposed = |lost: &LeaseLost| {
            if let Some(callback) = &on_deposed {
                callback(lost);
            }
        };
        let output = lease.run(work(guard.leader())).await.inspect_err(deposed)?;
        match guard.resign().await {
            Err(error) if error.is_lease_lost() => {
                error.lease_lost().into_iter().for_each(deposed);
                Err(error)
            }
            // If the resignation didn't get through, the lease runs out; the work is done all the same.
            Ok(()) | Err(_) => Ok(output),
        }
    }

    /// Checks everything, and makes the requestId.
    fn attempt(&self) -> Result<Attempt, Error> {
        limits::check_name("name", &self.name).map_err(Error::refused)?;
        if let Some(namespace) = &self.namespace {
            limits::check_text("namespace", namespace, limits::NAMESPACE_BYTES).map_err(Error::refused)?;
        }
        let request = CampaignRequest {
            candidate_id: self.candidate.clone().unwrap_or_else(|| self.baton.0.owner.clone()),
            ttl_millis: u64::try_from(self.ttl.as_millis()).unwrap_or(u64::MAX),
            wait: false,
            wait_timeout_millis: None,
            value: self.value.clone(),
            priority: self.priority,
            request_id: Some(random::request_id()),
        };
        request.check().map_err(Error::refused)?;
        let (name, request) = (self.name.as_str().into(), Request::Campaign(request));
        Ok(Attempt::new(self.baton.clone(), self.namespace.clone(), name, request))
    }
}

impl fmt::Debug for ElectionBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ElectionBuilder")
            .field("name", &self.name)
            .field("candidate", &self.candidate)
            .finish_non_exhaustive()
    }
}
