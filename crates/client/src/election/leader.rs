//! Who leads here: a guard that keeps the leadership, and handles for the work that is done under it.

use crate::clock::Moment;
use crate::connection::Ask;
use crate::error::Error;
use crate::guard::{Grant, LockGuard};
use crate::held::{Held, encode};
use crate::lease::{Lease, LeaseLost};
use crate::path;
use crate::token::FencingToken;
use baton_api::election::{ElectionStatus, ProclaimRequest, ProclaimResponse};
use baton_api::lock::Metadata;
use baton_api::{ErrorBody, ErrorCode, limits};
use hyper::Method;
use std::fmt;
use std::sync::Arc;

/// Candidates read at once.
const PAGE: u64 = 1000;

/// Grows with every leader of an election (E2). Whoever is told something by a leader compares it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, serde::Serialize, serde::Deserialize)]
#[serde(transparent)]
pub struct Epoch(u64);

impl Epoch {
    /// The number, below 2^53.
    pub fn get(self) -> u64 {
        self.0
    }
}

impl From<FencingToken> for Epoch {
    fn from(token: FencingToken) -> Self {
        Self(token.get())
    }
}

impl From<Epoch> for FencingToken {
    /// For a fence at the receiving side: an epoch is the fencing token of the leader's grant.
    fn from(epoch: Epoch) -> Self {
        Self::new(epoch.0)
    }
}

impl fmt::Display for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// What a leader says, with the epoch it says it in: made by [`Leader::stamp`], so that nobody forgets it.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
pub struct Stamped<T> {
    /// When it was said: refuse it if a higher one was seen.
    pub epoch: Epoch,
    /// What.
    #[serde(flatten)]
    pub message: T,
}

/// The leadership, for work that is done under it. Cheap to clone; it doesn't keep the leadership alive.
#[derive(Clone)]
pub struct Leader(Arc<Grant>);

impl Leader {
    /// The election.
    pub fn election(&self) -> &str {
        &self.0.key
    }

    /// The candidate that leads: this one.
    pub fn candidate(&self) -> &str {
        &self.0.owner
    }

    /// The epoch of this leadership, whether or not it still lasts.
    pub fn epoch(&self) -> Epoch {
        self.0.lease.fencing_token().into()
    }

    /// The same number, for resources that compare fencing tokens.
    pub fn fencing_token(&self) -> FencingToken {
        self.0.lease.fencing_token()
    }

    /// The epoch, if the leadership can still be trusted. A clock read: ask before every step that matters.
    pub fn confirm(&self) -> Result<Epoch, LeaseLost> {
        self.0.lease.check().map_or_else(|| Ok(self.epoch()), Err)
    }

    /// A message with the epoch on it, if the leadership can still be trusted.
    pub fn stamp<T>(&self, message: T) -> Result<Stamped<T>, LeaseLost> {
        Ok(Stamped { epoch: self.confirm()?, message })
    }

    /// The lease behind it.
    pub fn lease(&self) -> Lease {
        self.0.lease.clone()
    }

    /// Resolves when the leadership can no longer be trusted.
    pub async fn deposed(&self) -> LeaseLost {
        self.0.lease.lost().await
    }

    /// Changes this leader's public value. Whoever observes the election hears of it. Fails once the leadership is lost.
    pub async fn proclaim(&self, value: Metadata) -> Result<(), Error> {
        self.confirm()?;
        let request = ProclaimRequest {
            leader_token: self.0.token.reveal().to_owned(),
            candidate_id: self.0.owner.clone(),
            value,
        };
        request.check().map_err(Error::refused)?;
        let path = path::of(Held::Election, &self.0.key, "proclaim", self.0.namespace.as_deref());
        let ask = Ask { method: Method::POST, path, body: encode(&request)? };
        let deadline = Moment::now().after(self.0.baton.0.call_timeout);
        // Saying it twice is saying it once. Later than the lease it would be refused anyway.
        let said = self.0.lease.run(self.0.baton.0.repeat(&ask, deadline)).await?;
        let (reply, address) = said?;
        reply
            .read::<ProclaimResponse>(&address)
            .map(drop)
            .map_err(|failure| Error::from_failure(failure, false))
    }
}

