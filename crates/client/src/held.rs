//! What is held: a lock, or the leadership of an election. To the server these are the same thing under two names, and so
//! they are here: one guard, one lease, one way to renew. This file is where the names differ.

use crate::error::Error;
use crate::lease::LossReason;
use baton_api::ErrorCode;
use baton_api::election::{
    CampaignRequest, CampaignResponse, RenewLeaderRequest, RenewLeaderResponse, ResignRequest, ResignResponse,
};
use baton_api::lock::{
    AcquireRequest, AcquireResponse, ReleaseRequest, ReleaseResponse, RenewRequest, RenewResponse,
};
use bytes::Bytes;

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Held {
    Lock,
    Election,
}

/// What is asked for, apart from how long to wait for it.
#[derive(Clone, Debug)]
pub(crate) enum Request {
    Acquire(AcquireRequest),
    Campaign(CampaignRequest),
}

impl Request {
    pub(crate) fn held(&self) -> Held {
        match self {
            Self::Acquire(_) => Held::Lock,
            Self::Campaign(_) => Held::Election,
        }
    }

    pub(crate) fn ttl_millis(&self) -> u64 {
        match self {
            Self::Acquire(request) => request.ttl_millis,
            Self::Campaign(request) => request.ttl_millis,
        }
    }

    /// Under this requestId from now on.
    pub(crate) fn rename(&mut self, request_id: String) {
        match self {
            Self::Acquire(request) => request.request_id = Some(request_id),
            Self::Campaign(request) => request.request_id = Some(request_id),
        }
    }

    /// Waiting, with a limit or without.
    pub(crate) fn waiting(&self, timeout_ms: Option<u64>) -> Self {
        match self.clone() {
            Self::Acquire(request) => {
                Self::Acquire(AcquireRequest { wait: true, wait_timeout_millis: timeout_ms, ..request })
            }
            Self::Campaign(request) => {
                Self::Campaign(CampaignRequest { wait: true, wait_timeout_millis: timeout_ms, ..request })
            }
        }
    }

    pub(crate) fn encode(&self) -> Result<Bytes, Error> {
        match self {
            Self::Acquire(request) => encode(request),
            Self::Campaign(request) => encode(request),
        }
    }
}

/// Proves who holds it.
pub(crate) struct Proof<'a> {
    pub(crate) token: &'a str,
    pub(crate) owner: &'a str,
}

impl Held {
    /// The body of a renewal.
    pub(crate) fn renewal(self, proof: &Proof<'_>, ttl_millis: u64) -> Result<Bytes, Error> {
        let (token, owner) = (proof.token.to_owned(), proof.owner.to_owned());
        match self {
            Self::Lock => encode(&RenewRequest { lock_token: token, owner_id: owner, ttl_millis }),
            Self::Election => {
                encode(&RenewLeaderRequest { leader_token: token, candidate_id: owner, ttl_millis })
            }
        }
    }

    /// The body of a release or a resignation; only a leader names a successor.
    pub(crate) fn release(
        self,
        proof: &Proof<'_>,
        request_id: &str,
        successor: Option<&str>,
    ) -> Result<Bytes, Error> {
        let (token, owner, request_id) =
            (proof.token.to_owned(), proof.owner.to_owned(), request_id.to_owned());
        match self {
            Self::Lock => {
                encode(&ReleaseRequest { lock_token: token, owner_id: owner, request_id: Some(request_id) })
            }
            Self::Election => encode(&ResignRequest {
                leader_token: token,
                candidate_id: owner,
                successor: successor.map(str::to_owned),
                request_id: Some(request_id),
            }),
        }
    }
}

/// Which loss an answer to a renewal means, if it means one.
pub(crate) fn loss(code: ErrorCode) -> Option<LossReason> {
    match code {
        ErrorCode::LockExpired | ErrorCode::LeadershipLost => Some(LossReason::Expired),
        ErrorCode::NotLockOwner | ErrorCode::NotLeader => Some(LossReason::NotOwner),
        ErrorCode::LockNotFound | ErrorCode::NoLeader => Some(LossReason::NotFound),
        _ => None,
    }
}

pub(crate) fn granted(leader: CampaignResponse) -> AcquireResponse {
    AcquireResponse {
        lock_key: leader.election,
        lock_token: leader.leader_token,
        owner_id: leader.candidate_id,
        fencing_token: leader.epoch,
        expires_at: leader.expires_at,
        ttl_millis: leader.ttl_millis,
        reentrancy_count: 1,
        mode: baton_api::mode::LockMode::Exclusive,
        slot: None,
    }
}

pub(crate) fn renewed(leader: RenewLeaderResponse) -> RenewResponse {
    RenewResponse { lock_key: leader.election, expires_at: leader.expires_at, fencing_token: leader.epoch }
}

pub(crate) fn released(resigned: ResignResponse) -> ReleaseResponse {
    ReleaseResponse { status: resigned.status, lock_key: resigned.election }
}

pub(crate) fn encode(body: &impl serde::Serialize) -> Result<Bytes, Error> {
    serde_json::to_vec(body).map(Into::into).map_err(|error| Error::unexpected(error.to_string()))
}
