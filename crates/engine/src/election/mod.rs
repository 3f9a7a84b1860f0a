//! Elections: a leader is the holder of a lock of the election family, a candidate is its waiter, an epoch is its fencing
//! token. Campaigning, renewing and resigning are the lock's own calls; here is what comes on top (E6, E7, E8).
//!
//! # Layout
//! - this file: campaign, proclaim, resign in favour of somebody
//! - [`inspect`]: who stands by, in the order of their turns
//! - [`observe`]: who leads, as it changes

pub mod inspect;
pub mod observe;

pub use inspect::{Candidate, Candidates};
pub use observe::{Leader, Observation, Observed};

use crate::engine::Engine;
use crate::lock::service::{refusal, told};
use crate::lock::{AcquireCall, Failure, Granted, LockError, ReleaseCall};
use baton_core::lock::command::Proclaim;
use baton_core::lock::election::rank;
use baton_core::lock::{Command, FencingToken, LockName, Principal, Reply};
use baton_core::{Bytes, Revision};
use std::sync::Arc;

/// A leader's new value.
#[derive(Clone, Debug)]
pub struct ProclaimCall {
    /// As it came over the wire.
    pub token: String,
    /// As in the campaign.
    pub candidate: Arc<str>,
    /// As in the campaign.
    pub principal: Principal,
    /// Compact JSON.
    pub value: Option<Bytes>,
}

impl Engine {
    /// Leads, or queues for it: behind higher priorities, and behind equal ones that came before (E1, E8).
    pub async fn campaign(
        &self,
        election: &LockName,
        call: AcquireCall,
        priority: i16,
    ) -> Result<Granted, LockError> {
        self.acquire_ranked(election, call, rank(priority)).await
    }

    /// Stops leading; the next candidate, or the named one, leads at once (E4, E8).
    pub async fn resign(
        &self,
        election: &LockName,
        call: ReleaseCall,
        successor: Option<Arc<str>>,
    ) -> Result<(), LockError> {
        self.release_to(election, call, successor).await
    }

    /// Changes the leader's value (E7). Says its epoch.
    pub async fn proclaim(&self, election: &LockName, call: ProclaimCall) -> Result<FencingToken, LockError> {
        let token = self.authentic(election, &call.token, &call.candidate, &call.principal).await?;
        let proclaim = Proclaim { id: token.id, fencing: Revision(token.fencing.0), value: call.value };
        match told(self.node.ask(election, Command::Proclaim(proclaim)).await)?.reply {
            Reply::Proclaimed => Ok(token.fencing),
            // Nothing is proclaimed by a call that waits.
            Reply::Parked => Err(LockError::Failed(Failure::Internal)),
            reply => Err(refusal(reply, String::new())),
        }
    }
}