impl fmt::Debug for Leader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Leader").field("lease", &self.0.lease).finish_non_exhaustive()
    }
}

/// A leadership, renewed in the background. Dropping it resigns in the background; [`resign`](Self::resign) says how that
/// went.
#[derive(Debug)]
pub struct LeaderGuard(LockGuard);

impl LeaderGuard {
    pub(super) fn new(guard: LockGuard) -> Self {
        Self(guard)
    }

    /// A handle for the work that is done under it.
    pub fn leader(&self) -> Leader {
        Leader(self.0.grant.clone())
    }

    /// The election.
    pub fn election(&self) -> &str {
        self.0.lock_key()
    }

    /// The candidate that leads: this one.
    pub fn candidate(&self) -> &str {
        self.0.owner()
    }

    /// The epoch of this leadership.
    pub fn epoch(&self) -> Epoch {
        self.0.fencing_token().into()
    }

    /// The same number, for resources that compare fencing tokens.
    pub fn fencing_token(&self) -> FencingToken {
        self.0.fencing_token()
    }

    /// The lease behind it.
    pub fn lease(&self) -> Lease {
        self.0.lease()
    }

    /// Whether the leadership can no longer be trusted.
    pub fn is_deposed(&self) -> bool {
        self.0.is_lost()
    }

    /// Resolves when the leadership can no longer be trusted.
    pub async fn deposed(&self) -> LeaseLost {
        self.0.lost().await
    }

    /// Changes this leader's public value, as [`Leader::proclaim`] does.
    pub async fn proclaim(&self, value: Metadata) -> Result<(), Error> {
        self.leader().proclaim(value).await
    }

    /// Resigns: the next candidate leads at once. An error that [is about the lease](Error::is_lease_lost) means that the
    /// leadership had been lost before.
    pub async fn resign(self) -> Result<(), Error> {
        self.0.release().await
    }

    /// Resigns in favour of a candidate who stands by. If it doesn't, the error says `SUCCESSOR_NOT_WAITING` and this one
    /// leads on, unless the candidate withdrew in that very moment: then this leadership
    /// [is over](Self::is_deposed) too, and goes to whoever is next when the guard is dropped. A leader doesn't trust itself
    /// any more once it has begun to resign.
    pub async fn resign_to(&mut self, successor: &str) -> Result<(), Error> {
        limits::check_text("successor", successor, limits::OWNER_BYTES).map_err(Error::refused)?;
        if !self.stands_by(successor).await? {
            let message = "the named successor doesn't stand by; this one leads on";
            return Err(Error::refused(ErrorBody::new(ErrorCode::SuccessorNotWaiting, message)));
        }
        self.0.give_back(Some(successor)).await
    }

    async fn stands_by(&self, candidate: &str) -> Result<bool, Error> {
        let grant = &self.0.grant;
        let mut cursor: Option<String> = None;
        loop {
            let path = path::of(Held::Election, &grant.key, "", None);
            let limit = PAGE.to_string();
            let parameters = [
                ("namespace", grant.namespace.as_deref()),
                ("limit", Some(limit.as_str())),
                ("cursor", cursor.as_deref()),
            ];
            let (reply, address) = grant.baton.0.get(path::with_query(path, &parameters)).await?;
            let status: ElectionStatus =
                reply.read(&address).map_err(|failure| Error::from_failure(failure, false))?;
            let is_it = |one: &baton_api::election::Candidate| one.candidate_id == candidate && one.connected;
            if status.candidates.iter().any(is_it) {
                return Ok(true);
            }
            cursor = status.next_cursor;
            if cursor.is_none() {
                return Ok(false);
            }
        }
    }
}
