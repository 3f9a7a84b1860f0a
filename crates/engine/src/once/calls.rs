//! What callers of the once service say and hear.

use crate::failure::Failure;
use baton_core::lock::{FencingToken, Principal};
use baton_core::once::ClaimToken;
use baton_core::{Bytes, WallTime};
use std::sync::Arc;
use std::time::Duration;

/// A claim, already within the limits on input.
#[derive(Clone, Debug)]
pub struct ClaimCall {
    /// Who asks.
    pub owner: Arc<str>,
    /// As whom.
    pub principal: Principal,
    /// How long the claim lasts if it isn't renewed.
    pub ttl: Duration,
    /// Made by the engine if absent.
    pub request_id: Option<String>,
    /// How long to wait, while somebody else is at it, for it to be done or to pass on.
    pub wait: Duration,
}

/// What came of a claim.
#[derive(Clone, Debug)]
pub enum Claimed {
    /// It is the caller's to do.
    First(First),
    /// It is somebody else's, or done.
    Later(Seen),
}

/// A claim that is the caller's.
#[derive(Clone, Debug)]
pub struct First {
    /// Proves it.
    pub token: ClaimToken,
    /// For the resource.
    pub fencing: FencingToken,
    /// For display.
    pub expires_at: WallTime,
}

/// A key that is claimed or done.
#[derive(Clone, Debug)]
pub enum Seen {
    /// Somebody is at it.
    Running(Running),
    /// It was done.
    Done(Done),
}

/// Somebody is at it.
#[derive(Clone, Debug)]
pub struct Running {
    /// Who.
    pub owner: Arc<str>,
    /// The claim's.
    pub fencing: FencingToken,
    /// Since when.
    pub claimed_at: WallTime,
    /// When the claim passes on if it isn't renewed.
    pub expires_at: WallTime,
    /// The same, from now.
    pub expires_in: Duration,
}

/// It was done.
#[derive(Clone, Debug)]
pub struct Done {
    /// The claim's.
    pub fencing: FencingToken,
    /// As it was given.
    pub result: Bytes,
    /// When.
    pub completed_at: WallTime,
    /// When it is forgotten.
    pub expires_at: WallTime,
}

/// The claim was renewed.
#[derive(Clone, Copy, Debug)]
pub struct Renewed {
    /// For display.
    pub expires_at: WallTime,
    /// As claimed.
    pub fencing: FencingToken,
}

/// Why a call didn't do what it was asked to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OnceError {
    /// The rules say no. Nothing is unclear, and nothing was changed.
    Refused(Refusal),
    /// It couldn't be done.
    Failed(Failure),
}

/// What the rules say no with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// The claim ran out or was given up.
    Lost,
    /// The claim was completed, with another result or by another call.
    AlreadyCompleted,
    /// Not a token of this key.
    NotOwner,
    /// The requestId was used with other parameters.
    RequestIdReused,
}

impl From<Failure> for OnceError {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

impl OnceError {
    /// In a word, for a metric's label.
    pub fn label(&self) -> &'static str {
        match self {
            Self::Refused(Refusal::Lost) => "lost",
            Self::Refused(Refusal::AlreadyCompleted) => "already_completed",
            Self::Refused(Refusal::NotOwner) => "not_owner",
            Self::Refused(Refusal::RequestIdReused) => "request_id_reused",
            Self::Failed(failure) => failure.label(),
        }
    }
}
