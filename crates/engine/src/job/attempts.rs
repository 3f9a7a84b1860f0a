//! What workers and targets say of attempts: claim, heartbeat, complete, fail. The rules are core's.

use super::calls::JobError;
use crate::engine::{Engine, Node};
use baton_core::job::place::lease_of;
use baton_core::job::{self, AttemptEnd, Beginner, Begun, Heard, Progress, Ready, Run, RunId};
use baton_core::lock::FencingToken;
use baton_core::{Revision, WallTime};
use std::time::Duration;
use tokio::time::Instant;

/// A worker that asks for a run.
#[derive(Clone, Debug)]
pub struct Claim {
    /// Its queue's namespace.
    pub namespace: String,
    /// Its queue.
    pub queue: String,
    /// As runs show it.
    pub runner: String,
    /// How long it may not be heard of before it is taken for dead.
    pub ttl: Duration,
}

/// A run that a worker has now.
#[derive(Clone, Debug)]
pub struct Claimed {
    /// Its attempt, and what the job says.
    pub begun: Begun,
    /// What became of it before.
    pub run: Run,
    /// The attempt's.
    pub fencing: FencingToken,
    /// When it is taken for dead if it isn't heard of.
    pub expires_at: WallTime,
}

impl Engine {
    /// Takes a run for a worker. Nothing if another has it.
    pub(super) async fn claim_run(
        &self,
        claim: &Claim,
        due: WallTime,
        run: RunId,
    ) -> Result<Option<Claimed>, JobError> {
        let node = &self.node;
        let by = Beginner { runner: &claim.runner, nonce: node.random.number(), has_room: true };
        let ready = Ready { namespace: &claim.namespace, queue: &claim.queue, due, run };
        let rule = |view: &mut _| job::claim(&ready, &by, claim.ttl, node.now(), view);
        let decided = node.decide(run.uid.group(), node.deadline(), rule).await?;
        Ok(decided.reply.map(|(begun, run)| {
            let fencing = FencingToken::from(begun.token.resolve(decided.revision));
            Claimed { begun, run, fencing, expires_at: decided.now.after(claim.ttl) }
        }))
    }

    /// An attempt lives: its lease lasts until `ttl` from now, or as long as it would have anyway. With what it has written so
    /// far, if it says that.
    pub async fn heartbeat_run(
        &self,
        id: RunId,
        token: FencingToken,
        ttl: Duration,
        output: Option<&[u8]>,
    ) -> Result<WallTime, JobError> {
        let node = &self.node;
        let rule = |view: &mut _| match output {
            Some(output) => job::report(id, Revision(token.0), ttl, output, view),
            None => job::heartbeat(id, Revision(token.0), ttl, view),
        };
        let decided = node.decide(id.uid.group(), node.deadline(), rule).await?;
        if !decided.reply {
            return Err(JobError::RunLost);
        }
        let lease = decided.witnessed.iter().flatten().find(|record| lease_of(&record.key.name).is_some());
        Ok(decided.now.after(lease.and_then(|lease| lease.expires_in).unwrap_or(ttl)))
    }

    /// An attempt has ended; how far its run is after it.
    pub async fn finish_run(
        &self,
        id: RunId,
        token: FencingToken,
        end: &AttemptEnd,
    ) -> Result<Progress, JobError> {
        let node = &self.node;
        let rule = |view: &mut _| job::finish_elsewhere(id, Revision(token.0), end, node.now(), view);
        node.heard(node.decide(id.uid.group(), node.deadline(), rule).await?.reply)
    }
}

impl Node {
    pub(super) async fn finish_run(
        &self,
        id: RunId,
        token: FencingToken,
        end: &AttemptEnd,
        until: Instant,
    ) -> Result<Progress, JobError> {
        let rule = |view: &mut _| job::finish(id, Revision(token.0), end, self.now(), view);
        self.heard(self.decide(id.uid.group(), until, rule).await?.reply)
    }

    fn heard(&self, heard: Heard) -> Result<Progress, JobError> {
        match heard {
            Heard::Yes { progress } => {
                self.metrics.jobs.ended(progress);
                Ok(progress)
            }
            Heard::Lost => Err(JobError::RunLost),
            Heard::Unknown => Err(JobError::RunNotFound),
        }
    }

    /// A target has taken an attempt. Should that not be heard, civil time says when it has taken too long.
    pub(super) async fn say_taken(&self, id: RunId, token: FencingToken, left: Duration) {
        let rule = |view: &mut _| job::taken(id, Revision(token.0), left, view);
        drop(self.decide(id.uid.group(), self.deadline(), rule).await);
    }

    /// An attempt was never made. Should that not be heard, its lease runs out.
    pub(super) async fn give_run_back(&self, id: RunId, token: FencingToken, until: Instant) {
        let rule = |view: &mut _| job::give_back(id, Revision(token.0), self.now(), view);
        drop(self.decide(id.uid.group(), until, rule).await);
    }
}
