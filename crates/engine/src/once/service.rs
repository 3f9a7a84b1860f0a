//! Claim, complete, renew, fail, and looking at a key.

use super::calls::{ClaimCall, Claimed, Done, First, OnceError, Refusal, Renewed, Running, Seen};
use crate::decide::Decided;
use crate::engine::{Engine, Node};
use crate::failure::Failure;
use crate::metrics::Metrics;
use baton_core::lock::FencingToken;
use baton_core::once::{self, Claim, ClaimId, ClaimToken, Ended, State, state_key};
use baton_core::{Bytes, Name, Record, Stamp, WallTime};
use std::time::Duration;
use tokio::time::Instant;

/// Whoever waits looks at least this often, in case that a hint got lost.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// A look comes this much after a claim should have ended.
const EXPIRY_SLACK: Duration = Duration::from_millis(1);

impl Engine {
    /// Claims a key, or says how far it is; waits, if asked to, until it is done or the claim is the caller's.
    pub async fn claim_once(&self, name: &Name, call: ClaimCall) -> Result<Claimed, OnceError> {
        let result = self.node.claim_and_wait(name, call).await;
        let outcome = match &result {
            Ok(Claimed::First(_)) => "first",
            Ok(Claimed::Later(Seen::Running(_))) => "running",
            Ok(Claimed::Later(Seen::Done(_))) => "done",
            Err(error) => error.label(),
        };
        Metrics::count(&self.node.metrics.once_claims, outcome);
        result
    }

    /// Stores a claim's result, for everyone to get until it was `kept` that long.
    pub async fn complete_once(
        &self,
        name: &Name,
        token: &str,
        principal: &str,
        result: Bytes,
        kept: Duration,
    ) -> Result<FencingToken, OnceError> {
        let (node, now) = (&self.node, self.node.now());
        let completed = async {
            let token = node.authentic_claim(name, token, principal)?;
            let rule = |view: &mut _| once::complete(name, &token, &result, kept, view, now);
            ended(node.decide(name.group(), node.deadline(), rule).await?).map(|_| token.fencing)
        };
        self.count_ended(completed.await, "completed")
    }

    /// Makes a claim last longer: until `ttl` from now, or as long as it would have anyway.
    pub async fn renew_once(
        &self,
        name: &Name,
        token: &str,
        principal: &str,
        ttl: Duration,
    ) -> Result<Renewed, OnceError> {
        let node = &self.node;
        let token = node.authentic_claim(name, token, principal)?;
        let rule = |view: &mut _| once::renew(name, &token, ttl, view);
        let renewed = ended(node.decide(name.group(), node.deadline(), rule).await?)?;
        Ok(Renewed { expires_at: lasts(&renewed, ttl), fencing: token.fencing })
    }

    /// Gives a claim up: the next caller is first.
    pub async fn fail_once(&self, name: &Name, token: &str, principal: &str) -> Result<(), OnceError> {
        let node = &self.node;
        let failed = async {
            let token = node.authentic_claim(name, token, principal)?;
            let rule = |view: &mut _| once::fail(name, &token, node.memory(), view);
            ended(node.decide(name.group(), node.deadline(), rule).await?).map(drop)
        };
        self.count_ended(failed.await, "failed")
    }

    /// How far a key is; nothing if nobody has it and no result is known.
    pub async fn once_state(&self, name: &Name) -> Result<Option<Seen>, OnceError> {
        Ok(self.node.look_once(name).await?.map(|(seen, _)| seen))
    }

    fn count_ended<T>(&self, result: Result<T, OnceError>, done: &'static str) -> Result<T, OnceError> {
        let outcome = result.as_ref().map_or_else(OnceError::label, |_| done);
        Metrics::count(&self.node.metrics.once_ended, outcome);
        result
    }
}

impl Node {
    async fn claim_and_wait(
        self: &std::sync::Arc<Self>,
        name: &Name,
        call: ClaimCall,
    ) -> Result<Claimed, OnceError> {
        let request_id = call.request_id.unwrap_or_else(|| self.request_id());
        let id = ClaimId::of(name, &call.principal, &request_id);
        let claim = Claim { id, owner: call.owner, ttl: call.ttl };
        let give_up = Instant::now() + call.wait.min(self.config.call_max);
        // Listening begins before the first look, so that nothing is missed in between.
        let ear = (!call.wait.is_zero()).then(|| self.listen(&state_key(name)));
        let mut claimed = self.claim(name, &call.principal, &claim).await?;
        let Some(ear) = ear else { return Ok(claimed) };
        loop {
            let Claimed::Later(Seen::Running(running)) = &claimed else { return Ok(claimed) };
            if self.is_draining() || Instant::now() >= give_up {
                return Ok(claimed);
            }
            let look_at =
                Instant::now() + self.random.jittered(LOOK_EVERY).min(running.expires_in + EXPIRY_SLACK);
            let heard = ear.heard();
            tokio::pin!(heard);
            heard.as_mut().enable();
            // What happened before the ear was put up again shows here.
            let seen = self.look_once(name).await?;
            match seen {
                Some((Seen::Running(running), other)) if other != Some(id) => {
                    claimed = Claimed::Later(Seen::Running(running));
                }
                _ => {
                    claimed = self.claim(name, &call.principal, &claim).await?;
                    continue;
                }
            }
            tokio::select! {
                biased;
                () = heard => {}
                () = self.draining.wait() => {}
                () = tokio::time::sleep_until(look_at.min(give_up)) => {}
            }
        }
    }

    /// One claim, without waiting. If the answer to a commit got lost, its copies are kept out before anyone is answered.
    async fn claim(&self, name: &Name, principal: &str, claim: &Claim) -> Result<Claimed, OnceError> {
        let until = self.deadline();
        let unknown = |failure| match failure {
            // The claim may be there.
            Failure::Full | Failure::Overloaded => Failure::Unavailable { unknown: true },
            Failure::Unavailable { .. } => Failure::Unavailable { unknown: true },
            Failure::Internal => Failure::Internal,
        };
        let mut decided =
            self.decide(name.group(), until, |view| once::claim(name, claim, view, self.now())).await?;
        while decided.doubtful {
            let void = |view: &mut _| once::claim::void(name, claim.id, self.memory(), view);
            self.decide(name.group(), until, void).await.map_err(unknown)?;
            let again = |view: &mut _| once::claim(name, claim, view, self.now());
            decided = self.decide(name.group(), until, again).await.map_err(unknown)?;
        }
        let expires_at = lasts(&decided, claim.ttl);
        let (revision, now) = (decided.revision, decided.now);
        let token = |fencing: Stamp| FencingToken::from(fencing.resolve(revision));
        match decided.reply {
            once::Claimed::First { fencing } => {
                let fencing = token(fencing);
                let token = ClaimToken::new(self.key()?, name, principal, claim.id, fencing);
                Ok(Claimed::First(First { token, fencing, expires_at }))
            }
            once::Claimed::Running { running, fencing, expires_in } => {
                Ok(Claimed::Later(seen_running(running, token(fencing), now, expires_in)))
            }
            once::Claimed::Done { done, fencing, expires_in } => {
                Ok(Claimed::Later(seen_done(done, token(fencing), now, expires_in)))
            }
            once::Claimed::RequestIdReused => Err(OnceError::Refused(Refusal::RequestIdReused)),
            once::Claimed::Lost => Err(OnceError::Refused(Refusal::Lost)),
        }
    }

    /// How far a key is, and whose claim runs.
    async fn look_once(&self, name: &Name) -> Result<Option<(Seen, Option<ClaimId>)>, OnceError> {
        let mut reading = self.read(vec![state_key(name)], self.deadline()).await?;
        let Some(Record { value, created, expires_in, .. }) = reading.records.pop().flatten() else {
            return Ok(None);
        };
        let state = State::decode(&value).map_err(|_| {
            tracing::error!("a record can't be read by this version");
            Failure::Internal
        })?;
        let (fencing, now) = (FencingToken::from(created), reading.now);
        let expires_in = expires_in.unwrap_or_default();
        Ok(Some(match state {
            State::Running(running) => {
                let id = running.id;
                (seen_running(running, fencing, now, expires_in), Some(id))
            }
            State::Done(done) => (seen_done(done, fencing, now, expires_in), None),
        }))
    }

    fn authentic_claim(&self, name: &Name, token: &str, principal: &str) -> Result<ClaimToken, OnceError> {
        let token = ClaimToken::authentic(self.key()?, name, principal, token);
        token.ok_or(OnceError::Refused(Refusal::NotOwner))
    }
}

/// Until when a claim lasts that was made or renewed.
fn lasts<Reply>(decided: &Decided<Reply>, ttl: Duration) -> WallTime {
    let touched = decided.witnessed.iter().flatten().find_map(|record| record.expires_in);
    decided.now.after(touched.unwrap_or(ttl))
}

fn ended(decided: Decided<Ended>) -> Result<Decided<Ended>, OnceError> {
    match decided.reply {
        Ended::Yes => Ok(decided),
        Ended::Lost => Err(OnceError::Refused(Refusal::Lost)),
        Ended::AlreadyCompleted => Err(OnceError::Refused(Refusal::AlreadyCompleted)),
    }
}

fn seen_running(running: once::Running, fencing: FencingToken, now: WallTime, expires_in: Duration) -> Seen {
    Seen::Running(Running {
        owner: running.owner,
        fencing,
        claimed_at: running.claimed_at,
        expires_at: now.after(expires_in),
        expires_in,
    })
}

fn seen_done(done: once::Done, fencing: FencingToken, now: WallTime, expires_in: Duration) -> Seen {
    let (result, completed_at) = (done.result, done.completed_at);
    Seen::Done(Done { fencing, result, completed_at, expires_at: now.after(expires_in) })
}
